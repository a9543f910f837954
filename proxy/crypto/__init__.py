"""Everything that touches key bytes, and the only importer of ``cryptography``.

Callers hold primitives, never keys: a ``Keyset`` turns into a ``RecordAead`` (sealed bodies), a ``StreamAead`` (contents of
files), hashers (look-up keys) and ``FieldKeys`` (tokens). Key bytes enter through a key source (``sources``) or are drawn here, leave only wrapped by
a ``MasterKey``, and cannot be pickled, copied or printed. One layer above, the vault's barrier decides what is sealed;
this room knows no record, no storage and no HTTP.

    master key (file, environment) --wraps--> keyset of one environment
        data keys, primary and older --HMAC with the record's salt--> one AES-256-GCM key a record
                                      --HMAC with the file's salt--> one AES-256-GCM key a content (STREAM)
        hash root  --HKDF--> one HMAC key a purpose
        token root --HKDF--> one block key a schema; one PRF key and one FF1 key a field

Every algorithm is a published one, checked with other people's vectors: AES-256-GCM, HMAC-SHA-256, HKDF (RFC 5869),
FF1 (NIST SP 800-38G). Every format starts with a byte that says which one it is. Known answers of our own formats
stand in ``tests/vectors``; that file only ever grows.
"""

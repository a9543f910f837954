"""Everything that touches key bytes, and the only importer of ``cryptography``.

Callers hold primitives, never keys: AES-256-GCM for bodies, STREAM for attachments, HMAC-SHA-256
for look-ups, HKDF (RFC 5869), FF1 (NIST SP 800-38G). Key bytes come from a key source or are drawn
here, leave only wrapped by a ``MasterKey``, and cannot be pickled, copied or printed. Every format
begins with a byte that names it; ``tests/vectors`` holds known answers and only grows.

    master key --wraps--> keyset:
        data keys  --HMAC with a salt--> one key a record, one key a file
        hash root  --HKDF--> one HMAC key a purpose
        token root --HKDF--> keys a schema and field
"""

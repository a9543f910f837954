"""Everything that touches key bytes, and the only importer of ``cryptography``.

Callers hold primitives, never keys. Key bytes come from a key source, leave only wrapped, cannot be
pickled, copied or printed. Every format begins with a byte that names it (``tests/vectors``).

    master key --wraps--> keyset: data keys (HMAC with a salt: one key a record or file),
    hash root (HKDF: one HMAC key a purpose), token root (HKDF: keys a schema and field)

Face: ``keyset``, ``aead``, ``prf``, ``stream``, ``key_sources``, ``client_secrets``, ``jws``, and
``public_keys``.
"""

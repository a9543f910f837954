"""Authentication and authorization of callers of the vault's interface.

OAuth 2.0 client credentials (RFC 6749, section 4.4) give access tokens (RFC 9068) for a few
minutes, sent as RFC 6750 says. Rights are looked up at each request, so a client that is disabled
or deleted has no valid token from that moment on.

It may touch the store through sealed notes, and primitives of ``crypto``. It knows no record, no
rule and no HTTP: a request arrives as its form and its ``Authorization`` field. Face: ``clients``,
``authorization_server``, ``policies``, ``approvals``, ``external_acl``, ``external_issuer``,
``sealed_notes``.
"""

"""Who calls the vault's own interface: clients, their secrets, the access tokens they are given, and what these let them do.

Why it exists: an interface to personal data never stands open. A caller proves once that it is a client (OAuth 2.0 client
credentials, RFC 6749 section 4.4), gets an access token for a few minutes (RFC 9068), and shows that with each request
(RFC 6750). What it may do is looked up at each request, not read from the token, so that a client that is disabled, deleted
or given a new secret has no valid token from that moment on.

    Clients      who there is; sealed notes of the store, and all of them in memory
    Passwords    argon2id off the event loop; the same work whether a client exists or not
    SigningKeys  ES256, sealed, a new one each day; older ones verify until their tokens have ended
    Tokens       makes and checks tokens; a token seen before costs microseconds
    Audiences    which addresses are ours
    Throttle     slows down who guesses
    service      what the endpoints answer: token, introspection (RFC 7662), metadata (RFC 8414), keys (RFC 7517)
    External     access tokens of an external issuer, by its keys or by asking about each
    Policies     the access policies of an environment; ``granted`` joins what several of them say to rights
    acl          the customer's filter endpoint: which records the person behind a request may see or change

What it may touch: the store through notes, primitives of ``crypto``. It knows no record, no rule and no HTTP: a request
arrives here as its form and its ``Authorization`` field.
"""

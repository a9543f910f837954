"""Sockets: what speaks HTTP/1, TLS and the PROXY protocol, towards callers and towards
applications.

An unmatched request must pass as if the proxy were not there, so the bytes of HTTP are under our
control: ``http1`` is one codec for both roles, ``caller_connection`` serves callers on aiohttp's
``server``, ``response`` writes; ``client`` carries exchanges to the application on connections of a
``pool``. TLS runs over the plain transport (``tls_transport``), because a refused handshake has to
name its reason and may follow a PROXY preamble. It may touch sockets and PEM files, and knows no
rule, record or vault. Face: ``listener``, ``caller_connection``, ``request``, ``response``,
``client``, ``reply``, ``http1``, ``tls``, ``client_address``, ``outbound``.
"""

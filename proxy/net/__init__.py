"""Sockets: what speaks HTTP/1, TLS and the PROXY protocol, towards callers and towards
applications.

An unmatched request must pass as if the proxy were not there, so the bytes of HTTP are under our
control: ``http1`` is one codec for both roles, ``caller_connection`` serves callers on aiohttp's
``server``, ``response`` has a request and writes its answer; ``client`` carries exchanges to the
application on a ``pool``. TLS runs over the plain transport (``tls_transport``), because a refused
handshake has to name its reason and may follow a PROXY preamble. Knows no record and no vault.
Face: ``listener``, ``caller_connection``, ``response``, ``problem``, ``client``, ``reply``,
``http1``, ``tls``, ``client_address``, ``outbound``.
"""

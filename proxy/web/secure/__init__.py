"""TLS towards callers: which certificate stands for which name, and a transport that speaks TLS over another one.

Why it exists: the event loops' own TLS drops the alert that says why a handshake is refused, cannot begin behind a PROXY
preamble, and keeps one context as long as it listens. So ``transport`` lets the same TLS library work on bytes between the
plain transport and the HTTP connection, ``context`` makes what it works with from PEM files, ``listener`` holds what new
connections of one listener are met with and counts their handshakes, ``entrance`` puts the preamble, TLS and HTTP together, and
``renewal`` follows the files.

What it may touch: sockets by their transports, and the PEM files of the settings.
"""

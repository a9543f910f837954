"""Bounds towards one application."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes."""

    connect: float = 5.0  #: until the connection stands, the TLS handshake included; and the wait for a free place
    head: float = 60.0  #: from the end of the request to the head of the answer
    idle: float = 60.0  #: longest silence within a message, either way, and within a tunnel
    total: float = 0.0  #: the whole exchange; 0: no limit
    connections: int = 512  #: at most so many at once to one address; more requests wait up to ``connect``
    queue: int = 1024  #: at most so many requests wait so; more are refused at once
    #: How long a connection waits for its next request. Shorter than the keep-alive of common application servers
    #: (5 seconds), so that they seldom close one that was just chosen.
    keep: float = 4.0
    head_bytes: int = 65536  #: the head of an answer, and its trailers
    failures: int = 0  #: so many in a row suspend the address, see ``breaker``; 0: never
    pause: float = 2.0  #: for so long
    buffer_bytes: int = 262144  #: of an answer's body held for a slow caller before reading pauses

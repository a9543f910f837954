"""A port of 127.0.0.1 where nobody listens, and nobody will as long as a test needs that."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections.

    It is held meanwhile, so that no other process gets it as its free one.

    Who names the port, and allows addresses to be used again as servers do, can listen there all
    the same.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port

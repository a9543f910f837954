"""A port of 127.0.0.1 where nobody listens, and nobody will as long as a test needs that."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


def hold_port() -> tuple[int, int]:
    """A port that no other process gets as its free one, and the descriptor that holds it.

    It refuses connections. Who names the port, and allows addresses to be used again as servers do,
    can listen there all the same.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port, holder.detach()


@contextmanager
def closed_port() -> Iterator[int]:
    """Such a port for the length of a block."""
    port, holder = hold_port()
    try:
        yield port
    finally:
        os.close(holder)

"""An application of blocking sockets, one thread a connection, and what the system knows of a
process: for masses of bytes.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

#: What an application does with one connection; it ends when this returns.
Behaviour = Callable[[socket.socket], None]


@contextlib.contextmanager
def application(behave: Behaviour) -> Iterator[str]:
    """Listen on a free port of 127.0.0.1 for the length of the block; gives the address,
    ``http://127.0.0.1:port``.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    opened: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            behave(connection)

    def listen() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                opened.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in (listener, *opened):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    """One head with its empty line, and what came of the body with it.

    Raises ``ConnectionError`` at the end.
    """
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionResetError("the connection ended within a head")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def declared(head: bytes) -> int:
    """The Content-Length that a head names, or 0."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def swallow(connection: socket.socket, size: int) -> int:
    """Read so many bytes and forget them; how many came before the end."""
    buffer = memoryview(bytearray(1 << 20))
    left = size
    while left and (count := connection.recv_into(buffer[: min(left, len(buffer))])):
        left -= count
    return size - left


def pour(connection: socket.socket, size: int) -> None:
    """Send so many bytes."""
    block = bytes(1 << 20)
    while size:
        connection.sendall(block[: min(size, len(block))])
        size -= min(size, len(block))


def memory(process: int) -> int:
    """Bytes of memory that a process holds now."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def descriptors(process: int) -> int:
    """Open descriptors of a process, of one that shields itself from its user, too.

    Raises ``PermissionError`` where Linux before 6.2 names them to root alone.
    """
    folder = Path(f"/proc/{process}/fd")
    return folder.stat().st_size or sum(1 for _ in folder.iterdir())

"""A client that sends exactly the bytes it is given and reads answers as bytes.

async with RawClient(port) as client:
    answer = await client.ask(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    assert answer.head == b"HTTP/1.1 200 OK\\r\\n..."
"""

import asyncio
import ssl
from typing import Self

from tests.support.patience import PATIENCE
from tests.support.rawhttp import Message, Wire


class RawClient(Wire):
    """One connection to 127.0.0.1 for the length of an ``async with`` block."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> None:
        self.port = port
        self.tls = tls
        self.name = name  #: asked for and verified, over TLS

    async def __aenter__(self) -> Self:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=1 << 20, ssl=self.tls, server_hostname=self.name
        )
        super().__init__(reader, writer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    async def answer(self, method: str = "GET") -> Message:
        """Read one whole final answer; interim ones before it are passed over."""
        while True:
            message = await self.head()
            if message.status >= 200 or message.status == 101:
                return await self.body(message, answer_to=method)

    async def ask(self, request: bytes, seconds: float = PATIENCE) -> Message:
        """Send a request and read its answer; the method is read from the request."""
        async with asyncio.timeout(seconds):
            await self.send(request)
            return await self.answer(request.split(b" ", 1)[0].decode())


def get(target: str = "/", *fields: str, method: str = "GET", host: str = "app.test") -> bytes:
    """A request without a body."""
    return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *fields, "", ""]).encode(
        "latin-1"
    )


def post(target: str, body: bytes, *fields: str, method: str = "POST") -> bytes:
    """A request with a body of known length."""
    return get(target, *fields, f"Content-Length: {len(body)}", method=method) + body


def chunked(
    target: str, *pieces: bytes, trailers: bytes = b"", fields: tuple[str, ...] = ()
) -> bytes:
    """A request with a body in chunks."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return (
        get(target, *fields, "Transfer-Encoding: chunked", method="POST")
        + framed
        + b"0\r\n"
        + trailers
        + b"\r\n"
    )

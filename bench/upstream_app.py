"""The application behind the proxies: as little work as possible, so that it is never what limits a
figure.

``POST /contacts`` answers 201 with a new id and the five fields, ``PUT /contacts/{n}`` and ``GET
/contacts/{n}`` 200 with the same, ``POST /documents`` 201 with what came and an ``id`` as its first member, ``GET
/received/{n}`` the bytes that came for that document, ``GET /counts`` what was seen, and any other
GET 1 KB that never changes.

    python bench/upstream_app.py PORT
"""

import asyncio
import itertools
import sys
from collections import OrderedDict
from typing import cast

import httptools
import msgspec
import uvloop

STATIC = b"x" * 1024
KEPT = 20_000  # documents kept for GET /received, and contacts for GET /contacts

#: What every clear first name of the load begins with; a redacting proxy must not let it through.
CLEAR = "Bench"


class Contact(msgspec.Struct, omit_defaults=True):
    """The five personal fields, as far as this application looks at them."""

    id: int = 0
    first_name: str = ""
    last_name: str = ""
    email: str = ""
    phone: str = ""
    street: str = ""


_decode = msgspec.json.Decoder(Contact).decode
_encode = msgspec.json.Encoder().encode


class State:
    """What all connections share."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.seen = 0
        self.clear = 0
        self.documents: OrderedDict[int, bytes] = OrderedDict()
        self.contacts: OrderedDict[int, bytes] = OrderedDict()

    def answer(self, method: bytes, path: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Status line and body of the answer."""
        if method == b"GET":
            return self._get(path)
        if path == b"/documents":
            return self._document(body)
        contact = _decode(body)
        self.seen += 1
        self.clear += contact.first_name.startswith(CLEAR)
        if method == b"POST":
            contact.id = next(self.ids)
            return b"201 Created", self._stored(contact)
        contact.id = int(path.rpartition(b"/")[2])
        return b"200 OK", self._stored(contact)

    def _stored(self, contact: Contact) -> bytes:
        self.contacts[contact.id] = body = _encode(contact)
        if len(self.contacts) > KEPT:
            self.contacts.popitem(last=False)
        return body

    def _document(self, body: bytes) -> tuple[bytes, bytes]:
        number = next(self.ids)
        self.documents[number] = body
        if len(self.documents) > KEPT:
            self.documents.popitem(last=False)
        return b"201 Created", body.replace(b"{", b'{"id":%d,' % number, 1)

    def _get(self, path: bytes) -> tuple[bytes, bytes]:
        if path.startswith(b"/received/"):
            return b"200 OK", self.documents[int(path.rpartition(b"/")[2])]
        if path.startswith(b"/contacts/"):
            return b"200 OK", self.contacts[int(path.rpartition(b"/")[2])]
        if path == b"/counts":
            return b"200 OK", _encode({"seen": self.seen, "clear": self.clear})
        return b"200 OK", STATIC


class Connection(asyncio.Protocol):
    """One kept-alive connection of a proxy."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._transport: asyncio.WriteTransport
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, body = self._state.answer(
            self._parser.get_method(), self._path, b"".join(self._body)
        )
        self._path = b""
        self._body.clear()
        self._transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )


async def serve(port: int) -> None:
    """Listen on 127.0.0.1 until the process is stopped."""
    state = State()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(state), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))

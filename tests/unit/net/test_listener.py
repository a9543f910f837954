import asyncio
import errno
import socket

import pytest
from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.net.caller_connection import CallerServer
from proxy.net.http1.head import Heads
from proxy.net.listener import listen
from tests.support.rawclient import RawClient, get
from tests.support.table import table


async def answers(incoming) -> None:
    incoming.begin(204)
    incoming.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def test_a_server_listens_and_tells_where_until_the_block_ends():
    server = CallerServer(answers, Heads())
    async with listen("proxy", ("127.0.0.1", 0), server) as place:
        port = int(place.removeprefix("127.0.0.1:"))
        async with RawClient(port) as client:
            assert (await client.ask(get())).status == 204
        assert len(server.listeners) == 1
    with pytest.raises(OSError, match="refused"):
        async with RawClient(port):
            pass


async def test_so_does_an_application():
    async def says_x(_: web.Request) -> web.Response:
        return web.Response(text="x")

    app = web.Application()
    app.router.add_get("/", says_x)
    async with (
        listen("admin", ("127.0.0.1", 0), app) as place,
        RawClient(int(place.rpartition(":")[2])) as client,
    ):
        assert (await client.ask(get("/"))).body == b"x"


async def test_a_port_in_use_is_one_sentence_that_names_the_setting():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for served in (CallerServer(answers, Heads()), web.Application()):
            with pytest.raises(
                VaultError, match=r"another program listens there.*listen\.proxy"
            ) as caught:
                async with listen("proxy", ("127.0.0.1", port), served):
                    pass
            assert caught.value.code is Code.PORT_IN_USE


@table(
    ("address", "words"),
    [
        (("no-such-host.invalid", 0), "host name is not known"),
        (("192.0.2.1", 0), "no such address"),
    ],
)
async def test_an_address_that_cannot_be_opened_is_one_sentence(address, words):
    with pytest.raises(VaultError, match=words):
        async with listen("proxy", address, CallerServer(answers, Heads())):
            pass


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EACCES, "above 1023"), (errno.EMFILE, "cannot be opened")]
)
async def test_a_refusal_of_the_machine_is_one_sentence(monkeypatch, number, words):
    async def refuses(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    class Loop:
        create_server = staticmethod(refuses)

    server = CallerServer(answers, Heads())
    monkeypatch.setattr("proxy.net.listener.asyncio.get_running_loop", Loop)
    with pytest.raises(VaultError, match=words):
        async with listen("proxy", ("127.0.0.1", 80), server):
            pass
    await asyncio.sleep(0)

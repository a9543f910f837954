import asyncio
import os
import socket
from contextlib import AsyncExitStack, ExitStack

import pytest
from aiohttp import web

from proxy.errors import Code, VaultError
from proxy.net.listener import listen
from proxy.net.server import ApplicationConnection
from proxy.net.sockets import inherited, local_socket, open_sockets, taken_over
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.table import table

HOST = "127.0.0.1"


def test_a_socket_listens_before_anybody_accepts():
    (one,) = open_sockets("proxy", (HOST, 0))
    with one, socket.create_connection(one.getsockname()):
        with pytest.raises(VaultError, match=r"another program listens there.*listen\.vault") as no:
            open_sockets("vault", one.getsockname())
        assert no.value.code is Code.PORT_IN_USE
    with pytest.raises(VaultError, match="host name is not known"):
        open_sockets("proxy", ("no-such-host.invalid", 0))


async def test_a_local_socket_whose_queue_is_full_is_in_use_and_not_waited_for(tmp_path):
    path = tmp_path / "socket"
    with ExitStack() as open_ones:
        busy = open_ones.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(3):  # nobody accepts them
            waiting = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(str(path))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(VaultError, match="already in use"):
                await asyncio.to_thread(local_socket, path)
    local_socket(path).close()  # what was left behind is replaced


def test_the_supervisor_and_systemd_tell_descriptors_by_listener_once():
    own = {"DOMICILE_SOCKETS": "proxy:7,vault:8,vault:9"}
    assert inherited(own, 5) == (("proxy", 7), ("vault", 8), ("vault", 9))
    assert own == {}
    systemd = {"LISTEN_PID": "5", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "admin:proxy"}
    assert inherited(dict(systemd), 6) == (), "they are another process's"
    assert inherited(systemd, 5) == (("admin", 3), ("proxy", 4))
    assert systemd == {}


@table(
    "variables",
    [
        {"LISTEN_PID": "5", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a.socket"},
        {"LISTEN_PID": "5", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "proxy"},
        {"LISTEN_PID": "5", "LISTEN_FDS": "x", "LISTEN_FDNAMES": "proxy"},
        {"DOMICILE_SOCKETS": "proxy"},
    ],
)
def test_sockets_that_nobody_knows_what_for_are_refused(variables):
    with pytest.raises(VaultError, match="FileDescriptorName=") as caught:
        inherited(variables, 5)
    assert caught.value.code is Code.BAD_SETTINGS


@table("host", [HOST, "localhost"])
def test_a_socket_is_taken_over_where_the_settings_listen(host):
    (own,) = open_sockets("proxy", (HOST, 0))
    port = own.getsockname()[1]
    for wanted in (0, port):
        number = own.fileno()  # which stays open, for a start that is tried again
        sockets = taken_over("proxy", (host, wanted), (("vault", 99), ("proxy", number)))
        assert [one.getsockname() for one in sockets] == [(HOST, port)]
        assert not any(one.get_inheritable() for one in sockets)
        sockets[0].close()
    own.close()


@table(("host", "further"), [("0.0.0.0", 0), (HOST, 1)])
def test_one_that_listens_elsewhere_is_refused(host, further):
    (own,) = open_sockets("proxy", (HOST, 0))
    port, number = own.getsockname()[1] + further, own.fileno()
    with own, pytest.raises(VaultError, match="does not listen at"):
        taken_over("proxy", (host, port), (("proxy", number),))


@table("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_what_does_not_listen_is_refused(kind):
    with socket.socket(type=kind) as idle:
        idle.bind((HOST, 0))
        with pytest.raises(VaultError, match="does not listen at"):
            taken_over("admin", idle.getsockname(), (("admin", idle.fileno()),))
    reader, writer = os.pipe()
    with pytest.raises(VaultError, match="does not listen at"):
        taken_over("admin", (HOST, 0), (("admin", reader),))
    os.close(reader)
    os.close(writer)


async def test_whoever_came_before_the_next_process_is_served_by_it():
    """Its request waits in the kernel; the last answers of the process before say that they are."""
    (own,) = open_sockets("vault", (HOST, 0))
    port = own.getsockname()[1]
    async with AsyncExitStack() as before, RawClient(port) as kept:
        await before.enter_async_context(
            listen("vault", [own.dup()], _fresh(), ApplicationConnection)
        )
        assert (await kept.ask(get("/"))).one("connection") is None
        ending = asyncio.create_task(before.aclose())
        await asyncio.sleep(0.05)
        assert (await kept.ask(get("/"))).one("connection") == b"close"
        await ending
    async with RawClient(port) as waiting:
        await waiting.send(get("/"))
        async with listen("vault", [own], _fresh(), ApplicationConnection):
            assert (await waiting.answer()).status == 200


def _fresh() -> web.Application:
    app = web.Application()
    app.router.add_get("/", _answer)
    return app


async def _answer(_request: web.Request) -> web.Response:
    return web.Response(text="x")

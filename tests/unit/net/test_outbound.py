"""What every request of our own has in common; the cases over real servers stand in
``test_acl_client``.
"""

import ipaddress
import socket

import aiohttp
import pytest

from proxy.net.outbound import Outbound, Reach, UnansweredError
from proxy.net.tls import client_context
from tests.support.patience import PATIENCE
from tests.support.rawserver import RawServer, says, silent
from tests.unit.net.test_outbound_acl_client import BODY, whole


async def test_an_answer_comes_back_as_it_is():
    async with RawServer(says(whole())) as server, Outbound(PATIENCE, client_context()) as outbound:
        assert await outbound.ask("GET", server.url + "/x", {"X-A": "b"}) == BODY
    assert (server.requests[0].start, dict(server.requests[0].fields)[b"X-A"]) == (
        b"GET /x HTTP/1.1",
        b"b",
    )


async def test_what_was_wrong_is_told_and_never_what_was_said():
    async with RawServer(says(whole(b"secret", status=b"403 secret"))) as server:
        async with Outbound(PATIENCE, client_context()) as outbound:
            with pytest.raises(UnansweredError) as caught:
                await outbound.ask("GET", server.url, {})
    assert "secret" not in str(caught.value)


async def test_time_is_up_when_it_is():
    async with RawServer(silent()) as server, Outbound(0.05, client_context()) as outbound:
        with pytest.raises(TimeoutError):
            await outbound.ask("GET", server.url, {})


@pytest.mark.parametrize(
    ("allowed", "told"),
    [
        ((), "its host is not in acl.allow"),
        (("localhost",), "its host stands for an address that is neither public nor in acl.allow"),
        (("localhost", ipaddress.ip_network("127.0.0.0/8")), None),
    ],
)
async def test_where_it_may_go_is_looked_at_again_as_it_connects(allowed, told):
    async with (
        RawServer(says(whole())) as server,
        Outbound(PATIENCE, client_context(), Reach(allowed)) as outbound,
    ):
        url = f"http://localhost:{server.port}/x"
        if told is None:
            assert await outbound.ask("GET", url, {}) == BODY
            return
        with pytest.raises(UnansweredError) as caught:
            await outbound.ask("GET", url, {})
        assert str(caught.value) == told
        assert server.requests == []


async def test_of_several_addresses_those_are_asked_that_may_be(monkeypatch):
    async def both(self, host, port=0, family=socket.AF_INET):
        there = ("127.0.0.1", "127.0.0.2") if host == "both.example" else ("127.0.0.1",)
        return [
            {
                "hostname": host,
                "host": one,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
            for one in there
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", both)
    reach = Reach(("both.example", "one.example", ipaddress.ip_network("127.0.0.2/32")))
    server = RawServer(says(whole()))
    server.at = socket.create_server(("127.0.0.2", 0))
    async with server:
        async with Outbound(PATIENCE, client_context(), reach) as outbound:
            assert await outbound.ask("GET", f"http://both.example:{server.port}/", {}) == BODY
            with pytest.raises(UnansweredError, match="neither public"):
                await outbound.ask("GET", f"http://one.example:{server.port}/", {})


async def test_a_name_that_nobody_knows_cannot_be_reached(monkeypatch):
    async def none(self, host, port=0, family=socket.AF_INET):
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", none)
    async with Outbound(PATIENCE, client_context(), Reach(("gone.example",))) as outbound:
        with pytest.raises(UnansweredError, match="cannot be reached"):
            await outbound.ask("GET", "https://gone.example/", {})

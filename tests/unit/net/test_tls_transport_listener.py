import asyncio

import pytest

from proxy.api.connection import Entrance
from proxy.net.tls_transport import OUTCOMES, TlsListener
from tests.support.certificates import Authority
from tests.support.gateway import gateway
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import OK, RawServer, says
from tests.support.secured import tls_listener, trusting


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


async def test_new_connections_get_the_context_in_force_and_those_that_are_open_go_on(
    authority, tmp_path
):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    fresh, _ = tls_listener(other.issue("app.test"))
    options = {"entrance": Entrance(None, tls)}
    async with RawServer(says(OK)) as server, gateway(server.url, options=options) as (port, _):
        async with RawClient(port, trusting(authority), "app.test") as before:
            assert (await before.ask(get())).status == 200
            tls.context = fresh.context
            async with RawClient(port, trusting(other), "app.test") as after:
                assert (await after.ask(get())).status == 200
            assert (await before.ask(get())).status == 200
    assert outcomes == ["done", "done"]
    assert set(outcomes) <= set(OUTCOMES)


async def test_a_handshake_is_listed_from_its_beginning_to_its_end(authority):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    assert isinstance(tls, TlsListener)
    connection = tls(asyncio.Protocol())
    assert tls.shaking == set()
    tls.began(connection)
    assert tls.shaking == {connection}
    tls.ended(connection, "left")
    assert (tls.shaking, outcomes) == (set(), ["left"])

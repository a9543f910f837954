import json

import pytest

from proxy.errors import Code
from proxy.gateway.metrics import Applications
from proxy.net.client import Route
from proxy.net.reply import Call, CallLimits, UpstreamAddress, UpstreamFault
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.rawserver import OK, RawServer, says, silent


@pytest.fixture
def lines(capsys):
    """What was logged: event and endpoint of each line."""
    logs.configure(logs.Style("info", "json"))
    yield lambda: [
        (line["event"], line["endpoint"])
        for line in map(json.loads, capsys.readouterr().err.splitlines())
    ]
    logs.configure(logs.Style())


def get(address: UpstreamAddress) -> Call:
    return Call(address, "GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_connections_are_counted_by_endpoint():
    metrics = Metrics()
    applications = Applications(metrics, Route())
    async with RawServer(says(OK)) as server:
        address = UpstreamAddress("http", "127.0.0.1", server.port)
        applications.met("crm", address)
        await applications.upstream.send(get(address))
        text = metrics.render().decode()
        assert 'domicile_upstream_connections{endpoint="crm",state="idle"} 1.0' in text
        assert 'domicile_upstream_connections{endpoint="crm",state="busy"} 0.0' in text
        assert 'domicile_upstream_suspended{endpoint="crm"} 0.0' in text
        applications.upstream.close()


async def test_an_application_that_is_suspended_and_returns_is_told(lines):
    metrics = Metrics()
    applications = Applications(metrics, Route(CallLimits(failures=1, pause=60)))
    async with RawServer(says(OK)) as server:
        address = UpstreamAddress("http", "127.0.0.1", server.port)
        for endpoint in ("crm", "crm", "pages"):
            applications.met(endpoint, address)
        breaker = applications.upstream._pool(address).breaker
        breaker.failed(UpstreamFault(Code.UPSTREAM_UNREACHABLE, "x", sent=False), 0.0, tried=False)
        assert 'domicile_upstream_suspended{endpoint="pages"} 1.0' in metrics.render().decode()
        suspended = "the application keeps failing: calls are suspended for a moment"
        assert lines() == [(suspended, "crm"), (suspended, "pages")]
        breaker._until = 0.0
        assert (await applications.upstream.send(get(address))).whole == b"ok"
        assert 'domicile_upstream_suspended{endpoint="pages"} 0.0' in metrics.render().decode()
        assert lines() == [
            ("the application answers again", "crm"),
            ("the application answers again", "pages"),
        ]
        applications.upstream.close()


async def test_endpoints_may_be_reached_in_ways_of_their_own():
    applications = Applications(Metrics(), Route(), {"crm": Route(CallLimits(head=0.1))})
    async with RawServer(silent()) as server:
        address = UpstreamAddress("http", "127.0.0.1", server.port, "crm")
        with pytest.raises(UpstreamFault, match="in time"):
            await applications.upstream.send(get(address))
        applications.upstream.close()

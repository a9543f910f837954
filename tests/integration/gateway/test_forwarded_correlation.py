import ipaddress

import pytest

from proxy.gateway.forwarded import CallerFields, Correlation, ForwardedHeaders
from proxy.net.client_address import Trusted
from proxy.telemetry.logs import REQUEST_ID
from tests.support.gateway import gateway
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import RawServer, says

LOOPBACK = Trusted((ipaddress.ip_network("127.0.0.0/8"),))
TRACEPARENT = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ECHO = b"HTTP/1.1 200 OK\r\nx-request-id: its own\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(autouse=True)
def _no_id():
    token = REQUEST_ID.set("")
    yield
    REQUEST_ID.reset(token)


def caller_fields(correlation: Correlation, trusted: Trusted = LOOPBACK) -> dict[str, object]:
    return {"caller_fields": CallerFields(ForwardedHeaders(), trusted, correlation)}


@pytest.mark.parametrize(
    "request_", [get("/", "X-Request-Id: a1"), get("/people/1", "x-request-id: a1")]
)
async def test_the_id_of_a_trusted_proxy_goes_both_ways_once(request_):
    async with (
        RawServer(says(ECHO)) as server,
        gateway(server.url, options=caller_fields(Correlation(True, None))) as (port, steered),
        RawClient(port) as client,
    ):
        answer = await client.ask(request_)
        assert (answer.one("x-request-id"), answer.body) == (b"a1", b"ok")
        sent = server.requests[0].head.lower()
        assert sent.count(b"x-request-id") == 1
        assert b"x-request-id: a1\r\n" in sent
        assert (steered.notes[0].request_id, steered.notes[0].trace) == ("a1", None)


async def test_a_refusal_has_an_id_as_well():
    async with (
        RawServer(says(ECHO)) as server,
        gateway(server.url, options=caller_fields(Correlation(True, None), Trusted(()))) as (
            port,
            steered,
        ),
        RawClient(port) as client,
    ):
        answer = await client.ask(
            post("/people/1", b"x", "X-Request-Id: a1", "Content-Encoding: y")
        )
        assert answer.status == 415
        ident = answer.one("X-Request-Id")
        assert ident is not None
        assert ident != b"a1"
        assert steered.notes[0].request_id == ident.decode()


async def test_the_application_is_told_the_span_of_the_request_below_which_its_own_are():
    async with (
        RawServer(says(ECHO)) as server,
        gateway(server.url, options=caller_fields(Correlation(False, 100))) as (port, steered),
        RawClient(port) as client,
    ):
        await client.ask(get("/", TRACEPARENT))
        await client.ask(get("/"))
        continued, fresh = (note.trace for note in steered.notes)
        assert continued is not None
        assert fresh is not None
        assert continued.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert continued.trace_id != fresh.trace_id
        for request, trace in zip(server.requests, (continued, fresh), strict=True):
            assert request.head.count(b"traceparent") == 1
            assert b"traceparent: " + trace.traceparent in request.head


async def test_the_trace_of_a_request_that_failed_is_told_without_any_setting():
    async with (
        RawServer(says(ECHO)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.ask(post("/people/1", b"x", TRACEPARENT, "Content-Encoding: y"))
        trace = steered.notes[0].trace
        assert trace is not None
        assert trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"

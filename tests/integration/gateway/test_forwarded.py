"""What the application is told of the caller, over real sockets.

The peer is 127.0.0.1: trusted or not, as each test says.
"""

import ipaddress

import pytest

from proxy.gateway.forwarded import CallerFields, ForwardedHeaders
from proxy.net.client_address import ClientAddress, Trusted
from tests.support.gateway import gateway
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import OK, RawServer, says

LOOPBACK = Trusted((ipaddress.ip_network("127.0.0.0/8"),))
NOBODY = Trusted(())

CLAIMS = (
    "X-Forwarded-For: 203.0.113.9", "x-forwarded-for: 203.0.113.8, 203.0.113.7",
    "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test", "X-Forwarded-Port: 1",
    "X-Real-IP: 203.0.113.9", "X_Forwarded_For: 203.0.113.9", "x-real_ip: 203.0.113.9",
    "Forwarded: for=203.0.113.9;proto=https", "Via: 1.1 edge", "X-Other: kept",
)  # fmt: skip


async def told(
    request: bytes,
    kinds: ForwardedHeaders,
    trusted: Trusted = NOBODY,
    client: ClientAddress | None = None,
) -> list[bytes]:
    """The field lines that reach the application, without Host."""
    async with RawServer(says(OK)) as server:
        options = {"caller_fields": CallerFields(kinds, trusted) if any(kinds) else None}
        async with (
            gateway(server.url, options=options) as (port, steered),
            RawClient(port) as caller,
        ):
            if client is not None:
                await caller.ask(get("/first"))
                assert steered.gateway is not None
                steered.gateway.server.callers[0].learned = client
            assert (await caller.ask(request)).status == 200
            lines = server.requests[-1].head.split(b"\r\n")[1:-2]
            return [line for line in lines if not line.startswith(b"Host:")]


def sent(*lines: str) -> list[bytes]:
    return [line.encode() for line in lines]


async def test_by_default_everything_passes_as_it_came():
    assert await told(get("/", *CLAIMS), ForwardedHeaders()) == sent(*CLAIMS)
    assert await told(get("/", *CLAIMS), ForwardedHeaders(), LOOPBACK) == sent(*CLAIMS)


async def test_what_a_stranger_claims_is_replaced():
    assert await told(get("/", *CLAIMS), ForwardedHeaders(x_forwarded=True)) == sent(
        "Forwarded: for=203.0.113.9;proto=https",
        "Via: 1.1 edge",
        "X-Other: kept",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: app.test",
    )


async def test_what_a_trusted_proxy_says_is_kept_and_continued():
    assert await told(get("/", *CLAIMS), ForwardedHeaders(x_forwarded=True), LOOPBACK) == sent(
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Port: 1",
        "X-Real-IP: 203.0.113.9",
        "Forwarded: for=203.0.113.9;proto=https",
        "Via: 1.1 edge",
        "X-Other: kept",
        "X-Forwarded-For: 203.0.113.9, 203.0.113.8, 203.0.113.7, 127.0.0.1",
    )


async def test_a_trusted_proxy_that_says_nothing_is_told_of_itself():
    assert await told(get("/"), ForwardedHeaders(x_forwarded=True), LOOPBACK) == sent(
        "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: app.test"
    )


@pytest.mark.parametrize(
    ("trusted", "host", "line"),
    [
        (NOBODY, "app.test", "Forwarded: for=127.0.0.1;proto=http;host=app.test"),
        (NOBODY, "app.test:8080", 'Forwarded: for=127.0.0.1;proto=http;host="app.test:8080"'),
        (
            LOOPBACK,
            "app.test",
            "Forwarded: for=203.0.113.9, for=127.0.0.1;proto=http;host=app.test",
        ),
    ],
)
async def test_the_standard_field_is_an_element_for_each_proxy(trusted, host, line):
    request = get("/", "forwarded: for=203.0.113.9", host=host)
    assert await told(request, ForwardedHeaders(forwarded=True), trusted) == sent(line)


@pytest.mark.parametrize(
    ("client", "lines"),
    [
        (
            ClientAddress("2001:db8::7", 9, secure=True),
            ['Forwarded: for="[2001:db8::7]";proto=https', "2001:db8::7"],
        ),
        (ClientAddress(""), ["Forwarded: for=unknown;proto=http", "unknown"]),
    ],
)
async def test_every_kind_of_address_has_its_form(client, lines):
    forwarded, node = lines
    got = await told(get("/"), ForwardedHeaders(x_forwarded=True, forwarded=True), NOBODY, client)
    assert got[0] == b"X-Forwarded-For: " + node.encode()
    assert got[-1] == forwarded.encode() + b";host=app.test"


@pytest.mark.parametrize("trusted", [NOBODY, LOOPBACK])
async def test_via_is_continued_whoever_sent_it(trusted):
    assert await told(
        get("/", "Via: 1.0 fred", "via: 1.1 edge"), ForwardedHeaders(via=True), trusted
    ) == sent("Via: 1.0 fred, 1.1 edge, 1.1 domicile")
    assert await told(b"GET / HTTP/1.0\r\n\r\n", ForwardedHeaders(via=True)) == sent(
        "Via: 1.0 domicile"
    )


async def test_a_field_that_connection_names_cannot_hide_who_called():
    request = get(
        "/", "X-Forwarded-For: 203.0.113.9", "Connection: x-forwarded-for, x-forwarded-proto"
    )
    assert await told(request, ForwardedHeaders(x_forwarded=True)) == sent(
        "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: app.test"
    )


@pytest.mark.parametrize("target", ["/x", "/people/1"])
async def test_the_host_of_the_upstream_may_be_asked_for(target):
    async with RawServer(says(OK)) as server:
        options = {
            "caller_fields": CallerFields(
                ForwardedHeaders(x_forwarded=True, upstream_host=True), NOBODY
            )
        }
        async with (
            gateway(server.url, options=options) as (port, steered),
            RawClient(port) as client,
        ):
            await client.ask(post(target, b"Ann", method="PUT"))
            await client.ask(b"GET %b HTTP/1.0\r\n\r\n" % target.encode())
        first, second = server.requests
        assert first.one("Host") == second.one("Host") == f"127.0.0.1:{server.port}".encode()
        assert first.fields[0][0] == b"Host"
        assert first.one("X-Forwarded-Host") == b"app.test"
        assert second.all("X-Forwarded-Host") == []
        assert steered.asked[0][1] == "app.test"  # the rules go by what the caller asked for


async def test_a_matched_request_is_told_of_as_any_other():
    async with RawServer(says(OK)) as server:
        options = {"caller_fields": CallerFields(ForwardedHeaders(True, True, True), NOBODY)}
        async with gateway(server.url, options=options) as (port, _), RawClient(port) as client:
            await client.ask(post("/people/1", b"Ann", *CLAIMS, method="PUT"))
        (request,) = server.requests
        assert b"tok_" in request.body
        assert request.one("X-Forwarded-For") == b"127.0.0.1"
        assert request.one("Forwarded") == b"for=127.0.0.1;proto=http;host=app.test"
        assert request.one("Via") == b"1.1 edge, 1.1 domicile"


async def test_many_callers_and_names_are_remembered_within_bounds():
    caller_fields = CallerFields(ForwardedHeaders(x_forwarded=True), LOOPBACK)
    for number in range(5000):
        caller_fields._believed(f"10.0.{number // 250}.{number % 250}")
        caller_fields._names[b"x-forwarded-%d" % number]
    assert len(caller_fields._stances) <= 4096
    assert len(caller_fields._names) <= 4096

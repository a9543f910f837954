"""Routing, refusing, telling and ending; what happens to a routed request is tested in its own
files.
"""

import asyncio
import gc
import ipaddress
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from proxy.edge.firewall import Firewall, Mode
from proxy.edge.geoip import Countries
from proxy.edge.quotas import Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code, Detail, VaultError
from proxy.gateway.ports import RequestEvent
from proxy.net.client_address import ClientAddress, Trusted
from proxy.redactor.rules import Unmatched, Verb
from proxy.redactor.views import OUTSIDE_VIEW
from tests.support.countries import AMERICAN, SWEDISH, write
from tests.support.gateway import TOKEN, VALUE, gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, closes, says


async def test_the_rules_see_the_request_as_it_came():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.ask(get("/a?b=%2f", "X: \xe9", host="APP.test:80"))
        await client.ask(get("http://App.Test/x", host="app.test"))
        assert steered.asked == [
            ("GET", "app.test:80", b"/a?b=%2f", ((b"Host", b"APP.test:80"), (b"X", b"\xe9"))),
            ("GET", "app.test", b"http://App.Test/x", ((b"Host", b"app.test"),)),
        ]


@pytest.mark.parametrize(("unmatched", "status"), [("pass", 200), ("report", 200), ("deny", 403)])
async def test_what_no_rule_names_follows_the_endpoint(unmatched, status):
    async with RawServer(says(OK)) as server:
        async with (
            gateway(server.url, unmatched=Unmatched(unmatched)) as (port, steered),
            RawClient(port) as client,
        ):
            answer = await client.ask(post("/other", b"x"))
            assert answer.status == status
            assert (steered.notes[0].code is Code.OPERATION_DENIED) is (status == 403)
            assert len(server.requests) == (status == 200)
            assert (await client.ask(get("/people/1"))).status == 200


async def test_a_rule_that_passes_is_named_and_makes_deny_usable():
    async with RawServer(says(OK, OK)) as server:
        async with (
            gateway(server.url, unmatched=Unmatched.DENY) as (port, steered),
            RawClient(port) as client,
        ):
            assert [(await client.ask(get("/open"))).status for _ in range(2)] == [200, 200]
            assert (await client.ask(get("/other"))).status == 403
    assert [(seen.operation, seen.outcome) for seen in steered.notes[:2]] == [
        ("GET /open", "passed")
    ] * 2


UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
MULTIPART = "Content-Type: multipart/form-data; boundary=x"


@pytest.mark.parametrize("unmatched", ["pass", "report"])
@pytest.mark.parametrize(
    "request_",
    [
        get("/ruled", *UPGRADE),
        post("/ruled", b"--x--", MULTIPART),
        post("/ruled", b"--x--", "Content-Type:  MULTIPART/mixed"),
        post("/ruled", b"[]", "Content-Type: application/json-patch+json", method="PUT"),
        post("/ruled", b"{}", "Content-Type: application/merge-patch+json; charset=utf-8"),
        *(
            post("/ruled", b"{}", "Content-Type: application/json", method=method)
            for method in ("PATCH", "QUERY", "SEARCH", "report")
        ),
        chunked("/ruled", b"email=a").replace(b"POST", b"QUERY", 1),
    ],
)
async def test_what_could_carry_values_unseen_is_refused_on_a_ruled_path(request_, unmatched):
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, unmatched=Unmatched(unmatched)) as (port, _),
    ):
        async with RawClient(port) as client:
            answer = await client.ask(request_)
            assert (answer.status, b"operation_denied" in answer.body) == (403, True)
        assert server.requests == []
        # the same on a path that no rule names, and where a rule lets it pass
        async with RawClient(port) as client:
            for path in (b"/other", b"/open"):
                assert (await client.ask(request_.replace(b"/ruled", path))).status == 200


@pytest.mark.parametrize("kind", ["application/csp-report", "Application/Reports+JSON; charset=a"])
async def test_a_report_of_a_browser_tells_no_address_of_a_search(kind):
    report = post(
        "/csp", b'{"document-uri": "http://app/people?name=Ann"}', f"Content-Type: {kind}"
    )
    async with RawServer(says(OK, OK)) as server:
        for searched, path, status in (
            (True, b"/csp", 403),
            (True, b"/open", 200),  # where a rule lets it pass
            (False, b"/csp", 200),
        ):
            async with (
                gateway(server.url, searched=searched) as (port, _),
                RawClient(port) as client,
            ):
                answer = await client.ask(report.replace(b"/csp", path, 1))
                assert (answer.status, b"operation_denied" in answer.body) == (
                    status,
                    status == 403,
                )


async def test_other_requests_of_a_ruled_path_pass():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        for method in ("GET", "QUERY"):
            assert (await client.ask(get("/ruled", method=method))).status == 200
        assert (
            await client.ask(post("/ruled", b"{}", "Content-Type: application/json"))
        ).status == 200


@pytest.mark.parametrize(("searched", "told"), [(True, TOKEN), (False, VALUE)])
@pytest.mark.parametrize("path", ["/people/1", "/style.css"])
async def test_addresses_in_fields_are_swapped_where_the_endpoint_has_searches(
    path, searched, told
):
    async with RawServer(says(OK)) as server, gateway(server.url, searched=searched) as (port, _):
        async with RawClient(port) as client:
            await client.ask(get(path, f"Referer: http://app/people?name={VALUE.decode()}"))
        assert (b"Referer: http://app/people?name=" + told) in server.requests[0].raw


async def test_a_refusal_of_the_rules_is_answered_and_nothing_is_sent():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.fault = VaultError(Code.BAD_REQUEST, "Two readings.", (Detail("path", "x"),))
        answer = await client.ask(post("/a", b"abc"))
        assert (answer.status, answer.one("domicile-answer")) == (400, b"proxy")
        assert (steered.notes[0].endpoint, steered.notes[0].outcome) == ("-", "refused")
        steered.fault = None
        async with RawClient(port) as another:
            assert (await another.ask(get())).status == 200
        assert len(server.requests) == 1


async def test_what_is_told_of_a_request():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        began = time.perf_counter()
        await client.ask(get("/secret?q=Ann"))
        took = time.perf_counter() - began
        seen = steered.notes[0]
        assert structs.replace(seen, seconds=0.0) == RequestEvent(
            "crm", "-", "GET", 200, 2, 0.0, "passed", None
        )
        assert 0 < seen.seconds <= took


async def test_of_a_request_that_fails_the_address_of_the_application_is_told():
    async with RawServer(closes()) as server, gateway(server.url) as (port, steered):
        async with RawClient(port) as client:
            assert (await client.ask(get("/a"))).status == 502
        assert (steered.notes[0].outcome, steered.notes[0].address) == ("failed", server.url)


async def test_rules_may_change_between_two_requests_of_a_connection():
    async with (
        RawServer(says(OK)) as one,
        RawServer(says(OK)) as two,
        gateway(one.url) as (port, steered),
    ):
        async with RawClient(port) as client:
            await client.ask(get("/a"))
            steered.endpoint = replace(steered.endpoint, upstream=two.url)
            await client.ask(get("/b"))
        assert (len(one.requests), len(two.requests)) == (1, 1)


async def test_draining_lets_requests_finish_and_takes_no_new_ones():
    refused = asyncio.Event()

    async def slow(wire, server):
        while True:
            await server.read(wire)
            await refused.wait()
            await wire.send(OK)

    async with RawServer(slow) as server, gateway(server.url) as (port, steered):
        async with RawClient(port) as busy, RawClient(port) as idle, RawClient(port) as matched:
            await busy.send(get())
            await matched.send(post("/people/1", b"Ann"))
            await server.until(lambda: len(server.requests) == 2)
            assert steered.gateway is not None
            draining = asyncio.ensure_future(steered.gateway.drain(PATIENCE))
            assert await idle.until_close() == b""
            with pytest.raises(OSError, match="refused"):
                async with RawClient(port):
                    pass
            refused.set()
            for client in (busy, matched):
                answer = await client.answer()
                assert (answer.status, answer.one("connection")) == (200, b"close")
                assert await client.until_close() == b""
            await asyncio.wait_for(draining, PATIENCE / 2)


async def test_draining_is_bounded():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.send(get("/", "Content-Length: 5", method="POST"))
        await server.until(lambda: [caller.busy for caller in steered.callers] == [True])
        assert steered.gateway is not None
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(steered.gateway.drain(0.2), PATIENCE)
        assert asyncio.get_running_loop().time() - began > 0.15
        assert steered.callers[0].busy
        await steered.gateway.close()
        assert await client.until_close() == b""


async def test_a_closed_connection_leaves_nothing_behind():
    async with RawServer(says(OK)) as server, gateway(server.url) as (port, steered):
        for _ in range(20):
            async with RawClient(port) as client:
                await client.ask(get("/people/1"))
                client.reset()
        assert steered.gateway is not None
        left = steered.gateway.server
        await server.until(lambda: left.connections == [])
        gc.collect()
        assert left.connections == []


# ---------------------------------------------------------------- the data firewall


def wall(folder: Path, mode: Mode) -> dict[str, Any]:
    """Options of a gateway that trusts this machine to tell of callers."""
    trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
    return {"firewall": Firewall(mode, "se", (), Countries(write(folder / "c.mmdb")), trusted)}


OUT, IN = f"X-Forwarded-For: {AMERICAN}", f"X-Forwarded-For: {SWEDISH}"


@pytest.mark.parametrize(
    "request_", [get("/style.css", OUT), get("/people/1", OUT), post("/staff", b"x", OUT)]
)
async def test_whoever_is_outside_is_answered_nothing_else(tmp_path, request_):
    async with RawServer(says(OK)) as server:
        outcomes: list[str] = []
        options = {**wall(tmp_path, Mode.BLOCK), "screened": outcomes.append}
        async with (
            gateway(server.url, options=options) as (port, steered),
            RawClient(port) as client,
        ):
            answer = await client.ask(request_)
            assert (answer.status, answer.one("domicile-answer")) == (403, b"proxy")
            assert b"outside_country" in answer.body
            assert (
                await client.ask(request_.replace(AMERICAN.encode(), SWEDISH.encode()))
            ).status == 200
            assert [note.code for note in steered.notes] == [Code.OUTSIDE_COUNTRY, None]
            assert (len(server.requests), outcomes) == (1, ["blocked"])


async def test_what_was_learned_of_a_head_from_inside_lets_nobody_in_from_outside(tmp_path):
    """Both send the same bytes; what differs is the connection."""
    options = wall(tmp_path, Mode.BLOCK)
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as client, RawClient(port) as stranger:
            for _ in range(3):
                assert (await client.ask(get("/style.css"))).status == 200
            await stranger.ask(get("/style.css"))
            steered.callers[-1].learned = ClientAddress(AMERICAN)
            assert (await stranger.ask(get("/style.css"))).status == 403
            assert (await client.ask(get("/style.css"))).status == 200


async def test_masked_callers_have_the_view_from_outside_and_write_nothing(tmp_path):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(TOKEN), TOKEN)
    outcomes: list[str] = []
    options = {**wall(tmp_path, Mode.MASK), "screened": outcomes.append}
    async with (
        RawServer(says(answer)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as client:
            assert (await client.ask(post("/people/1", VALUE, OUT))).status == 403
            assert steered.exchange_.calls == []
            steered.verb = Verb.READ
            assert (await client.ask(get("/people/1", IN))).status == 200
            assert (await client.ask(get("/people/1", OUT))).status == 200
            assert (await client.ask(post("/other", b"x", OUT))).status == 200
            assert (len(server.requests), outcomes) == (3, ["masked"] * 3)
            assert steered.views == [None, OUTSIDE_VIEW]


# ---------------------------------------------------------------- limits


def quota(per_second: int) -> tuple[dict[str, Any], list[str]]:
    """Options of a gateway where time stands still for the limit of an address."""
    limited: list[str] = []
    rates = RateLimit(RatePolicy("address", per_second, 1))
    trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
    return {"quotas": Quotas(address=rates, trusted=trusted), "limited": limited.append}, limited


@pytest.mark.usefixtures("limits_clock")
@pytest.mark.parametrize(
    "request_", [get("/style.css"), get("/people/1"), post("/staff", b"x"), post("/other", b"x")]
)
async def test_an_address_may_ask_so_often_and_no_more(request_):
    options, limited = quota(3)
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as client:
            statuses = [(await client.ask(request_)).status for _ in range(4)]
            assert statuses == [200, 200, 200, 429]
            answer = await client.ask(request_)
            assert (answer.one("retry-after"), answer.one("domicile-answer")) == (b"1", b"proxy")
            assert answer.one("ratelimit-policy") == b'"address";q=3;w=1'
            assert answer.one("ratelimit") == b'"address";r=0;t=1'
            assert b"too_many_requests" in answer.body
            other = request_.replace(b"\r\n", b"\r\nX-Forwarded-For: 198.51.100.7\r\n", 1)
            assert (await client.ask(other)).status == 200
        assert (len(server.requests), limited) == (4, ["address", "address"])
        assert [note.code for note in steered.notes[3:5]] == [Code.TOO_MANY_REQUESTS] * 2

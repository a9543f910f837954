import asyncio
import ipaddress
import json
from typing import Any

import pytest

from proxy.api import oauth
from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.api.dispatch import request_weight
from proxy.api.operation_table import OPERATIONS
from proxy.edge.quotas import ConcurrencyLimit, Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code
from proxy.net.client_address import Trusted
from tests.support.api import Said, services, serving
from tests.support.patience import PATIENCE


class Handlers:
    """Handlers that wait until they may go on, and know how many of them run."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.running = self.most = 0

    async def wait(self, call: Any) -> ApiResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.may.wait()
        self.running -= 1
        return ApiResponse(200, json.dumps(call.principal.client).encode())

    async def until(self, running: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.running != running:  # noqa: ASYNC110  # requests arrive when they do
                await asyncio.sleep(0.005)

    @property
    def operations(self) -> tuple[ApiOperation, ...]:
        return (
            ApiOperation("read", "GET", "/api/read", at_once, 200, (), Takes.NOTHING),
            ApiOperation(
                "chief", "GET", "/api/chief", at_once, 200, (), Takes.NOTHING, Access.ADMIN
            ),
            ApiOperation("open", "GET", "/open", at_once, 200, (), Takes.NOTHING, Access.OPEN),
            ApiOperation(
                "token",
                "POST",
                "/token",
                at_once,
                200,
                (),
                Takes.FORM,
                Access.OPEN,
                refuse=oauth.oauth_refusal,
            ),
            ApiOperation("slow", "GET", "/api/slow", self.wait, 200, (), Takes.NOTHING),
            ApiOperation("upload", "POST", "/api/upload", self.wait, 200, (), Takes.STREAM),
        )


async def at_once(_call: Any) -> ApiResponse:
    return ApiResponse(200, b"{}")


def rates(name: str, per_second: int) -> RateLimit:
    return RateLimit(RatePolicy(name, per_second, 1))


def problem(answer: Said) -> tuple[int, str, str]:
    return answer.status, answer.json["code"], answer.headers["Retry-After"]


@pytest.mark.usefixtures("limits_clock")
async def test_a_client_may_ask_so_often_and_is_told_where_it_stands():
    limited: list[str] = []
    made = services(quotas=Quotas(credential=rates("credential", 3)), limited=limited.append)
    async with serving(made, *Handlers().operations) as client:
        told = [(await client("GET", "/api/read")).headers["RateLimit"] for _ in range(3)]
        assert told == [f'"credential";r={left};t=1' for left in (2, 1, 0)]
        answer = await client("GET", "/api/read")
        assert problem(answer) == (429, "too_many_requests", "1")
        assert answer.headers["RateLimit-Policy"] == '"credential";q=3;w=1'
        assert answer.headers["RateLimit"] == '"credential";r=0;t=1'
        other = await client("GET", "/api/read", "chief")
        assert (other.status, other.headers["RateLimit"]) == (200, '"credential";r=2;t=1')
        assert limited == ["credential"]


@pytest.mark.usefixtures("limits_clock")
async def test_whatever_a_client_asks_counts_and_what_nobody_asks_does_not():
    async with serving(
        services(quotas=Quotas(credential=rates("credential", 3))), *Handlers().operations
    ) as client:
        assert (await client("GET", "/api/chief")).status == 403
        assert (await client("GET", "/api/read?x=1")).status == 400
        for _ in range(5):
            answer = await client("GET", "/api/read", "nobody")
            assert (answer.status, "RateLimit" in answer.headers) == (401, False)
        assert (await client("GET", "/api/read")).headers["RateLimit"] == '"credential";r=0;t=1'


@pytest.mark.usefixtures("limits_clock")
async def test_an_address_may_ask_so_often_whoever_it_says_it_is():
    trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
    made = services(quotas=Quotas(address=rates("address", 4)), trusted=trusted)
    async with serving(made, *Handlers().operations) as client:
        assert (await client("GET", "/open", "")).headers["RateLimit"] == '"address";r=3;t=1'
        assert (await client("GET", "/api/read", "nobody")).status == 401
        assert (await client("GET", "/nothing")).status == 404
        assert (await client("GET", "/api/read")).status == 200
        assert (await client("GET", "/api/read")).status == 429
        assert (await client("GET", "/nothing")).status == 429
        answer = await client("POST", "/token", "", data={"a": "b"})
        assert (answer.status, answer.json["error"]) == (429, "temporarily_unavailable")
        assert (answer.headers["Retry-After"], answer.headers["RateLimit"]) == (
            "1",
            '"address";r=0;t=1',
        )
        assert (
            await client("GET", "/open", headers={"X-Forwarded-For": "198.51.100.7"})
        ).status == 200


async def test_without_a_limit_nothing_is_told():
    async with serving(services(), *Handlers().operations) as client:
        answer = await client("GET", "/api/read")
        assert (
            answer.status,
            "RateLimit" in answer.headers,
            "RateLimit-Policy" in answer.headers,
        ) == (
            200,
            False,
            False,
        )


async def test_one_client_has_so_many_under_way_and_another_does_not_wait_for_it():
    handlers = Handlers()
    made = services(quotas=Quotas(concurrent=ConcurrencyLimit(2, 100)))
    async with serving(made, *handlers.operations) as client:
        noisy = [asyncio.create_task(client("GET", "/api/slow")) for _ in range(10)]
        await handlers.until(2)
        assert (await client("GET", "/api/read", "chief")).status == 200
        assert (await client("GET", "/open", "")).status == 200
        assert handlers.running == 2
        handlers.may.set()
        assert [answer.status for answer in await asyncio.gather(*noisy)] == [200] * 10
        assert handlers.most == 2


async def test_where_too_many_wait_already_the_next_is_refused():
    handlers = Handlers()
    async with serving(
        services(quotas=Quotas(concurrent=ConcurrencyLimit(1, 0))), *handlers.operations
    ) as client:
        first = asyncio.create_task(client("GET", "/api/slow"))
        await handlers.until(1)
        assert problem(await client("GET", "/api/read")) == (429, "too_many_requests", "1")
        handlers.may.set()
        assert (await first).status == 200
        assert (await client("GET", "/api/read")).status == 200


async def test_uploads_have_a_number_of_their_own():
    handlers = Handlers()
    quotas = Quotas(
        concurrent=ConcurrencyLimit(1, 0), uploads=ConcurrencyLimit(1, 0, Code.TOO_MANY_UPLOADS)
    )
    async with serving(services(quotas=quotas), *handlers.operations) as client:
        body: dict[str, Any] = {
            "data": b"x",
            "headers": {"Content-Type": "multipart/form-data; boundary=b"},
        }
        first = asyncio.create_task(client("POST", "/api/upload", **body))
        await handlers.until(1)
        assert problem(await client("POST", "/api/upload", **body)) == (
            429,
            "too_many_uploads",
            "1",
        )
        assert (await client("GET", "/api/read")).status == 200
        handlers.may.set()
        assert (await first).status == 200


async def test_a_turn_is_over_whatever_comes_of_it():
    quotas = Quotas(concurrent=ConcurrencyLimit(1, 0), uploads=ConcurrencyLimit(1, 0))
    async with serving(services(quotas=quotas), *Handlers().operations) as client:
        for _ in range(3):
            refused = await client(
                "POST", "/api/upload", data=b"x", headers={"Content-Type": "text/plain"}
            )
            assert refused.status == 415
    assert (len(quotas.concurrent or ()), len(quotas.uploads or ())) == (0, 0)


def test_work_on_many_records_weighs_more():
    heavy = {operation.name for operation in OPERATIONS if request_weight(operation) > 1}
    assert {
        "create_records",
        "update_records",
        "delete_records",
        "aggregate_records",
        "export_records",
    } <= heavy
    assert heavy.isdisjoint(
        {"create_record", "find_records", "delete_record", "download_attachment", "token"}
    )

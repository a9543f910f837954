"""Every operation of the table, whatever it is, asked from outside the country and asked too often."""

import ipaddress
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from proxy.api.context import Access, ApiOperation
from proxy.api.operation_table import OPERATIONS
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.quotas import Quotas
from proxy.edge.rate_limit import RateLimit, RatePolicy
from proxy.errors import Code, VaultError
from proxy.model.rights import Principal
from proxy.net.client_address import Trusted
from tests.support.api import Client, Said, services, serving

TRUSTED = Trusted((ipaddress.ip_network("127.0.0.0/8"),))
ABROAD = "203.0.113.7"
INSIDE = (ipaddress.ip_network("192.0.2.0/24"),)

GUARDED = [operation for operation in OPERATIONS if operation.access is not Access.OPEN]


def at(operation: ApiOperation) -> str:
    """An address of the operation."""
    return re.sub(r"\{\w+\}", "x", operation.path)


async def anybody(request: web.Request) -> Principal:
    """Whoever gives a name is an administrator of that name."""
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not name:
        raise VaultError(Code.UNAUTHORIZED, "An access token is needed.")
    return Principal(name, "default", admin=True)


@asynccontextmanager
async def interface(**given: Any) -> AsyncIterator[Client]:
    async with serving(services(trusted=TRUSTED, access=anybody, **given)) as client:
        yield client


def firewall(mode: Mode) -> Firewall:
    return Firewall(mode, "se", INSIDE, None, TRUSTED)


def spent(name: str) -> RateLimit:
    """A limit of one request in a time that does not pass."""
    return RateLimit(RatePolicy(name, 1, 1))


async def ask(client: Client, operation: ApiOperation, host: str, as_: str) -> Said:
    return await client(operation.method, at(operation), as_, headers={"X-Forwarded-For": host})


async def test_from_outside_a_blocked_operation_tells_nothing_to_anybody():
    wrong = []
    async with interface(firewall=firewall(Mode.BLOCK)) as client:
        for operation in OPERATIONS:
            for as_ in ("", "chief"):
                answer = await ask(client, operation, ABROAD, as_)
                word = answer.json.get("code") or answer.json["error"]
                told = (
                    answer.status,
                    word in ("outside_country", "access_denied"),
                    "WWW-Authenticate" in answer.headers,
                )
                if told != (403, True, False):
                    wrong.append((operation.name, as_, answer.status))
            if (await ask(client, operation, "192.0.2.7", "chief")).status == 403:
                wrong.append((operation.name, "inside", 403))
    assert wrong == []


async def test_from_outside_a_masked_operation_goes_through_rights_or_is_refused():
    async with interface(firewall=firewall(Mode.MASK)) as client:
        refused = set()
        for operation in GUARDED:
            answer = await ask(client, operation, ABROAD, "chief")
            if answer.status == 403 and answer.json["code"] == "outside_country":
                refused.add(operation.name)
    assert refused == {operation.name for operation in GUARDED if not operation.abroad}
    assert [
        operation.name
        for operation in GUARDED
        if operation.abroad and operation.access is Access.ADMIN
    ] == []


@pytest.mark.usefixtures("limits_clock")
async def test_an_address_that_asks_too_often_is_refused_whatever_it_asks():
    wrong = []
    async with interface(quotas=Quotas(address=spent("address"), trusted=TRUSTED)) as client:
        for number, operation in enumerate(OPERATIONS):
            host = f"198.51.100.{number}"
            first = await ask(client, operation, host, "")
            answer = await ask(client, operation, host, "chief")
            told = answer.headers.get("Retry-After"), answer.headers.get("RateLimit")
            if first.status == 429 or answer.status != 429 or told != ("1", '"address";r=0;t=1'):
                wrong.append((operation.name, first.status, answer.status, told))
    assert wrong == []


@pytest.mark.usefixtures("limits_clock")
async def test_a_client_that_asks_too_often_is_refused_whatever_it_asks():
    wrong = []
    async with interface(quotas=Quotas(credential=spent("credential"))) as client:
        for operation in GUARDED:
            first = await ask(client, operation, ABROAD, operation.name)
            answer = await ask(client, operation, "192.0.2.7", operation.name)
            told = (
                answer.headers.get("Retry-After"),
                answer.headers.get("RateLimit"),
                first.headers.get("RateLimit"),
            )
            limit = '"credential";r=0;t=1'
            if first.status == 429 or answer.status != 429 or told != ("1", limit, limit):
                wrong.append((operation.name, first.status, answer.status, told))
    assert wrong == []

"""The firewall on the vault listener; who is trusted here is this machine, so that fields can tell
of others.
"""

import ipaddress
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.api.context import Access, ApiOperation, ApiResponse, Takes
from proxy.edge.firewall import Firewall, Mode
from proxy.edge.geoip import Countries
from proxy.errors import Code, VaultError
from proxy.model.policy import AccessPolicy, Act
from proxy.model.record import Principal
from proxy.model.rights import FirewallMode as Firewall_
from proxy.net.client_address import Trusted
from tests.support.api import no_policies, services, serving
from tests.support.countries import AMERICAN, SWEDISH, write


async def told(call):
    return ApiResponse(200, json.dumps({"outside": call.outside}).encode())


def operation(name: str, path: str, **more: Any) -> ApiOperation:
    return ApiOperation(name, "GET", path, told, 200, (), Takes.NOTHING, **more)


OPERATIONS = (
    operation("read", "/api/read", abroad=True),
    operation("files", "/api/files"),
    operation("chief", "/api/chief", access=Access.ADMIN),
    operation("open", "/open", access=Access.OPEN),
)

CLIENTS = {
    "free": Principal("free", "default"),
    "chief": Principal("chief", "default", admin=True),
    "let": Principal("let", "default", policies=("let",)),
    "kept": Principal("kept", "default", policies=("let", "kept")),
    "plain": Principal("plain", "default", policies=("plain",)),
}


async def access(request: web.Request) -> Principal:
    name = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if name not in CLIENTS:
        raise VaultError(Code.UNAUTHORIZED, "An access token is needed.")
    return CLIENTS[name]


class World:
    """Serves the operations above; ``outcomes`` is what was told of requests from outside."""

    def __init__(self, folder: Path) -> None:
        self.countries = Countries(write(folder / "c.mmdb"))
        self.outcomes: list[str] = []

    @asynccontextmanager
    async def serving(self, mode: Mode, *names: str) -> AsyncIterator[Any]:
        """``names``: the policies that there are, each with the firewall of its name."""
        said: dict[str, Firewall_ | None] = {"let": "mask", "kept": "block", "plain": None}
        policies = no_policies()
        for name in names:
            await policies.put(AccessPolicy(name, "contact", tuple(Act), firewall=said[name]))
        trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
        wall = Firewall(mode, "se", (), self.countries, trusted)
        more = {
            "screened": self.outcomes.append,
            "trusted": trusted,
            "access": access,
            "policies": policies,
        }
        async with serving(services(firewall=wall, **more), *OPERATIONS) as client:
            yield client


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def coming(host: str) -> dict[str, str]:
    return {"X-Forwarded-For": host}


ABROAD, HOME = coming(AMERICAN), coming(SWEDISH)
ALL = ("let", "kept", "plain")


@pytest.mark.parametrize("path", ["/api/read", "/api/chief", "/open", "/nothing"])
@pytest.mark.parametrize("as_", ["", "nobody", "chief", "plain"])
async def test_blocked_is_blocked_whatever_is_asked_by_whomever(world, path, as_):
    async with world.serving(Mode.BLOCK, "plain", "kept") as client:
        for method in ("GET", "PUT"):
            answer = await client(method, path, as_, headers=ABROAD)
            assert (answer.status, answer.json["code"]) == (403, "outside_country")
            assert "Allow" not in answer.headers
    assert world.outcomes == ["blocked"] * 2


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_firewall_is_not_felt_inside(world, mode):
    async with world.serving(mode, *ALL) as client:
        for headers in (HOME, {}):
            for name in ("free", *ALL):
                assert (await client("GET", "/api/read", name, headers=headers)).json == {
                    "outside": False
                }
            assert (await client("GET", "/api/files", "let", headers=headers)).json == {
                "outside": False
            }
            assert (await client("GET", "/api/chief", "chief", headers=headers)).status == 200
            assert (await client("GET", "/nothing", headers=headers)).status == 404
            assert (await client("GET", "/api/read", "", headers=headers)).status == 401
    assert world.outcomes == []


async def verdicts(client: Any) -> dict[str, bool | int]:
    """What each caller is told from outside: whether it is taken for being there, or the status."""
    found: dict[str, bool | int] = {}
    for name in ("", *CLIENTS):
        answer = await client("GET", "/api/read", name, headers=ABROAD)
        found[name] = answer.json["outside"] if answer.status == 200 else answer.status
    return found


async def test_a_policy_turns_block_into_mask_for_its_clients_alone(world):
    async with world.serving(Mode.BLOCK, *ALL) as client:
        expected = {"": 401, "free": 403, "chief": 403, "let": True, "kept": 403, "plain": 403}
        assert await verdicts(client) == expected
        assert (await client("GET", "/open", "", headers=ABROAD)).status == 200
    assert world.outcomes == ["blocked", "blocked", "masked", "blocked", "blocked"]


async def test_masked_is_everybody_outside_but_whom_a_policy_keeps_out(world):
    async with world.serving(Mode.MASK, *ALL) as client:
        expected = {"": 401, "free": True, "chief": True, "let": True, "kept": 403, "plain": True}
        assert await verdicts(client) == expected


async def test_a_policy_counts_where_the_instance_has_no_mode(world):
    async with world.serving(Mode.OFF, *ALL) as client:
        expected = {
            "": 401,
            "free": False,
            "chief": False,
            "let": True,
            "kept": 403,
            "plain": False,
        }
        assert await verdicts(client) == expected


@pytest.mark.parametrize(
    ("mode", "name"),
    [(Mode.MASK, "let"), (Mode.BLOCK, "let"), (Mode.OFF, "let"), (Mode.MASK, "free")],
)
async def test_what_does_not_go_through_rights_is_refused_outside(world, mode, name):
    async with world.serving(mode, *ALL) as client:
        answer = await client("GET", "/api/files", name, headers=ABROAD)
        assert (answer.status, answer.json["code"]) == (403, "outside_country")


async def test_nobody_administers_from_outside(world):
    async with world.serving(Mode.MASK) as client:
        answer = await client("GET", "/api/chief", "chief", headers=ABROAD)
        assert (answer.status, answer.json["code"]) == (403, "outside_country")
        assert (await client("GET", "/open", "", headers=ABROAD)).json == {"outside": False}


async def test_a_proxy_that_tells_of_the_caller_in_another_field_tells_of_nobody(world):
    async with world.serving(Mode.BLOCK) as client:
        assert (await client("GET", "/open", headers={"Forwarded": f"for={SWEDISH}"})).status == 403
        assert (await client("GET", "/open", headers={"X-Real-IP": SWEDISH})).status == 403


async def test_without_a_firewall_nobody_is_looked_at():
    async with serving(services(access=access), *OPERATIONS) as client:
        assert (await client("GET", "/api/read", "free", headers=ABROAD)).json == {"outside": False}

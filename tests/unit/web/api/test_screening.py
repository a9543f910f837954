"""The firewall on the vault listener; who is trusted here is this machine, so that fields can tell of others."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.model.access import Principal
from proxy.web.api.operation import Access, Answer, Operation, Takes
from proxy.web.guard.countries import Countries
from proxy.web.guard.firewall import Firewall, Mode
from proxy.web.peers import Trusted
from tests.support.api import services, serving
from tests.support.countries import AMERICAN, SWEDISH, write


async def told(call):
    return Answer(200, json.dumps({"outside": call.outside}).encode())


OPERATIONS = (
    Operation("read", "GET", "/api/read", told, 200, (), Takes.NOTHING),
    Operation("chief", "GET", "/api/chief", told, 200, (), Takes.NOTHING, Access.ADMIN),
    Operation("open", "GET", "/open", told, 200, (), Takes.NOTHING, Access.OPEN),
)


def masks(principal: Principal | None) -> bool:
    """The policies of ``writer`` let it in, those of ``chief`` do not."""
    return principal is None or principal.client == "writer"


class World:
    def __init__(self, folder: Path) -> None:
        self.countries = Countries(write(folder / "c.mmdb"))
        self.outcomes: list[str] = []

    def serving(self, mode: Mode, masking: Any = None) -> Any:
        trusted = Trusted((ipaddress.ip_network("127.0.0.1"),))
        wall = Firewall(mode, "se", (), self.countries, trusted)
        made = services(firewall=wall, masking=masking, screened=self.outcomes.append, trusted=trusted)
        return serving(made, *OPERATIONS)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def coming(host: str) -> dict[str, str]:
    return {"X-Forwarded-For": host}


PATHS = ["/api/read", "/api/chief", "/open", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("as_", ["", "nobody", "chief"])
async def test_blocked_is_blocked_whatever_is_asked_by_whomever(world, path, as_):
    async with world.serving(Mode.BLOCK) as client:
        for method in ("GET", "PUT"):
            answer = await client(method, path, as_, headers=coming(AMERICAN))
            assert (answer.status, answer.json["code"]) == (403, "outside_country")
            assert "Allow" not in answer.headers
    assert world.outcomes == ["blocked"] * 2


@pytest.mark.parametrize("mode", list(Mode))
async def test_the_firewall_is_not_felt_inside(world, mode):
    async with world.serving(mode, masks) as client:
        for headers in (coming(SWEDISH), {}):
            assert (await client("GET", "/api/read", headers=headers)).json == {"outside": False}
            assert (await client("GET", "/api/chief", "chief", headers=headers)).status == 200
            assert (await client("GET", "/api/chief", headers=headers)).status == 403
            assert (await client("GET", "/nothing", headers=headers)).status == 404
            assert (await client("GET", "/api/read", "", headers=headers)).status == 401
    assert world.outcomes == []


async def test_a_policy_turns_block_into_mask_for_its_clients_alone(world):
    async with world.serving(Mode.BLOCK, masks) as client:
        assert (await client("GET", "/api/read", headers=coming(AMERICAN))).json == {"outside": True}
        assert (await client("GET", "/api/read", "chief", headers=coming(AMERICAN))).status == 403
        assert (await client("GET", "/api/read", "", headers=coming(AMERICAN))).status == 401
        assert (await client("GET", "/open", "", headers=coming(AMERICAN))).status == 200
    assert world.outcomes == ["masked", "blocked"]


async def test_masked_is_everybody_outside_and_nobody_administers_from_there(world):
    async with world.serving(Mode.MASK, masks) as client:
        for name in ("writer", "chief"):
            assert (await client("GET", "/api/read", name, headers=coming(AMERICAN))).json == {"outside": True}
        answer = await client("GET", "/api/chief", "chief", headers=coming(AMERICAN))
        assert (answer.status, answer.json["code"]) == (403, "outside_country")
        assert (await client("GET", "/open", "", headers=coming(AMERICAN))).json == {"outside": False}


async def test_where_nothing_can_be_masked_everybody_outside_is_refused(world):
    async with world.serving(Mode.MASK) as client:
        assert (await client("GET", "/api/read", headers=coming(AMERICAN))).status == 403
        assert (await client("GET", "/open", "", headers=coming(AMERICAN))).status == 200


async def test_a_policy_counts_where_the_instance_has_no_mode(world):
    async with world.serving(Mode.OFF, masks) as client:
        assert (await client("GET", "/api/read", headers=coming(AMERICAN))).json == {"outside": True}
        assert (await client("GET", "/api/read", "chief", headers=coming(AMERICAN))).json == {"outside": False}
        assert (await client("GET", "/api/chief", "chief", headers=coming(AMERICAN))).status == 200


async def test_a_proxy_that_tells_of_the_caller_in_another_field_tells_of_nobody(world):
    async with world.serving(Mode.BLOCK) as client:
        assert (await client("GET", "/open", headers={"Forwarded": f"for={SWEDISH}"})).status == 403
        assert (await client("GET", "/open", headers={"X-Real-IP": SWEDISH})).status == 403

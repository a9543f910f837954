"""Kinto, a server of JSON records that people really run, behind the proxy with its own client and
``rules/examples/kinto.yaml``.

Its server and its clients start once for all tests, which takes most of their time; each test leaves
nothing behind, and that is looked at.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.instance import Instance, running
from tests.support.real import kinto
from tests.support.real.client import client as httpx
from tests.support.real.inside import Counts, counts, faults
from tests.support.real.installed import environment
from tests.support.real.kinto import Kinto, KintoClient

RULES = Path(__file__).parents[2] / "rules" / "examples" / "kinto.yaml"
ADDRESS = 'upstream: "http://127.0.0.1:8888"'

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = {
    "name": "Zorbina Quibblethwaite", "email": "Zorbina.Q@Wexlomere.example",
    "phone": "+46 70 918 27 36", "birth_date": "1931-02-27",
    "address": {"street": "Flumpergatan 77b", "city": "Visby"},
    "tags": ["yxmarker-one", "yxmarker-two"], "vip": True, "score": 1.50,
}  # fmt: skip
ACCOUNT = ("editor", "correct horse")
#: What of her must never reach the server, in any spelling.
MARKERS = (
    "Zorbina", "Quibblethwaite", "Wexlomere", "+46 70 918 27", "1931-02-27", "Flumpergatan",
    "yxmarker",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Client, proxy and server in a row; ``direct`` is the same client without the proxy."""

    python: Path
    server: Kinto
    instance: Instance
    client: KintoClient
    direct: KintoClient

    @property
    def kept(self) -> Counts:
        return counts(self.instance.data)

    def leaked(self) -> dict[str, list[str]]:
        """What reached the server, and in which spelling; empty as it should be."""
        return {marker: found for marker in MARKERS if (found := self.server.holds(marker))}


@pytest.fixture(scope="session")
def python() -> Path:
    return environment()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(
    python: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("kinto")
    rules = RULES.read_text()
    assert rules.count(ADDRESS) == 1
    async with kinto.serving(python, kinto.written(folder / "kinto")) as server:
        text = rules.replace(ADDRESS, f'upstream: "{server.wire.address}"')
        async with (
            running(folder / "proxy", text) as instance,
            kinto.client(python, instance.proxy, first=True) as client,
            kinto.client(python, server.wire.address, first=False) as direct,
        ):
            yield Setting(python, server, instance, client, direct)


@pytest_asyncio.fixture(loop_scope="module")
async def records(installed: Setting) -> AsyncIterator[Setting]:
    yield installed
    assert faults(installed.instance) == []
    for record in await installed.direct("get_records"):
        await installed.client("delete_record", id=record["id"])
    assert installed.kept == (0, 0, 0, 0)


def content(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what the server adds."""
    return {name: value for name, value in record.items() if name not in ("id", "last_modified")}


async def stored(records: Setting) -> dict[str, Any]:
    """Ann as the server has her."""
    record: dict[str, Any] = (await records.direct("get_record", id="ann"))["data"]
    return record


async def test_its_own_client_sees_people_and_the_server_keeps_tokens(records):
    made = (await records.client("create_record", id="ann", data=ANN))["data"]
    assert content(made) == ANN
    assert (await records.client("get_record", id="ann"))["data"] == made
    kept = await stored(records)
    assert {name for name in ANN if kept[name] == ANN[name]} == {"vip", "score"}
    assert kept["address"]["city"] == "Visby"
    assert len(set(kept["tags"])) == 2
    assert records.leaked() == {}
    assert records.kept[:3] == (1, 0, 0)


async def test_pages_of_a_list_are_followed_and_restored(records):
    people = [{**ANN, "name": f"Zorbina No. {n}"} for n in range(7)]
    for number, person in enumerate(people):
        await records.client("create_record", id=f"z{number}", data=person)
    found = await records.client("get_records", _sort="last_modified")
    assert [content(record) for record in found] == people
    assert records.leaked() == {}


async def test_a_search_by_address_finds_the_record(records):
    await records.client("create_record", id="ann", data=ANN)
    await records.client("create_record", id="bo", data={**ANN, "email": "bo@wexlomere.example"})
    for spelled in (ANN["email"], "zorbina.q@wexlomere.example"):
        assert [record["id"] for record in await records.client("get_records", email=spelled)] == [
            "ann"
        ]
    assert [
        record["id"] for record in await records.client("get_records", not_email=ANN["email"])
    ] == ["bo"]
    assert records.leaked() == {}


async def test_a_patch_keeps_the_tokens_of_what_it_does_not_change(records):
    await records.client("create_record", id="ann", data=ANN)
    before = await stored(records)
    patched = (
        await records.client(
            "patch_record", id="ann", data={"name": "Zorbina Ångström", "vip": False}
        )
    )["data"]
    assert content(patched) == {**ANN, "name": "Zorbina Ångström", "vip": False}
    after = await stored(records)
    assert {name for name in before if before[name] != after[name]} == {
        "name",
        "vip",
        "last_modified",
    }
    assert records.leaked() == {}


async def test_a_replacement_forgets_what_it_does_not_carry(records):
    await records.client("create_record", id="ann", data=ANN)
    replaced = (
        await records.client("update_record", id="ann", data={"name": ANN["name"], "tags": []})
    )["data"]
    assert content(replaced) == {"name": ANN["name"], "tags": []}
    assert content((await records.client("get_record", id="ann"))["data"]) == {
        "name": ANN["name"],
        "tags": [],
    }
    left = records.kept.tokens  # parts of the name, by which it is found
    await records.client("create_record", id="bo", data={"name": ANN["name"], "tags": []})
    assert records.kept.tokens == 2 * left, "nothing but the name was left"


async def test_a_refusal_that_shows_the_record_shows_its_caller_the_person(records):
    await records.client("create_record", id="ann", data=ANN)
    again = await records.client.refused(
        "create_record", id="ann", data={**ANN, "name": "Zorbina the Second"}
    )
    assert again["status"] == 412
    existing = again["refused"]["details"]["existing"]
    assert (existing["name"], existing["email"], existing["tags"]) == (
        ANN["name"],
        ANN["email"],
        ANN["tags"],
    )
    assert (await records.client("get_record", id="ann"))["data"]["name"] == ANN["name"]
    assert records.leaked() == {}
    assert records.kept[:3] == (1, 0, 0)


async def test_deleting_a_record_empties_the_vault(records):
    await records.client("create_record", id="ann", data=ANN)
    assert (await records.client("delete_record", id="ann"))["deleted"] is True
    assert (await records.client.refused("get_record", id="ann"))["status"] == 404
    assert records.kept == (0, 0, 0, 0)


async def test_deleting_what_a_filter_finds_deletes_it_from_the_vault(records):
    await records.client("create_record", id="ann", data=ANN)
    await records.client("create_record", id="bo", data={**ANN, "email": "bo@wexlomere.example"})
    async with httpx(records.python, records.instance.proxy, *ACCOUNT) as caller:
        gone = await caller(
            "DELETE", "/v1/buckets/crm/collections/people/records", params={"email": ANN["email"]}
        )
    assert [record["id"] for record in gone.json["data"]] == ["ann"]
    assert records.kept[:3] == (1, 0, 0)
    assert records.leaked() == {}


async def test_a_batch_is_refused_because_no_rule_looks_into_it(records):
    inner = {
        "method": "PUT",
        "path": "/buckets/crm/collections/people/records/ann",
        "body": {"data": ANN},
    }
    async with httpx(records.python, records.instance.proxy, *ACCOUNT) as caller:
        reply = await caller("POST", "/v1/batch", json={"requests": [inner]})
    assert reply.status == 415
    assert records.leaked() == {}
    assert records.kept == (0, 0, 0, 0)


async def test_the_address_without_a_version_is_no_way_past_the_rules(records):
    async with httpx(records.python, records.instance.proxy, *ACCOUNT) as caller:
        reply = await caller(
            "PUT", "/buckets/crm/collections/people/records/ann", json={"data": ANN}
        )
    assert reply.status == 404
    assert records.leaked() == {}
    assert records.kept == (0, 0, 0, 0)

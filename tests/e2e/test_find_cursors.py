"""Pages of a search go on by a cursor: over real sockets, in both families, while others write."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from proxy.model.record import RecordLimits
from tests.support.api import ENGINES, Interface, interface

MODELS = "/api/models/person"
SCHEMA: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "team": {"type": "string", "storage": "indexed"},
        "age": {"type": "integer", "storage": "indexed"},
        "note": {"type": "string", "storage": "encrypted", "max_length": 65_536},
    }
}
COUNT = 23
LARGE = 40_000


@pytest.fixture(params=ENGINES)
async def here(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param, limits=RecordLimits(page_bytes=100_000)) as made:
        await made.declare("person", SCHEMA)
        await made.policy("red", "person", "read", rows={"filter": {"team": "red"}})
        for number in range(COUNT):
            await add(made, f"p{number:02}", number)
        yield made


async def add(here: Interface, key: str, number: int, **more: Any) -> None:
    team = "red" if number % 2 else "blue"
    age = None if number % 5 == 0 else number % 4
    one = {"id": key, "team": team, "age": age, **more}
    assert (await here.client("POST", MODELS, json=one)).status == 201


async def find(here: Interface, as_: str = "writer", filter_: Any = None, **options: Any) -> Any:
    said = await here.client(
        "POST", f"{MODELS}/find", as_, json={"filter": filter_ or {}, "options": options}
    )
    assert said.status == 200, said.json
    return said.json


async def walk(here: Interface, as_: str = "writer", **options: Any) -> list[str]:
    """The keys of all pages."""
    keys: list[str] = []
    while True:
        page = await find(here, as_, **options)
        keys += [one["id"] for one in page["data"]]
        assert page["meta"]["count"] == len(page["data"])
        if "next" not in page["meta"]:
            return keys
        options["next"] = page["meta"]["next"]


@pytest.mark.parametrize(
    "sort",
    [
        [], [{"age": "asc"}], [{"age": "desc"}], [{"team": "desc"}, {"age": "asc"}],
        [{"created_at": "desc"}],
    ],
)  # fmt: skip
async def test_pages_by_cursor_are_the_whole_in_its_order(here: Interface, sort: Any):
    whole = [one["id"] for one in (await find(here, sort=sort))["data"]]
    assert len(whole) == COUNT
    for limit in (1, 4, 22, 23):
        assert await walk(here, sort=sort, limit=limit) == whole
    red = [one["id"] for one in (await find(here, "under:red", sort=sort))["data"]]
    assert await walk(here, "under:red", sort=sort, limit=3) == red
    assert len(red) == COUNT // 2


async def test_what_comes_and_goes_meanwhile_moves_nothing(here: Interface):
    before = [one["id"] for one in (await find(here, sort=[{"age": "asc"}]))["data"]]
    first = await find(here, sort=[{"age": "asc"}], limit=5)
    for key in before[:5]:
        assert (await here.client("DELETE", f"{MODELS}/{key}")).status == 204
    for number in range(3):
        await add(here, f"early{number}", 5)  # without an age: before all others
    rest = await walk(here, sort=[{"age": "asc"}], limit=4, next=first["meta"]["next"])
    assert [key for key in rest if not key.startswith("early")] == before[5:]
    assert len(rest) == len(set(rest))


async def test_a_page_has_the_total_of_the_first_one(here: Interface):
    first = await find(here, limit=2)
    second = await find(here, limit=2, next=first["meta"]["next"])
    assert (first["meta"]["total"], second["meta"]["total"], second["meta"]["offset"]) == (
        COUNT,
        COUNT,
        0,
    )


async def test_a_cursor_counts_for_its_client_its_schema_and_its_question_alone(here: Interface):
    cursor = (await find(here, limit=2, sort=[{"age": "asc"}]))["meta"]["next"]
    await here.declare("other", SCHEMA)
    asks: list[tuple[str, str, Any]] = [
        ("chief", "person", {"options": {"sort": [{"age": "asc"}], "next": cursor}}),
        ("under:red", "person", {"options": {"sort": [{"age": "asc"}], "next": cursor}}),
        ("writer", "other", {"options": {"sort": [{"age": "asc"}], "next": cursor}}),
        ("writer", "person", {"options": {"sort": [{"age": "desc"}], "next": cursor}}),
        ("writer", "person", {"options": {"next": cursor}}),
        (
            "writer",
            "person",
            {"filter": {"team": "red"}, "options": {"sort": [{"age": "asc"}], "next": cursor}},
        ),
        (
            "writer",
            "person",
            {"filter": {"id": "p00"}, "options": {"sort": [{"age": "asc"}], "next": cursor}},
        ),
        ("writer", "person", {"options": {"sort": [{"age": "asc"}], "next": cursor[:-2] + "AA"}}),
        ("writer", "person", {"options": {"next": 5}}),
        ("writer", "person", {"options": {"next": ""}}),
    ]
    for as_, schema, body in asks:
        said = await here.client("POST", f"/api/models/{schema}/find", as_, json=body)
        assert said.status == 400, (as_, schema, body, said.json)
        assert [error["source"] for error in said.json["errors"]] == ["/options/next"]
    both = await here.client(
        "POST", f"{MODELS}/find", json={"options": {"next": cursor, "offset": 1}}
    )
    assert [error["source"] for error in both.json["errors"]] == ["/options/offset"]


async def test_a_page_ends_early_at_its_bytes_and_has_one_record_in_any_case(here: Interface):
    for number in range(6):
        await add(here, f"large{number}", 1, note=f"{number}" * LARGE)
    await add(here, "largest", 1, note="å" * 60_000)
    page = await find(here, filter_={"id": [f"large{number}" for number in range(6)]}, sort=[])
    assert [one["id"] for one in page["data"]] == ["large0", "large1"]
    assert page["meta"]["total"] == 6
    assert await walk(here, limit=1000) == [
        *[f"p{number:02}" for number in range(COUNT)],
        *[f"large{number}" for number in range(6)],
        "largest",
    ]
    exported: list[str] = []
    query = {"limit": "1000"}
    while True:
        said = (await here.client("GET", f"{MODELS}/export", params=query)).json
        exported += [one["id"] for one in said["data"]]
        assert len(said["data"]) <= COUNT + 3
        if said["meta"]["next"] is None:
            break
        query["next"] = said["meta"]["next"]
    assert len(exported) == len(set(exported)) == COUNT + 7


@pytest.mark.parametrize("as_", ["writer", "under:red"])
async def test_a_history_ends_early_at_its_bytes_and_goes_on_by_offset(here: Interface, as_: str):
    for number in range(7):
        change = [{"id": "p01", "note": f"{number}" * LARGE}]
        assert (await here.client("POST", f"{MODELS}/batch/update", json=change)).status == 201
        here.clock.advance(1)
    versions: list[int] = []
    while True:
        said = await here.client(
            "GET", f"{MODELS}/p01/history?limit=100&offset={len(versions)}", as_
        )
        assert len(said.json["data"]) >= 1
        versions += [one["version"] for one in said.json["data"]]
        if len(versions) >= said.json["meta"]["total"]:
            break
        assert len(said.json["data"]) <= 3
    assert versions == [8, 7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("as_", ["writer", "under:red"])
async def test_a_history_goes_on_by_cursor_while_versions_are_added(here: Interface, as_: str):
    async def changed(text: str) -> None:
        change = [{"id": "p01", "note": text}]
        assert (await here.client("POST", f"{MODELS}/batch/update", json=change)).status == 201
        here.clock.advance(1)

    for number in range(7):
        await changed(f"{number}" * LARGE)
    path = f"{MODELS}/p01/history?limit=2"
    versions: list[int] = []
    meta: dict[str, Any] = {"next": ""}
    while "next" in meta:
        more = f"&next={quote(meta['next'])}" if meta["next"] else ""
        said = await here.client("GET", path + more, as_)
        assert said.status == 200, said.json
        meta = said.json["meta"]
        versions += [one["version"] for one in said.json["data"]]
        if len(versions) < 6:
            await changed("new")
    assert versions == [8, 7, 6, 5, 4, 3, 2, 1]

    cursor = (await here.client("GET", path, as_)).json["meta"]["next"]
    for wrong in (
        f"{MODELS}/p02/history?limit=2&next={quote(cursor)}",
        f"{path}&next={quote(cursor)}&offset=2",
        f"{path}&next=x",
    ):
        assert (await here.client("GET", wrong, as_)).status == 400, wrong
    other = "under:red" if as_ == "writer" else "writer"
    assert (await here.client("GET", f"{path}&next={quote(cursor)}", other)).status == 400


async def test_a_history_of_a_record_without_a_schema_goes_on_by_cursor(here: Interface):
    record = {"record_key": "h", "country": "se", "body": "0"}
    for number in range(5):
        said = await here.client("POST", "/api/records", json={**record, "body": f"{number}"})
        assert said.status == 201
        here.clock.advance(1)
    bodies: list[str] = []
    more = ""
    while True:
        said = await here.client("GET", f"/api/records/se/h/history?limit=2{more}")
        bodies += [one["record"]["body"] for one in said.json["data"]]
        if "next" not in said.json["meta"]:
            break
        more = f"&next={quote(said.json['meta']['next'])}"
    assert bodies == ["4", "3", "2", "1", "0"]


async def test_records_go_on_by_cursor_too(here: Interface):
    for number in range(7):
        record = {
            "record_key": f"r{number}",
            "country": "se",
            "key1": "x",
            "range_key1": number % 3,
        }
        assert (await here.client("POST", "/api/records", json=record)).status == 201
    keys: list[str] = []
    options: dict[str, Any] = {"limit": 2, "sort": [{"range_key1": "desc"}]}
    while True:
        said = await here.client(
            "POST",
            "/api/records/find",
            json={
                "country": "se",
                "filter": {"key": ["r0", "r1", "r2", "r3", "r4", "r5", "r6"]},
                "options": options,
            },
        )
        assert said.status == 200, said.json
        keys += [one["record_key"] for one in said.json["data"]]
        if "next" not in said.json["meta"]:
            break
        options["next"] = said.json["meta"]["next"]
    assert keys == ["r2", "r5", "r1", "r4", "r0", "r3", "r6"]

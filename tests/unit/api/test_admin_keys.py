"""Keys over HTTP: who may see and rotate them, and what it does to everything that was sealed
before.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import FormData

from tests.support.api import Interface, interface
from tests.support.patience import PATIENCE

K = "/api/keys"
CONTACT = {
    "fields": {
        "id": {"type": "primary_key"},
        "city": {"type": "string"},
        "note": {"type": "string", "storage": "encrypted"},
    }
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, "sqlite") as made:
        assert (
            await made.client("PUT", "/api/schemas/contact", "chief", json=CONTACT)
        ).status == 201
        yield made


async def sealed_by(here: Interface) -> set[str]:
    """The ids of the data keys that records, their keys and their files' lines are sealed with."""
    found: set[bytes] = set()
    for name in ("contact", "records"):
        table = here.catalog.records(name).collection.table
        rows = await here.store.scan(table, 0, 10_000)
        files = await here.store.files(table, [row.rid for row in rows])
        found |= {row.body[1:5] for row in rows} | {
            row.key_sealed[1:5] for row in rows if row.key_sealed
        }
        found |= {file.sealed[1:5] for held in files.values() for file in held}
    return {key.hex() for key in found}


async def settled(here: Interface, environment: str = "default") -> dict[str, object]:
    """What is told of an environment once nothing of it is being sealed anew."""
    async with asyncio.timeout(PATIENCE):
        while True:
            told = (await here.client("GET", K, "chief")).json
            (one,) = [found for found in told["data"] if found["environment_id"] == environment]
            if one["reseal"]["state"] != "running":
                return dict(one)
            await asyncio.sleep(0.01)


async def fill(here: Interface, count: int = 250) -> str:
    """Make records, one of them with a file, whose id it answers."""
    for start in range(0, count, 50):
        batch = [
            {"id": f"k{number}", "city": f"C{number}", "note": f"N{number}"}
            for number in range(start, start + 50)
        ]
        assert (await here.client("POST", "/api/models/contact/batch", json=batch)).status == 201
    form = FormData()
    form.add_field(
        "file", io.BytesIO(b"content of a file"), filename="a.txt", content_type="text/plain"
    )
    headers = {"x-filename": "a.txt"}
    sent = await here.client("POST", "/api/models/contact/k1/files", data=form, headers=headers)
    assert sent.status == 201
    return str(sent.json["file_id"])


async def all_there(here: Interface, file_id: str, count: int = 250) -> None:
    found = await here.client(
        "POST",
        "/api/models/contact/find",
        json={"filter": {"id": [f"k{n}" for n in range(count)]}, "options": {"limit": 1000}},
    )
    assert {record["note"] for record in found.json["data"]} == {
        f"N{number}" for number in range(count)
    }
    file = await here.client("GET", f"/api/models/contact/k1/files/{file_id}")
    assert (file.status, file.body) == (200, b"content of a file")


async def test_everything_is_sealed_with_another_data_key_in_the_background_and_opens_all_the_while(
    here,
):
    file_id = await fill(here)
    before = (await here.client("GET", K, "chief")).json["data"][0]
    (first,) = [key["key_id"] for key in before["keys"]]
    assert (before["reseal"]["state"], await sealed_by(here)) == ("none", {first})
    answer = await here.client("POST", K + "/rotate", "chief", json={"key": "data"})
    assert answer.status == 200
    (old, new) = answer.json["data"][0]["keys"]
    made = {"key_id": first, "created_at": before["keys"][0]["created_at"]}
    assert (old, new["seals"]) == ({**made, "seals": False, "used_by": None}, True)
    assert new["created_at"] > (made["created_at"] or "")
    await all_there(here, file_id)
    assert (
        await here.client("POST", "/api/models/contact", json={"id": "x", "city": "y", "note": "z"})
    ).status == 201
    after = await settled(here)
    figures = {"state": "done", "versions": 0, "contents": 1, "unreadable": 0, "blocked_by": []}
    assert after["reseal"] in [{**figures, "records": 250 + more} for more in (0, 1)]
    # nothing needs the other one
    assert after["keys"] == [{**new, "used_by": None}]
    assert await sealed_by(here) == {new["key_id"]}
    await all_there(here, file_id)
    table = here.catalog.records("contact").collection.table
    assert {row.version for row in await here.store.scan(table, 0, 1000)} == {1}


async def test_the_master_key_and_the_signing_key_are_others_from_then_on(here):
    before = (await here.client("GET", K, "chief")).json
    after = (await here.client("POST", K + "/rotate", "chief", json={"key": "master"})).json
    assert after["master"] != before["master"]
    assert {one["wrapped_by"] for one in after["data"]} == {after["master"]["key_id"]}
    last = (await here.client("POST", K + "/rotate", "chief", json={"key": "signing"})).json
    assert [one["signs"] for one in last["signing"]] == [False, True]
    last = (await here.client("POST", K + "/rotate", "chief", json={"key": "audit"})).json
    assert [one["writes"] for one in last["audit"]] == [False, True]
    await all_there(here, await fill(here, 50), 50)


async def test_each_environment_has_data_keys_of_its_own(here):
    made = await here.client(
        "POST", "/api/environments", "chief", json={"name": "Acme", "environment_id": "acme"}
    )
    assert made.status == 201
    answer = await here.client(
        "POST", K + "/rotate", "chief", json={"key": "data", "environment_id": "acme"}
    )
    assert {one["environment_id"]: len(one["keys"]) for one in answer.json["data"]} == {
        "default": 1,
        "acme": 2,
    }
    assert (await settled(here, "acme"))["reseal"] == {
        "state": "done", "records": 0, "versions": 0, "contents": 0, "unreadable": 0,
            "blocked_by": [],
    }  # fmt: skip
    assert (await here.client("DELETE", "/api/environments/acme", "chief")).status == 204
    gone = await here.client(
        "POST", K + "/rotate", "chief", json={"key": "data", "environment_id": "acme"}
    )
    assert gone.status == 404


@pytest.mark.parametrize("caller", ["writer", "chief of acme"])
async def test_only_administrators_of_default_may(here, caller):
    await here.client(
        "POST", "/api/environments", "chief", json={"name": "Acme", "environment_id": "acme"}
    )
    assert (await here.client("GET", K, caller)).status == 403
    assert (await here.client("POST", K + "/rotate", caller, json={"key": "data"})).status == 403


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ({}, ["/key"]), ({"key": "hatch"}, ["/key"]), ({"key": 5, "environment_id": 5}, ["/key", "/environment_id"]),
        ({"key": "master", "environment_id": "default"}, ["/environment_id"]), ({"key": "data", "now": True}, ["/now"]),
    ],
)  # fmt: skip
async def test_what_rotates_no_key_is_refused_with_every_fault(here, body, places):
    answer = await here.client("POST", K + "/rotate", "chief", json=body)
    assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert [error["source"] for error in answer.json["errors"]] == places

"""Two environments with the same schemas, keys, values, files and client names: nothing of one
reaches the other.

Whoever asks for what only the other environment has is told what is told of what nobody has, byte
for byte.
"""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiohttp import FormData

from proxy.model.rights import Principal
from tests.support.api import ENGINES, TOKENS, Interface, Said, interface

M = "/api/models/contact"
CONTACT = {
    "fields": {
        "id": {"type": "primary_key"},
        "email": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
        "city": {"type": "string", "storage": "indexed"},
        "age": {"type": "integer", "storage": "indexed"},
    }
}
BOTH = {"id": "both", "email": "same@example.com", "city": "Lund", "age": 40}
NOBODY = "00000000-0000-4000-8000-000000000000"  # the id of no file
ONE = {"id": "only", "email": "only@example.com", "city": "Umeå", "age": 90}


async def upload(here: Interface, key: str, caller: str) -> str:
    form = FormData()
    form.add_field("file", b"same content", filename="a.txt", content_type="text/plain")
    answer = await here.client(
        "POST", f"{M}/{key}/files", caller, data=form, headers={"x-filename": "a.txt"}
    )
    assert answer.status == 201
    return str(answer.json["file_id"])


async def furnished(here: Interface) -> dict[str, str]:
    """The same in both, one record and one schema more in ``default``; the ids of the files by
    (caller, key).
    """
    await here.realm.create("acme", "Acme AB")
    for environment in ("default", "acme"):
        await here.declare("contact", CONTACT, environment)
    await here.declare("hidden", CONTACT)
    for caller, record in (("writer", BOTH), ("acme", BOTH), ("writer", ONE)):
        assert (await here.client("POST", M, caller, json=record)).status == 201
    return {
        "writer both": await upload(here, "both", "writer"),
        "acme both": await upload(here, "both", "acme"),
        "writer only": await upload(here, "only", "writer"),
    }


async def alike(here: Interface, asked: list[tuple[str, str, Any]], status: int) -> None:
    """Both requests of ``acme`` (for what ``default`` has, for what nobody has) have one answer."""
    answers = [
        await here.client(method, path, "acme", **({"json": body} if body is not None else {}))
        for method, path, body in asked
    ]
    assert [answer.status for answer in answers] == [status] * len(asked), answers
    assert len({answer.body for answer in answers}) == 1, answers


def pair(method: str, path: str, body: Any = None) -> list[tuple[str, str, Any]]:
    """The request for ``only``, and the same for a key that nobody has."""
    return [(method, path.replace("KEY", key), replaced(body, key)) for key in ("only", "none")]


def replaced(body: Any, key: str) -> Any:
    if isinstance(body, dict):
        return {name: replaced(value, key) for name, value in body.items()}
    if isinstance(body, list):
        return [replaced(value, key) for value in body]
    return body.replace("KEY", key) if isinstance(body, str) else body


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_same_things_in_two_environments_never_meet(engine: str, tmp_path: Path) -> None:
    async with interface(tmp_path, engine) as here:
        files = await furnished(here)
        for filter_ in (
            {"id": "KEY"},
            {"email": "KEY@example.com"},
            {"email": {"$like": "KEY"}},
            {"search_keys": "KEY@"},
        ):
            await alike(here, pair("POST", M + "/find", {"filter": filter_}), 200)
        for path in ("/api/find", "/sf/find", "/sf/find-ids"):
            await alike(
                here, pair("POST", path, {"schema": "contact", "filter": {"id": "KEY"}}), 200
            )
        await alike(
            here,
            pair(
                "POST",
                M + "/aggregate",
                {"metrics": {"n": {"func": "count"}}, "filter": {"id": "KEY"}},
            ),
            200,
        )
        await alike(here, pair("POST", M + "/batch/update", [{"id": "KEY", "city": "Kiruna"}]), 201)
        await alike(
            here,
            pair("POST", M + "/clone", {"filter": {"id": "KEY"}, "update_with": {"id": "new"}}),
            403,
        )
        await alike(here, pair("GET", M + "/KEY/history"), 404)
        await alike(here, pair("DELETE", M + "/KEY"), 404)
        await alike(here, pair("POST", M + "/batch/delete", {"filter": {"id": ["KEY"]}}), 404)
        await alike(here, pair("POST", M + "/KEY/migrate/both"), 404)
        await alike(here, pair("POST", M + "/both/migrate/KEY"), 404)
        await files_and_lists_never_meet(here, files)


async def files_and_lists_never_meet(here: Interface, files: dict[str, str]) -> None:
    for key, file in (("only", files["writer only"]), ("both", files["writer both"])):
        both = [
            (method, f"{M}/{key}/files/{id_}", None)
            for method in ("GET", "DELETE")
            for id_ in (file, NOBODY)
        ]
        await alike(here, both[:2], 404)
        await alike(here, both[2:], 404)
    moves = [
        ("POST", M + "/both/files/move/both", {"attachment_ids": [id_]})
        for id_ in (files["writer both"], NOBODY)
    ]
    await alike(here, moves, 401)
    for name in ("find", "aggregate"):
        body = {"metrics": {"n": {"func": "count"}}} if name == "aggregate" else {}
        await alike(
            here,
            [("POST", f"/api/models/{schema}/{name}", body) for schema in ("hidden", "nobody")],
            400,
        )
    exported = await here.client("GET", M + "/export", "acme")
    assert [record["id"] for record in exported.json["data"]] == ["both"]
    found = (await here.client("POST", M + "/find", "acme", json={})).json["data"]
    assert [[file["file_id"] for file in record["attachments"]] for record in found] == [
        [files["acme both"]]
    ]
    called = await here.client(
        "POST", "/api/functions/oldest", "acme", json={"arguments": {"city": "Umeå"}}
    )
    assert called.json == {"result": None}
    document = (await here.client("GET", "/openapi.json", "acme")).body
    assert b"model.contact" in document
    assert b"model.hidden" not in document
    unchanged = await here.client("POST", M + "/find", json={"filter": {"id": "only"}})
    assert [{name: record[name] for name in ONE} for record in unchanged.json["data"]] == [ONE]


@pytest.mark.parametrize("engine", ENGINES)
async def test_who_reads_the_database_cannot_tell_that_values_are_the_same(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        await furnished(here)
        kept: list[set[bytes]] = []
        for environment in ("default", "acme"):
            collection = here.realm.spaces[environment].catalog.records("contact").collection
            (row,) = (
                await here.store.by_keys(collection.table, [collection.key_hash("both")])
            ).values()
            (file,) = (await here.store.files(collection.table, [row.rid]))[row.rid]
            hashes = {cell for cell in row.cells if isinstance(cell, bytes)} | {
                row.key or b"",
                file.name,
            }
            kept.append(
                {*hashes, *here.realm.spaces[environment].catalog.records("contact").hashes(BOTH)}
            )
        assert min(map(len, kept)) >= 6
        assert not kept[0] & kept[1]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_cursor_counts_in_its_own_environment_alone(engine: str, tmp_path: Path) -> None:
    async with interface(tmp_path, engine) as here:
        await furnished(here)
        groups = {"metrics": {"n": {"func": "count"}}, "group_by": {"limit": 1, "keys": ["city"]}}
        cursor = (await here.client("POST", M + "/aggregate", json=groups)).json["meta"]["next"]
        page = (await here.client("GET", M + "/export?limit=1")).json["meta"]["next"]
        for caller, status in (("acme", 400), ("writer", 200)):
            assert (
                await here.client("POST", M + "/aggregate", caller, json={"next": cursor})
            ).status == status
            assert (await here.client("GET", f"{M}/export?next={page}", caller)).status == status


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_idempotency_key_counts_in_its_own_environment_alone(
    engine: str, tmp_path: Path, monkeypatch
) -> None:
    """The callers even have the same name."""
    monkeypatch.setitem(TOKENS, "acme", Principal("writer", "acme"))
    async with interface(tmp_path, engine) as here:
        await furnished(here)

        async def sent(caller: str, record: dict[str, Any]) -> Said:
            return await here.client(
                "POST", M, caller, json=record, headers={"Idempotency-Key": "k"}
            )

        first = await sent("writer", {"id": "new", "city": "Lund"})
        other = await sent("acme", {"id": "other", "city": "Lund"})
        assert (first.status, other.status) == (201, 201)
        assert "Idempotent-Replayed" not in other.headers
        again = await sent("acme", {"id": "other", "city": "Lund"})
        assert (again.headers["Idempotent-Replayed"], again.json["id"]) == ("true", "other")


@pytest.mark.parametrize("engine", ENGINES)
async def test_the_files_of_an_environment_that_ended_go_and_those_of_others_stay(
    engine: str, tmp_path: Path
) -> None:
    async with interface(tmp_path, engine) as here:
        files = await furnished(here)
        removed = await here.client("DELETE", "/api/environments/acme?records=delete", "chief")
        assert removed.status == 204
        faults: list[Exception] = []
        for _ in range(2):  # the first round erases what ended, the next removes its objects
            await here.realm.maintain(faults.append)
        assert faults == []
        contents = here.realm.spaces["default"].contents
        assert contents is not None
        listed = {
            str(UUID(file.name[:32]))
            for number in range(256)
            for file in await contents.objects.listed(f"{number:02x}")
        }
        assert listed == {files["writer both"], files["writer only"]}
        assert (
            await here.client("GET", f"{M}/both/files/{files['writer both']}")
        ).body == b"same content"

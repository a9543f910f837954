"""Attachments within the whole interface: uploads that are sent again, what searches show, what
deletions and schemas take along.
"""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from proxy.objectstore.base import SHARDS
from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.examples import CONTACT

_PATH = "/api/models/contact"


@pytest.fixture(params=ENGINES)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        await made.declare("contact", CONTACT)
        for key in ("a", "b"):
            assert (await made.client("POST", _PATH, json={"id": key})).status == 201
        yield made


async def upload(
    here: Interface, content: bytes, name: str = "x", key: str = "a", **headers: str
) -> Said:
    form = aiohttp.FormData()
    form.add_field("file", io.BytesIO(content), filename="x", content_type="text/plain")
    return await here.client(
        "POST", f"{_PATH}/{key}/files", data=form, headers={"x-filename": name, **headers}
    )


async def objects(here: Interface) -> int:
    contents = here.services.spaces["default"].contents
    assert contents is not None
    return sum([len(await contents.objects.listed(shard)) for shard in SHARDS])


async def attached(here: Interface, key: str) -> list[Any]:
    answer = await here.client("POST", f"{_PATH}/find", json={"filter": {"record_key": key}})
    found: list[Any] = answer.json["data"][0]["attachments"]
    return found


async def test_an_upload_that_is_sent_again_is_carried_out_once(here):
    first = await upload(here, b"x" * 100_000, **{"Idempotency-Key": "k"})
    again = await upload(
        here, b"x" * 100_000, **{"Idempotency-Key": "k"}
    )  # with another boundary, as every client has it
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert await attached(here, "a") == [first.json]
    assert await objects(here) == 1


@pytest.mark.parametrize(
    ("content", "name"), [(b"y" * 100_000, "x"), (b"x" * 99_999, "x"), (b"x" * 100_000, "y")]
)
async def test_another_file_under_the_same_key_is_refused(here, content, name):
    await upload(here, b"x" * 100_000, **{"Idempotency-Key": "k"})
    answer = await upload(here, content, name, **{"Idempotency-Key": "k"})
    assert (answer.status, answer.json["code"]) == (429, "idempotency_check_failed")
    assert await objects(here) == 1


async def test_an_upload_that_was_refused_may_be_sent_again(here):
    first = await upload(here, b"x", "a/b", **{"Idempotency-Key": "k"})
    again = await upload(here, b"x", "ab", **{"Idempotency-Key": "k"})
    assert (first.status, again.status) == (400, 201)


async def test_moves_and_deletions_that_are_sent_again_are_carried_out_once(here):
    made = await upload(here, b"x")
    body = {"attachment_ids": [made.json["file_id"]]}
    for _ in range(2):
        moved = await here.client(
            "POST", f"{_PATH}/a/files/move/b", json=body, headers={"Idempotency-Key": "m"}
        )
        assert moved.status == 204
    assert [file["file_id"] for file in await attached(here, "b")] == body["attachment_ids"]
    link = f"{_PATH}/b/files/{made.json['file_id']}"
    for _ in range(2):
        assert (await here.client("DELETE", link, headers={"Idempotency-Key": "d"})).status == 204
    assert (await here.client("DELETE", link)).status == 404
    assert await attached(here, "b") == []


@pytest.mark.parametrize("way", ["one", "many", "cascade", "expiry", "schema"])
async def test_files_go_with_their_record_however_it_ends(here, way):
    await here.client("POST", _PATH, json={"id": "c", "manager": "a"})
    await upload(here, b"x", key="c" if way == "cascade" else "a")
    assert await objects(here) == 1
    if way == "one":
        await here.client("DELETE", f"{_PATH}/a")
    elif way == "many":
        await here.client("POST", f"{_PATH}/batch/delete", json={"filter": {"record_key": ["a"]}})
    elif way == "cascade":
        await here.client("DELETE", f"{_PATH}/a?cascadeBy=manager")
    elif way == "expiry":
        body = [{"id": "a", "expires_at": "2030-01-01T00:00:00.000Z"}]
        assert (await here.client("POST", f"{_PATH}/batch/update", json=body)).status == 201
        here.clock.now = 1_900_000_000_000
    else:
        assert (
            await here.client("DELETE", "/api/schemas/contact?records=delete", "chief")
        ).status == 204
    await here.vault.maintain()
    assert await objects(here) == 0


async def test_an_update_leaves_files_alone_and_a_clone_has_none(here):
    made = await upload(here, b"x")
    assert (
        await here.client("POST", f"{_PATH}/batch/update", json=[{"id": "a", "city": "Lund"}])
    ).status == 201
    body = {"filter": {"record_key": "a"}, "update_with": {"id": "c"}}
    assert (await here.client("POST", f"{_PATH}/clone", json=body)).status == 201
    assert (await attached(here, "a"), await attached(here, "c")) == ([made.json], [])


async def test_names_in_the_path_may_hold_anything(here):
    key = "a/b ?#%é"
    await here.client("POST", _PATH, json={"id": key})
    made = await upload(here, b"x", "y", "a%2Fb%20%3F%23%25%C3%A9")
    assert made.status == 201
    link = URL(here.client.address + made.json["download_link"], encoded=True)
    async with here.client.session.get(link, headers={"Authorization": "Bearer writer"}) as answer:
        assert await answer.read() == b"x"

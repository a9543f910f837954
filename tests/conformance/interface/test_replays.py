"""Answers under an ``Idempotency-Key`` that are asked for again by callers who may not see any more
what the answer shows.
"""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import FormData

from proxy.clock import to_wire
from proxy.edge.firewall import Firewall, Mode
from proxy.net.client_address import Trusted
from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.filterendpoint import URL, FilterEndpoint, answered, filtering

M = "/api/models/guest"
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "region": {"type": "string", "storage": "indexed"},
        "city": {"type": "string"},
    }
}
NORTH = {"filter": {"region": "north"}}
PERSON = {"x-client-auth": "Bearer person-1"}
Here = tuple[Interface, FilterEndpoint]


@pytest.fixture
async def scene(request, tmp_path) -> AsyncIterator[Here]:
    async with (
        interface(tmp_path, getattr(request, "param", "memory")) as here,
        filtering(here) as endpoint,
    ):
        await here.declare("guest", DEFINITION)
        acl = {"external_acl": URL.format(endpoint.port)}
        acts = ("read", "write", "delete")
        await here.policy("north", "guest", *acts, rows=NORTH)
        await here.policy("acl", "guest", *acts, **acl)
        await here.policy("writes", "guest", "write", rows=NORTH)
        await here.policy("tokens", "records", *acts, **acl)
        yield here, endpoint


async def ask(
    here: Interface, method: str, path: str, body: Any = None, as_: str = "writer", **headers: str
) -> Said:
    sent = {"json": body} if body is not None else {}
    return await here.client(method, path, as_, headers={**PERSON, **headers}, **sent)


async def twice(here: Interface, path: str, body: Any, as_: str) -> Said:
    """The request again, under the key that it has by itself."""
    return await ask(here, "POST", path, body, as_, **{"Idempotency-Key": path.replace("/", ".")})


def replayed(said: Said) -> bool:
    if said.status == 429:
        assert (said.json["code"], said.headers.get("Idempotent-Replayed")) == (
            "idempotency_check_failed",
            None,
        )
        assert b"Lund" not in said.body
        return False
    assert said.status < 300, said.json
    told: str | None = said.headers.get("Idempotent-Replayed")
    return told == "true"


#: Requests whose answers show records, and the record of each that is taken away afterwards.
SHOWING: dict[str, tuple[str, Any, str]] = {
    "create": (M, {"id": "n", "region": "north", "city": "Lund"}, "n"),
    "create v2": ("/api/v2/models/guest", {"id": "n", "region": "north"}, "n"),
    "batch": (
        M + "/batch", [{"id": key, "region": "north", "city": "Lund"} for key in ("m", "n")], "m",
    ),
    "update": (M + "/batch/update", [{"id": "a", "city": "Lund"}], "a"),
    "clone": (M + "/clone", {"filter": {"id": "a"}, "update_with": {"id": "n"}}, "n"),
}  # fmt: skip


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
@pytest.mark.parametrize("name", SHOWING)
async def test_what_is_outside_of_the_rows_by_now_is_not_shown_again(scene, name):
    here, _ = scene
    path, body, key = SHOWING[name]
    await ask(here, "POST", M, {"id": "a", "region": "north", "city": "Umeå"})
    assert not replayed(await twice(here, path, body, "under:north"))
    assert replayed(await twice(here, path, body, "under:north"))
    for region, shown in (("south", False), ("north", True)):
        await ask(here, "POST", M + "/batch/update", [{"id": key, "region": region}])
        assert replayed(await twice(here, path, body, "under:north")) is shown
    await ask(here, "DELETE", f"{M}/{key}")
    assert not replayed(await twice(here, path, body, "under:north"))


@pytest.mark.parametrize("name", SHOWING)
async def test_the_filter_endpoint_is_asked_again(scene, name):
    here, endpoint = scene
    path, body, key = SHOWING[name]
    await ask(here, "POST", M, {"id": "a", "city": "Umeå"})
    assert not replayed(await twice(here, path, body, "under:acl"))
    endpoint.told()
    assert replayed(await twice(here, path, body, "under:acl"))
    asked = endpoint.told()
    assert [act for act, _ in asked] == ["read"]
    assert key in asked[0][1]
    endpoint.allowed["read"] = ["somebody else"]
    assert not replayed(await twice(here, path, body, "under:acl"))
    endpoint.says = [answered(b"{}")]
    said = await twice(here, path, body, "under:acl")
    assert (said.status, said.json["code"]) == (502, "filter_endpoint_wrong")


async def test_a_failing_filter_endpoint_does_not_tell_whether_the_record_is_still_there(scene):
    here, endpoint = scene
    await twice(here, M, {"id": "n"}, "under:acl")
    endpoint.says = [answered(b"{}"), answered(b"{}")]
    there = await twice(here, M, {"id": "n"}, "under:acl")
    await ask(here, "DELETE", f"{M}/n")
    gone = await twice(here, M, {"id": "n"}, "under:acl")
    assert (there.status, there.json["code"]) == (502, "filter_endpoint_wrong")
    assert (gone.status, gone.json["code"]) == (502, "filter_endpoint_wrong")


async def test_what_shows_no_record_is_told_again_without_asking(scene):
    here, endpoint = scene
    for key in ("a", "b"):
        await ask(here, "POST", M, {"id": key})
    endpoint.told()
    for path, body in (
        (M + "/a/migrate/b", None),
        (M + "/batch/delete", {"filter": {"id": ["b"]}}),
        ("/v2/storage/records/se/batchDelete", {"filter": {"record_key": ["r"]}}),
    ):
        await ask(here, "POST", "/api/records", {"country": "se", "record_key": "r"})
        as_ = "under:tokens" if "records" in path else "under:acl"
        headers = {"x-env-id": "default", "Idempotency-Key": "k"}
        first = await ask(here, "POST", path, body, as_, **headers)
        asked = endpoint.told()
        endpoint.allowed = {"read": [], "write": [], "delete": []}
        again = await ask(here, "POST", path, body, as_, **headers)
        assert (again.status, again.body, replayed(again)) == (first.status, first.body, True)
        assert (bool(asked), endpoint.told()) == (True, [])
        endpoint.allowed = dict.fromkeys(("read", "write", "delete"), "*")


async def test_who_may_not_read_was_told_no_more_than_it_sent(scene):
    here, _ = scene
    body = {"id": "n", "region": "north", "city": "Lund"}
    first = await twice(here, M, body, "under:writes")
    await ask(here, "POST", M + "/batch/update", [{"id": "n", "region": "south"}])
    assert (await twice(here, M, body, "under:writes")).body == first.body


async def test_files_are_those_of_a_record(scene):
    here, endpoint = scene
    await ask(here, "POST", M, {"id": "a"})

    async def upload() -> Said:
        form = FormData()
        form.add_field("file", b"a page", filename="a.txt", content_type="text/plain")
        headers = {**PERSON, "x-filename": "a.txt", "Idempotency-Key": "k"}
        said: Said = await here.client(
            "POST", f"{M}/a/files", "under:acl", data=form, headers=headers
        )
        return said

    assert (await upload()).status == 201
    for allowed, shown in (("*", True), (["b"], False)):
        endpoint.allowed["read"] = allowed
        assert replayed(await upload()) is shown


async def test_rehashed_tokens_are_those_of_records(scene):
    here, endpoint = scene
    await ask(
        here,
        "POST",
        "/api/records",
        {"country": "se", "record_key": "r", "profile_key": "p", "key1": "Lund"},
    )
    rules = {"key1": {"strategy": "alphaNumeric", "strategyOptions": {}}}
    body = {"dtk": "a" * 96, "keys": ["p"], "rules": rules}
    assert (await twice(here, "/api/records/rehash", body, "under:tokens")).status == 200
    for allowed, shown in (("*", True), ([], False)):
        endpoint.allowed["read"] = allowed
        assert replayed(await twice(here, "/api/records/rehash", body, "under:tokens")) is shown


async def test_what_a_function_made_of_records_is_not_kept(tmp_path):
    async with interface(tmp_path) as here:
        fields = {"id": {"type": "primary_key"}, "city": {"type": "string"}}
        age = {"type": "integer", "storage": "indexed"}
        await here.declare("contact", {"fields": {**fields, "age": age}})
        await here.policy("all", "contact", "read")
        await here.policy("some", "contact", "read", rows={"filter": {"age": {"$gt": 30}}})
        await ask(here, "POST", "/api/models/contact", {"id": "a", "city": "Lund", "age": 40})
        body = {"arguments": {"city": "Lund"}}
        for as_ in ("writer", "under:all", "under:some"):
            first = await twice(here, "/api/functions/oldest", body, as_)
            assert first.json == {"result": 40}
            assert not replayed(await twice(here, "/api/functions/oldest", body, as_))


async def test_what_was_answered_at_home_is_not_given_again_outside_of_the_country(tmp_path):
    wall = Firewall(Mode.MASK, "se", (), None, Trusted((ip_network("127.0.0.1"),)))
    async with interface(tmp_path, firewall=wall) as here:
        await here.declare("guest", DEFINITION)
        body = {"id": "n", "city": "Lund"}
        once = {"Idempotency-Key": "k"}
        first = await ask(here, "POST", M, body, **once)
        abroad = {**once, "X-Forwarded-For": "192.0.2.7"}
        assert not replayed(await ask(here, "POST", M, body, **abroad))
        assert (await ask(here, "POST", M, body, **once)).body == first.body


async def test_whoever_is_under_no_policy_is_answered_as_ever(scene):
    here, _ = scene
    body = {"id": "n", "city": "Lund"}
    first = await twice(here, M, body, "writer")
    await ask(here, "POST", M + "/batch/update", [{"id": "n", "region": "south"}])
    again = await twice(here, M, body, "writer")
    assert (again.body, replayed(again)) == (first.body, True)


# ---------------------------------------------------------------------- with the record

ENDS: dict[str, tuple[str, str, Any]] = {
    "delete": ("DELETE", M + "/{}", None),
    "batch delete": ("POST", M + "/batch/delete", {"filter": {"id": ["m", "n", "a"]}}),
    "cascade": ("DELETE", M + "/root?cascadeBy=city", None),
    "migration": ("POST", M + "/{}/migrate/other", None),
}


async def sealed(here: Interface, schema: str = "guest") -> list[bool]:
    """Of each kept answer that there is in a schema, whether its bytes are there."""
    collection = here.services.spaces["default"].catalog.records(schema).collection
    return [bool(reply.sealed) for reply in await here.store.reply_scan(collection.table, b"", 100)]


async def ended(here: Interface, how: str, key: str) -> None:
    if how == "expiry":
        here.clock.advance(10_000)
        await here.vault.maintain()
        return
    method, path, body = ENDS[how]
    said = await ask(here, method, path.format(key), body)
    assert said.status == 204, said.json


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
@pytest.mark.parametrize("how", [*ENDS, "expiry"])
@pytest.mark.parametrize("name", SHOWING)
async def test_a_kept_answer_goes_in_the_commit_that_deletes_a_record_of_it(scene, name, how):
    here, _ = scene
    path, body, key = SHOWING[name]
    ends = {"expires_at": to_wire(here.clock() + 5000)} if how == "expiry" else {}
    more = {"city": "root", **ends}
    for one in ("root", "other"):
        await ask(here, "POST", M, {"id": one, "city": "x"})
    await ask(here, "POST", M, {"id": "a", "region": "north", **more})
    if name == "clone":
        body = {**body, "update_with": {**body["update_with"], **more}}
    else:
        body = [{**one, **more} for one in body] if isinstance(body, list) else {**body, **more}
    assert (await twice(here, path, body, "writer")).status == 201
    assert replayed(await twice(here, path, body, "writer"))
    assert await sealed(here) == [True]
    await ended(here, how, key)
    assert await sealed(here) == [False]
    said = await twice(here, path, body, "writer")
    assert not replayed(said)
    assert "deleted" in said.json["detail"]
    found = await ask(here, "POST", M + "/find", {"filter": {"id": key}})
    assert found.json["data"] == []


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
async def test_a_kept_answer_about_a_file_goes_with_the_file_and_with_the_record(scene):
    here, _ = scene
    once = {"Idempotency-Key": "file"}

    async def upload(key: str, name: str) -> Said:
        form = FormData()
        form.add_field("file", b"x", filename="f", content_type="text/plain")
        said: Said = await here.client(
            "POST", f"{M}/{key}/files", data=form, headers={"x-filename": name, **once}
        )
        return said

    for key in ("m", "n"):
        await ask(here, "POST", M, {"id": key})
    made = [await upload("m", "lund.txt"), await upload("n", "umea.txt")]
    assert {one.status for one in made} == {201}
    assert await sealed(here) == [True] * 2
    await ask(here, "DELETE", made[0].json["download_link"])
    assert sorted(await sealed(here)) == [False, True]
    assert (await upload("m", "lund.txt")).status == 429
    assert (await upload("n", "umea.txt")).headers["Idempotent-Replayed"] == "true"
    await ask(here, "DELETE", M + "/n")
    assert await sealed(here) == [False] * 2


@pytest.mark.parametrize("scene", ENGINES, indirect=True)
async def test_a_kept_answer_goes_with_a_value_that_is_cleared(scene: Here) -> None:
    here, _ = scene
    record = {"id": "n", "region": "north", "city": "Lund"}
    assert (await twice(here, M, record, "writer")).status == 201
    changed = await ask(here, "PATCH", M + "/n", {"region": "south"})
    assert changed.status == 200
    assert replayed(await twice(here, M, record, "writer"))

    update = await ask(here, "PATCH", M + "/n", {"city": None}, **{"Idempotency-Key": "clear"})

    assert update.status == 200
    assert not replayed(await twice(here, M, record, "writer"))
    again = await ask(here, "PATCH", M + "/n", {"city": None}, **{"Idempotency-Key": "clear"})
    assert (again.status, again.headers.get("Idempotent-Replayed")) == (200, "true")

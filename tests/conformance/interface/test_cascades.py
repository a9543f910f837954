"""What ``cascadeBy`` takes along for callers who do not see every record: what they see, and no
word about anything else.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.api import ENGINES, Interface, Said, interface
from tests.support.filterendpoint import URL, FilterEndpoint, filtering

M = "/api/models/guest"
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        "region": {"type": "string", "storage": "indexed"},
        "email": {"type": "string"},
        "parent": {"type": "string", "storage": "indexed"},
    }
}
NORTH = {"filter": {"region": "north"}}
PERSON = {"x-client-auth": "Bearer person-1"}
Here = tuple[Interface, FilterEndpoint]


@pytest.fixture(params=ENGINES)
async def scene(request, tmp_path) -> AsyncIterator[Here]:
    """``a``, and what hangs on it from record to record: ``b``, ``c``, ``d``."""
    async with interface(tmp_path, request.param) as here, filtering(here) as endpoint:
        await here.declare("guest", DEFINITION)
        await here.policy("north", "guest", "read", "write", "delete", rows=NORTH)
        await here.policy("reads", "guest", "read")
        await here.policy(
            "acl", "guest", "read", "write", "delete", external_acl=URL.format(endpoint.port)
        )
        await here.policy("ends", "guest", "delete", external_acl=URL.format(endpoint.port))
        for key, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "c")):
            body = {"id": key, "region": "north", "email": f"{key}@example.com", "parent": parent}
            assert (await here.client("POST", M, json=body)).status == 201
        yield here, endpoint


async def ask(
    here: Interface, method: str, path: str, as_: str = "writer", body: Any = None
) -> Said:
    return await here.client(
        method, path, as_, headers=PERSON, **({"json": body} if body is not None else {})
    )


async def put(here: Interface, key: str, **fields: Any) -> None:
    assert (
        await ask(here, "POST", M + "/batch/update", "writer", [{"id": key, **fields}])
    ).status == 201


async def left(here: Interface) -> str:
    found = await ask(here, "POST", M + "/find", "writer", {})
    return "".join(sorted(record["id"] for record in found.json["data"] if len(record["id"]) == 1))


async def cascade(
    here: Interface, as_: str, by: str = "parent", key: str = "a"
) -> tuple[int, str | None]:
    said = await ask(here, "DELETE", f"{M}/{key}?cascadeBy={by}", as_)
    return said.status, said.json["code"] if said.body else None


async def test_nobody_guesses_values_by_what_hangs_on_a_record_of_his_own(scene):
    here, endpoint = scene
    await put(here, "d", region="south")
    endpoint.allowed["read"] = endpoint.allowed["delete"] = ["d@example.com", "nobody@example.com"]
    for as_ in ("under:north", "under:acl"):
        for guess in ("d@example.com", "nobody@example.com"):
            mine = {"id": guess, "region": "north"}
            assert (await ask(here, "POST", M, as_, mine)).status == 201
            assert await cascade(here, as_, "email", guess) == (204, None)
            assert await left(here) == "abcd"


async def test_what_is_outside_of_the_rows_stays_and_so_does_what_hangs_on_that(scene):
    here, _ = scene
    await put(here, "c", region="south")
    assert await cascade(here, "under:north") == (204, None)
    assert await left(here) == "cd"


async def test_what_is_seen_and_may_not_be_deleted_refuses_the_whole(scene):
    here, _ = scene
    await put(here, "c", region="south")
    said = await ask(here, "DELETE", M + "/a?cascadeBy=parent", "under:north,reads")
    assert (said.status, said.json["code"], said.json["errors"][0]["source"]) == (
        401,
        "access_denied",
        "cascadeBy",
    )
    assert await left(here) == "abcd"
    await put(here, "c", region="north")
    assert await cascade(here, "under:north,reads") == (204, None)
    assert await left(here) == ""


async def test_what_the_filter_endpoint_keeps_from_the_caller_stays(scene):
    here, endpoint = scene
    endpoint.allowed = {"read": ["a", "b", "c", "d"], "delete": ["a", "b", "d"]}
    assert await cascade(here, "under:acl") == (401, "access_denied")
    endpoint.allowed["read"] = ["a", "b", "d"]
    endpoint.told()
    assert await cascade(here, "under:acl") == (204, None)
    assert await left(here) == "cd"
    assert endpoint.told() == [("delete", ("a",)), ("delete", ("b", "c", "d")), ("read", ("c",))]


async def test_who_may_not_read_at_all_sees_nothing_that_it_may_not_delete(scene):
    here, endpoint = scene
    endpoint.allowed = {"read": "*", "delete": ["a", "b"]}
    assert await cascade(here, "under:ends") == (204, None)
    assert await left(here) == "cd"
    assert [act for act, _ in endpoint.told()] == ["delete", "delete"]

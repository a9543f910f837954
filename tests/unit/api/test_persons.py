"""What is kept of a person over all schemas, and its end, for callers with and without policies."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.services import record_ids
from proxy.clock import to_wire
from tests.support.api import Interface, Said, interface
from tests.support.audit import MAC
from tests.support.examples import CONTACT

ANN = "ann@example.com"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path) as made:
        for name in ("contact", "order"):
            await made.declare(name, CONTACT)
        for schema, record in (
            ("contact", {"id": "c-1", "email": ANN, "name": "Ann", "city": "Lund"}),
            ("contact", {"id": "c-2", "email": "bo@example.com", "city": "Lund"}),
            ("order", {"id": "o-1", "name": "Ann@Example.com", "city": "Lund"}),
            ("order", {"id": "o-2", "profile": {"mails": ["x", ANN]}, "city": "Visby"}),
        ):
            made.clock.advance(1000)
            answer = await made.client("POST", f"/api/models/{schema}", json=record)
            assert answer.status == 201
        record = {"country": "se", "record_key": "r-1", "key7": ANN}
        assert (await made.client("POST", "/api/records", json=record)).status == 201
        yield made


async def ask(
    here: Interface, what: str, by: str = "writer", value: Any = ANN, **more: Any
) -> Said:
    path = f"/api/persons/{what}"
    if "next" in more:
        path += f"?next={more.pop('next')}"
    return await here.client("POST", path, by, json={"value": value}, **more)


def named(answer: Said) -> list[tuple[str, str, list[str]]]:
    assert answer.status == 200, answer.body
    return sorted((one["schema"], one["record_key"], one["fields"]) for one in answer.json["data"])


EVERYWHERE = [
    ("contact", "c-1", ["email"]),
    ("order", "o-1", ["name"]),
    ("order", "o-2", ["profile"]),
    ("records", "r-1", ["key7"]),
]


async def test_everything_is_found_and_erased_once(here: Interface) -> None:
    answer = await ask(here, "find")
    assert named(answer) == EVERYWHERE
    assert answer.json["meta"]["looked_at"] == 5
    assert next(one for one in answer.json["data"] if one["record_key"] == "o-2")["record"][
        "profile"
    ] == {"mails": ["x", ANN]}
    answer = await ask(here, "erase")
    assert named(answer) == EVERYWHERE
    assert all(one["erased"] for one in answer.json["data"])
    assert named(await ask(here, "find")) == named(await ask(here, "erase")) == []
    left = await here.client("POST", "/api/models/contact/find", json={})
    assert [one["id"] for one in left.json["data"]] == ["c-2"]


async def test_what_a_restored_backup_brings_back_is_found_by_its_names_in_the_log(
    here: Interface,
) -> None:
    def body(*records: tuple[str, str]) -> dict[str, Any]:
        at = to_wire(here.clock())
        return {"deleted": {record_ids(MAC)("default", *one): at for one in records}}

    deleted = body(("contact", "c-1"), ("order", "o-1"), ("order", "x"))
    here.clock.advance(1000)
    answer = await here.client("PATCH", "/api/models/order/o-1", json={"city": "Ystad"})
    assert answer.status == 200  # it was written after that, so somebody wants it
    await here.policy("reads", "contact", "read")
    assert (
        await here.client("POST", "/api/persons/erase", "under:reads", json=deleted)
    ).status == 401
    for what, wanted in (("find", ["c-1"]), ("erase", ["c-1"]), ("find", [])):
        answer = await here.client("POST", f"/api/persons/{what}", json=deleted)
        assert named(answer) == [("contact", key, []) for key in wanted]
    for wrong, pointer in (
        ({"deleted": {}}, "/deleted"),
        ({"deleted": ["short"]}, "/deleted"),
        ({"deleted": {"a": "today"}}, "/deleted"),
        ({"deleted": {"a": 5}}, "/deleted"),
        ({**deleted, "value": "x"}, "/value"),
    ):
        answer = await here.client("POST", "/api/persons/find", json=wrong)
        assert (answer.status, answer.json["errors"][0]["source"]) == (400, pointer)


async def test_only_what_the_client_sees_and_may_delete_is_found_and_erased(
    here: Interface,
) -> None:
    await here.policy("lund", "order", "read", rows={"filter": {"city": "Lund"}})
    await here.policy(
        "masked", "order", "read", fields={"name": {"valueType": "masked", "mask": {"last": 2}}}
    )
    await here.policy("clear", "contact", "read", "delete")
    assert named(await ask(here, "find", "under:lund")) == [EVERYWHERE[1]]
    assert named(await ask(here, "find", "under:clear")) == EVERYWHERE[:1]
    assert (await ask(here, "erase", "under:lund")).json["code"] == "access_denied"
    both = "under:lund,clear"
    assert named(await ask(here, "erase", both)) == EVERYWHERE[:1]
    assert named(await ask(here, "find")) == EVERYWHERE[1:]


async def test_a_purpose_that_a_policy_asks_for_is_needed(here: Interface) -> None:
    await here.policy("why", "contact", "read", "delete", purpose="any")
    refused = await ask(here, "find", "under:why")
    assert refused.json["code"] == "purpose_required"
    told = await ask(here, "find", "under:why", headers={"x-purpose": "request of the person"})
    assert named(told) == EVERYWHERE[:1]


async def test_a_long_walk_goes_on_with_its_own_cursor(
    here: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.vault.records.person._ROWS", 1)
    monkeypatch.setattr("proxy.api.persons._LOOKED", 2)
    answer = await ask(here, "find")
    again, found, cursor = answer.json["meta"]["next"], named(answer), ""
    for _ in range(9):
        if (cursor := answer.json["meta"]["next"]) is not None:
            answer = await ask(here, "find", next=cursor)
            found += named(answer)
    assert sorted(found) == EVERYWHERE
    assert not cursor
    for by, value in (("chief", ANN), ("writer", "bo@example.com")):
        answer = await ask(here, "find", by, value, next=again)
        assert (answer.status, answer.json["code"]) == (400, "invalid_input")
    assert (await ask(here, "find", next="x" + again)).status == 400
    path, more = f"/api/persons/find?next={again}", {"value": ANN, "also": ["x"]}
    assert (await here.client("POST", path, json={"value": ANN})).status == 200
    assert (await here.client("POST", path, json=more)).status == 400


@pytest.mark.parametrize("value", ["", " ", 17, None, "x" * 1001, ["a"]])
async def test_what_is_no_value_is_refused(here: Interface, value: Any) -> None:
    answer = await ask(here, "find", value=value)
    assert (answer.status, answer.json["errors"][0]["source"]) == (400, "/value")


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({"also": "x"}, "/also"), ({"also": [""]}, "/also/0"), ({"also": ["x"] * 21}, "/also"),
        ({"mentions": 1}, "/mentions"), ({"what": 1}, "/what"),
    ],
)  # fmt: skip
async def test_further_members_are_checked(here: Interface, more: Any, source: str) -> None:
    answer = await here.client("POST", "/api/persons/find", json={"value": ANN, **more})
    assert (answer.status, answer.json["errors"][0]["source"]) == (400, source)


async def test_further_values_find_more_records(here: Interface) -> None:
    body = {"value": "ann@EXAMPLE.com", "also": ["bo@example.com"]}
    answer = await here.client("POST", "/api/persons/find", json=body)
    assert named(answer) == sorted([*EVERYWHERE, ("contact", "c-2", ["email"])])


async def test_mentions_are_told_where_asked_and_never_erased(here: Interface) -> None:
    record = {"id": "o-9", "name": "call  Ann@example.com back"}
    assert (await here.client("POST", "/api/models/order", json=record)).status == 201
    body = {"value": ANN, "mentions": True}
    answer = await here.client("POST", "/api/persons/find", json=body)
    (told,) = [one for one in answer.json["data"] if one["record_key"] == "o-9"]
    assert (told["fields"], told["mentions"]) == ([], ["name"])
    assert named(await ask(here, "find")) == EVERYWHERE
    refused = await here.client("POST", "/api/persons/erase", json=body)
    assert (refused.status, refused.json["errors"][0]["source"]) == (400, "/mentions")
    assert named(await ask(here, "erase")) == EVERYWHERE
    answer = await here.client("POST", "/api/persons/find", json=body)
    assert [one["record_key"] for one in answer.json["data"]] == ["o-9"]


async def test_what_was_found_and_deleted_stands_in_the_audit_log(here: Interface) -> None:
    await ask(here, "erase")
    lines = [one for one in here.audit.lines if one.get("operation") == "erase_person"]
    assert {(one["event"], one["schema"]) for one in lines} >= {
        ("delete", "contact"), ("delete", "order"), ("delete", "records"), ("reveal", "contact"),
    }  # fmt: skip
    assert ANN not in str(lines)

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.model.rights import Principal
from tests.support.api import ENGINES, TOKENS, Interface, Said, interface
from tests.support.rehashing import DTK
from tests.support.table import table

REHASH = "/api/records/rehash"
EMAIL = {"strategy": "emailPersistent"}
RANDOM = {"strategy": "alphaNumeric"}


@pytest.fixture(params=ENGINES)
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        for number, email in enumerate(("ann@x.se", "bo@x.se", "ANN@x.se")):
            record = {
                "country": "se",
                "record_key": f"r{number}",
                "profile_key": f"p{number % 2}",
                "key1": email,
            }
            assert (await made.client("POST", "/api/records", json=record)).status == 201
        yield made


async def rehash(here: Interface, rules: Any, *keys: str, **more: Any) -> Said:
    return await here.client(
        "POST", REHASH, json={"dtk": DTK, "keys": list(keys), "rules": rules}, **more
    )


async def test_the_answer_has_the_new_values_by_record(here: Interface) -> None:
    said = await rehash(
        here, {"key1": EMAIL, "key2": RANDOM, "key": {"strategy": "masking"}}, "p0", "nobody"
    )
    assert (said.status, said.json["meta"]) == (200, {"count": 2})
    first, second = said.json["data"]
    assert (first["record_key"], first["profile_key"], second["record_key"]) == ("r0", "p0", "r2")
    assert first["fields"] == {"key1": second["fields"]["key1"], "key2": None, "key": "**"}
    assert (await rehash(here, {"key1": EMAIL}, "p0")).json["data"][0]["fields"] == {
        "key1": first["fields"]["key1"]
    }
    found = await here.client(
        "POST", "/api/records/find", json={"country": "se", "filter": {"key": "r0"}}
    )
    assert (found.json["data"][0]["key1"], found.json["data"][0]["version"]) == ("ann@x.se", 1)


async def test_tokens_lead_back_until_they_are_forgotten(here: Interface) -> None:
    old, new = [
        (await rehash(here, {"key1": RANDOM}, "p1")).json["data"][0]["fields"]["key1"]
        for _ in range(2)
    ]
    said = await here.client("POST", REHASH + "/resolve", json={"tokens": [old, "nothing"]})
    told = {"token": old, "record_key": "r1", "profile_key": "p1", "field": "key1", "newest": new}
    assert said.json == {"data": [told], "meta": {"count": 1}}
    begun = await here.client("POST", REHASH + "/all", "chief", json={"forget": True})
    assert (begun.status, begun.json["state"]) == (202, "running")
    await settled(here)
    assert (await here.client("POST", REHASH + "/resolve", json={"tokens": [old]})).json[
        "data"
    ] == []
    said = await here.client("GET", REHASH + "/tokens", "chief")
    assert said.json["data"] == [{"record_key": "r1", "profile_key": "p1", "fields": {"key1": new}}]


async def test_who_may_not_write_lets_no_tokens_be_forgotten(
    here: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.policy("look", "records", "read")
    await here.policy("write", "records", "read", "write")
    for name, status in (("look", 401), ("write", 202)):
        bound = Principal(name, "default", admin=True, policies=(name,))
        monkeypatch.setitem(TOKENS, name, bound)
        begun = await here.client("POST", REHASH + "/all", name, json={"forget": True})
        assert begun.status == status
    await settled(here)


async def settled(here: Interface) -> dict[str, Any]:
    job = here.services.spaces["default"].rehash
    assert job is not None
    await job.settled()
    return dict((await here.client("GET", REHASH + "/all", "chief")).json)


async def test_all_records_in_the_background(here: Interface) -> None:
    assert (await here.client("GET", REHASH + "/all", "chief")).json == {"state": "none"}
    assert (await here.client("DELETE", REHASH + "/all", "chief")).json == {"state": "none"}
    wanted = {"dtk": DTK, "rules": {"key1": EMAIL}}
    assert (await here.client("POST", REHASH + "/all", "chief", json=wanted)).status == 202
    done = await settled(here)
    assert (done["state"], done["total"], done["done"], done["failed"]) == ("done", 3, 3, 0)
    pages: list[Any] = []
    following: dict[str, str] | None = {}
    while following is not None:
        said = await here.client(
            "GET", REHASH + "/tokens", "chief", params={"limit": "2", **following}
        )
        pages += said.json["data"]
        following = {"next": said.json["meta"]["next"]} if said.json["meta"]["next"] else None
    assert [one["record_key"] for one in pages] == ["r0", "r1", "r2"]
    assert pages[0]["fields"] == pages[2]["fields"] != pages[1]["fields"]


async def test_a_repetition_under_an_idempotency_key_makes_nothing_twice(here: Interface) -> None:
    said = [
        await rehash(here, {"key1": RANDOM}, "p1", headers={"Idempotency-Key": "once"})
        for _ in range(2)
    ]
    assert said[0].json == said[1].json


@table(
    ("change", "places"),
    [
        ({"dtk": "x"}, ["/dtk"]),
        ({"keys": []}, ["/keys"]),
        ({"keys": "p0"}, ["/keys"]),
        ({"rules": {}}, ["/rules"]),
        (
            {"dtk": 7, "rules": {"key1": {"strategy": "rot13"}, "key2": 1}},
            ["/dtk", "/rules/key1", "/rules/key2"],
        ),
        ({"more": 1}, ["/more"]),
    ],
)
async def test_every_fault_of_a_request_is_told(
    here: Interface, change: dict[str, Any], places: list[str]
) -> None:
    wanted = {"dtk": DTK, "keys": ["p0"], "rules": {"key1": EMAIL}, **change}
    said = await here.client("POST", REHASH, json=wanted)
    assert (said.status, said.json["code"]) == (400, "invalid_input")
    assert [one["source"] for one in said.json["errors"]] == places


async def test_a_value_that_does_not_fit_and_another_country_are_refused(here: Interface) -> None:
    said = await rehash(here, {"key1": {"strategy": "luhn"}}, "p0")
    assert (said.status, said.json["code"]) == (422, "value_unfit")
    assert "ann" not in str(said.body).lower()
    wanted = {"country": "de", "dtk": DTK, "keys": ["p0"], "rules": {"key1": EMAIL}}
    assert (await here.client("POST", REHASH, json=wanted)).status == 409


@pytest.mark.parametrize(
    "content", [{}, {"forget": "yes"}, {"dtk": DTK}, {"forget": True, "rules": {}}, {"keys": []}]
)
async def test_a_run_is_read_as_strictly(here: Interface, content: dict[str, Any]) -> None:
    said = await here.client("POST", REHASH + "/all", "chief", json=content)
    assert (said.status, said.json["code"]) == (400, "invalid_input")
    assert (await here.client("GET", REHASH + "/all")).status == 403  # for administrators alone


async def test_policies_decide_what_may_be_rehashed_and_resolved(here: Interface) -> None:
    await here.policy("all", "records", "read", "write")
    await here.policy("reader", "records", "read")
    await here.policy(
        "veiled",
        "records",
        "read",
        "write",
        fields={"key1": {"valueType": "masked", "mask": {"last": 2}}, "body": "hidden"},
    )
    await here.policy("one", "records", "read", "write", rows={"filter": {"profile_key": "p1"}})
    assert (await rehash(here, {"key1": EMAIL}, "p0", as_="under:reader")).json[
        "code"
    ] == "access_denied"
    for rules, places in (
        ({"key1": EMAIL, "key2": EMAIL}, ["/rules/key1"]),
        ({"name": EMAIL, "*": EMAIL}, ["/rules/name", "/rules/*"]),
    ):
        said = await rehash(here, rules, "p0", as_="under:veiled")
        assert (said.status, [one["source"] for one in said.json["errors"]]) == (400, places)
    said = await rehash(here, {"key1": RANDOM}, "p0", "p1", as_="under:one")
    assert [one["record_key"] for one in said.json["data"]] == ["r1"]
    (token,) = said.json["data"][0]["fields"].values()
    (other,) = (
        (await rehash(here, {"key1": RANDOM}, "p0", as_="under:all"))
        .json["data"][0]["fields"]
        .values()
    )
    for name, found in (("one", [token]), ("all", [token, other]), ("veiled", [])):
        said = await here.client(
            "POST", REHASH + "/resolve", f"under:{name}", json={"tokens": [token, other]}
        )
        assert [one["token"] for one in said.json["data"]] == found


@pytest.mark.parametrize(
    ("sight", "told"),
    [
        ("hidden", {"profile_key": None}),
        ({"valueType": "masked", "mask": {"last": 1}}, {"profile_key": "*1"}),
    ],
)
async def test_what_a_token_stands_for_is_told_as_the_caller_sees_it(
    here: Interface, monkeypatch: pytest.MonkeyPatch, sight: Any, told: dict[str, str | None]
) -> None:
    await here.policy("veiled", "records", "read", fields={"profile_key": sight})
    (token,) = (await rehash(here, {"key1": RANDOM}, "p1")).json["data"][0]["fields"].values()
    said = await here.client("POST", REHASH + "/resolve", "under:veiled", json={"tokens": [token]})
    assert said.json["data"] == [
        {"token": token, "record_key": "r1", **told, "field": "key1", "newest": token}
    ]
    monkeypatch.setitem(
        TOKENS, "veiled chief", Principal("veiled chief", "default", True, ("veiled",))
    )
    said = await here.client("GET", REHASH + "/tokens", "veiled chief")
    assert said.json["data"] == [{"record_key": "r1", **told, "fields": {"key1": token}}]

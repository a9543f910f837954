"""Access policies: who may write and not read, and what is shown in place of a value and comes back."""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest

from proxy.edge.firewall import Firewall, Mode
from proxy.net.client_address import Trusted
from tests.conformance.interface.test_policies import (
    ABROAD,
    ANN,
    BO,
    DEFINITION,
    FIELDS,
    M,
    ask,
    code,
    found,
    people,
)
from tests.support.api import ENGINES, Interface, interface


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path) -> AsyncIterator[Interface]:
    async with people(tmp_path, request.param) as made:
        yield made


# ---------------------------------------------------------------------- who may write and not read


async def test_who_may_only_write_is_told_no_more_than_it_sent(here):
    sent = {"id": "x", "region": "north", "age": 5}
    made = (await ask(here, "POST", M, sent, "under:w")).json
    assert {**made, **sent} == made
    (updated,) = (
        await ask(here, "POST", M + "/batch/update", [{"id": "ann", "age": 5}], "under:w")
    ).json
    assert updated.keys() == {"id", "age", "created_at", "updated_at", "meta"}
    chosen = {"records": [{"id": "ann", "age": 6}], "return_keys": ["age", "name"]}
    assert (await ask(here, "POST", M + "/batch/update", chosen, "under:w")).json == [{"age": 6}]
    by = {"search_key": "name", "records": [{"name": "Ann Ek", "age": 1}]}
    assert code(await ask(here, "POST", M + "/batch/update", by, "under:w")) == (
        401,
        "access_denied",
    )


async def test_where_a_field_is_hidden_that_every_record_needs_none_can_be_made(here):
    fields = {
        "id": {"type": "primary_key"},
        "a": {"type": "string", "required": True},
        "b": {"type": "string"},
    }
    await here.declare("strict", {"fields": fields})
    await here.policy("mine", "strict", "read", "write", fields={"a": "hidden"})
    assert code(await ask(here, "POST", "/api/models/strict", {"id": "x"}, "under:mine")) == (
        401,
        "access_denied",
    )
    assert (
        await ask(here, "POST", "/api/models/strict", {"id": "y", "a": "1"}, "writer")
    ).status == 201
    update = await ask(
        here, "POST", "/api/models/strict/batch/update", [{"id": "y", "b": "2"}], "under:mine"
    )
    assert (update.status, update.json[0]["b"]) == (201, "2")
    clone = {"filter": {"id": "y"}, "update_with": {"id": "z"}}
    assert (await ask(here, "POST", "/api/models/strict/clone", clone, "under:mine")).status == 201


async def test_a_field_that_goes_takes_nothing_out_of_hiding(here):
    less = {
        name: field
        for name, field in DEFINITION["fields"].items()
        if name not in ("passport", "region")
    }
    await here.declare("person", {"fields": less})
    await here.catalog.settled("person")
    assert await found(here) == []  # the rows cannot be told any more: none is there
    await here.policy("all", "person", "read", fields=FIELDS)
    assert "passport" not in (await found(here))[0]
    await here.declare("person", {"fields": {**less, "passport": {"type": "string"}}})
    assert code(await ask(here, "POST", M + "/find", {"filter": {"passport": "x"}})) == (
        400,
        "invalid_filter",
    )


# ---------------------------------------------------------------------- what is shown comes back


async def stored(here: Interface, key: str = "ann") -> dict[str, Any]:
    (record,) = await found(here, {"id": key}, "writer")
    return record


async def test_a_shown_text_that_comes_back_leaves_the_value(here):
    (shown,) = await found(here, {"id": "ann"})
    sent = {"id": "ann", "email": shown["email"], "phone": shown["phone"], "city": "Malmö"}
    said = await ask(here, "POST", M + "/batch/update", [sent, {"id": "bo", "phone": "99"}])
    assert said.status == 201
    after = await stored(here)
    assert (after["email"], after["phone"], after["city"]) == (ANN["email"], ANN["phone"], "Malmö")
    assert (await found(here, {"id": "ann"}))[0]["email"] == shown["email"]
    written = [
        line for line in here.audit.lines if line["event"] == "write" and line["by"] == "under:all"
    ][-1]
    assert (set(written["fields"]) & {"city", "email"}, written["count"]) == ({"city"}, 2)


async def test_a_redacted_text_of_an_earlier_value_comes_back_as_no_value(here):
    (shown,) = await found(here, {"id": "ann"})
    await ask(
        here, "POST", M + "/batch/update", [{"id": "ann", "email": "new@example.com"}], "writer"
    )
    said = await ask(
        here, "POST", M + "/batch/update", [{"id": "ann", "email": shown["email"], "age": 41}]
    )
    assert said.status == 201
    assert ((await stored(here))["email"], (await stored(here))["age"]) == ("new@example.com", 41)


async def test_a_mask_of_another_value_is_refused_and_nothing_is_stored(here):
    (shown,) = await found(here, {"id": "ann"})
    await ask(here, "POST", M + "/batch/update", [{"id": "ann", "phone": "+46 70 99 99"}], "writer")
    for path, body, place in (
        (
            "/batch/update",
            [{"id": "bo", "age": 1}, {"id": "ann", "phone": shown["phone"], "age": 41}],
            "/1/phone",
        ),
        ("", {"id": "new", "region": "north", "phone": shown["phone"]}, "/phone"),
        ("/batch", [{"id": "new", "region": "north", "phone": "****"}], "/0/phone"),
        (
            "/clone",
            {"filter": {"id": "ann"}, "update_with": {"id": "new", "phone": "***71"}},
            "/update_with/phone",
        ),
    ):
        said = await ask(here, "POST", M + path, body)
        assert code(said) == (400, "invalid_record"), path
        assert [fault["source"] for fault in said.json["errors"]] == [place]
    assert ((await stored(here))["phone"], (await stored(here, "bo"))["age"]) == (
        "+46 70 99 99",
        BO["age"],
    )
    assert await found(here, {"id": "new"}, "writer") == []


async def test_a_copy_takes_the_values_behind_shown_texts_along(here):
    (shown,) = await found(here, {"id": "ann"})
    sent = {"id": "copy", "email": shown["email"], "phone": shown["phone"], "city": "Malmö"}
    said = await ask(here, "POST", M + "/clone", {"filter": {"id": "ann"}, "update_with": sent})
    assert said.status == 201
    copy = await stored(here, "copy")
    assert (copy["email"], copy["phone"], copy["city"]) == (ANN["email"], ANN["phone"], "Malmö")


async def test_a_shown_text_of_one_of_several_found_records_is_a_value_of_none(here):
    await ask(here, "POST", M + "/batch/update", [{"id": "bo", "phone": "+47 99"}], "writer")
    (shown,) = await found(here, {"id": "ann"})
    sent = {"city": "Lund", "email": shown["email"], "phone": shown["phone"], "age": 7}
    said = await ask(here, "POST", M + "/batch/update", {"search_key": "city", "records": [sent]})
    assert (said.status, {one["id"] for one in said.json}) == (201, {"ann", "bo"})
    bo = await stored(here, "bo")
    assert (bo["email"], bo["phone"], bo["age"]) == (BO["email"], "+47 99", 7)


async def test_who_may_not_read_does_not_learn_a_mask_by_sending_it(here):
    answers = {code(await ask(here, "POST", M + "/batch/update", [{"id": "ann", "phone": f"+** ** ** {end}"}], "under:w"))
               for end in ("34", "35")}  # fmt: skip
    assert answers == {(400, "invalid_record")}
    assert (await stored(here))["phone"] == ANN["phone"]


async def test_what_is_not_shown_outside_the_country_stays_when_a_record_is_overwritten(tmp_path):
    wall = Firewall(Mode.MASK, "se", (), None, Trusted((ip_network("127.0.0.1"),)))
    async with interface(tmp_path, "memory", on_existing="update", firewall=wall) as here:
        await here.declare("person", DEFINITION)
        assert (await ask(here, "POST", M, ANN, "writer")).status == 201
        (shown,) = (
            await ask(
                here, "POST", M + "/find", {"filter": {"id": "ann"}}, "writer", headers=ABROAD
            )
        ).json["data"]
        assert (shown["name"], "age" in shown) == ("********", False)
        sent = {
            name: value
            for name, value in shown.items()
            if name not in ("created_at", "updated_at", "attachments")
        }
        assert (await ask(here, "POST", M, sent, "writer", headers=ABROAD)).status == 201
        (after,) = (await ask(here, "POST", M + "/find", {"filter": {"id": "ann"}}, "writer")).json[
            "data"
        ]
        assert {name: after[name] for name in ANN} == ANN

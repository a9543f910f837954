import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import FORM, Call, Desk, desk, member_form
from tests.support.table import table

LIST = ', response: {each: "$[*]", id: $.id}}'
ANN = {"name": "Ann", "email": "ann@x.example", "tags": ["one", "two"]}


async def words(said: str, kind: str = "PUT") -> Desk:
    return await desk(
        "{match: POST /p, create: p}",
        '{match: "GET /p/{id}", read: p}',
        f'{{match: "{kind} /p/{{id}}", update: p, request: {{object: $, form: {{name: name, '
        f"tags: tags}}{said and ', '}{said}}}}}",
    )


@table(
    ("said", "sent", "kept"),
    [
        # what the application gets: None where the place goes on as it came, else whose token
        ("", {"name": None}, {"name": None}),
        ("", {"name": ""}, {"name": None}),
        ("nulls: keep", {"name": None}, {"name": "Ann"}),
        ("nulls: keep", {"name": ""}, {"name": None}),
        ("empty: keep", {"name": ""}, {"name": "Ann"}),
        ("empty: keep", {"name": None}, {"name": None}),
        (
            "nulls: keep, empty: keep",
            {"name": None, "email": ""},
            {"name": "Ann", "email": "ann@x.example"},
        ),
        ("nulls: keep", {"phone": None}, {"phone": None}),  # nothing is stored to be kept
        ("nulls: keep, absent: erase", {"name": None}, {"name": "Ann"}),
    ],
)
async def test_null_and_empty_erase_or_keep(said, sent, kept):
    one = await words(said)
    stored = await one.create(ANN)
    call = await one.send("PUT /p/1", sent)
    for name, value in kept.items():
        assert call.json[name] == (stored[name] if value is not None else sent[name])
    assert await call.seen(200, {"id": 1, **call.json}) == {
        "id": 1,
        **sent,
        **{name: value for name, value in kept.items() if value},
    }
    for name in sent.keys() & stored.keys():
        shown = await one.shown({name: stored[name]})
        assert shown[name] == (ANN[name] if kept[name] else stored[name])


async def test_each_of_several_values_keeps_its_own_token():
    one = await words("nulls: keep, empty: keep")
    stored = await one.create(ANN)
    call = await one.send("PUT /p/1", {"tags": [None, "", None]})
    assert call.json["tags"] == [*stored["tags"], None]
    assert await call.seen(200, call.json) == {"tags": ["one", "two", None]}


async def test_beside_new_values_of_its_field_nothing_is_kept():
    one = await words("nulls: keep")
    stored = await one.create(ANN)
    call = await one.send("PUT /p/1", {"tags": ["new", None]})
    assert call.json["tags"][1] is None
    assert call.json["tags"][0] not in stored["tags"]
    await call.answer(200, {"id": 1, **call.json})
    # Every token that the application holds now resolves, and the others are gone.
    assert await one.shown({"tags": call.json["tags"]}) == {"tags": ["new", None]}
    assert await one.shown({"tags": stored["tags"]}) == {"tags": stored["tags"]}


async def test_an_empty_member_of_a_form_is_kept_with_or_without_its_sign():
    one = await words("empty: keep", "POST")
    stored = await one.create(ANN)
    call = await one.send("POST /p/1", b"name&tags=&x", FORM)
    assert call.sent.body == f"name={stored['name']}&tags={stored['tags'][0]}&x".encode()


# ---------------------------------------------------------------------- empty as a whole


@table(
    ("said", "sent", "remains"),
    [
        ("", {"tags": []}, False),
        ("", {"tags": None}, False),
        ("", {"tags": ""}, False),
        ("", {"name": "Bo"}, True),
        ("", {"tags": {}}, True),
        ("empty: keep", {"tags": []}, True),
        ("empty: keep", {"tags": None}, False),
        ("nulls: keep", {"tags": None}, True),
        ("nulls: keep", {"tags": []}, False),
        # what a whole replacement does not name is erased
        ("absent: erase, empty: keep", {"tags": []}, False),
    ],
)
async def test_a_list_that_is_emptied_as_a_whole_loses_its_values(said, sent, remains):
    one = await desk(
        "{match: POST /p, create: p}",
        '{match: "GET /p/{id}", read: p}',
        f'{{match: "PATCH /p/{{id}}", update: p, request: {{object: $, {said}}}}}',
    )
    stored = await one.create(ANN)
    call = await one.send("PATCH /p/1", sent)
    assert "tags" not in sent or call.json["tags"] == sent["tags"], "it goes on as it came"
    await call.answer(204)
    shown = await one.shown({"id": 1, "tags": stored["tags"], "email": stored["email"]})
    assert shown["tags"] == (ANN["tags"] if remains else stored["tags"])
    assert shown["email"] == (stored["email"] if "absent: erase" in said else ANN["email"])


@table("sent", [{"labels": []}, {"data": {"name": "Bo"}, "labels": None}])
async def test_places_that_count_from_the_root_are_emptied_as_well(sent):
    one = await desk(
        "{match: POST /p, create: p}",
        '{match: "GET /p/{id}", read: p}',
        '{match: "PATCH /p/{id}", update: p, request: {object: $.data, fields: {tags: '
        '"$.labels[*]"}}}',
    )
    stored = await one.create(ANN)
    await (await one.send("PATCH /p/1", {"data": {"name": "Bo"}})).answer(204)
    assert (await one.shown({"id": 1, "tags": stored["tags"]}))["tags"] == ANN["tags"]
    await (await one.send("PATCH /p/1", sent)).answer(204)
    assert (await one.shown({"id": 1, "tags": stored["tags"]}))["tags"] == stored["tags"]


async def test_who_sends_an_empty_list_does_not_lack_the_field():
    one = await desk(
        "{match: POST /p, create: p}",
        '{match: "PATCH /p/{id}", update: p}',
        more="on_error: {field_absent: refuse}",
    )
    await one.create({**ANN, "phone": None, "born": ""})
    await (await one.send("PATCH /p/1", {"tags": []})).answer(204)


# ---------------------------------------------------------------------- absent


async def test_an_absent_field_is_kept_or_erased():
    for said, remains in (("", True), ("absent: keep", True), ("absent: erase", False)):
        one = await words(said)
        stored = await one.create(ANN)
        call = await one.send("PUT /p/1", {"name": "Bo"})
        await call.answer(204)
        shown = await one.shown({"id": 1, "email": stored["email"]})
        assert shown["email"] == (ANN["email"] if remains else stored["email"])
        assert one.events["field_absent"] == (
            2 if remains else 6
        )  # phone and born of the create; then all but the name


async def test_a_file_may_refuse_a_request_that_lacks_a_field():
    one = await desk(
        "{match: POST /p, create: p}", '{match: "PATCH /p/{id}", update: p}', '{match: "PUT /p/{id}", update: p, request: {absent: erase}}',
        more="on_error: {field_absent: refuse}",
    )  # fmt: skip
    whole = {**ANN, "phone": None, "born": ""}
    await one.create(whole)
    for match in ("POST /p", "PUT /p/1"):
        with pytest.raises(VaultError) as caught:
            await one.send(match, {"name": "Bo", "phone": "1"})
        assert caught.value.code is Code.FIELD_ABSENT
        assert caught.value.message.endswith("missing: email, born, tags.")
    await (await one.send("PATCH /p/1", {"name": "Bo"})).answer(204)
    assert await one.counts() == (1, 0, 0)
    assert one.idle


# ---------------------------------------------------------------------- own tokens


async def test_own_tokens_that_come_back_are_kept():
    one = await words("")
    stored = await one.create(ANN)
    call = await one.send("PUT /p/1", {**stored, "tags": [stored["tags"][1], "new"]})
    assert (call.json["name"], call.json["email"], call.json["tags"][0]) == (
        stored["name"],
        stored["email"],
        stored["tags"][1],
    )
    assert await call.seen(200, call.json) == {**ANN, "id": 1, "tags": ["two", "new"]}


async def test_or_refused_and_then_nothing_is_stored_and_nobody_locked_out():
    one = await words("own_token: refuse")
    stored = await one.create(ANN)
    with pytest.raises(VaultError) as caught:
        await one.send("PUT /p/1", {"name": "Bo", "email": stored["email"], "tags": stored["tags"]})
    assert caught.value.code is Code.VALUE_UNFIT
    assert caught.value.message.endswith("in: email, tags.")
    assert stored["email"] not in caught.value.message
    assert await one.counts() == (1, 0, 0)
    assert one.idle
    assert await one.shown(stored) == {**ANN, "id": 1}
    await (await one.send("PUT /p/1", ANN)).answer(204)


# ---------------------------------------------------------------------- whose objects


@table(
    ("operation", "match", "body"),
    [
        ("{match: PUT /q, update: p, id: $.id}", "PUT /q", {"name": "a"}),
        ("{match: PUT /q, update: p, id: $.id}", "PUT /q", {"id": None, "name": "a"}),
        ('{match: "PUT /q/{id}", update: p, response: {id: $.id}}', "PUT /q/1", [{"name": "a"}, {"name": "b"}]),
        ('{match: PUT /q, update: p, id: $.id, request: {each: "$[*]"}' + LIST, "PUT /q", [{"id": 1, "name": "a"}, {"name": "b"}]),
        # the same record twice: nobody can say which of the two it will be
        ('{match: PUT /q, update: p, id: $.id, request: {each: "$[*]"}' + LIST, "PUT /q", [{"id": 1, "name": "a"}, {"id": "1", "name": "b"}]),
        ('{match: PUT /q, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST, "PUT /q", {"ids": [], "data": {"name": "a"}}),
        ('{match: PUT /q, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST, "PUT /q", {"ids": [1, 2, 3], "data": [{"name": "a"}, {"name": "b"}]}),
        ('{match: PUT /q, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST, "PUT /q", {"ids": [1, 1], "data": [{"name": "a"}, {"name": "b"}]}),
        ("{match: PUT /q, update: p, id: query id, response: {id: $.id}}", "PUT /q?x=1", {"name": "a"}),
    ],
)  # fmt: skip
async def test_objects_of_unclear_records_are_refused(operation, match, body):
    one = await desk("{match: POST /p, create: p}", operation)
    await one.create(ANN)
    with pytest.raises(VaultError) as caught:
        await one.send(match, body)
    assert caught.value.code is Code.BAD_REQUEST
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_ids_beside_as_many_objects_belong_to_them_in_order():
    one = await desk(
        "{match: POST /p, create: p}",
        '{match: "GET /p/{id}", read: p}',
        '{match: PUT /q, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST,
    )
    await one.create(ANN, 1)
    await one.create(ANN, 2)
    call = await one.send("PUT /q", {"ids": [2, 1], "data": [{"name": "two"}, {"name": "one"}]})
    await call.answer(204)
    names = [item["name"] for item in call.json["data"]]
    assert [
        (await one.shown({"name": name}, f"GET /p/{ident}"))["name"]
        for name, ident in zip(names, (2, 1), strict=True)
    ] == ["two", "one"]


@table("body", [{}, {"x": "name"}, [], "", None])
async def test_a_body_without_objects_changes_nothing(body):
    one = await words("")
    await one.create(ANN)
    call = await one.send("PUT /p/1", body)
    assert call.json == body
    await call.answer(204)
    assert await one.counts() == (1, 0, 0)
    assert one.idle


# ---------------------------------------------------------------------- one writer at a time


async def test_updates_of_one_record_follow_one_another():
    one = await words("")
    stored = await one.create(ANN)
    first = await one.send("PUT /p/1", {"name": "Bo"})
    second = asyncio.create_task(one.send("PUT /p/1", {"name": "Cy"}))
    other = await one.send("PUT /p/2", {"name": "Di"})
    await asyncio.sleep(0)
    assert not second.done()
    await first.answer(204)
    last = await second
    await last.answer(204)
    await other.answer(204)
    assert await one.shown({**stored, **last.json}) == {**ANN, "name": "Cy", "id": 1}
    assert one.idle


async def test_who_gives_up_waiting_holds_up_nobody():
    one = await words("")
    await one.create(ANN)
    first = await one.send("PUT /p/1", {"name": "Bo"})
    second = asyncio.create_task(one.send("PUT /p/1", {"name": "Cy"}))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await first.answer(400)
    assert one.idle
    assert await one.counts() == (1, 0, 0)


async def test_who_gives_up_while_it_is_written_leaves_the_record_free():
    one = await words("")
    await one.create(ANN)
    gate = one.store.pause("commit")
    waiting = asyncio.create_task(one.send("PUT /p/1", {"name": "Bo"}))
    await gate.reached()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.open()
    assert one.idle
    await (await one.send("PUT /p/1", {"name": "Cy"})).answer(204)


async def test_a_fault_while_settling_frees_the_record_all_the_same():
    one = await words("")
    await one.create(ANN)
    call = await one.send("PUT /p/1", {"name": "Bo"})
    one.store.fail("commit", lambda: VaultError(Code.BAD_STORE, "damaged"))
    with pytest.raises(VaultError):
        await call.answer(204)
    assert one.idle


async def test_ids_that_only_the_answer_tells_are_deleted_later_when_the_vault_cannot_be_written():
    one = await desk(
        "{match: POST /p, create: p}", '{match: DELETE /p, delete: p, response: {id: "$[*]"}}'
    )
    await one.create(ANN)
    call = await one.send("DELETE /p")
    one.store.fail("commit")
    await call.answer(200, [1, 2])
    assert await one.counts() == (1, 0, 0)
    await one.vault.maintain()
    assert await one.counts() == (0, 0, 0)
    assert one.idle


# ---------------------------------------------------------------------- names that write out a way

NESTED = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "street: {kind: text, at: $.address.street}",
    'tags: {kind: text, at: "$.tags[*]"}',
)
DETOURS = [
    {"address.street": "Ann"},
    {"tags[]": "Ann"},
    {"address": {"street[x]": "Ann"}},
    {"name": "x", "tags.0": "Ann"},
]


@table("detour", DETOURS)
@table(
    ("operation", "match"),
    [
        ("{match: POST /q, create: p}", "POST /q"),
        ('{match: POST /q, create: p, request: {each: "$[*]"}' + LIST, "POST /q many"),
        ('{match: "PATCH /q/{id}", update: p}', "PATCH /q/1"),
        ('{match: "PUT /q/{id}", update: p, request: {absent: erase}}', "PUT /q/1"),
        (
            '{match: PATCH /q, update: p, id: "$.ids[*]", request: {object: $.data}' + LIST,
            "PATCH /q data",
        ),
        ("{match: DELETE /q, delete: p, id: query id}", "DELETE /q?id=1"),
    ],
)
async def test_a_member_that_names_a_nested_place_is_refused_and_leaves_no_trace(
    operation, match, detour
):
    one = await desk("{match: POST /p, create: p}", operation, fields=NESTED)
    await one.create({"name": "Bo"})
    method, target, *how = match.split()
    bodies = {"data": {"data": detour, "ids": [1]}, "many": [{"name": "x"}, detour]}
    with pytest.raises(VaultError) as caught:
        await one.send(f"{method} {target}", bodies.get("".join(how), detour))
    assert caught.value.code in (Code.AMBIGUOUS_JSON, Code.UNREADABLE_BODY)
    assert "Ann" not in caught.value.message
    assert one.events["staged"] == 1
    assert one.idle


@table(
    "body",
    [
        {"filter.email": "a@x.example"},
        {"filter": {"email[eq]": "a@x.example"}},
        {"filter/email": "a@x.example"},
    ],
)
async def test_a_search_by_a_member_that_names_a_nested_place_is_refused(body):
    one = await desk(
        "{match: POST /q, read: p, request: {fields: {email: $.filter.email}}" + LIST, fields=NESTED
    )
    with pytest.raises(VaultError) as caught:
        await one.send("POST /q", body)
    assert caught.value.code is Code.AMBIGUOUS_JSON


async def test_a_member_with_dots_in_an_answer_changes_nothing():
    one = await desk(
        "{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}', fields=NESTED
    )
    stored = await one.create(
        {"name": "Ann", "address": {"street": "Way 1"}, "address.city": "Visby"}
    )
    answer = {**stored, "address.street": "shown by the application", "tags[]": 1}
    seen = await one.shown(answer)
    assert (seen["name"], seen["address"], seen["address.street"]) == (
        "Ann",
        {"street": "Way 1"},
        "shown by the application",
    )


# ---------------------------------------------------------------------- tokens of nameless records


async def doubtful(
    one: Desk, body: Mapping[str, object], *, answered: bool = True
) -> dict[str, str]:
    """Create a record of which no answer tells the id; what the application has of it."""
    call = await one.send("POST /p", body)
    await call.answer(500 if answered else 201)
    stored: dict[str, str] = call.json
    return stored


@table("answered", [True, False])
@table("kind", ["JSON", "form"])
async def test_a_token_of_a_nameless_record_gives_it_the_id_of_the_update(answered, kind):
    one = await words("")
    stored = await doubtful(one, ANN, answered=answered)
    part = {"name": stored["name"]}
    if kind == "JSON":
        call = await one.send("PUT /p/1", part)
        assert call.json == part
    else:
        call = await one.send("PUT /p/1", f"name={part['name']}".encode(), FORM)
        assert call.form == part
    await call.answer(204)
    assert await one.counts() == (1, 0, 0)
    assert one.idle
    assert list(await one.people.by_key(["1"])) == ["1"]
    assert await one.shown({"id": 1, **stored}) == {**ANN, "id": 1}
    await (await one.send("PUT /p/1", part)).answer(204)
    assert await one.shown({"id": 1, **stored}) == {**ANN, "id": 1}


async def test_and_takes_what_else_the_update_says():
    one = await words("")
    stored = await doubtful(one, ANN)
    call = await one.send(
        "PUT /p/1", {"name": "Bo", "email": "bo@x.example", "tags": stored["tags"]}
    )
    sent = call.json
    assert sent["tags"] == stored["tags"]
    await call.answer(204)
    assert await one.counts() == (1, 0, 0)
    assert await one.shown({"id": 1, **sent}) == {
        "id": 1, "name": "Bo", "email": "bo@x.example", "tags": ANN["tags"]
    }  # fmt: skip


@table("status", [404, 500])
async def test_but_only_once_the_application_has_taken_it(status):
    one = await words("")
    stored = await doubtful(one, ANN)
    sent = {"name": stored["name"], "email": "bo@x.example"}
    await (await one.send("PUT /p/7", sent)).answer(status)
    assert one.idle
    assert await one.people.by_key(["7"]) == {}
    assert await one.shown({"id": 1, **stored}) == {**ANN, "id": 1}
    assert list(await one.people.by_key(["1"])) == ["1"]


async def test_a_same_value_token_alone_tells_a_nameless_record_too():
    one = await words("")
    stored = await doubtful(one, ANN)
    await (await one.send("PUT /p/1", {"email": stored["email"]})).answer(204)
    assert await one.counts() == (1, 0, 0)
    assert await one.shown({"id": 1, **stored}) == {**ANN, "id": 1}


async def test_where_the_id_or_the_tokens_are_of_several_records_it_is_refused():
    one = await words("")
    stored = await doubtful(one, ANN)
    other = await doubtful(one, {"name": "Bo", "email": "bo@x.example"})
    named = await one.create({"name": "Cy", "email": "cy@x.example"}, 3)
    for match, sent in (
        ("PUT /p/3", {"name": stored["name"]}),
        ("PUT /p/1", {"name": stored["name"], "email": other["email"]}),
    ):
        with pytest.raises(VaultError) as caught:
            await one.send(match, sent)
        assert caught.value.code is Code.VALUE_UNFIT
        assert "A token was sent in place of a value" in caught.value.message
        assert one.idle
    assert await one.shown({**named}, "GET /p/3") == {
        "id": 3, "name": "Cy", "email": "cy@x.example"
    }  # fmt: skip
    assert await one.shown({"id": 1, **stored}) == {**ANN, "id": 1}


async def test_while_the_create_is_under_way_the_update_is_to_come_again():
    one = await words("")
    create = await one.send("POST /p", ANN)
    with pytest.raises(VaultError) as caught:
        await one.send("PUT /p/1", {"name": create.json["name"]})
    assert caught.value.code is Code.CONFLICT
    await create.answer(500)
    await (await one.send("PUT /p/1", {"name": create.json["name"]})).answer(204)
    assert one.idle


async def test_a_token_of_a_version_in_doubt_stands_for_its_value():
    one = await words("")
    await one.create(ANN)
    lost = await one.send("PUT /p/1", {"name": "Bo"})
    await lost.answer(500)
    call = await one.send("PUT /p/1", {"name": lost.json["name"]})
    await call.answer(204)
    assert await one.shown({"id": 1, **call.json}) == {"id": 1, "name": "Bo"}


# ---------------------------------------------------------------------- forms of erased people

EDITS = (
    "{match: POST /p, create: p}",
    '{match: "PATCH /p/{id}", update: p}',
    '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, email: email}}}',
    '{match: "DELETE /p/{id}", delete: p}',
)


async def erased() -> tuple[Desk, dict[str, Any]]:
    """A record that the application holds still, and whose values were erased."""
    one = await desk(*EDITS)
    stored = await one.create({"name": "Ann", "email": "ann@example.com"})
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    return one, {name: stored[name] for name in ("name", "email")}


@table("kind", ["json", "form"])
async def test_a_form_of_an_erased_person_cannot_be_saved_with_tokens_as_values(kind):
    one, tokens = await erased()

    async def save(**members: str) -> Call:
        if kind == "json":
            return await one.send("PATCH /p/1", members)
        return await one.send("POST /p/1/edit", member_form(**members), FORM)

    with pytest.raises(VaultError) as caught:
        await save(**tokens)
    assert caught.value.code is Code.VALUE_UNFIT
    names = [detail.source.strip("/") for detail in caught.value.details]
    assert names == ["name"], "its token is sealed"
    assert tokens["name"] not in str(caught.value)
    assert (one.idle, await one.counts()) == (True, (0, 0, 0)), "nothing was stored"
    call = await save(name="Wexlomere", email="bo@example.com")
    await call.answer(200, {"id": 1})
    assert await one.counts() == (1, 0, 0)
    assert call.sent.body.count(b"Wexlomere") == 0


async def test_an_older_token_of_the_record_or_that_of_another_one_is_no_value_either():
    one = await desk(*EDITS)
    stored = await one.create({"name": "Ann", "email": "ann@example.com"})
    other = await one.create({"name": "Bo", "email": "bo@example.com"}, 2)
    await (await one.send("PATCH /p/1", {"name": "Anna"})).answer(200, {"id": 1})
    for token in (stored["name"], other["name"]):
        with pytest.raises(VaultError) as caught:
            await one.send("PATCH /p/1", {"name": token})
        assert [detail.source for detail in caught.value.details] == ["/name"]


@table("written", ["{} ", "\t{}", "{}\n"])
async def test_a_token_within_white_space_is_no_value_either(written):
    one = await desk(*EDITS)
    other = await one.create({"name": "Bo", "email": "bo@example.com"})
    for match in ("POST /p", "PATCH /p/1"):
        with pytest.raises(VaultError) as caught:
            await one.send(match, {"name": written.format(other["name"])})
        assert [detail.source for detail in caught.value.details] == ["/name"]
    assert (one.idle, await one.counts()) == (True, (1, 0, 0))


@table("same", ["true", "false"])
async def test_nor_is_a_token_of_a_mail_address_in_another_case(same):
    field = f"email: {{kind: email, token: {{shape: email, same: {same}}}}}"
    one = await desk(*EDITS, fields=("name: {kind: name}", field))
    email = (await one.create({"name": "Bo", "email": "bo@example.com"}))["email"]
    word, _, domain = email.partition("@")
    for text in (email.upper(), f"{word}@{domain.title()}", f" {email.upper()} "):
        with pytest.raises(VaultError) as caught:
            await one.send("POST /p", {"name": "Cy", "email": text})
        assert [detail.source for detail in caught.value.details] == ["/email"]
    await (await one.send("POST /p", {"name": "Cy", "email": "BO@EXAMPLE.COM"})).answer(201)
    assert (one.idle, await one.counts()) == (True, (2, 0, 0))

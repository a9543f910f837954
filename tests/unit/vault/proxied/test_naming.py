"""A create that the application answers with the id of a record that the vault has."""

import asyncio
from contextlib import suppress

from proxy.errors import VaultError
from proxy.storage.changes import Bind
from proxy.storage.rows import RowState
from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE
from tests.support.exchanges import FIELDS, FORM, USUAL, Desk, desk_of, rule_text
from tests.support.table import table

WEEK = 7 * 86_400_000
ANN = {"name": "Ann Ek", "email": "ann@example.se", "phone": "08-123 456 78", "born": "1950-05-05"}
ANNA = {"name": "Anna Ek", "email": "ann@example.se"}


async def desk(word: str) -> Desk:
    return await desk_of(
        rule_text(*USUAL).replace("    fields:", f"    versions: {word}\n    fields:", 1)
    )


async def again(one: Desk, body, answer=None):
    """What the application was sent in a create that it answers with the id of the first."""
    call = await one.send("POST /p", body)
    shown = await call.seen(200, {"id": 1, **(answer or {})})
    one.clock.advance(1)
    return call.json, shown


async def later(one: Desk) -> None:
    """All that is only pending is gone."""
    one.clock.advance(RECONCILE_GRACE + 2 * WEEK)
    await reap(one.people, WEEK)


@table("word", ["current", "keep"])
async def test_an_upsert_keeps_what_it_did_not_name(word):
    one = await desk(word)
    stored = await one.create(ANN)
    sent, _ = await again(one, ANNA)
    await later(one)
    listed = [{"id": 1, "name": sent["name"]}]
    assert (await one.shown(listed, "GET /p")) == [{"id": 1, "name": "Anna Ek"}]
    await later(one)
    assert await one.shown({**stored, **sent}) == {"id": 1, **ANN, **ANNA}
    await later(one)
    assert await one.shown({**stored, **sent}) == {"id": 1, **ANN, **ANNA}


@table("word", ["current", "keep"])
@table("body", [ANNA, {**ANN, "name": "Other"}])
@table("tells", [True, False])
async def test_a_duplicate_that_changes_nothing_leaves_the_record_as_it_was(word, body, tells):
    one = await desk(word)
    stored = await one.create(ANN)
    _, shown = await again(one, body, stored if tells else None)
    if tells:
        assert shown == {"id": 1, **ANN}
    for _ in range(2):
        await later(one)
        assert await one.shown(stored) == {"id": 1, **ANN}
    row = (await one.people.by_key(["1"]))["1"]
    live = one.people.sealer.open(row).values
    if tells or word == "current":
        assert live["name"][0].text == "Ann Ek"


@table("word", ["current", "keep"])
async def test_an_id_that_is_given_again_shows_the_new_person(word):
    one = await desk(word)
    await one.create(ANN)
    bo = {**ANN, "name": "Bo Alm", "email": "bo@example.se", "born": "1999-09-09"}
    sent, _ = await again(one, bo)
    assert await one.shown({"id": 1, **sent}) == {"id": 1, **bo}
    row = (await one.people.by_key(["1"]))["1"]
    assert one.people.sealer.open(row).values["name"][0].text == "Bo Alm"
    assert row.staged == 0


@table("word", ["current", "keep"])
async def test_a_delete_ends_both(word):
    one = await desk(word)
    stored = await one.create(ANN)
    await again(one, ANNA)
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert await one.shown(stored) == stored


@table("word", ["current", "keep"])
@table("first_one", [0, 1])
@table("kept", [0, 1])
async def test_a_form_that_is_sent_twice_at_once_is_one_record(word, first_one, kept):
    one = await desk(word)
    calls = [await one.send("POST /p", ANN), await one.send("POST /p", ANN)]
    for number in (first_one, 1 - first_one):
        await calls[number].answer(200, {"id": 1})
    one.clock.advance(1)
    assert (await one.counts())[0] == 1
    for _ in range(2):
        await later(one)
        assert await one.shown({"id": 1, **calls[kept].json}) == {"id": 1, **ANN}
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


async def test_the_second_of_two_equal_creates_is_refused():
    one = await desk("current")
    calls = [await one.send("POST /p", ANN), await one.send("POST /p", ANN)]
    await calls[1].answer(200, {"id": 1})
    await calls[0].answer(409, {"error": "exists"})
    assert (await one.counts()) == (1, 0, 0)
    assert await one.shown({"id": 1, **calls[1].json}) == {"id": 1, **ANN}


@table("word", ["current", "keep"])
@table("tells", [True, False])
async def test_a_form_that_a_redirect_answered_goes_with_its_record(word, tells):
    """Nothing but a later answer decides such an update, and it kept the record before apart."""
    one = await desk_of(
        rule_text(
            *USUAL,
            "{match: 'POST /p/{id}', update: p, id: path id, request: {form: {name: name, born: "
            "born}}, response: {success: [303]}}",
        ).replace("    fields:", f"    versions: {word}\n    fields:", 1)
    )
    stored = await one.create(ANN)
    call = await one.send("POST /p/1", b"name=Ann+Alm&born=1951-01-01", FORM)
    await call.answer(303, b"", ((b"Location", b"/p"),))
    one.clock.advance(1)
    now = {**stored, **call.form}
    sent, shown = await again(one, {"email": "ann@example.se"}, now if tells else None)
    wanted = {"id": 1, **ANN, "name": "Ann Alm", "born": "1951-01-01"}
    if tells:
        assert shown == wanted
    for _ in range(2):
        await later(one)
        assert await one.shown({**now, **sent}) == wanted
    assert (await one.counts())[0] == 1
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


@table("duplicate", [True, False])
@table("lost", [True, False])
async def test_of_values_with_one_token_the_answer_as_a_whole_tells_which_is_live(duplicate, lost):
    pin = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, pin)))
    before, after = {**ANN, "pin": "1234"}, {**ANN, "name": "Bo Alm", "pin": "9876"}
    first = await one.send("POST /p", before)
    stored = {**first.json, "id": 1}
    await (first.exchange.failed(True) if lost else first.answer(201, {"id": 1}))
    one.clock.advance(1)
    call = await one.send("POST /p", after)
    held = stored if duplicate else {**stored, **call.json}
    wanted = {"id": 1, **(before if duplicate else after)}
    assert await call.seen(200, held) == wanted
    for _ in range(2):
        one.clock.advance(1)
        assert await one.shown(held) == wanted
        await later(one)


async def test_an_update_in_doubt_stays_later_than_what_a_duplicate_shows():
    pin = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, pin)))
    stored, wanted = await one.create({**ANN, "pin": "1"}), {"name": "Ann Alm", "pin": "2"}
    duplicate = await one.send("POST /p", {**ANN, "pin": "3"})
    update = await one.send("PATCH /p/1", wanted)
    await update.exchange.failed(True)
    await duplicate.answer(200, stored)
    one.clock.advance(1)
    assert await one.shown({**stored, **update.json}) == {"id": 1, **ANN, **wanted}


async def test_creates_answered_with_one_id_over_and_over_keep_each_value_in_few_versions():
    one = await desk("current")
    sent = [(await again(one, {**ANN, "name": f"Ann {number}"}))[0] for number in range(75)]
    assert (await one.people.by_key(["1"]))["1"].staged <= 32
    listed = [{"id": 1, "name": body["name"]} for body in sent]
    names = [(await one.shown([item], "GET /p"))[0]["name"] for item in listed]
    assert names == [f"Ann {number}" for number in range(75)]


async def test_a_create_waits_for_an_update_of_the_record_whose_id_it_gets():
    one = await desk("current")
    await one.create(ANN)
    update = await one.send("PATCH /p/1", {"name": "Ann Alm"})
    create = await one.send("POST /p", ANNA)
    answered = asyncio.ensure_future(create.seen(200, {"id": 1, **create.json}))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not answered.done()
    assert (await one.counts())[1] == 1
    assert await update.seen(200, {"id": 1, **update.json}) == {"id": 1, "name": "Ann Alm"}
    assert await answered == {"id": 1, **ANNA}
    assert (await one.counts())[:2] == (1, 0)
    one.clock.advance(1)
    assert await one.shown([{"id": 1, **update.json}], "GET /p") == [{"id": 1, "name": "Ann Alm"}]
    assert one.idle


async def test_a_delete_in_doubt_is_then_of_the_new_record():
    one = await desk("current")
    await one.create(ANN)
    delete = await one.send("DELETE /p/1")
    await delete.answer(500, {"error": "late"})
    one.clock.advance(1)
    sent, _ = await again(one, ANNA)
    assert (await one.counts())[:2] == (1, 0)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    assert await one.counts() == (0, 0, 0)
    assert await one.shown({"id": 1, "name": sent["name"]}) == {"id": 1, "name": sent["name"]}


async def test_the_record_before_is_a_version_of_the_new_one_or_has_its_id():
    """The store refuses each commit in turn: there is none between the two that it could keep."""
    for skip in range(4):
        one = await desk("current")
        await one.create(ANN)
        call = await one.send("POST /p", ANNA)
        one.store.fail("commit", RuntimeError, skip=skip, times=None)
        with suppress(RuntimeError):
            await call.answer(200, {"id": 1, **call.json})
        one.store.mend()
        rows = await one.store.scan(one.people.table, 0, 9)
        assert [row.state for row in rows if row.key is None] in ([], [RowState.PENDING])
        assert len([row for row in rows if row.key is not None]) == 1


async def test_an_update_that_overtook_the_answer_of_its_create_keeps_its_values():
    """Its id was unknown to the vault, and the answer shows the record as it was before it."""
    one = await desk("current")
    create = await one.send("POST /p", ANN)
    update = await one.send("PATCH /p/1", {"name": "Ann Alm", "email": "alm@example.se"})
    held = {"id": 1, **create.json, **update.json}
    assert (await update.seen(200, held))["name"] == "Ann Alm"
    assert await create.seen(200, {"id": 1, **create.json}) == {"id": 1, **ANN}
    for _ in range(2):
        one.clock.advance(1)
        seen = await one.shown(held)
        assert seen == {"id": 1, **ANN, "name": "Ann Alm", "email": "alm@example.se"}
        await later(one)
    assert (await one.counts())[0] == 1


@table("word", ["current", "keep"])
@table("held", [0, 7, 20])
async def test_creates_answered_with_one_id_at_once_are_one_record(word, held):
    one = await desk(word)
    await one.create(ANN)
    bodies = [{**ANN, "name": f"Ann {number}"} for number in range(21)]
    calls = [await one.send("POST /p", body) for body in bodies]
    await asyncio.gather(*(call.answer(201, {"id": 1, **call.json}) for call in calls))
    assert (await one.counts())[0] == 1
    assert await one.shown({"id": 1, **calls[held].json}) == {"id": 1, **bodies[held]}
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


async def lost(one: Desk, body):
    """What the application was sent in a create whose answer got lost."""
    call = await one.send("POST /p", body)
    await call.exchange.failed(True)
    return call.json


@table("word", ["current", "keep"])
async def test_an_upsert_whose_answer_got_lost_keeps_what_it_did_not_name(word):
    """A list shows a part of it, with nothing of the record before."""
    one = await desk(word)
    held = {**await one.create(ANN), **await lost(one, ANNA)}
    part = [{"id": 1, "name": held["name"]}]
    for _ in range(2):
        assert await one.shown(part, "GET /p") == [{"id": 1, "name": "Anna Ek"}]
        assert (await one.counts())[:2] == (1, 0)
        await later(one)
    for _ in range(2):
        assert await one.shown(held) == {"id": 1, **ANN, **ANNA}
        await later(one)
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


async def test_an_answer_gives_no_name_while_another_request_changes_its_record():
    one = await desk("current")
    held = {**await one.create(ANN), **await lost(one, ANNA)}
    update = await one.send("PATCH /p/1", {"born": "1951-01-01"})
    part = [{"id": 1, "name": held["name"]}]
    assert await one.shown(part, "GET /p") == [{"id": 1, "name": "Anna Ek"}]
    held |= update.json
    wanted = {"id": 1, **ANN, **ANNA, "born": "1951-01-01"}
    assert await update.seen(200, held) == wanted
    for _ in range(2):
        assert await one.shown(held) == wanted
        assert (await one.counts())[:2] == (1, 0)
        await later(one)
    assert one.idle


@table("shows", ["nothing", "404", "itself"])
async def test_a_delete_of_its_id_leaves_a_create_in_doubt(shows):
    """Nobody knows whether the application deleted both, or gave the id again."""
    one = await desk("current")
    await one.create(ANN)
    call = await one.send("POST /p", ANNA)
    await (await one.send("DELETE /p/1")).answer(204)
    held = {"id": 1, **call.json}
    assert await call.seen(201, held) == {"id": 1, **ANNA}
    assert await one.counts() == (1, 0, 1)
    if shows == "404":
        await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
        assert await one.counts() == (0, 0, 0)
        return
    for staged in (1, 0):
        if shows == "itself":  # for five minutes the delete may still be at work
            assert await one.shown(held) == {"id": 1, **ANNA}
            assert await one.counts() == (1, 0, staged)
        one.clock.advance(RECONCILE_GRACE + 1)
    await later(one)
    assert await one.shown(held) == {"id": 1, **ANNA}


async def test_a_value_with_one_token_is_that_of_the_form_that_an_upsert_took_a_part_of():
    """The object has what the form did not name from before: that tells nothing of what it did."""
    pin = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
    create = (
        "{match: POST /form, create: p, request: {form: {name: name, pin: pin}}, "
        "response: {success: [302], id: 'header Location /p/{id}'}}"
    )
    one = await desk_of(rule_text(*USUAL, create, fields=(*FIELDS, pin)))
    stored = await one.create({**ANN, "pin": "1234"})
    call = await one.send("POST /form", b"name=Bo+Alm&pin=9876", FORM)
    await call.answer(302, b"", ((b"Location", b"/p/1"),))
    held = {**stored, **call.form}
    for _ in range(2):
        assert await one.shown(held) == {"id": 1, **ANN, "name": "Bo Alm", "pin": "9876"}
        await later(one)


async def test_a_create_waits_for_a_delete_of_the_record_whose_id_it_gets():
    """The store refuses its first try, and then nobody has the id any more."""
    one = await desk("current")
    await one.create(ANN)
    create = await one.send("POST /p", ANNA)
    delete = await one.send("DELETE /p/1")
    gate = one.store.pause("by_keys")
    answered = asyncio.ensure_future(create.seen(200, {"id": 1, **create.json}))
    await gate.reached()
    gone = asyncio.ensure_future(delete.answer(204))
    for _ in range(50):
        await asyncio.sleep(0)
    gate.open()
    await gone
    assert await answered == {"id": 1, **ANNA}
    assert (await one.counts())[1:] == (0, 1)
    assert one.idle


async def test_a_create_whose_answer_got_lost_joins_its_record_while_an_update_of_that_is_in_doubt():
    """Kept on its own it outlived the record."""
    one = await desk("current")
    held = {**await one.create(ANN), **await lost(one, ANNA)}
    update = await one.send("PATCH /p/1", {"born": "1951-01-01"})
    await update.exchange.failed(True)
    wanted = {"id": 1, **ANN, **ANNA}
    assert await one.shown(held) == wanted
    assert (await one.counts())[:2] == (1, 0)
    for _ in range(2):
        await later(one)
        assert await one.shown(held) == wanted
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


async def test_an_answer_from_before_a_delete_gives_the_deleted_record_no_name():
    one = await desk("current")
    call = await one.send("POST /p", ANN)
    read = await one.send("GET /p/1")
    await (await one.send("DELETE /p/1")).answer(204)
    held = {"id": 1, **call.json}
    await call.answer(201, held)
    assert await read.seen(200, held) == {"id": 1, **ANN}
    assert await one.counts() == (1, 1, 0)
    await later(one)
    assert await one.counts() == (0, 0, 0)


async def test_a_delete_is_in_doubt_for_a_create_that_got_its_id_while_it_was_under_way():
    one = await desk("current")
    delete = await one.send("DELETE /p/1")
    one.clock.advance(1)
    await one.create(ANN)
    await delete.answer(204)
    assert (await one.counts())[:2] == (1, 0)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    assert await one.counts() == (0, 0, 0)


async def test_a_create_is_no_part_of_a_record_that_was_deleted_since():
    one = await desk("current")
    calls = [await one.send("POST /p", ANN), await one.send("POST /p", ANNA)]
    await calls[1].answer(201, {"id": 1, **calls[1].json})
    await (await one.send("DELETE /p/1")).answer(204)
    await calls[0].answer(201, {"id": 1, **calls[0].json})
    assert await one.counts() == (1, 0, 1)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    assert await one.counts() == (0, 0, 0)


async def test_a_create_whose_answer_got_lost_joins_a_record_of_which_a_delete_is_in_doubt():
    """It waited until the delete was decided, and was dropped after ``pending.keep`` meanwhile."""
    one = await desk("current")
    await one.create(ANN)
    held = await lost(one, {**ANNA, "phone": "08-1", "born": "1951-01-01"})
    call = await one.send("POST /p", {"name": "Bo"})
    await (await one.send("DELETE /p/1")).answer(204)
    held["id"] = 1
    await call.answer(201, held)
    assert (await one.counts())[0] == 2
    assert (await one.shown(held))["name"] == "Anna Ek"
    assert (await one.counts())[0] == 1
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await one.shown(held) == {"id": 1, **ANNA, "phone": "08-1", "born": "1951-01-01"}


@table("overtaken", [True, False])
@table("status", [200, 422])
async def test_a_lost_create_joins_its_record_while_an_update_of_that_is_under_way(
    overtaken, status
):
    """It was kept on its own for good, and outlived the record."""
    one = await desk("current")
    stored = await one.create(ANN)
    held = {**stored, **await lost(one, {**ANNA, "email": "anna@example.se"})}
    read = await one.send("GET /p/1")
    if overtaken:
        born = await one.send("PATCH /p/1", {"born": "1951-01-01"})
        await born.answer(200, {**held, **born.json})
    update = await one.send("PATCH /p/1", {"name": "Bo Alm", "email": "anna@example.se"})
    assert (await read.seen(200, held))["name"] == "Anna Ek"
    assert (await one.counts())[0] == 1
    await update.answer(status, {**held, **update.json} if status == 200 else {"error": "no"})
    wanted = "Bo Alm" if status == 200 else "Anna Ek"
    (listed,) = await one.shown([{"email": held["email"]}], "GET /p")
    assert listed == {"email": "anna@example.se"}, "the index leads to it by a token of both"
    await later(one)
    name = (update.json if status == 200 else held)["name"]
    assert await one.shown({"id": 1, "name": name}) == {"id": 1, "name": wanted}
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_a_lost_create_that_has_got_an_id_joins_its_record_while_that_is_changed():
    """It is the newer one, and gets the id where nobody changes the record."""
    one = await desk("current")
    await one.create(ANN)
    held = {"id": 1, **await lost(one, {**ANN, "name": "Bo Alm"})}
    read, update = await one.send("GET /p/1"), await one.send("PATCH /p/1", {"name": "Eva"})
    assert (await read.seen(200, held))["name"] == "Bo Alm"
    assert (await one.counts())[0] == 1
    held |= update.json
    assert await update.seen(200, held) == {"id": 1, **ANN, "name": "Eva"}
    for _ in range(2):
        await later(one)
        assert await one.shown(held) == {"id": 1, **ANN, "name": "Eva"}
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


@table("status", [204, 202, 422])
async def test_a_lost_create_joins_its_record_while_a_delete_of_that_is_under_way(status):
    """It was kept on its own for good, or was dropped where the application refused."""
    one = await desk("current")
    stored = await one.create(ANN)
    held = {**stored, **await lost(one, ANNA)}
    born = await one.send("PATCH /p/1", {"born": "1951-01-01"})
    await born.exchange.failed(True)
    read, delete = await one.send("GET /p/1"), await one.send("DELETE /p/1")
    assert (await read.seen(200, held))["name"] == "Anna Ek"
    await delete.answer(status, b"" if status != 422 else {"error": "no"})
    for _ in range(2):  # what 202 promises waits for the update in doubt
        await later(one)
    if status == 422:
        assert (await one.shown(held))["name"] == "Anna Ek"
        await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert one.idle


@table("status", [204, 404, None])
async def test_a_delete_is_in_doubt_for_a_create_that_got_its_id_and_is_still_being_named(status):
    """Neither saw the other: the create is named when the delete has looked for its id."""
    one = await desk("current")
    delete = await one.send("DELETE /p/1")
    create = await one.send("POST /p", ANN)
    held = {"id": 1, **create.json}
    gate = one.store.pause("commit")
    answered = asyncio.ensure_future(create.answer(201, held))
    await gate.reached()
    if status is None:
        await delete.exchange.failed(True)
    else:
        await delete.answer(status, b"" if status == 204 else {"error": "no"})
    gate.open()
    await answered
    assert (await one.counts())[::2] == (1, 1)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    assert await one.counts() == (0, 0, 0)


@table("first", [True, False])
async def test_a_delete_waits_for_the_name_that_a_create_is_just_getting(first):
    """It was given before the delete began or ended, and stored behind its look: the record stayed
    for good. ``first``: whether the delete has begun by then.
    """
    one = await desk("current")
    create = await one.send("POST /p", ANN)
    delete = await one.send("DELETE /p/1") if first else None
    gate = one.store.pause("commit", times=None)  # which applies them in their order
    named = asyncio.ensure_future(create.answer(201, {"id": 1, **create.json}))
    await gate.reached()

    async def end() -> None:
        await (delete or await one.send("DELETE /p/1")).answer(204)

    ended = asyncio.ensure_future(end())
    for _ in range(50):  # unless it waits
        await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(named, ended)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    await later(one)
    assert await one.counts() == (0, 0, 0)


@table("first", [True, False])
async def test_a_delete_of_an_unknown_id_that_is_under_way_hides_no_delete_that_has_ended(first):
    """A lost create got the id for good by an answer from before either, and outlived its record."""
    one = await desk("current")
    if first:
        await one.create(ANN)
    held, read = {"id": 1, **await lost(one, ANN)}, await one.send("GET /p/1")
    if first:
        await (await one.send("DELETE /p/1")).answer(204)
    delete = await one.send("DELETE /p/1")
    assert await read.seen(200, held) == {"id": 1, **ANN}
    await delete.exchange.failed(True)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    await later(one)
    assert await one.counts() == (0, 0, 0)


@table("read", range(10))
async def test_a_delete_ends_what_an_answer_from_before_is_just_giving_its_id(read):
    """Wherever between two reads of the vault it comes: the answer proves nothing any more."""
    one = await desk("current")
    await one.create(ANN)
    held = {"id": 1, **await lost(one, {**ANN, "name": "Bo Alm"})}
    call, gate = await one.send("GET /p/1"), one.store.pause("by_keys", skip=read)
    shown = asyncio.ensure_future(call.seen(200, held))
    reached = asyncio.ensure_future(gate.reached())
    await asyncio.wait({shown, reached}, return_when=asyncio.FIRST_COMPLETED)

    async def delete() -> None:
        await (await one.send("DELETE /p/1")).answer(204)

    deleted = asyncio.ensure_future(delete())
    for _ in range(50):  # unless it waits for the answer
        await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(shown, deleted)
    reached.cancel()
    one.clock.advance(1)
    await (await one.send("GET /p/1")).answer(404, {"error": "not found"})
    await later(one)
    assert await one.counts() == (0, 0, 0)


async def test_a_create_that_an_answer_could_not_name_is_not_kept_beside_its_record():
    """It was kept first, and named then: a process that ended in between left it for good."""
    one = await desk("current")
    bo = {"phone": "08-1", "born": "1951-01-01"}
    held = {"id": 1, **await lost(one, {name: ANN[name] for name in bo})}
    one.clock.advance(1)
    one.store.fail("commit", change=Bind)
    with suppress(VaultError):
        await one.shown(held)
    update = await one.send("PATCH /p/1", bo)
    await update.answer(200, {"id": 1, **update.json})
    await later(one)
    assert await one.counts() == (1, 0, 0)
    assert await one.shown({"id": 1, **update.json}) == {"id": 1, **bo}

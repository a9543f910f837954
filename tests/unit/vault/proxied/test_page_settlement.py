"""Pages about records in doubt."""

from typing import Any, cast

from proxy.model.record import RecordDraft
from proxy.vault.expiry import reap
from proxy.vault.proxied.correction import correct_record
from proxy.vault.records.repository import Records
from proxy.vault.table_state import Retired
from tests.support.exchanges import FORM, HTML, USUAL, desk, member_form
from tests.support.redirects import (
    ANN,
    ANNA,
    BACK,
    PAGE,
    SAVED,
    SHOWN,
    WEEK,
    card,
    edited,
    form,
    live,
    record,
    site,
)
from tests.support.table import table


async def test_a_page_tells_field_by_field_which_values_are_live():
    one, stored = await site()
    await form(one, name="Bo")  # refused
    stored |= await form(one, note="Is well.")  # accepted
    for number in range(12):
        assert await card(one, stored) == SHOWN.format(name="Ann", note="Is well.")
        assert await live(one) == {"name": "Ann", "note": "Is well."}
        await form(one, name=f"Bo {number}")
    assert await record(one, stored) == {"name": "Ann", "note": "Is well."}


async def test_another_spelling_under_the_same_token_is_shown_as_it_is_now():
    one = await desk(
        USUAL[0],
        USUAL[2],
        PAGE,
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, note: note}}, '
        f"response: {{{SAVED}}}}}",
        fields=("name: {kind: name}", "note: {kind: email, token: {shape: email, same: true}}"),
    )
    stored = await one.create({"name": "Ann", "note": "ann@x.example"})
    stored |= await form(one, name="Anna", note="ann@x.example")
    stored |= await form(one, name="Anna", note="Ann@x.example")
    assert await card(one, stored) == SHOWN.format(name="Anna", note="Ann@x.example")


async def test_a_page_that_names_who_was_deleted_does_not_keep_the_record():
    one, stored = await site()
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    one.clock.advance(1)
    call = await one.send("GET /home")
    shown = await call.answer(200, f"<p>{stored['name']} was deleted.</p>".encode(), HTML)
    assert b"Ann was deleted" in shown.body
    one.clock.advance(WEEK + 1)
    await reap(one.people, WEEK)
    assert await live(one) is None


async def test_one_page_tells_of_a_refused_edit_and_a_refused_delete():
    one, stored = await site()
    await form(one, name="Bo")
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    await card(one, stored)
    assert await live(one) == ANN


@table("later", [1, WEEK + 1])
async def test_a_page_about_a_record_ends_its_earlier_versions_a_week_later(later):
    one, _ = await site()
    sent = await edited(one, 302, BACK)
    one.clock.advance(later)
    assert await card(one, sent) == SHOWN.format(**ANNA)
    assert (await one.counts())[2] == (1 if later == 1 else 0)
    assert await card(one, sent) == SHOWN.format(**ANNA)


async def test_a_page_that_shows_some_of_it_alone_ends_none():
    one, _ = await site()
    sent = await edited(one, 302, BACK)
    one.clock.advance(WEEK + 1)
    call = await one.send("GET /card/1")
    await call.answer(200, f"<b>{sent['name']}</b>".encode(), HTML)
    assert (await one.counts())[2] == 1


async def test_what_a_form_left_does_not_stand_in_the_way_of_a_correction():
    one, stored = await site()
    stored |= await form(one, name="Anna")
    await card(one, stored)
    draft = RecordDraft(key="1", fields={"name": "Anne"})
    assert await correct_record(Records(one.people), draft, "chief", lambda _: ()) is not None
    assert await card(one, stored) == SHOWN.format(name="Anne", note="Has a cold.")


@table("taken", [False, True])
@table("look", [card, record])
async def test_a_correction_holds_whichever_version_the_application_has(taken, look):
    """Nobody has seen yet that a form was refused: the application has the token before it."""
    one, stored = await site()
    sent = [await form(one, name=name) for name in ("Anna", "Bo")]
    stored |= sent[0] if taken else {}
    draft = RecordDraft(key="1", fields={"name": "Anne"})
    assert await correct_record(Records(one.people), draft, "chief", lambda _: ()) is not None
    wanted = {"name": "Anne", "note": "Has a cold."}
    assert await look(one, stored) == (SHOWN.format(**wanted) if look is card else wanted)
    assert await live(one) == wanted
    (row,) = (await one.people.by_key(["1"])).values()
    numbers = [one.values["name"][0].number for one in await one.people.versions(row)]
    assert len(set(numbers)) == len(numbers)


async def test_an_object_decides_also_what_several_earlier_versions_have():
    one, stored = await site()
    stored |= await form(one, name="Anna")
    await form(one, name="Bo", note="Refused.")
    stored |= await form(one, name="Annie")
    assert await record(one, stored) == {"name": "Annie", "note": "Has a cold."}
    assert await live(one) == {"name": "Annie", "note": "Has a cold."}


async def test_a_token_that_another_record_of_the_page_has_tells_nothing_of_a_version():
    """The commonest refusal: somebody else has that address."""
    mail = "email: {kind: email, token: {shape: email, same: true}, find: [exact]}"
    one = await desk(
        *USUAL,
        "{match: GET /home, read: p, response: {restore: html}}",
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, email: email}}}',
        fields=("name: {kind: name}", mail),
    )
    ann = await one.create({"name": "Ann", "email": "ann@x.example"}, 1)
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    call = await one.send("POST /p/1/edit", member_form(name="Ann", email="bo@x.example"), FORM)
    await call.answer(302, b"", BACK)
    one.clock.advance(1)
    listed = "".join(f"<b>{who['name']}</b><b>{who['email']}</b>" for who in (ann, bo))
    await (await one.send("GET /home")).answer(200, listed.encode(), HTML)
    (row,) = (await one.people.by_key(["1"])).values()
    assert one.people.sealer.open(row).values["email"][0].text == "ann@x.example"


async def test_a_value_that_is_taken_away_goes_from_what_forms_left_too():
    one, stored = await site()
    stored |= await form(one, note="", name="Ann")  # it is erased, and kept
    await form(one, note="", name="Bo")  # refused
    draft = RecordDraft(key="1", fields={"note": None})
    assert await correct_record(Records(one.people), draft, "chief", lambda _: ()) is not None
    (row,) = (await one.people.by_key(["1"])).values()
    versions = await one.people.versions(row)
    assert {one.values["name"][0].text for one in versions} == {"Ann", "Bo"}
    assert not any(one.values.get("note") for one in versions)


class Others:
    """The other owners of a store, which do nothing else at the moment."""

    margin = 0

    async def at_work(self, _table: str) -> set[int]:
        return set()

    async def overtaken(self, _table: str, *_names: list[bytes]) -> list[tuple[bytes, ...]]:
        return []


@table("elsewhere", [False, True])
async def test_a_value_that_is_taken_away_is_shown_by_no_earlier_version_either(
    elsewhere, monkeypatch
):
    """A stream that was opened before an edit shows what that replaced, for a while."""
    one, stored = await site()
    if elsewhere:  # another owner of the store is told to take it away
        monkeypatch.setattr(Retired, "forget", lambda _self, _rid: None)
    slow = await one.send("GET /p/1")
    one.clock.advance(1)
    call = await one.send("PATCH /p/1", {"name": "Anna"})
    stored |= call.json
    await call.answer(200, stored)
    one.clock.advance(1)
    draft = RecordDraft(key="1", fields={"note": None})
    assert await correct_record(Records(one.people), draft, "chief", lambda _: ()) is not None
    one.people.state.replicas = cast(Any, Others()) if elsewhere else None
    assert await slow.seen(200, stored) == {**stored, "name": "Anna", "note": None}

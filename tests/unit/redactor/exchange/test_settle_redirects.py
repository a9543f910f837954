"""Changes that are answered by a redirect, or by a page: a refused form is answered in the same way."""

from html import unescape
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.vault.janitor import reap
from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form

WEEK = 7 * 86_400_000
FIELDS = ("name: {kind: name}", "note: {kind: text}")
PAGE = '{match: "GET /card/{id}", read: p, response: {restore: html}}'
ANN = {"name": "Ann", "note": "Has a cold."}
ANNA = {"name": "Anna", "note": "Is well."}
SHOWN = "<b>{name}</b><i>{note}</i>"
BACK = ((b"Location", b"/card/1"),)
SAVED = 'success: {status: 302, location: "/card/{id}"}'


async def site(answer: str = SAVED, keep: str = "") -> tuple[Desk, dict[str, Any]]:
    one = await desk(
        USUAL[0],
        *USUAL[2:],
        PAGE,
        "{match: GET /home, read: p, response: {restore: html}}",
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, note: note}}, '
        f"response: {{{answer}}}}}",
        f'{{match: "POST /p/{{id}}/delete", delete: p{keep}, response: {{{answer}}}}}',
        fields=FIELDS,
    )
    return one, await one.create(ANN)


async def edited(one: Desk, status: int, fields: Any, page: bytes = b"") -> dict[str, str]:
    """What the application was sent by a form."""
    call = await one.send("POST /p/1/edit", member_form(**ANNA), FORM)
    await call.answer(status, page, fields)
    assert one.idle
    sent: dict[str, str] = call.form
    return sent


async def card(one: Desk, stored: dict[str, Any]) -> str:
    one.clock.advance(1)
    call = await one.send("GET /card/1")
    shown = await call.answer(200, SHOWN.format(**stored).encode(), HTML)
    return unescape(shown.body.decode())


async def record(one: Desk, stored: dict[str, Any]) -> dict[str, Any]:
    """What JSON shows of what the application has."""
    shown = await one.shown({**stored, "id": 1})
    return {name: shown[name] for name in ("name", "note")}


async def test_a_refused_form_that_is_redirected_loses_nothing():
    one, stored = await site()
    await edited(one, 302, BACK)
    assert await card(one, stored) == SHOWN.format(**ANN)
    one.clock.advance(2 * WEEK)
    await reap(one.people, WEEK)
    assert await record(one, stored) == ANN
    assert (await one.counts())[2] == 0, "an object of JSON decides"


async def test_an_accepted_form_that_is_redirected_shows_what_is_new():
    one, stored = await site()
    sent = await edited(one, 302, BACK)
    assert await card(one, sent) == SHOWN.format(**ANNA)
    one.clock.advance(2 * WEEK)
    await reap(one.people, WEEK)
    assert await card(one, sent) == SHOWN.format(**ANNA)
    assert await record(one, sent) == ANNA
    assert (await one.counts())[2] == 0
    assert await record(one, stored) != ANN


@pytest.mark.parametrize(
    ("answer", "kept"),
    [("restore: named", 1), ("success: [200]", 0), ('success: {status: 200, text: "<html"}', 0)],
)
async def test_so_does_a_page_unless_the_rule_says_what_success_is(answer, kept):
    one, stored = await site(answer)
    await edited(one, 200, HTML, b"<html><p>Somebody else has changed it</p>")
    assert (await one.counts())[2] == kept
    assert (await record(one, stored) == ANN) is bool(kept)


async def test_the_earlier_versions_of_many_forms_are_bounded_and_a_refusal_then_loses_nothing():
    one, stored = await site()
    for number in range(12):
        call = await one.send("POST /p/1/edit", member_form(name=f"Ann {number}"), FORM)
        await call.answer(302, b"", BACK)
        if number == 10:
            stored = {**stored, **call.form}
            assert f"Ann {number}" in await card(one, stored)
    assert (await one.counts())[2] <= 9
    assert "Ann 10" in await card(one, stored)
    assert await record(one, stored) == {**ANN, "name": "Ann 10"}


async def test_a_refused_delete_that_is_redirected_leaves_the_record():
    one, stored = await site()
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    assert await card(one, stored) == SHOWN.format(**ANN)
    one.clock.advance(2 * WEEK)
    await reap(one.people, WEEK)
    assert await record(one, stored) == ANN


@pytest.mark.parametrize("how", ["not found", "later"])
async def test_an_accepted_one_is_carried_out(how):
    one, _ = await site()
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    assert await one.counts() == (1, 0, 1)
    if how == "later":
        one.clock.advance(WEEK + 1)
        await reap(one.people, WEEK)
    else:
        one.clock.advance(1)
        await (await one.send("GET /p/1")).answer(404, {"error": "no"})
    assert await one.counts() == (0, 0, 0)


async def test_one_that_only_marks_is_carried_out_at_once():
    one, stored = await site(keep=", keep: 30d")
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    assert one.events["marked"] == 1
    assert await record(one, stored) == ANN


@pytest.mark.parametrize("change", ["edit", "delete"])
async def test_a_success_is_believed_where_the_rule_says_complete(change):
    one, stored = await site(f"{SAVED}, complete: true")
    if change == "edit":
        sent = await edited(one, 302, BACK)
        assert await one.counts() == (1, 0, 0)
        assert await record(one, sent) == ANNA
    else:
        await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
        assert await one.counts() == (0, 0, 0)
    assert await record(one, stored) != ANN


async def form(one: Desk, **members: str) -> dict[str, str]:
    """What a form sends that is answered by a redirect."""
    call = await one.send("POST /p/1/edit", member_form(**members), FORM)
    await call.answer(302, b"", BACK)
    sent: dict[str, str] = call.form
    return sent


async def live(one: Desk) -> dict[str, str] | None:
    """The values of the live version, which searches find."""
    row = (await one.people.by_key(["1"])).get("1")
    if row is None:
        return None
    return {name: of[0].text for name, of in one.people.sealer.open(row).values.items()}


async def test_a_page_tells_field_by_field_which_values_are_live():
    one, stored = await site()
    await form(one, name="Bo")  # refused
    stored |= await form(one, note="Is well.")  # accepted
    for number in range(12):
        assert await card(one, stored) == SHOWN.format(name="Ann", note="Is well.")
        assert await live(one) == {"name": "Ann", "note": "Is well."}
        await form(one, name=f"Bo {number}")
    assert await record(one, stored) == {"name": "Ann", "note": "Is well."}


async def test_many_refusals_without_a_view_between_leave_the_oldest_version():
    one, stored = await site()
    for number in range(12):
        await form(one, name=f"Bo {number}")
    assert await card(one, stored) == SHOWN.format(**ANN)


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


async def test_a_change_that_is_answered_shows_that_the_record_is_there():
    one, stored = await site()
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    one.clock.advance(1000)
    call = await one.send("PATCH /p/1", {"note": "Is well."})
    stored |= call.json
    await call.answer(200, stored)
    one.clock.advance(1000)
    await (await one.send("GET /p/1")).answer(404, {"error": "no"})
    assert await live(one) == {"name": "Ann", "note": "Is well."}


async def test_one_page_tells_of_a_refused_edit_and_a_refused_delete():
    one, stored = await site()
    await form(one, name="Bo")
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    await card(one, stored)
    assert await live(one) == ANN


async def test_a_delete_waits_for_an_edit_that_may_still_be_at_work():
    one, _ = await site()
    call = await one.send("POST /p/1/edit", member_form(**ANNA), FORM)
    await call.answer(502, b"bad gateway")
    one.clock.advance(60_000)
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    for _ in range(2):
        one.clock.advance(2 * WEEK)
        await reap(one.people, WEEK)
    assert await live(one) is None


async def test_complete_is_refused_where_a_success_shows_the_record_anyway():
    with pytest.raises(VaultError):
        await desk('{match: "PATCH /p/{id}", update: p, response: {complete: true}}')

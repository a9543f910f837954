"""Changes that are answered by a redirect, or by a page: a refused form is answered in the same way."""

from html import unescape

import pytest

from proxy.errors import VaultError
from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE
from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form
from tests.support.redirects import (
    ANN,
    ANNA,
    BACK,
    FIELDS,
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


async def test_the_anchor_of_a_redirect_names_the_record():
    one = await desk(
        *USUAL[2:],
        '{match: "POST /posts/{post}/comment", create: p, request: {form: {name: name, note: note}}, '
        'response: {success: [302], id: "header Location #comment-{id}"}}',
        fields=FIELDS,
    )
    call = await one.send("POST /posts/hello/comment", member_form(**ANN), FORM)
    await call.answer(302, b"", ((b"Location", b"https://app.example/hello/?a=b#comment-1"),))
    assert await record(one, call.form) == ANN
    deleted = await one.send("DELETE /p/1")
    await deleted.answer(204, b"")
    assert await one.counts() == (0, 0, 0), "a delete finds it"


@table(
    ("answer", "kept"),
    [("restore: named", 1), ("success: [200]", 0), ('success: {status: 200, text: "<html"}', 0)],
)
async def test_so_does_a_page_unless_the_rule_says_what_success_is(answer, kept):
    one, stored = await site(answer)
    await edited(one, 200, HTML, b"<html><p>Somebody else has changed it</p>")
    assert (await one.counts())[2] == kept
    assert (await record(one, stored) == ANN) is bool(kept)


PLAIN = (b"Content-Type", b"text/plain; charset=utf-8")
EMPTY = (b"Content-Length", b"0")


@table(
    ("headers", "body", "kept"),
    [
        ((PLAIN,), b"Somebody else has changed it", 1),
        ((PLAIN, (b"Content-Length", b"2")), b"OK", 0),
        (((b"HX-Redirect", b"/card/1"), EMPTY), b"", 1),
        (((b"HX-Location", b'{"path": "/card/1"}'), EMPTY), b"", 1),
        ((EMPTY,), b"", 0),
    ],
)
async def test_nor_a_plain_text_nor_a_redirect_that_a_script_follows(headers, body, kept):
    one, stored = await site("restore: named")
    await edited(one, 200, headers, body)
    assert (await one.counts())[2] == kept
    assert (await record(one, stored) == ANN) is bool(kept)
    stored = await one.create(ANN, 2)
    await (await one.send("DELETE /p/2")).answer(200, body, headers)
    assert (await one.counts())[0] == 1 + kept


JSON = (b"Content-Type", b"application/json")
PROBLEM = (b"Content-Type", b"application/problem+json")


@table(
    ("status", "kind", "answer", "kept"),
    [
        (202, JSON, "restore: named", 1),
        (207, JSON, "restore: named", 1),
        (200, PROBLEM, "restore: named", 1),
        (200, JSON, "restore: named", 0),
        (202, JSON, "success: [202]", 0),
    ],
)
async def test_nor_what_is_to_be_carried_out_or_is_a_problem(status, kind, answer, kept):
    said = f"response: {{{answer}}}"
    change, delete = f'"PUT /q/{{id}}", update: p, {said}', f'"DELETE /q/{{id}}", delete: p, {said}'
    changes = f"{{match: {change}}}", f"{{match: {delete}}}"
    one = await desk(USUAL[0], *USUAL[2:], *changes, fields=FIELDS)
    stored = await one.create(ANN, 1)
    body = b'{"job": "7"}'
    await (await one.send("PUT /q/1", ANNA)).answer(status, body, (kind,))
    assert (await one.counts())[2] == kept
    assert (await record(one, stored) == ANN) is bool(kept)
    stored = await one.create(ANN, 2)
    await (await one.send("DELETE /q/2")).answer(status, body, (kind,))
    assert (await one.counts())[0] == 1 + kept


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


@table("how", ["not found", "later"])
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


DAY = 86_400_000


async def seen(one: Desk, stored: dict[str, str], how: str) -> bool:
    """Whether the record is shown with its values."""
    if how == "as an object":
        return await record(one, stored) == ANN
    if how == "in its page":
        return await card(one, stored) == SHOWN.format(**ANN)
    text = SHOWN.format(**stored).encode()
    shown = await (await one.send("GET /home")).answer(200, text, HTML)
    return unescape(shown.body.decode()) == SHOWN.format(**ANN)


@pytest.mark.parametrize("how", ["as an object", "in its page", "in a list"])
async def test_one_that_only_marks_and_was_refused_loses_no_record_that_is_shown(how):
    one, stored = await site(keep=", keep: 30d")
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    for _ in range(5):
        one.clock.advance(20 * DAY)
        await one.vault.maintain()
        assert await seen(one, stored, how)
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    one.clock.advance(29 * DAY)
    await one.vault.maintain()
    assert await one.counts() == (1, 0, 1), "a second mark puts nothing off, nor brings it forward"
    one.clock.advance(2 * DAY)
    await one.vault.maintain()
    assert await one.counts() == (0, 0, 0), "nothing has shown it for so long"


@pytest.mark.parametrize("then", ["certain", "complete", "edited"])
async def test_what_decides_such_a_mark_ends_the_doubt(then):
    answer = {"complete": f"{SAVED}, complete: true", "certain": "success: [200, 302]"}
    one, stored = await site(answer.get(then, SAVED), keep=", keep: 30d")
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    if then == "certain":
        await (await one.send("POST /p/1/delete", b"", FORM)).answer(200, {"id": 1})
    if then == "edited":
        call = await one.send("PATCH /p/1", {"name": "Ann"})
        await call.answer(200, stored | call.json)
    assert await one.counts() == (1, 0, 0)
    for _ in range(3):
        one.clock.advance(20 * DAY)
        await one.vault.maintain()
        await record(one, stored)
    assert (await live(one) is not None) is (then == "edited")


@pytest.mark.parametrize("edit", ["redirected", "answered"])
@pytest.mark.parametrize("later", ["nothing", "a page", "an object"])
async def test_a_delete_before_an_edit_is_carried_out_by_404_where_both_are_redirected(edit, later):
    one, stored = await site()
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    one.clock.advance(1)
    if edit == "redirected":
        stored |= await edited(one, 302, BACK)
    else:
        call = await one.send("PATCH /p/1", ANNA)
        stored |= call.json
        await call.answer(200, stored)
    one.clock.advance(2 * WEEK)
    await one.vault.maintain()
    assert await live(one) == ANNA
    if later == "a page":
        await seen(one, stored, "in a list")
    elif later == "an object":
        await seen(one, stored, "as an object")
    one.clock.advance(1)
    await (await one.send("GET /p/1")).answer(404, {"error": "no"})
    gone = edit == "redirected" and later == "nothing"
    assert await live(one) == (None if gone else ANNA)


@table("change", ["edit", "delete"])
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


async def test_many_refusals_without_a_view_between_leave_the_oldest_version():
    one, stored = await site()
    for number in range(12):
        await form(one, name=f"Bo {number}")
    assert await card(one, stored) == SHOWN.format(**ANN)


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


@table("name", ["Bo", "Cy"])
async def test_an_answer_that_shows_an_earlier_version_brings_that_back(name):
    one, stored = await site()
    await form(one, name="Bo")  # refused
    call = await one.send("PATCH /p/1", {"name": name, "note": "Is well."})
    stored |= {"note": call.json["note"]}  # the application takes that alone
    assert (await call.seen(200, stored))["name"] == "Ann"
    assert await record(one, stored) == {"name": "Ann", "note": "Is well."}
    assert await live(one) == {"name": "Ann", "note": "Is well."}


async def test_the_page_that_names_whom_it_has_deleted_makes_no_earlier_version_live():
    one, stored = await site()
    await form(one, name="Bo")  # refused
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)
    one.clock.advance(1)
    flash = f"<p>{stored['name']} was deleted.</p>"
    await (await one.send("GET /home")).answer(200, flash.encode(), HTML)
    one.clock.advance(1)
    await (await one.send("GET /p/1")).answer(404, {"error": "no"})
    assert await live(one) is None


@table("before", ["nothing", "a delete", "an edit in doubt"])
async def test_a_delete_is_carried_out_only_once_no_page_shows_the_record_any_more(before):
    one, stored = await site()
    if before == "an edit in doubt":
        stored |= await edited(one, 500, HTML, b"failed, once it was done")
    for _ in range(2 if before == "a delete" else 1):
        await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)  # refused
        one.clock.advance(1)
    for _ in range(4):
        people = SHOWN.format(**stored).encode()
        shown = await (await one.send("GET /home")).answer(200, people, HTML)
        assert unescape(shown.body.decode()) == SHOWN.format(**(ANNA if "edit" in before else ANN))
        one.clock.advance(WEEK // 2)
        await reap(one.people, WEEK)
    one.clock.advance(WEEK + 1)
    await reap(one.people, WEEK)
    assert await one.counts() == (0, 0, 0)


@table("how", ["answered", "redirected"])
async def test_a_change_keeps_what_one_that_is_still_at_work_may_bring_back(how):
    one, stored = await site()
    first = await one.send("PATCH /p/1", {"name": "Ann", "note": "Is well."})
    await first.answer(504, b"gateway timeout")
    one.clock.advance(1000)
    if how == "answered":
        call = await one.send("PATCH /p/1", {"name": "Bea"})
        stored |= call.json
        await call.answer(200, stored)
    else:
        stored |= await form(one, name="Bea")
    one.clock.advance(1000)
    assert await record(one, stored) == {**ANN, "name": "Bea"}
    stored |= first.json
    assert await record(one, stored) == {"name": "Ann", "note": "Is well."}
    one.clock.advance(RECONCILE_GRACE + 1)
    assert await record(one, stored) == {"name": "Ann", "note": "Is well."}
    assert await live(one) == {"name": "Ann", "note": "Is well."}
    assert await one.counts() == (1, 0, 0)


async def test_so_does_one_after_a_form_sent_unchanged_that_is_still_at_work():
    one, stored = await site()
    first = await one.send("POST /p/1/edit", member_form(**ANN), FORM)
    await first.exchange.failed(True)
    one.clock.advance(1000)
    assert await record(one, stored) == ANN
    call = await one.send("PATCH /p/1", {"name": "Bea"})
    stored |= call.json
    await call.answer(200, stored)
    one.clock.advance(1000)
    assert await record(one, stored) == {**ANN, "name": "Bea"}
    stored |= first.form
    assert await record(one, stored) == ANN
    one.clock.advance(RECONCILE_GRACE + 1)
    assert await record(one, stored) == ANN
    assert await one.counts() == (1, 0, 0)


async def unanswered(one: Desk) -> dict[str, str]:
    """A create without an answer that the application has carried out."""
    call = await one.send("POST /p", ANN)
    await call.exchange.failed(True)
    one.clock.advance(1000)
    sent: dict[str, str] = call.json
    return sent


@table("refused", [1, 2, 3])
async def test_refused_forms_do_not_keep_an_unanswered_create_from_its_record(refused):
    one, _ = await site(created=False)
    stored = await unanswered(one)
    for number in range(refused):
        await form(one, note=f"Note {number}")
    one.clock.advance(1000)
    for _ in range(3):
        assert await record(one, stored) == ANN
        one.clock.advance(WEEK)
        await reap(one.people, WEEK)
    assert await live(one) == ANN
    assert await one.counts() == (1, 0, 0)


async def test_nor_does_a_refused_mark_which_stays_in_doubt():
    one, _ = await site(keep=", keep: 30d", created=False)
    stored = await unanswered(one)
    await form(one, note="Note 1")  # refused
    await (await one.send("POST /p/1/delete", b"", FORM)).answer(302, b"", BACK)  # refused
    for _ in range(4):
        assert await record(one, stored) == ANN
        one.clock.advance(20 * DAY)
        await one.vault.maintain()
    assert await live(one) == ANN
    assert await one.counts() == (1, 0, 1)


@table("path", ["/form/1", "/card/1"])
@table("taken", [True, False])
async def test_what_a_page_shows_of_an_unanswered_create_stays(path, taken):
    one, _ = await site(created=False)
    stored = await unanswered(one)
    sent = await form(one, note=ANNA["note"])
    stored |= sent if taken else {}
    page = "".join(f'<input name="{name}" value="{text}">' for name, text in stored.items())
    for _ in range(4):
        one.clock.advance(WEEK // 2)
        shown = await (await one.send(f"GET {path}")).answer(200, page.encode(), HTML)
        assert (b'value="Ann"' in shown.body) is (taken or path == "/form/1")
        await reap(one.people, WEEK)
    shown = await (await one.send("GET /home")).answer(200, page.encode(), HTML)
    assert b'value="Ann"' in shown.body


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


async def test_of_two_with_one_token_the_value_of_the_one_that_nothing_leaves_in_doubt_is_shown():
    mail = "email: {kind: email, token: {shape: email, same: true}}"
    edit = '{match: "POST /p/{id}/edit", update: p, request: {form: {email: email}}, response: {success: [302]}}'
    one = await desk(
        *USUAL, edit, "{match: GET /home, read: p, response: {restore: html}}", fields=(mail,)
    )
    await one.create({"email": "ann@x.org"}, 1)
    bob = await one.create({"email": "bob@x.org"}, 2)
    call = await one.send("POST /p/1/edit", member_form(email="BOB@x.org"), FORM)
    await call.answer(302, b"", BACK)  # refused: Bob has it
    one.clock.advance(1)
    shown = await (await one.send("GET /home")).answer(200, bob["email"].encode(), HTML)
    assert unescape(shown.body.decode()) == "bob@x.org"


@table(("leap", "status"), [(-3_600_000, 303), (-3_600_000, 500), (-600, 303), (1, 303), (5, 500)])
async def test_an_answer_asked_for_before_the_clock_was_set_back_decides_nothing(leap, status):
    mail = "email: {kind: email, token: {shape: email, same: true}}"
    one = await desk(*USUAL, fields=("name: {kind: name}", mail))
    before = await one.create({"name": "Ann"}, 1)
    one.clock.advance(1_000)
    asked = await one.send("GET /p/1")
    one.clock.advance(leap)
    call = await one.send("PATCH /p/1", {"name": "Bo"})
    await call.answer(status, b"")
    await asked.answer(200, {"id": 1, **before})
    one.clock.advance(10)
    stored = {"id": 1, **call.json}
    assert await (await one.send("GET /p/1")).seen(200, stored) == {"id": 1, "name": "Bo"}

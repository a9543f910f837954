"""``versions: keep``: an application that has several versions of a record under one id."""

from html import unescape

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE
from tests.support.exchanges import FIELDS, HTML, Desk, desk_of, rule_text
from tests.support.table import table

OPERATIONS = (
    "{match: POST /p, create: p}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
    '{match: "GET /p/{id}", read: p}',
    '{match: "GET /card/{id}", read: p, response: {restore: anywhere}}',
    '{match: "PATCH /p/{id}", update: p}',
    '{match: "POST /p/{id}/publish", update: p}',
    '{match: "DELETE /p/{id}", update: p}',
    """{match: "DELETE /p/{id}", when: {query locale: "*"}, delete: p}""",
)
VIEWS = "views: [{who: [boss], p: clear}, {who: [desk], p: mask}, {who: [robot], p: token}]"
PUBLISHED = {
    "name": "Ann Ek",
    "email": "ann@example.se",
    "phone": "08-123 456 78",
    "born": "1950-05-05",
    "tags": ["one", "two"],
}
DRAFT = {
    "name": "Anna Ek",
    "email": "anna@example.se",
    "phone": "08-999 888 77",
    "born": "1999-09-09",
    "tags": ["two", "three"],
}
WEEK = 7 * 86_400_000


async def cms(more: str = "", fields: tuple[str, ...] = FIELDS, word: str = "keep") -> Desk:
    text = rule_text(*OPERATIONS, fields=fields, more=more)
    return await desk_of(text.replace("    fields:", f"    versions: {word}\n    fields:", 1))


async def changed(one: Desk, body, answer=None):
    """What the application has of a change that it took."""
    call = await one.send("PATCH /p/1", body)
    shown = await call.seen(200, {"id": 1, **(call.json if answer is None else answer)})
    return {"id": 1, **call.json}, shown


async def drafted(one: Desk):
    """A published version in the application, and its draft."""
    published = await one.create(PUBLISHED)
    one.clock.advance(1)
    draft, _ = await changed(one, DRAFT)
    one.clock.advance(1)
    return published, draft


async def test_each_version_is_shown_as_it_is_wherever_it_stands():
    one = await cms()
    published, draft = await drafted(one)
    for stored, meant in ((published, PUBLISHED), (draft, DRAFT), (published, PUBLISHED)):
        assert await one.shown(stored) == {"id": 1, **meant}
    both = await one.shown([published, draft, published], "GET /p")
    assert both == [{"id": 1, **of} for of in (PUBLISHED, DRAFT, PUBLISHED)]
    mixed = {**published, "name": draft["name"], "born": draft["born"]}
    assert await one.shown(mixed) == {
        "id": 1, **PUBLISHED, "name": DRAFT["name"], "born": DRAFT["born"],
    }  # fmt: skip


async def test_so_is_a_page_that_shows_both():
    one = await cms()
    published, draft = await drafted(one)
    page = "<p>{0[name]}</p><p>{1[name]}</p><i>{0[email]} {1[email]}</i>"
    call = await one.send("GET /card/1")
    shown = await call.answer(200, page.format(published, draft).encode(), HTML)
    assert unescape(shown.body.decode()) == page.format(PUBLISHED, DRAFT)


async def test_without_the_word_an_update_ends_what_it_replaces():
    one = await cms(word="current")
    published, draft = await drafted(one)
    assert await one.shown(draft) == {"id": 1, **DRAFT}
    assert (await one.shown(published))["name"] == published["name"]


async def test_reads_end_nothing_however_often_and_late():
    one = await cms()
    published, draft = await drafted(one)
    for stored, meant in ((published, PUBLISHED), (draft, DRAFT)) * 3:
        one.clock.advance(WEEK + RECONCILE_GRACE)
        await reap(one.people, WEEK)
        assert await one.shown([stored], "GET /p") == [{"id": 1, **meant}]
        assert await one.shown(stored) == {"id": 1, **meant}


async def test_publishing_and_discarding_say_no_value_and_end_none():
    one = await cms()
    published, draft = await drafted(one)
    for answer, meant in ((published, PUBLISHED), (draft, DRAFT)):
        call = await one.send("POST /p/1/publish", {"locale": "sv"})
        assert call.json == {"locale": "sv"}
        assert await call.seen(200, answer) == {"id": 1, **meant}
    assert await one.shown(published) == {"id": 1, **PUBLISHED}
    assert await one.shown(draft) == {"id": 1, **DRAFT}


async def test_an_earlier_value_gets_its_earlier_token_again():
    one = await cms()
    published, draft = await drafted(one)
    again, shown = await changed(one, PUBLISHED)
    assert shown == {"id": 1, **PUBLISHED}
    assert again == published
    assert await one.shown(draft) == {"id": 1, **DRAFT}


async def test_a_token_of_an_earlier_version_means_its_value():
    one = await cms()
    published, draft = await drafted(one)
    _, shown = await changed(one, {"name": published["name"]})
    assert shown["name"] == PUBLISHED["name"]
    assert await one.shown(draft) == {"id": 1, **DRAFT}


async def test_a_value_that_is_cleared_in_one_version_stays_in_the_other():
    one = await cms()
    published = await one.create(PUBLISHED)
    await changed(one, {"name": "", "born": None})
    assert await one.shown(published) == {"id": 1, **PUBLISHED}


async def test_an_answer_with_the_other_version_ends_neither():
    one = await cms()
    published = await one.create(PUBLISHED)
    call = await one.send("PATCH /p/1", DRAFT)
    draft = {"id": 1, **call.json}
    assert await call.seen(200, published) == {"id": 1, **PUBLISHED}
    assert await one.shown(draft) == {"id": 1, **DRAFT}
    assert await one.shown(published) == {"id": 1, **PUBLISHED}


@table(("status", "late"), [(500, False), (500, True), (None, False), (None, True)])
async def test_an_update_in_doubt_keeps_both_whatever_is_shown_first(status, late):
    one = await cms()
    published = await one.create(PUBLISHED)
    one.clock.advance(1)
    call = await one.send("PATCH /p/1", DRAFT)
    draft = {"id": 1, **call.json}
    await (call.exchange.failed(sent=True) if status is None else call.answer(status))
    for _ in range(2):
        one.clock.advance(RECONCILE_GRACE + WEEK if late else 1)
        if late:
            await reap(one.people, WEEK)
        assert await one.shown(published) == {"id": 1, **PUBLISHED}
        assert await one.shown(draft) == {"id": 1, **DRAFT}


async def test_so_does_one_that_an_answer_decides_while_the_record_is_being_changed():
    one = await cms()
    published = await one.create(PUBLISHED)
    call = await one.send("PATCH /p/1", DRAFT)
    draft = {"id": 1, **call.json}
    await call.answer(500)
    one.clock.advance(RECONCILE_GRACE + 1)
    digest = one.people.key_hash("1")
    assert one.people.state.locks.take(digest)
    assert await one.shown(published) == {"id": 1, **PUBLISHED}
    one.people.state.locks.release((digest,))
    assert (await one.counts())[2] == 0
    assert await one.shown(draft) == {"id": 1, **DRAFT}


async def test_a_refused_update_keeps_nothing_of_it():
    one = await cms()
    published = await one.create(PUBLISHED)
    call = await one.send("PATCH /p/1", DRAFT)
    await call.answer(422, {"error": "no"})
    row = (await one.people.by_key(["1"]))["1"]
    assert one.people.sealer.open(row).earlier == {}
    assert await one.shown(published) == {"id": 1, **PUBLISHED}


async def test_dates_of_versions_never_have_one_token():
    one = await cms()
    stored = [(await one.create(PUBLISHED), "1950-05-05")]
    for number in range(60):
        born = f"{1930 + number}-02-03"
        stored.append(((await changed(one, {"born": born}))[0], born))
    assert len({of["born"] for of, _ in stored}) == len(stored)
    for of, born in stored:
        assert (await one.shown({"id": 1, "born": of["born"]}))["born"] == born


async def test_another_spelling_of_a_value_takes_its_place_under_one_token():
    one = await cms()
    published = await one.create(PUBLISHED)
    draft, shown = await changed(one, {"email": "Ann@Example.se"})
    assert shown["email"] == "Ann@Example.se"
    assert draft["email"] == published["email"]
    assert (await one.shown(published))["email"] == "Ann@Example.se"


async def test_the_delete_of_one_version_ends_none_and_that_of_the_record_every_one():
    one = await cms()
    published, draft = await drafted(one)
    await (await one.send("DELETE /p/1?locale=sv")).answer(204)
    assert await one.shown(published) == {"id": 1, **PUBLISHED}
    assert await one.shown(draft) == {"id": 1, **DRAFT}
    await (await one.send("DELETE /p/1?locale=*")).answer(204)
    assert await one.counts() == (0, 0, 0)
    assert await one.shown(published) == published
    assert await one.shown(draft) == draft


async def seen_by(one: Desk, role: str, stored):
    """What callers of a role see."""
    return await (await one.send("GET /p/1", view=one.view(role))).seen(200, stored)


async def test_a_view_masks_each_version_and_a_mask_that_comes_back_means_its_value():
    one = await cms(VIEWS)
    published = await one.create({"name": "Ann Ek"})
    draft, _ = await changed(one, {"name": "Berit Alm"})
    masked = await seen_by(one, "desk", published)
    assert masked["name"] not in ("Ann Ek", published["name"])
    assert (await seen_by(one, "boss", published))["name"] == "Ann Ek"
    for role, back in (("desk", masked["name"]), ("robot", published["name"])):
        call = await one.send("PATCH /p/1", {"name": back}, view=one.view(role))
        await call.answer(200, {"id": 1, **call.json})
        assert (await seen_by(one, "boss", {"id": 1, **call.json}))["name"] == "Ann Ek"
    assert (await seen_by(one, "boss", draft))["name"] == "Berit Alm"


async def test_a_mask_that_several_values_of_the_record_have_means_none():
    one = await cms(VIEWS)
    published = await one.create({"name": "Ann Ek"})
    await changed(one, {"name": "Amy Ek"})
    masked = await seen_by(one, "desk", published)
    with pytest.raises(VaultError) as refused:
        await one.send("PATCH /p/1", {"name": masked["name"]}, view=one.view("desk"))
    assert refused.value.code is Code.VALUE_UNFIT


async def test_a_create_that_got_lost_joins_the_record_of_its_id_with_all_values():
    one = await cms()
    call = await one.send("POST /p", PUBLISHED)
    published = {"id": 1, **call.json}
    await call.exchange.failed(sent=True)
    one.clock.advance(1)
    draft, _ = await changed(one, DRAFT)
    for _ in range(2):
        one.clock.advance(RECONCILE_GRACE + 1)
        assert await one.shown([published], "GET /p") == [{"id": 1, **PUBLISHED}]
        assert await one.shown([draft], "GET /p") == [{"id": 1, **DRAFT}]


@table("token", ["zero", "mask", '{shape: fixed, value: "1900-01-01"}'])
def test_a_shape_without_tokens_for_every_version_is_refused(token):
    text = rule_text(*OPERATIONS, fields=(f"name: {{kind: text, token: {token}}}",))
    with pytest.raises(VaultError) as refused:
        load_text(text.replace("    fields:", "    versions: keep\n    fields:", 1))
    assert "a token of its own" in refused.value.details[0].text

from html import unescape
from typing import Any

from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE
from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form

SMALL = (
    "name: {kind: name}",
    "pin: {kind: text, token: {shape: fixed, value: hidden}}",
    "born: {kind: date, token: {shape: date}}",
)
ANN = {"name": "Ann", "pin": "4711", "born": "1931-02-27"}
ELEMENTS = "restore: html, form: {born: born, pin: pin}"
FORMS = (
    (
        "{match: POST /new, create: p, request: {form: {name: name, pin: pin, born: born}}, "
        f'response: {{id: "header Location /p/{{id}}", success: [303], {ELEMENTS}}}}}'
    ),
    (
        '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, pin: pin, born: born}}, '
        f"response: {{success: [303], {ELEMENTS}}}}}"
    ),
)
AGAIN = "<i>{born} {pin}</i><input name=born value='{born}'><b id=pin>{pin}</b><p>{name}</p>"


async def form_shown_again(
    one: Desk, match: str, form: dict[str, str], sent: dict[str, str]
) -> str:
    """What the caller sees of a page with what the application was sent; ``sent`` learns that."""
    call = await one.send(match, member_form(**form), FORM)
    sent.update(call.form)
    answer = await call.answer(422, AGAIN.format(**{**ANN, **call.form}).encode(), HTML)
    return unescape(answer.body.decode())


async def test_a_date_is_restored_in_the_element_that_the_rule_names_and_other_dates_stay():
    rule = "{restore: html, form: {born: born, pin: pin}}"
    card = f'{{match: "GET /card/{{id}}", read: p, response: {rule}}}'
    one = await desk(USUAL[0], card, fields=SMALL)
    stored = await one.create({"name": "Ann", "pin": "4711", "born": "1931-02-27"})
    page = "<i>{other}</i><input name=born value='{born}'><b id=pin>{pin}</b><b>{pin}</b>"
    other = "1950-01-01" if stored["born"] != "1950-01-01" else "1950-01-02"
    sent = page.format(other=other, **stored).encode()
    shown = await (await one.send("GET /card/1")).answer(200, sent, HTML)
    assert shown.body.decode() == (
        f"<i>{other}</i><input name=born value='1931&#45;02&#45;27'><b id=pin>4711</b><b>hidden</b>"
    )
    assert one.audit.lines[-1]["fields"] == ["born", "pin"]
    strange = await (await one.send("GET /card/2")).answer(200, sent, HTML)
    assert strange.body == sent


async def test_a_form_with_a_mistake_shows_what_was_typed_in_the_elements_that_the_rule_names():
    one = await desk(USUAL[0], *FORMS, fields=SMALL)
    sent: dict[str, str] = {}
    shown = await form_shown_again(one, "POST /new", ANN, sent)
    assert shown == (
        f"<i>{sent['born']} hidden</i><input name=born value='1931-02-27'><b id=pin>4711</b><p>Ann</p>"
    )
    await one.create(ANN)
    shown = await form_shown_again(one, "POST /p/1/edit", {**ANN, "born": "1932-01-01"}, sent)
    assert "value='1932-01-01'><b id=pin>4711</b><p>Ann</p>" in shown


async def test_a_token_that_the_caller_sent_itself_stays_one():
    one = await desk(USUAL[0], *FORMS, fields=SMALL)
    stored = await one.create(ANN)
    form = {"name": "Bo", "born": stored["born"]}
    shown = await form_shown_again(one, "POST /p/1/edit", form, {})
    assert shown == AGAIN.format(name="Bo", born=stored["born"], pin=ANN["pin"])


async def test_an_element_with_another_text_than_what_was_sent_stays():
    one = await desk(USUAL[0], *FORMS, fields=SMALL)
    call = await one.send("POST /new", member_form(**ANN), FORM)
    other = "1950-01-01" if call.form["born"] != "1950-01-01" else "1950-01-02"
    page = f"<input name=born value='{other}'><b id=pin>shown</b>".encode()
    assert (await call.answer(422, page, HTML)).body == page


async def test_the_page_about_a_new_record_shows_its_own_date():
    operation = FORMS[0].replace("[303]", "[201]")
    one = await desk(USUAL[0], operation, fields=SMALL)
    call = await one.send("POST /new", member_form(**ANN), FORM)
    location = (*HTML, (b"Location", b"/p/5"))
    page = f"<time id=born datetime='{call.form['born']}'></time>".encode()
    answer = await call.answer(201, page, location)
    assert unescape(answer.body.decode()) == "<time id=born datetime='1931-02-27'></time>"


async def test_a_caller_that_sees_masks_is_shown_the_mask_of_what_it_sent():
    more = "views: [{who: [clerk], p: mask}]"
    one = await desk(USUAL[0], *FORMS, fields=SMALL, more=more)
    call = await one.send("POST /new", member_form(**ANN), FORM, view=one.view("clerk"))
    page = f"<input name=born value='{call.form['born']}'>".encode()
    answer = await call.answer(422, page, HTML)
    assert unescape(answer.body.decode()) == "<input name=born value='1931-**-**'>"


# ------------------------------------------------------------------ records without an id

IMPORT = (
    "{match: POST /import, create: p, request: {csv: {Name: name, Mail: mail, Born: born}}, "
    'response: {success: [303], id: "$.ids[*]"}}'
)
CARD = '{match: "GET /card/{id}", read: p, response: {restore: html, form: {born: born}}}'
LIST = '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}'
IMPORTED = (
    "name: {kind: name}",
    "mail: {kind: email, token: {shape: email, same: true}}",
    "born: {kind: date, token: {shape: date}}",
)
CSV = ((b"Content-Type", b"text/csv"),)
BO = {"name": "Bo", "mail": "bo@x.example", "born": "1931-02-27"}
EVE = {"name": "Eve", "mail": "eve@x.example", "born": "1932-02-28"}
PAGE = "<h1>{name}</h1><p>{mail}</p><input name=born value='{born}'>"


async def imported(
    *people: dict[str, str], more: str = "", operations: tuple[str, ...] = ()
) -> tuple[Desk, list[dict[str, str]]]:
    """What the application has of people of an import that it answered by a redirect."""
    fields = (*IMPORTED, "note: {kind: text}")
    usual = (USUAL[0], *USUAL[2:4], *operations)
    one = await desk(*usual, IMPORT, CARD, LIST, fields=fields, more=more)
    rows = ["Name,Mail,Born", *(",".join(person.values()) for person in people)]
    view = one.view("boss") if more else None
    call = await one.send("POST /import", "\r\n".join(rows).encode(), CSV, view)
    redirected = ((b"Location", b"/people/"),)
    await call.answer(303, b"", redirected)
    assert one.idle
    cells = [row.split(",") for row in call.sent.body.decode().split("\r\n")[1:]]
    return one, [dict(zip(BO, row, strict=True)) for row in cells]


async def card(one: Desk, page: str, target: str = "/card/7", role: str = "") -> str:
    call = await one.send(f"GET {target}", view=one.view(role) if role else None)
    answer = await call.answer(200, page.encode(), HTML)
    return unescape(answer.body.decode())


async def test_a_page_about_an_imported_record_shows_its_values_before_any_answer_tells_its_id():
    one, (bo, eve) = await imported(BO, EVE)
    assert await card(one, PAGE.format(**eve)) == PAGE.format(**EVE)
    line = next(line for line in reversed(one.audit.lines) if line["event"] == "reveal")
    assert set(line["fields"]) <= {"name", "mail", "born"}
    listed = await (await one.send("GET /p")).seen(200, [{"id": 7, **eve}, {"id": 8, **bo}])
    assert listed == [{"id": 7, **EVE}, {"id": 8, **BO}]
    assert await card(one, PAGE.format(**eve)) == PAGE.format(**EVE)


async def test_who_sees_masks_is_shown_masks_of_it():
    views = "views: [{who: [boss], p: clear}, {who: [clerk], p: mask}]"
    one, (bo,) = await imported(BO, more=views)
    shown = await card(one, PAGE.format(**bo), role="clerk")
    assert shown == PAGE.format(name="B*", mail="b*@x.example", born="1931-**-**")
    assert await card(one, PAGE.format(**bo), role="nobody") == PAGE.format(**bo)


async def test_a_page_that_quotes_a_part_of_another_record_shows_its_tokens():
    one, (bo, eve) = await imported(BO, EVE)
    for page in (
        f"<p>{bo['name']}</p>",
        f"<p>{bo['name']} and {eve['mail']}</p>",
        PAGE.format(**bo) + PAGE.format(**eve),  # which of the two is it?
    ):
        assert await card(one, page) == page
    beside = PAGE.format(**bo) + f"<i>{eve['name']}</i>"
    assert await card(one, beside) == PAGE.format(**BO) + f"<i>{eve['name']}</i>"


async def test_tokens_that_the_caller_wrote_itself_stay():
    one, (bo,) = await imported(BO)
    page = PAGE.format(**bo)
    assert await card(one, page, f"/card/7?x={bo['name']}") == page


async def test_a_page_about_a_record_that_the_vault_knows_shows_no_other():
    one, (bo,) = await imported(BO)
    await one.create({"name": "Ann", "born": "1950-01-01"}, 7)
    assert await card(one, PAGE.format(**bo)) == PAGE.format(**bo)


NOTE = '{match: "POST /p/{id}/note", update: p, request: {form: {note: note}}, response: {success: [303]}}'


async def noted(*people: dict[str, str]) -> tuple[Desk, list[dict[str, str]], str]:
    """The same with what a note of the record 7 was sent as, before any answer told that id."""
    one, stored = await imported(*people, operations=(NOTE,))
    call = await one.send("POST /p/7/note", b"note=call%20back", FORM)
    note = call.form["note"]
    await call.answer(303, b"", ((b"Location", b"/card/7"),))
    return one, stored, note


async def test_an_update_of_an_id_that_no_answer_has_told_leaves_the_record_without_one_readable():
    one, (bo, eve), note = await noted(BO, EVE)
    changed = PAGE.format(**{**bo, "name": eve["name"]}) + note
    assert await card(one, changed) == changed.replace(note, "call back"), "of two people"
    page = PAGE + "<p>{note}</p>"
    shown = await card(one, page.format(**bo, note=note))
    assert shown == page.format(**BO, note="call back")
    two_people = PAGE.format(**bo) + PAGE.format(**eve)
    assert await card(one, two_people) == two_people
    listed = await (await one.send("GET /p")).seen(200, [{"id": 7, **bo, "note": note}])
    assert listed == [{"id": 7, **BO, "note": "call back"}]
    assert await card(one, page.format(**bo, note=note)) == shown


async def test_a_page_that_shows_a_part_of_a_record_shows_it_once_another_has_shown_all_of_it():
    one, (bo, eve), _ = await noted(BO, EVE)
    part, others = f"<p>{bo['name']}</p>", f"<p>{eve['name']}</p>"
    assert await card(one, part) == part
    assert await card(one, PAGE.format(**bo)) == PAGE.format(**BO)
    assert await card(one, part) == "<p>Bo</p>"
    assert await card(one, others) == others
    assert await card(one, part, "/card/8") == part


async def test_but_what_such_an_update_has_replaced_is_shown_no_more_and_a_newer_record_is_another():
    one, (bo,) = await imported(BO)
    call = await one.send("PATCH /p/7", {"name": "Bob"})
    await call.answer(200, {"id": 7, **call.json})
    page = PAGE.format(**{**bo, **call.json})
    assert await card(one, page) == PAGE.format(**{**BO, "name": "Bob"})
    assert await card(one, PAGE.format(**bo)) == PAGE.format(**bo), "it shows what was replaced"
    call = await one.send("POST /p", EVE)
    await call.answer(202)
    newer = PAGE.format(**{**call.json, "name": ""})
    assert await card(one, newer) == newer


async def test_a_create_under_way_is_no_such_record():
    one, _ = await imported(EVE)
    call = await one.send("POST /p", BO)
    page = PAGE.format(**call.json)
    assert await card(one, page) == page
    await call.exchange.failed(True)
    assert await card(one, page) == PAGE.format(**BO), "in doubt, and the application has it"
    assert await one.counts() == (2, 0, 0)


async def test_a_page_that_is_full_of_tokens_is_about_no_one_record():
    one, (bo,) = await imported(BO)
    full = PAGE.format(**bo) + " ".join(f"{bo['name'][:-3]}{number:03}" for number in range(600))
    one.store.calls.clear()
    assert await card(one, full) == full
    assert len(one.store.calls) <= 12  # half of them look for dates that no rule names, in a sample


# ------------------------------------------------------------------ updates in doubt

EDIT = (
    '{match: "POST /p/{id}/edit", update: p, request: {form: {name: name, mail: mail, born: born}}, '
    'response: {success: [{status: 302, location: "/p/{id}"}], restore: html, form: {born: born}}}'
)
PEOPLE = "{match: GET /people, read: p, response: {restore: html, only: [name, mail]}}"
KEPT = 7 * 86_400_000
ANN_NOW = {"name": "Ann", "mail": "ann@x.example", "born": "1931-02-27"}
ANNA = {"name": "Anna", "mail": "anna@x.example", "born": "1932-02-28"}


async def edited() -> tuple[Desk, dict[str, str], dict[str, str]]:
    """What the application has of a person, and what an edit sent it that it answered by 500."""
    one = await desk(USUAL[0], EDIT, CARD, PEOPLE, LIST, fields=IMPORTED)
    old = await one.create(ANN_NOW)
    call = await one.send("POST /p/1/edit", member_form(**ANNA), FORM)
    new = call.form
    await call.answer(500, PAGE.format(**new).encode(), HTML)
    one.clock.advance(1000)
    return one, old, new


async def later(one: Desk) -> None:
    """As much later that the sweep drops what no answer settled."""
    one.clock.advance(2 * KEPT)
    await reap(one.people, KEPT)


async def test_a_page_that_shows_an_update_in_doubt_settles_it():
    one, old, new = await edited()
    assert await card(one, PAGE.format(**new), "/card/1") == PAGE.format(**ANNA)
    one.clock.advance(KEPT // 2)
    assert await card(one, PAGE.format(**new), "/card/1") == PAGE.format(**ANNA)
    live = (await one.people.by_key(["1"]))["1"]
    assert one.people.sealer.open(live).values["name"][0].text == "Anna"
    # nothing is lost where it was no more than the form, shown again from the caller's session
    assert await card(one, PAGE.format(**old), "/card/1") == PAGE.format(**ANN_NOW)
    await later(one)
    for tokens, values in ((new, ANNA), (old, ANN_NOW)):
        assert await card(one, PAGE.format(**tokens), "/card/1") == PAGE.format(**values)
    assert (await one.counts())[2] == 1, "they take turns"


async def test_a_list_as_a_page_settles_it_too():
    one, _, new = await edited()
    assert await card(one, "<p>{name}</p>".format(**new), "/people") == "<p>Anna</p>"
    await later(one)
    assert await card(one, PAGE.format(**new), "/card/1") == PAGE.format(**ANNA)


async def test_an_answer_in_json_ends_what_a_page_kept():
    one, old, new = await edited()
    await card(one, PAGE.format(**new), "/card/1")
    assert (await one.counts())[2] == 1
    one.clock.advance(1000)
    shown = await (await one.send("GET /p")).seen(200, [{**new, "id": 1}])
    assert shown == [{**ANNA, "id": 1}]
    assert (await one.counts())[2] == 0
    assert await card(one, "<p>{name}</p>".format(**old), "/card/1") != "<p>Ann</p>"


async def test_what_an_answer_in_json_takes_back_is_in_doubt_again():
    one, old, new = await edited()

    async def listed(tokens: dict[str, str]) -> dict[str, Any]:
        one.clock.advance(1000)
        (shown,) = await (await one.send("GET /p")).seen(200, [{**tokens, "id": 1}])
        return dict(shown)

    await card(one, PAGE.format(**new), "/card/1")
    # of a copy that lags behind, or the request is still at work
    assert await listed(old) == {**ANN_NOW, "id": 1}
    assert (await one.counts())[2] == 1
    assert await listed(new) == {**ANNA, "id": 1}
    assert (await one.counts())[2] == 0


async def test_what_was_taken_back_goes_when_the_application_is_done_with_its_request():
    one, old, new = await edited()
    await card(one, PAGE.format(**new), "/card/1")
    for left in (1, 1, 0):
        one.clock.advance(1000 if left else RECONCILE_GRACE)
        await (await one.send("GET /p")).seen(200, [{**old, "id": 1}])
        assert (await one.counts())[2] == left
    assert await card(one, PAGE.format(**old), "/card/1") == PAGE.format(**ANN_NOW)


async def test_a_later_form_that_is_redirected_ends_nothing_for_a_refused_one_may_be_as_well():
    one, _, new = await edited()
    await card(one, PAGE.format(**new), "/card/1")
    call = await one.send("POST /p/1/edit", member_form(**BO), FORM)
    await call.answer(302, b"", ((b"Location", b"/p/1"),))
    assert (await one.counts())[2] == 2
    assert await card(one, PAGE.format(**call.form), "/card/1") == PAGE.format(**BO)


async def test_a_page_that_shows_both_versions_keeps_both():
    one, old, new = await edited()
    both = PAGE.format(**new) + PAGE.format(**old)
    await card(one, both, "/card/1")
    await later(one)
    assert await card(one, "{name} {mail}".format(**old), "/card/1") == "Ann ann@x.example"
    assert await card(one, "{name} {mail}".format(**new), "/card/1") == "Anna anna@x.example"


async def test_old_tokens_in_a_page_drop_nothing():
    one, old, new = await edited()
    await card(one, PAGE.format(**old), "/card/1")
    assert await card(one, PAGE.format(**new), "/card/1") == PAGE.format(**ANNA)


async def test_no_error_and_no_word_of_the_caller_settles_it():
    one, _, new = await edited()
    call = await one.send("GET /card/1")
    await call.answer(422, PAGE.format(**new).encode(), HTML)
    await card(one, PAGE.format(**new), f"/card/1?{member_form(**new).decode()}")
    await later(one)
    assert (await one.counts())[2] == 0
    # the date of what nobody told of looks like one
    ended = PAGE.format(**{**new, "born": ""})
    assert await card(one, PAGE.format(**new), "/card/1") == ended


async def test_a_page_that_was_asked_for_before_settles_nothing():
    one = await desk(USUAL[0], EDIT, CARD, fields=IMPORTED)
    await one.create(ANN_NOW)
    page = await one.send("GET /card/1")
    one.clock.advance(1000)
    call = await one.send("POST /p/1/edit", member_form(**ANNA), FORM)
    await call.answer(500)
    await page.answer(200, PAGE.format(**call.form).encode(), HTML)
    await later(one)
    assert (await one.counts())[2] == 0


SPELLED = (
    "name: {kind: name, token: {shape: opaque, same: true}}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
)
BOX = "{match: GET /found, read: p, query: {q: email}, response: {restore: anywhere}}"


async def test_a_page_of_what_was_searched_for_shows_it_as_it_is_stored_where_it_shows_the_record():
    one = await desk(USUAL[0], BOX, fields=SPELLED)
    ann = await one.create({"name": "Zorbina", "email": "Ann@X.example"}, 1)
    await one.create({"name": "Quibble", "email": "Bob@x.example"}, 2)
    bo = await one.create({"name": "Quibble", "email": "Bo@x.example"}, 3)

    async def seen(sought: str, name: str) -> str:
        call = await one.send(f"GET /found?q={sought}")
        token = call.sent.target.partition(b"=")[2].decode().replace("%40", "@")
        page = f"<b>{token}</b><i>{name}</i>".encode()
        return unescape((await call.answer(200, page, HTML)).body.decode())

    assert await seen("ANN@x.EXAMPLE", ann["name"]) == "<b>Ann@X.example</b><i>Zorbina</i>"
    for name, shown in (
        ("nobody", "nobody"),
        (bo["name"], "Quibble"),
    ):  # it shows no record of hers
        assert await seen("ANN@x.EXAMPLE", name) == f"<b>ANN@x.EXAMPLE</b><i>{shown}</i>"
    assert await seen("BO@x.example", bo["name"]) == "<b>BO@x.example</b><i>Quibble</i>"
    assert await seen("nobody@x.EXAMPLE", ann["name"]) == "<b>nobody@x.EXAMPLE</b><i>Zorbina</i>"

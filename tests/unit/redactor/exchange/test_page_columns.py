import re
from html import unescape
from typing import Any

from proxy.redactor.message import RawHeaders
from proxy.redactor.views import View
from tests.support.exchanges import FORM, HTML, USUAL, Desk, desk, member_form
from tests.support.table import table

FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}}",
    "born: {kind: date}",
)
HEADS = "columns: {Name: name, E-mail: email, Born: born}"
LIST = f"{{match: GET /l, read: p, query: {{q: {{pass: true}}}}, response: {{restore: html, {HEADS}}}}}"
PAGE = f'{{match: "GET /d/{{id}}", read: p, response: {{restore: html, {HEADS}}}}}'
ANN = {"name": "Ann", "email": "ann@x.example", "born": "1931-02-27"}
BO = {"name": "Bo", "email": "bo@x.example", "born": "1944-05-06"}
HEAD = "<table><tr><th>Name<th>E-mail<th>Born<th>Joined"
ROW = "<tr><td>{name}<td>{email}<td>{born}<td>2020-01-01"
LABELS = "<p><strong>Born:</strong> {born}</p><h1>{name}</h1><p>2020-01-01</p>"


async def shown(
    one: Desk,
    page: str,
    match: str = "GET /l",
    headers: RawHeaders = HTML,
    view: View | None = None,
) -> str:
    call = await one.send(match, view=view)
    return unescape((await call.answer(200, page.encode(), headers)).body.decode())


async def people(*rules: str, more: str = "") -> tuple[Desk, dict[str, str], dict[str, str]]:
    one = await desk(*USUAL, *rules, fields=FIELDS, more=more)
    return one, await one.create(ANN), await one.create(BO, 2)


def rows(*people: dict[str, str]) -> str:
    return HEAD + "".join(ROW.format(**{"email": "", **one}) for one in people) + "</table>"


async def test_each_row_of_a_table_shows_the_date_of_the_person_whose_tokens_it_has():
    one, ann, bo = await people(LIST)
    assert await shown(one, rows(ann, bo)) == rows(ANN, BO)
    assert ["born"] in [line["fields"] for line in one.audit.lines[-2:]]
    assert one.events["untold"] == 0
    # one token is enough
    assert await shown(one, rows({**bo, "name": ""})) == rows({**BO, "name": ""})


async def test_people_who_stand_among_the_records_of_the_program_are_shown_as_others_are():
    kept = "born: {kind: date, keep_as: key3}", "name: {kind: name, keep_as: profile_key}"
    rule = LIST.replace("E-mail: email, ", "")
    one = await desk(*USUAL[:1], rule, fields=kept, hosted=True)
    ann = await one.create({"name": "Ann", "born": "1931-02-27"})
    assert await shown(one, rows({**ann, "email": "-"})) == rows({**ANN, "email": "-"})


@table(
    ("row", "born"),
    [
        ({"born": "1950-01-01"}, ""),  # of nobody
        ({"name": "", "email": ""}, ""),  # of nobody can tell whom
        ({"email": "BO"}, ""),  # of two
        ({"name": "Somebody", "email": ""}, ""),  # before adoption, or not: nobody knows
        ({"born": "41 years"}, ""),  # made of the token
        ({"born": "2 mars 1950"}, ""),
        ({"born": "unknown"}, "unknown"),
        ({"born": ""}, ""),
    ],
)
async def test_a_row_never_shows_a_date_that_is_not_that_persons(row, born):
    one, ann, bo = await people(LIST)
    odd = {name: bo["email"] if text == "BO" else text for name, text in row.items()}
    page = await shown(one, rows({**ann, **odd}))
    assert page.endswith(f"<td>{born}<td>2020-01-01</table>")
    assert one.events["untold"] == (born == "" and row["born"] != "" if "born" in row else 1)


async def test_a_date_is_shown_in_the_manner_of_the_page():
    one, ann, _ = await people(LIST, PAGE)
    year, month, day = ann["born"].split("-")
    page = await shown(one, rows({**ann, "born": f"{day}.{month}.{year}"}))
    assert page == rows({**ANN, "born": "27.02.1931"})
    words = "januari februari mars april maj juni juli augusti september oktober november december"
    said = f"<html lang=sv><p>Born: {int(day)} {words.split()[int(month) - 1]} {year}</p>"
    page = await shown(one, said, "GET /d/1")
    assert page == "<html lang=sv><p>Born: 27 februari 1931</p>"
    page = await shown(one, f"<p>Born: {day}/{month}/{year}</p>", "GET /d/1")
    assert page == "<p>Born: 27/02/1931</p>"


async def test_a_page_of_one_record_shows_its_dates_behind_their_labels_and_nobody_elses():
    one, ann, bo = await people(PAGE)
    assert await shown(one, LABELS.format(**ann), "GET /d/1") == LABELS.format(**ANN)
    # a relative's row on the page of this person, and a date that is not the record's
    page = await shown(one, LABELS.format(**ann) + rows(bo), "GET /d/1")
    assert page == LABELS.format(**ANN) + rows({**bo, "born": ""})
    strange = LABELS.format(**{**ann, "born": bo["born"]})
    assert await shown(one, strange, "GET /d/1") == LABELS.format(**{**ANN, "born": ""})
    # one that the vault does not have: the application's own values
    page = LABELS.format(name="Cy", born="1950-01-01")
    assert await shown(one, page, "GET /d/3") == page


async def test_cards_of_several_people_are_told_apart_by_their_labels():
    one, ann, bo = await people(LIST)
    card = "<div><p>Name: {name}</p><p>Born: {born}</p></div>"
    cards = card.format(**ann) + card.format(**bo)
    assert await shown(one, cards) == card.format(**ANN) + card.format(**BO)


async def test_tokens_that_the_caller_wrote_itself_tell_no_person():
    one, ann, _ = await people(LIST)
    page = rows({**ann, "name": ""})
    answer = await shown(one, page, f"GET /l?q={ann['email']}")
    assert ann["born"] not in answer
    assert ANN["born"] not in answer


async def test_a_page_whose_head_is_called_otherwise_is_told():
    one, ann, bo = await people(LIST, PAGE)
    await shown(one, rows(ann, bo).replace("Born", "Date of birth"))
    assert one.events["untold"] == 1
    await shown(one, f"<p>Birthday: {ann['born']}</p>", "GET /d/1")
    assert one.events["untold"] == 2
    twice = rows(ann).replace("Joined", "Born")
    assert ann["born"] in await shown(one, twice)
    assert one.events["untold"] == 3


async def test_who_wants_tokens_shown_where_nobody_can_tell_gets_them():
    one, ann, _ = await people(LIST, more="on_error: {untold_token: leave}")
    page = rows({**ann, "name": "", "email": ""})
    assert await shown(one, page) == page


async def test_a_view_that_masks_is_shown_the_mask_and_one_of_tokens_the_token():
    views = "views: [{who: [clerk], p: mask}, {who: [robot], p: token}]"
    one = await desk(*USUAL, LIST, fields=FIELDS, more=views)
    call = await one.send("POST /p", ANN, view=one.view("clerk"))
    await call.answer(201, {"id": 1})
    assert "<td>1931-**-**<td>" in await shown(one, rows(call.json), view=one.view("clerk"))
    assert await shown(one, rows(call.json), view=one.view("robot")) == rows(call.json)


async def test_a_date_in_markup_and_attributes_is_written_as_text():
    one, ann, _ = await people(LIST)
    page = "<table><tr><th>Name<th>Born<tr><td><a href=/p/1>{name}</a><td data-order='{born}'><time datetime={born}>{born}</time></table>"
    assert await shown(one, page.format(**ann)) == page.format(**ANN)


async def test_a_form_that_is_shown_again_shows_what_was_sent():
    rule = (
        '{match: "POST /d/{id}", update: p, id: path id, request: {form: {born: born}}, '
        "response: {restore: html, columns: {Born: born}}}"
    )
    one, _, _ = await people(rule)
    call = await one.send("POST /d/1", member_form(born="1960-01-02"), FORM)
    page = f"<p>Born: {call.form['born']}</p>"
    assert unescape((await call.answer(422, page.encode(), HTML)).body.decode()) == (
        "<p>Born: 1960-01-02</p>"
    )


async def test_elements_that_are_named_as_well_are_written_once():
    rule = LIST.replace("columns:", "form: {born: born, name: name}, columns:")
    one, ann, _ = await people(rule)
    page = "<table><tr><th>Name<th>Born<tr><td itemprop=name>{name}<td itemprop=born>{born}</table>"
    assert await shown(one, page.format(**ann)) == page.format(**ANN)


async def test_a_thousand_rows_cost_as_many_looks_at_the_store_as_ten():
    one, ann, bo = await people(LIST)
    looks = list[int]()
    for size in (5, 500):
        del one.store.calls[:]
        assert await shown(one, rows(*[ann, bo] * size)) == rows(*[ANN, BO] * size)
        looks.append(len(one.store.calls))
    assert looks[0] == looks[1]


NUMBERED = '{match: GET /l, read: p, response: {restore: html, columns: {Name: name, Born: born}, id: "column #"}}'
LINKED = NUMBERED.replace("column #", "link /p/{id}")
SIGN_UP = "{match: POST /sign, create: p, request: {form: {name: name, born: born}}, response: {id: $.id}}"


def numbered(*people: dict[str, Any]) -> str:
    row = "<tr><td>{id}<td><a href='/p/{id}'>{name}</a> <a href='/p/{id}/edit'>edit</a><td>{born}"
    return "<table><tr><th>#<th>Name<th>Born" + "".join(row.format(**one) for one in people)


@table("rule", [NUMBERED, LINKED])
async def test_an_id_in_a_row_tells_whose_it_is(rule):
    one, ann, bo = await people(rule)
    # without a name, and of one that the vault does not have: the application's own
    rows = {**ann, "name": "-"}, bo, {"id": 3, "name": "Cy", "born": "1950-01-01"}
    page = await shown(one, numbered(*rows))
    assert page == numbered({**ANN, "id": 1, "name": "-"}, {**BO, "id": 2}, rows[2])
    assert one.events["untold"] == 0
    # a row with a date of somebody else, and one that quotes somebody else
    quoting = {**ann, "name": f"{ann['name']} {bo['name']}"}
    page = await shown(one, numbered({**ann, "born": bo["born"]}, quoting))
    assert page.count("<td>") == 6
    assert re.findall("<td>([^<]*)(?:<tr>|$)", page) == ["", ""]


@table("rule", [NUMBERED, LINKED])
async def test_a_list_names_whom_a_sign_up_left_without_an_id(rule):
    one = await desk(*USUAL, SIGN_UP, rule, fields=FIELDS)
    call = await one.send("POST /sign", member_form(name="Ann", born=ANN["born"]), FORM)
    await call.answer(303, b"", ((b"Location", b"/l"),))
    row = {"id": 7, "name": call.form["name"], "born": call.form["born"]}
    assert await shown(one, numbered(row)) == numbered({**row, "name": "Ann", "born": ANN["born"]})
    shows = await (await one.send("GET /p/7")).seen(200, {"id": 7, "born": row["born"]})
    assert shows["born"] == ANN["born"]


async def test_a_row_that_quotes_another_person_names_nobody():
    one = await desk(*USUAL, SIGN_UP, NUMBERED, fields=FIELDS)
    bo = await one.create(BO, 2)
    call = await one.send("POST /sign", member_form(name="Ann", born=ANN["born"]), FORM)
    await call.answer(303, b"", ((b"Location", b"/l"),))
    row = {"id": 7, "name": f"{call.form['name']} {bo['name']}", "born": call.form["born"]}
    assert ANN["born"] not in await shown(one, numbered(row))
    shows = await (await one.send("GET /p/7")).seen(200, {"id": 7, "born": row["born"]})
    assert shows["born"] == row["born"]


# ---- the steps of a form, of which each makes a record

STEPS = (
    "{match: POST /one, create: p, request: {form: {name: name, email: email}}, response: {id: $.id}}",
    "{match: POST /two, create: p, request: {form: {born: born}}, response: {id: $.id}}",
)
SHOWN = (
    LINKED,
    '{match: "GET /d/{id}", read: p, response: {restore: html, columns: {Born: born}}}',
    "{match: GET /e, read: p, response: {restore: csv, columns: {Name: name, Born: born}, id: column ID}}",
    '{match: GET /j, read: p, response: {each: "$[*]", id: $.id}}',
)


async def test_no_answer_shows_the_token_of_a_date_that_another_step_of_a_form_has_taken():
    """They showed it as it stands: the record of the name has no date, so it was taken for the
    application's own.
    """
    one = await desk(*STEPS, *SHOWN, fields=FIELDS)
    stored: dict[str, Any] = {"id": 7}
    for step, typed in (
        ("one", {"name": "Ann", "email": ANN["email"]}),
        ("two", {"born": ANN["born"]}),
    ):
        call = await one.send(f"POST /{step}", member_form(**typed), FORM)
        await call.answer(303, b"", ((b"Location", b"/next"),))
        stored |= call.form
    card = "<p>{name} {email}</p><p>Born: {born}</p>"
    before = await shown(one, card.format(**stored), "GET /d/7")
    assert before == card.format(**{**ANN, "name": "Ann", "born": ""})
    assert await shown(one, numbered(stored)) == numbered({"id": 7, "name": "Ann", "born": ""})
    assert await shown(one, card.format(**stored), "GET /d/7") == before
    objects = [{name: stored[name] for name in ("id", "name", "born")}]
    assert await (await one.send("GET /j")).seen(200, objects) == [
        {"id": 7, "name": "Ann", "born": None}
    ]
    stream = await (await one.send("GET /e")).exchange.stream(
        200, ((b"Content-Type", b"text/csv"),)
    )
    assert stream is not None
    export = f"ID,Name,Born\n7,{stored['name']},{stored['born']}\n"
    assert await stream.restore(export.encode()) == b"ID,Name,Born\n7,Ann,\n"
    await stream.end()
    assert one.events["untold"] >= 4

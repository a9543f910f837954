from html import unescape

from proxy.redactor.message import RawHeaders
from proxy.redactor.views import View
from tests.support.exchanges import HTML, USUAL, Desk, desk, rule_text
from tests.support.rules import faults_of

FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}}",
    "born: {kind: date}",
)
ME = (
    "{match: GET /me, read: p, query: {q: {pass: true}}, "
    "response: {restore: html, form: {name: name, email: email, born: born}}}"
)
ANN = {"name": "Ann", "email": "ann@x.example", "born": "1931-02-27"}
BO = {"name": "Bo", "email": "bo@x.example", "born": "1944-05-06"}
PAGE = "<nav>{name}</nav><form><input name=email value='{email}'><input name=born value='{born}'></form>"


async def shown(
    one: Desk,
    page: str,
    match: str = "GET /me",
    headers: RawHeaders = HTML,
    view: View | None = None,
) -> str:
    call = await one.send(match, view=view)
    answer = await call.answer(200, page.encode(), headers)
    return unescape(answer.body.decode())


async def test_a_form_of_whoever_is_signed_in_shows_the_date_of_the_one_whose_tokens_it_has():
    one = await desk(*USUAL, ME, fields=FIELDS)
    stored = await one.create(ANN)
    assert await shown(one, PAGE.format(**stored)) == PAGE.format(**ANN)
    assert ["born"] in [line["fields"] for line in one.audit.lines[-2:]]
    # a date of somebody else, and one beside no token, is no date of that person
    strange = PAGE.format(**{**stored, "born": "1950-01-01"})
    assert "value='1950-01-01'" in await shown(one, strange)
    alone = PAGE.format(**{**stored, "name": "", "email": ""})
    assert await shown(one, alone) == alone


async def test_each_form_and_each_row_of_a_page_has_its_own_person():
    one = await desk(*USUAL, ME, fields=FIELDS)
    ann, bo = await one.create(ANN), await one.create(BO, 2)
    forms = PAGE + PAGE.replace("{", "{b_")
    both = {**ann, **{f"b_{name}": text for name, text in bo.items()}}
    assert await shown(one, forms.format(**both)) == PAGE.format(**ANN) + PAGE.format(**BO)
    row = "<tr><td itemprop=name>{name}</td><td itemprop=born>{born}</td></tr>"
    rows = "<table>" + row.format(**ann) + row.format(**bo) + "</table>"
    assert await shown(one, rows) == "<table>" + row.format(**ANN) + row.format(**BO) + "</table>"
    # in one form, nobody can tell whose date that is
    mixed = (
        f"<form><p id=name>{ann['name']}</p><p id=name>{bo['name']}</p><p id=born>{bo['born']}</p>"
    )
    assert f"<p id=born>{bo['born']}</p>" in await shown(one, mixed)


async def test_tokens_that_the_caller_wrote_itself_tell_no_person():
    one = await desk(*USUAL, ME, fields=FIELDS)
    stored = await one.create(ANN)
    page = PAGE.format(**{**stored, "name": ""})
    assert stored["born"] in await shown(one, page, f"GET /me?q={stored['email']}")
    assert stored["born"] in await shown(one, page, f"GET /me?q={stored['born']}")


async def test_a_view_that_masks_is_shown_the_mask():
    one = await desk(*USUAL, ME, fields=FIELDS, more="views: [{who: [clerk], p: mask}]")
    call = await one.send("POST /p", ANN, view=one.view("clerk"))
    await call.answer(201, {"id": 1})
    page = await shown(one, PAGE.format(**call.json), view=one.view("clerk"))
    assert "value='1931-**-**'" in page


async def test_a_header_field_says_whose_page_it_is():
    rule = (
        "{match: GET /me, read: p, "
        'response: {id: "header X-Person {id}", restore: html, form: {born: born}}}'
    )
    one = await desk(*USUAL, rule, fields=FIELDS)
    ann, bo = await one.create(ANN), await one.create(BO, 2)
    page = "<input name=born value='{born}'><i>{name}</i>"
    told = (*HTML, (b"X-Person", b"1"))
    assert await shown(one, page.format(**ann), headers=told) == page.format(**ANN)
    assert await shown(one, page.format(**bo), headers=told) == page.format(**bo)
    unsaid = await shown(one, page.format(**ann))
    assert unsaid == page.format(**{**ANN, "born": ann["born"]})


def test_a_page_that_names_an_element_alone_is_told_which_other_one_says_whose_it_is():
    rule = ME.replace("name: name, email: email, ", "")
    fault = next(
        one for one in faults_of(rule_text(USUAL[0], rule, fields=FIELDS)) if "born" in one.text
    )
    assert "form: {born: born, name: name}, by its name, id or itemprop" in fault.text

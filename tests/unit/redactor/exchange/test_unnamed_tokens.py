from html import escape

from tests.support.exchanges import PLAIN, Desk
from tests.support.table import table
from tests.unit.redactor.exchange.test_page_columns import ANN, BO, HEADS, LIST, people, rows, shown

# ---- heads that the rule of the page does not name, and others do

ONLY = "{match: GET /o, read: p, response: {restore: html, only: [name, email]}}"
ALL = "{match: GET /a, read: p, response: {restore: anywhere}}"
TOLD = ("app", "GET /o", "page", "born")


def unnamed(one: Desk) -> dict[tuple[str, ...], float]:
    metric = "domicile_unnamed_parameters_total"
    return {key: count for key, count in one.metrics.samples(metric) if count}


@table("head", ["Born", "born:", "Date of birth", "BIRTHDAY \u25b2", "Geboren"])
async def test_a_page_that_shows_a_date_which_its_rule_leaves_out_is_told(head):
    one, ann, bo = await people(ONLY, LIST.replace("Born:", "Geboren:"))
    page = rows(ann, bo).replace("Born", head)
    shows = page.replace(ann["name"], "Ann").replace(bo["name"], "Bo")
    shows = shows.replace(ann["email"], ANN["email"]).replace(bo["email"], BO["email"])
    assert await shown(one, page, "GET /o") == shows
    assert unnamed(one) == {TOLD: 1}
    assert [*one.metrics.samples("domicile_unnamed_suspected")] == [((*TOLD, "date"), 1)]


@table(
    ("born", "told"),
    [("{day}.{month}.{year}", True), ("2020-01-01", False), ("40", False), ("unknown", False)],
)
async def test_only_a_token_of_a_person_on_the_page_is_told(born, told):
    one, ann, _ = await people(ONLY, ALL)
    year, month, day = ann["born"].split("-")
    page = rows({**ann, "born": born.format(day=day, month=month, year=year)})
    await shown(one, page, "GET /o")
    await shown(one, page, "GET /a")
    await shown(one, page.replace("Born", "Joined on"), "GET /o")
    assert unnamed(one) == ({TOLD: 1, ("app", "GET /a", "page", "born"): 1} if told else {})


async def test_pages_are_looked_at_in_part_and_no_answer_depends_on_it():
    one, ann, _ = await people(ONLY)
    for _ in range(40):
        await shown(one, rows(ann), "GET /o")
    assert unnamed(one) == {TOLD: 20}
    one.clock.advance(10_000)
    await shown(one, rows(ann), "GET /o")
    assert unnamed(one) == {TOLD: 21}


# ---- names of members, attributes and elements, and texts

CARD = f'{{match: "GET /c/{{id}}", read: p, response: {{restore: html, {HEADS}}}}}'
LETTER = '{match: "GET /t/{id}", read: p, response: {restore: text, only: [name]}}'
SUGGEST = (
    '{match: GET /s, read: p, response: {each: "$[*]", id: $.id, fields: {name: "$[*].label"}}}'
)
EVENTS = "{match: GET /e, read: p, response: {object: $, stream: sse, id: $.id}}"


@table(
    "markup",
    [
        '<div data-born="{born}">',
        '<i itemprop="birthDate" content={born}>',
        "<td class=dob>{born}",
        '<script>x = {{"name": "Ann", "birth_date": "{born}"}}</script>',
        "<input name='born' type='hidden' value='{born}T00:00:00Z'>",
        escape('<p data-all=\'{{"birthDate":"{born}"}}\'>', quote=True).replace("&lt;", "<"),
    ],
)
async def test_a_page_that_shows_a_date_elsewhere_than_its_rule_says_is_told(markup):
    one, ann, bo = await people(CARD)
    page = f"<h1>{ann['name']}</h1><p>Born: {ann['born']}</p>"
    await shown(one, page, "GET /c/1")
    await shown(one, page + markup.format(born="2020-01-01"), "GET /c/1")
    await shown(one, page.replace("<h1>", markup.format(born=bo["born"]) + "<h1>"), "GET /c/1")
    assert unnamed(one) == {}
    await shown(one, page + markup.format(born=ann["born"]), "GET /c/1")
    assert unnamed(one) == {("app", "GET /c/{id}", "answer", "born"): 1}


@table("line", ["Date of birth: {born}, Visby", "born: {born}.", "DOB = {born}"])
async def test_a_text_that_shows_a_date_is_told(line):
    one, ann, _ = await people(LETTER)
    letter = f"Dear {ann['name']},\n{line.format(born=ann['born'])}\n"
    shows = letter.replace(ann["name"], "Ann")
    assert await shown(one, letter, "GET /t/1", PLAIN) == shows
    assert unnamed(one) == {("app", "GET /t/{id}", "answer", "born"): 1}


async def test_a_member_that_its_rule_does_not_name_and_that_shows_a_date_is_told():
    one, ann, bo = await people(SUGGEST)

    async def suggested(**more: str) -> None:
        some = [{"id": 1, "label": ann["name"], **more}, {"id": 2, "label": bo["name"]}]
        assert (await (await one.send("GET /s")).seen(200, some))[0] == {**some[0], "label": "Ann"}

    await suggested(dob="2020-01-01", joined=ann["born"])
    assert unnamed(one) == {}
    await suggested(dob=ann["born"])
    assert unnamed(one) == {("app", "GET /s", "answer", "born"): 1}


async def test_an_event_with_such_a_member_is_told():
    one, ann, _ = await people(EVENTS)
    stream = await (await one.send("GET /e")).exchange.stream(
        200, ((b"Content-Type", b"text/event-stream"),)
    )
    assert stream is not None
    event = 'data: {"id": 1, "name": "%s", "born": "%s", "dob": "%s"}\n\n'
    for dob, told in (("2020-01-01", False), (ann["born"], True)):
        sent = event % (ann["name"], ann["born"], dob)
        shows = event % ("Ann", ANN["born"], dob)
        assert await stream.restore(sent.encode()) == shows.encode()
        assert bool(unnamed(one)) is told
    await stream.end()
    assert unnamed(one) == {("app", "GET /e", "answer", "born"): 1}

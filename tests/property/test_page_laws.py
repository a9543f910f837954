"""A page of people, laid out in any usual manner: each value that it shows is that person's, a date
that is none of them is not shown, and all else stays byte for byte.
"""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.pages import text
from tests.support.effort import examples
from tests.support.exchanges import HTML, Desk, desk

FIELDS = ("name: {kind: name}", "born: {kind: date, token: {shape: date}}")
OPERATIONS = (
    "{match: POST /p, create: p}",
    "{match: GET /l, read: p, response: {restore: html, columns: {Name: name, Born: born}}}",
    '{match: "GET /p/{id}", read: p, response: {restore: html, columns: {Born: born}}}',
)
#: Cells and texts that are nobody's, some of which look like a token.
OTHERS = st.sampled_from(
    [
        "",
        "2020-01-01",
        "<i>Visby</i>",
        "4 < 5",
        "<!-- Born: 1950-01-01 -->",
        "&#49;950-01-01",
        "Name",
    ]
)
WRAPPED = st.sampled_from(
    [
        "%s",
        " %s\n",
        "<a href=/p/1>%s</a>",
        "<!-- --><b>%s</b><!-- -->",
        "&nbsp;<span class=x>%s</span>",
    ]
)
DAYS = st.dates().map(str)


class Layout(NamedTuple):
    """How a list is written: before it, each person, and behind it."""

    before: str
    person: str  #: with places for each field
    behind: str
    wrapped: str  #: around each value


@st.composite
def tables(draw: st.DrawFn) -> Layout:
    columns = draw(st.permutations(["Name", "Born", *draw(st.lists(st.just("City"), max_size=2))]))
    sort = draw(st.sampled_from(["%s", "<a href=?sort=1>%s</a> ▲", "%s:"]))
    close, other = draw(st.booleans()), draw(OTHERS.filter(lambda one: one != "Name"))
    heads = "".join(f"<th>{sort % one}" + "</th>" * close for one in columns)
    cells = {"Name": "{name}", "Born": "{born}", "City": other}
    row = "".join(f"<td>{cells[one]}" + "</td>" * close for one in columns)
    open_, shut = draw(st.sampled_from([("<thead>", "</thead><tbody>"), ("", ""), ("<tbody>", "")]))
    head = f"<table>{open_}<tr>{heads}" + "</tr>" * close + shut
    return Layout(head, f"<tr>{row}" + "</tr>" * close, "</table>", draw(WRAPPED))


@st.composite
def cards(draw: st.DrawFn) -> Layout:
    before, between, behind = draw(
        st.sampled_from(
            [
                ("<dt>", "</dt><dd>", "</dd>"),
                ("<p><strong>", ":</strong>\n", "</p>"),
                ("<div><span>", "</span> <em>", "</em></div>"),
                ("<tr><th>", "<td>", ""),
                ("<tr><td>", ":</td><td>", "</td></tr>"),
                ("<p>", ": ", "</p>"),
            ]
        )
    )
    lines = draw(st.permutations(["Name", "Born", "City"]))
    values = {"Name": "{name}", "Born": "{born}", "City": "Visby"}
    card = "".join(before + one + between + values[one] + behind for one in lines)
    whole = {"<dt>": "dl", "<tr": "table"}.get(before[:4], before[:3] == "<tr" and "table")
    card = f"<{whole}>{card}</{whole}>" if whole else f"<div>{card}</div>"
    return Layout("<main>", card, "</main>", draw(st.sampled_from(["%s", " %s\n", "<!-- -->%s"])))


PEOPLE = st.lists(
    st.tuples(st.text("abcåÖ <&\"'", min_size=1, max_size=9).map(lambda one: f"Q{one}q"), DAYS),
    min_size=1,
    max_size=4,
    unique_by=lambda one: one[0],
)


def page_of(layout: Layout, people: list[dict[str, str]]) -> str:
    each = [
        layout.person.format(**{name: layout.wrapped % one[name] for name in ("name", "born")})
        for one in people
    ]
    return layout.before + "".join(each) + layout.behind


async def stored(people: list[tuple[str, str]]) -> tuple[Desk, list[dict[str, str]]]:
    one = await desk(*OPERATIONS, fields=FIELDS)
    tokens = [
        await one.create({"name": name, "born": born}, number)
        for number, (name, born) in enumerate(people, 1)
    ]
    return one, tokens


async def shown(one: Desk, page: str, match: str = "GET /l") -> bytes:
    call = await one.send(match)
    return (await call.answer(200, page.encode(), HTML)).body


def escaped(people: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": text(name).decode(), "born": text(born).decode()} for name, born in people]


@examples(60)
@given(st.one_of(tables(), cards()), PEOPLE)
async def test_each_value_is_that_persons_and_all_else_stays(layout, people):
    one, tokens = await stored(people)
    assert (await shown(one, page_of(layout, tokens))).decode() == page_of(layout, escaped(people))


@examples(60)
@given(st.one_of(tables(), cards()), PEOPLE, st.data())
async def test_a_date_that_is_not_that_persons_is_not_shown(layout, people, data):
    one, tokens = await stored(people)
    days = st.sampled_from([*(each["born"] for each in tokens), "1950-01-01", "born 1950"])
    mixed = [{**each, "born": data.draw(days)} for each in tokens]
    values = escaped(people)
    expected = [
        {**value, "born": value["born"] if each["born"] == token["born"] else ""}
        for value, each, token in zip(values, mixed, tokens, strict=True)
    ]
    assert (await shown(one, page_of(layout, mixed))).decode() == page_of(layout, expected)


@examples(60)
@given(cards(), PEOPLE)
async def test_a_page_of_one_record_shows_no_date_of_another(layout, people):
    one, tokens = await stored(people)
    page = (await shown(one, page_of(layout, tokens), "GET /p/1")).decode()
    expected = [{**each, "born": ""} for each in tokens]
    expected[0] = {**escaped(people)[0]}
    if len({each["born"] for each in tokens}) == len(tokens):
        assert page == page_of(layout, expected)

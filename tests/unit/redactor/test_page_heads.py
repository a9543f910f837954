import pytest

from proxy.redactor.page_heads import headed_texts, label_of
from tests.support.table import table

HEADS = {"Name": "name", "Born": "born", "E-mail": "email"}


def read(page: str) -> list[tuple[str, str]]:
    """Each field with its text, in order; a line between what belongs to different records."""
    lines, last = list[tuple[str, str]](), None
    for one in headed_texts(page.encode(), HEADS).places:
        lines += [("--", "")] if last not in (None, one.part) else []
        lines += [(one.field, run.text) for run in one.runs]
        last = one.part
    return lines


ONE = [("name", "Ann"), ("born", "1")]
TWO = [*ONE, ("--", ""), ("name", "Bo"), ("born", "2")]
ROWS = "<tr><td>Ann<td>1<tr><td>Bo<td>2</table>"
JOINED = "<tr><td>Ann<td>1<td>8<tr><td>Bo<td>2<td>9</table>"
LABELLED = "<p>\n <strong>Name:</strong>\n Ann</p><p><strong>Born:</strong> 1</p>"


@table(
    ("page", "places"),
    [
        (f"<table><thead><tr><th>Name<th>Born</thead><tbody>{ROWS}", TWO),
        (f"<TABLE><TR><TH>Name</TH><TH>Born</TH></TR>{ROWS}", TWO),
        (f"<table><tr><td>Name<td>BORN:{ROWS}", TWO),
        (f"<table><tr><th>Name<th><a href='?sort=1'>Born</a> <i>▲</i>{ROWS}", TWO),
        (f"<table><tr><th>Name<th>Born <span>sorted</span>{ROWS}", TWO),
        (f"<table><tr><th>Name<th> &#66;orn&nbsp;{ROWS}", TWO),
        # repeated in the middle and at the end
        ("<table><tr><th>Name<th>Born<tr><td>Ann<td>1<tr><th>Born<th>Name<tr><td>2<td>Bo</table>",
         [*ONE, ("--", ""), ("born", "2"), ("name", "Bo")]),
        ("<table><tr><th>Name<th>Born<tr><td>Ann<td>1<tfoot><tr><td>Sum<td>7</table>", ONE),
        ("<table><tr><th>Name<th>Born<tr><th colspan=2>2024<tr><td>Ann<td>1</table>", ONE),
        ("<table><tr><th>Name<th>Born<tr><th scope=row>Ann<td>1</table>", ONE),
        # heads of several columns and rows
        ("<table><tr><th>x<th>Name<th>Born<tr><td colspan=2>y<td>1</table>", [("name", "y"), ("born", "1")]),
        (f"<table><thead><tr><th rowspan=2>Name<th colspan=2>Days<tr><th>Born<th>Joined</thead>{JOINED}", TWO),
        ("<table><tr><th>Name<th>Born<tr><td rowspan=2>Ann<td>1<tr><td>2</table>", [*ONE, ("--", ""), ("born", "2")]),
        ("<table><tr><th colspan=2>Name<th>Born<tr><td>Ann<td>Ek<td>1</table>", [("name", "Ann"), ("name", "Ek"), ("born", "1")]),
        # a table in a table of the layout, and one in a cell
        (f"<table><tr><td><table><tr><th>Name<th>Born{ROWS}</table>", TWO),
        ("<table><tr><th>Name<th>Born<tr><td>Ann<td><table><tr><td>1</table></table>", [("name", "Ann")]),
        # a label in a cell says more than the head above
        ("<table><tr><th>Name<th>City<tr><td>Ann<td><b>Born</b>: 1</table>", [("born", "1"), ("name", "Ann")]),
        # labels
        ("<table><tr><th>Name<td>Ann<tr><th>Born:<td>1</table>", ONE),
        ("<table><tr><td>Name<td>Ann</td><td>Born<td>1</table>", ONE),
        ("<table><tr><td><b>Name</b><td>Ann<tr><td><b>Born</b><td>1</table>", ONE),
        ("<dl><dt>Name</dt><dd>Ann</dd><dt>Born</dt><dd><p>1</p></dd></dl>", ONE),
        ("<dl><dt>Name<dd>Ann<dt>City<dd>x<dt>Born<dd>1</dl>", ONE),
        (LABELLED, ONE),
        ("<p><b>Name</b>: Ann<p><b>Born</b>: <span>1</span>", ONE),
        ("<p>Name: Ann</p><p>Born: <!-- -->1</p>", ONE),
        ("<p>Name<!-- -->: <!-- -->Ann</p><p>Born<!-- -->: <!-- -->1</p>", ONE),
        ("<label>Name</label> <span>Ann</span><br><label>Born</label> <em>1</em>", ONE),
        ("<div><div>Name</div><div>Ann</div></div><div><div>Born</div><div>1</div></div>", ONE),
        ("<ul><li>Name: Ann<li>Born: 1</ul>", [*ONE[:1], ("--", ""), *ONE[1:]]),
        # cards: a label that stands again is that of another record
        (f"<div>{LABELLED}</div><div>{LABELLED}</div>", [*ONE, ("--", ""), *ONE]),
        ("<dl><dt>Name<dd>Ann<dt>Born<dd>1<dt>Name<dd>Bo<dt>Born<dd>2</dl>", TWO),
        # no value
        ("<p><strong>Born:</strong></p><p><strong>City:</strong> 1</p>", []),
        ("<label>Born</label><input name=born value=1> 2", []),
        ("<label>Born</label> <select><option>1<option>2</select>", []),
        ("<dl><dt>Born<dt>City<dd>1</dl>", []),
        ("<table><tr><th>Born<td><tr><th>City<td>1</table>", []),
        ("<ul><li>Born</li><li>1</li></ul>", []),
        ("<h1>Born</h1><table><tr><td>1</table>", []),
        ("<p>Born 1</p><p>Reborn: 1</p><p>1 Born: 2</p>", []),
        ("<script>'Born: 1'</script><!-- Born: 1 --><title>Born: 1</title><textarea>Born: 1</textarea>", []),
        ("<a title='Born: 1'>x</a>", []),
    ],
)  # fmt: skip
def test_texts_are_named_by_what_stands_above_or_before_them(page, places):
    assert read(page) == places


@table(
    "page",
    [
        "<table><tr><th>Name<th>Born<th>Born<tr><td>Ann<td>1<td>2</table>",
        "<table><thead><tr><th>Name<th>Name<tr><th>Name<th>Born</thead><tr><td>Ann<td>1</table>",
        "<table><tr><th>Name<th>Born<tr><td>Ann<td>1<table><tr><td>2</table></table>",
        "<table><tr><th>Name<th>Born<tr><td colspan=2>1</table>",
    ],
)
def test_a_cell_that_nobody_can_tell_is_none(page):
    headed = headed_texts(page.encode(), HEADS)
    assert "born" in headed.unread
    assert all(one.field != "born" for one in headed.places)


def test_attributes_that_repeat_a_text_are_read_too():
    page = (
        b"<table><tr><th>Born<tr><td data-order=1 class=2><time datetime='3'>4</table>"
        b"<p>Born: <time title=5>6</time>"
    )
    cell, label = headed_texts(page, HEADS).places
    assert [one.text for one in cell.attributes] == ["1", "3"]
    assert [page[one.start : one.end] for one in label.attributes] == [b"5"]


def test_a_text_stands_where_it_is_said_to_stand():
    page = "<p>å<p>Born: \n <b></b> 1931&#45;02-27 \n".encode()
    run = headed_texts(page, HEADS).places[0].runs[0]
    assert (page[run.start : run.end], run.text) == (b"1931&#45;02-27", "1931-02-27")


@pytest.mark.parametrize("text", ["Born", " born: ", "BORN *", "↓ Born", "* Born\n:"])
def test_signs_and_letter_case_do_not_count(text):
    assert label_of(text) == "born"

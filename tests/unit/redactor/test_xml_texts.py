from html import unescape
from xml.etree import ElementTree as ET

from proxy.redactor.message import RawHeaders
from proxy.redactor.xml_texts import is_readable
from tests.support.exchanges import USUAL, Desk, desk
from tests.support.table import table

RSS: RawHeaders = ((b"Content-Type", b"application/rss+xml; charset=utf-8"),)
FIELDS = ("name: {kind: name}",)
FEED = "{match: GET /feed, read: p, response: {restore: anywhere}}"
NASTY = "Ann <img src=x> & ]]> \"Ö'"


async def office(name: str) -> tuple[Desk, str]:
    one = await desk(*USUAL[:1], FEED, fields=FIELDS)
    return one, (await one.create({"name": name}))["name"]


async def seen(one: Desk, document: str, kind: RawHeaders = RSS) -> str:
    body = document.encode("latin-1" if "latin" in document else "utf-8")
    answer = await (await one.send("GET /feed")).answer(200, body, kind)
    return answer.body.decode("latin-1")


@table("kind", ["text/xml", "application/xml", "application/atom+xml", "image/svg+xml"])
async def test_texts_sections_and_attributes_of_xml_show_values(kind):
    one, token = await office("Ann Ö")
    page = "<?xml version='1.0'?><!-- TOKEN --><a n='TOKEN' m=\"x TOKEN\"><b>TOKEN</b> by TOKEN<c/><![CDATA[TOKEN]]></a>"
    got = await seen(one, page.replace("TOKEN", token), ((b"Content-Type", kind.encode()),))
    value = "Ann&#32;&#214;"
    assert got.replace(token, "TOKEN") == (
        f"<?xml version='1.0'?><!-- TOKEN --><a n='{value}' m=\"x TOKEN\"><b>{value}</b> by {value}<c/>"
        f"<![CDATA[]]>{value}<![CDATA[]]></a>"
    )


@table("inside", ["TOKEN", "<![CDATA[TOKEN]]>"])
@table("name", ["Ann", "Ann Lind", NASTY, "]]", "]", ">", "a]]>b", "&amp;", "<b>", "\x85"])
async def test_any_value_is_read_as_it_is_where_nothing_else_stands(inside, name):
    one, token = await office(name)
    got = await seen(one, f"<r><t>{inside}</t><u>x</u></r>".replace("TOKEN", token))
    read = ET.fromstring(got)
    assert [child.text for child in read] == [name, "x"]
    assert token not in got


@table(
    "inside",
    ["&lt;p&gt;TOKEN&lt;/p&gt;", "<![CDATA[<p>TOKEN</p>]]>", "&#60;p&#x3e;TOKEN<![CDATA[</p>]]>"],
)
@table("name", ["Ann", NASTY, "<script>alert(1)</script>", "]]>", "\xc3\x85sa"])
async def test_a_value_within_html_for_a_reader_is_a_text_in_it(inside, name):
    one, token = await office(name)
    got = await seen(one, f"<r><t>{inside}</t></r>".replace("TOKEN", token))
    (child,) = ET.fromstring(got)
    assert child.text is not None
    assert (child.text[:3], child.text[-4:]) == ("<p>", "</p>")
    assert "<" not in child.text[3:-4]
    assert unescape(child.text[3:-4]) == name


@table(
    "document",
    [
        "<link>https://app/?q=TOKEN</link>", "<a href='TOKEN'/>", "<a onclick='TOKEN'/>", "<guid> /p/TOKEN</guid>",
        "<script>TOKEN</script>", "<s:style>TOKEN</s:style>", "<t>&lt;a href='TOKEN'&gt;</t>", "<!-- TOKEN --><a/>",
        "<t><![CDATA[<a onclick='x(TOKEN)'>]]></t>", "<?x TOKEN?><a/>", "<a b='http://x/TOKEN'/>",
    ],
)  # fmt: skip
async def test_addresses_comments_scripts_and_styles_keep_their_tokens(document):
    one, token = await office("Ann")
    page = f"<r>{document}</r>".replace("TOKEN", token)
    assert await seen(one, page) == page
    assert one.events["unreadable_answer"] == 0


async def test_a_value_that_would_open_a_tag_beside_other_text_or_that_xml_cannot_hold_stays_a_token():
    for name, page in (("<img", "<t>by TOKEN</t>"), ("a\x01", "<t>TOKEN</t>")):
        one, token = await office(name)
        page = page.replace("TOKEN", token)
        assert await seen(one, page) == page


@table(
    "document",
    [
        "<!DOCTYPE r [<!ENTITY x 'y'>]><r>TOKEN</r>", "<r>TOKEN<", "<r><![CDATA[TOKEN</r>",
        "<?xml version='1.0' encoding='UTF-7'?><r>TOKEN</r>", "<r><!-- TOKEN</r>", "<r a='<'>TOKEN</r>",
    ],
)  # fmt: skip
async def test_a_document_that_cannot_be_read_safely_passes_and_is_counted(document):
    one, token = await office("Ann")
    page = document.replace("TOKEN", token)
    assert await seen(one, page) == page
    assert one.events["unreadable_answer"] == 1


def test_charsets():
    assert is_readable(b"text/xml; charset=ISO-8859-1", b"<a/>")
    assert not is_readable(b"text/xml; charset=shift_jis", b"<a/>")
    assert not is_readable(None, "<a/>".encode("utf-16-le"))
    assert is_readable(None, b"<?xml version='1.0' encoding='utf-8'?><a/>")

"""Documents of JSON in texts: of bodies of every kind, stored and shown."""

import json
import re
from html import unescape
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor import inner_texts
from proxy.redactor.inner_texts import is_readable_xml
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import FORM, JSON, USUAL, Desk, desk, member_form
from tests.support.table import table

INNER = '{json: {$.email: email, "$.who.name": name, "$.tags[*]": tags}}'
RULES = (
    "{match: POST /p, create: p, request: {values: {$.payload: " + INNER + "}}, "
    "response: {values: {$.payload: " + INNER + "}, id: $.id}}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id, values: {"$[*].payload": '
    + INNER + "}}}",
    '{match: "PATCH /p/{id}", update: p, request: {values: {$.deep: {json: {$.a: {json: {$.born: born}}}}}}}',
    '{match: "GET /p/{id}", read: p, response: {values: {$.deep: {json: {$.a: {json: {$.born: born}}}}}}}',
    ("{match: POST /form, create: p, request: {form: {name: name, payload: {json: {$.email: email}}}}, "
        "response: {success: [200], id: $.id}}"),
    ("{match: POST /parts, create: p, request: {multipart: {name: name, payload: {json: {$.email: email}}}}, "
        "response: {id: $.id}}"),
)  # fmt: skip
EMAIL, NAME = "Ann@Wexlomere.example", 'Ann "Wexham" Lomère \\ Ω'
DOCUMENT = {"email": EMAIL, "n": 1.0, "who": {"name": NAME, "vip": True}, "tags": ["yx-1", "yx-2"]}


async def office() -> Desk:
    return await desk(*RULES)


def clear(raw: bytes) -> bool:
    return any(
        word in raw.decode()
        for word in ("Wexham", "Wexlomere", "Lomè", "Lom\\u00e8", "yx-", "1931-02-27")
    )


@table("spaced", [True, False])
async def test_a_text_of_json_is_swapped_and_restored_byte_for_byte(spaced):
    one = await office()
    text = json.dumps(DOCUMENT, ensure_ascii=False, indent=1 if spaced else None)
    raw = (
        b' {"x": 1e2, "payload" :%b,"note":"\\u00e9"}'
        % json.dumps(text, ensure_ascii=False).encode()
    )
    call = await one.send("POST /p", raw)
    assert not clear(call.sent.body)
    inner = json.loads(call.json["payload"])
    assert inner["n"] == 1.0
    assert inner["who"]["vip"] is True
    assert inner["email"] != EMAIL
    answer = call.sent.body.replace(b'"x": 1e2', b'"id": 1')
    shown = await call.answer(201, answer)
    assert shown.body == raw.replace(b'"x": 1e2', b'"id": 1')
    listed = [{**call.json, "id": 1}, {"id": 2, "payload": "no JSON"}, {"id": 3, "payload": None}]
    seen = await (await one.send("GET /p")).seen(200, listed)
    assert json.loads(seen[0]["payload"]) == DOCUMENT
    assert seen[1:] == listed[1:], "what is no document is shown as it came"
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_a_text_in_a_text_is_followed_and_its_small_tokens_resolve_by_the_record():
    one = await office()
    await one.create({"payload": json.dumps({"email": EMAIL})})
    deep = json.dumps({"a": json.dumps({"born": "1931-02-27", "n": 1}), "b": "\\"})
    call = await one.send("PATCH /p/1", {"deep": deep})
    assert not clear(call.sent.body)
    assert json.loads(json.loads(call.json["deep"])["a"])["n"] == 1
    await call.answer(204)
    shown = await (await one.send("GET /p/1")).answer(200, {"deep": call.json["deep"]})
    assert json.loads(shown.body) == {"deep": deep}


async def test_a_member_of_a_form_and_a_part_hold_documents():
    one = await office()
    text = json.dumps({"email": EMAIL, "x": "a&b=c+d %41"})
    raw = member_form(name=NAME, payload=text, other="x")
    call = await one.send("POST /form", raw, FORM)
    assert not clear(call.sent.body)
    sent = call.form
    inner = json.loads(sent["payload"])
    assert inner["x"] == "a&b=c+d %41"
    token = member_form(payload=inner["email"]).partition(b"=")[2]
    back = call.sent.body.replace(token, member_form(payload=EMAIL).partition(b"=")[2])
    named = member_form(name=sent["name"])
    assert back.replace(named, member_form(name=NAME)) == raw
    await call.answer(200, {"id": 1})
    lines = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    raw = lines % (b"name", NAME.encode()) + lines % (b"payload", text.encode()) + b"--b--\r\n"
    parts = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
    call = await one.send("POST /parts", raw, parts)
    assert not clear(call.sent.body)
    await call.answer(201, {"id": 2})
    assert await one.counts() == (2, 0, 0)
    assert one.idle


@table(
    ("payload", "code"),
    [
        ("no JSON " + EMAIL, Code.MALFORMED_JSON),
        ({"email": EMAIL}, Code.VALUE_UNFIT),
        ([EMAIL], Code.VALUE_UNFIT),
        (17, Code.VALUE_UNFIT),
        (json.dumps({"who": EMAIL}), Code.VALUE_UNFIT),
        (json.dumps({"Email": EMAIL}), Code.AMBIGUOUS_JSON),
        (json.dumps({"email": "b@x.example", "email ": EMAIL}), Code.AMBIGUOUS_JSON),
        (json.dumps({"email": EMAIL, "note": f"to {EMAIL}"}), Code.VALUE_ELSEWHERE),
        (json.dumps({"x": [[]]})[:-1] + ', "y": ' + "[" * 70 + "]" * 70 + "}", Code.TOO_LARGE),
    ],
)
async def test_a_text_that_nobody_understands_is_refused(payload: Any, code: Code):
    one = await office()
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", {"payload": payload})
    assert caught.value.code is code
    assert EMAIL not in str(caught.value)
    assert one.idle
    assert await one.counts() == (0, 0, 0)


@table("payload", [None, "", " ", True])
async def test_what_holds_no_document_passes(payload: Any):
    one = await office()
    call = await one.send("POST /p", {"payload": payload, "name": "Ann"}, JSON)
    assert call.json["payload"] == payload
    await call.answer(201, {"id": 1})


RSS: RawHeaders = ((b"Content-Type", b"application/rss+xml; charset=utf-8"),)
FIELDS = ("name: {kind: name}",)
FEED = "{match: GET /feed, read: p, response: {restore: anywhere}}"
NASTY = "Ann <img src=x> & ]]> \"Ö'"


async def office_of_xml_texts(name: str) -> tuple[Desk, str]:
    one = await desk(*USUAL[:1], FEED, fields=FIELDS)
    return one, (await one.create({"name": name}))["name"]


async def seen(one: Desk, document: str, kind: RawHeaders = RSS) -> str:
    body = document.encode("latin-1" if "latin" in document else "utf-8")
    answer = await (await one.send("GET /feed")).answer(200, body, kind)
    return answer.body.decode("latin-1")


@table("kind", ["text/xml", "application/xml", "application/atom+xml", "image/svg+xml"])
async def test_texts_sections_and_attributes_of_xml_show_values(kind):
    one, token = await office_of_xml_texts("Ann Ö")
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
    one, token = await office_of_xml_texts(name)
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
    one, token = await office_of_xml_texts(name)
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
    one, token = await office_of_xml_texts("Ann")
    page = f"<r>{document}</r>".replace("TOKEN", token)
    assert await seen(one, page) == page
    assert one.events["unreadable_answer"] == 0


async def test_a_value_that_would_open_a_tag_beside_other_text_or_that_xml_cannot_hold_stays_a_token():
    for name, page in (("<img", "<t>by TOKEN</t>"), ("a\x01", "<t>TOKEN</t>")):
        one, token = await office_of_xml_texts(name)
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
    one, token = await office_of_xml_texts("Ann")
    page = document.replace("TOKEN", token)
    assert await seen(one, page) == page
    assert one.events["unreadable_answer"] == 1


def test_charsets():
    assert is_readable_xml(b"text/xml; charset=ISO-8859-1", b"<a/>")
    assert not is_readable_xml(b"text/xml; charset=shift_jis", b"<a/>")
    assert not is_readable_xml(None, "<a/>".encode("utf-16-le"))
    assert is_readable_xml(None, b"<?xml version='1.0' encoding='utf-8'?><a/>")


def test_tokens_of_a_long_text_are_found_wherever_they_stand(monkeypatch):
    monkeypatch.setattr(inner_texts, "_SEARCHED", 50)
    monkeypatch.setattr(inner_texts, "_LONGEST", 20)
    pattern = re.compile(r"(?<![0-9A-Za-z])(?:T[0-9]{8})(?![0-9A-Za-z])")
    texts = [
        " " * before + "T12345678" + between + "T12345678 T1234567x" * 20
        for before in range(60)
        for between in (" ", "x")
    ]

    for text in texts:
        found = [(match.start(), match[0]) for match in inner_texts._matches(pattern, text)]
        assert found == [(match.start(), match[0]) for match in pattern.finditer(text)]

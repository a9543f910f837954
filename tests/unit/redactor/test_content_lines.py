"""Cards and calendars: what stands where in them, and how another text is written there."""

import json
import re
from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.content_lines import UNFOLDED, line_readings, refold
from proxy.redactor.elements import Document
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import read_xml_document
from tests.support.exchanges import Desk, desk
from tests.support.table import table

KINDS = {"": DocumentKind.VOBJECT, "xml": DocumentKind.ELEMENTS}


def card(*lines: str, end: str = "\r\n") -> str:
    return end.join(["BEGIN:VCARD", *lines, "END:VCARD", ""])


def read(text: str | bytes, kind: DocumentKind = DocumentKind.VOBJECT) -> Document:
    return read_xml_document(text.encode() if isinstance(text, str) else text, 64, kind)


def plain(value: Any) -> Any:
    """The JSON of elements, without what says nothing: a text for each that holds nothing else."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    rest = {name: plain(one) for name, one in value.items() if name != "#element" and one != []}
    return rest["#text"] if [*rest] == ["#text"] else rest


def content(text: str, kind: DocumentKind = DocumentKind.VOBJECT) -> Any:
    return plain(json.loads(read(text, kind).content))


def swapped(text: str, value: str, old: str, kind: DocumentKind = DocumentKind.VOBJECT) -> str:
    """The document with the value in the place of the bytes ``old``, alone."""
    document = read(text, kind)
    raw = text.encode()
    (piece,) = [p for p in document.pieces.values() if raw[p.start : p.end] == old.encode()]
    written = raw[: piece.start] + piece.write(Value(value)) + raw[piece.end :]
    return refold(written, xml=kind is DocumentKind.ELEMENTS).decode()


@table(
    "line,expected",
    [
        ("FN:Ann", {"FN": ["Ann"]}),
        ("item1.fn:Ann", {"FN": ["Ann"]}),
        ("FN:A\r\n nn\r\n\t L", {"FN": ["Ann L"]}),
        ("FN:A\\, \\; \\\\ \\n \\N \\x \\:", {"FN": ["A, ; \\ \n \n \\x \\:"]}),
        ("FN:Lindqvist, Ann; MD", {"FN": ["Lindqvist, Ann; MD"]}),
        ("N:L;A,B;;", {"N": [{"surname": ["L"], "given": ["A", "B"], "additional": [""], "prefix": [""]}]}),
        ("N:L\\;M;A\\,B", {"N": [{"surname": ["L;M"], "given": ["A,B"]}]}),
        ("N:1;2;3;4;5;6;7;8", {"N": [{"surname": ["1"], "given": ["2"], "additional": ["3"], "prefix": ["4"], "suffix": ["5"], "surname2": ["6"], "generation": ["7"], "part8": ["8"]}]}),
        ("ORG:A, B;C;D", {"ORG": [{"name": ["A, B"], "unit": ["C", "D"]}]}),
        ("NICKNAME:a,b\\,c", {"NICKNAME": ["a", "b,c"]}),
        ("EMAIL;TYPE=home:a@b", {"EMAIL": [{"@TYPE": "home", "#text": "a@b"}]}),
        ("EMAIL;TYPE=home;type=work:a@b", {"EMAIL": [{"@TYPE": ["home", "work"], "#text": "a@b"}]}),
        ('EMAIL;TYPE="a,b",c:a@b', {"EMAIL": [{"@TYPE": ["a,b", "c"], "#text": "a@b"}]}),
        ('ATTENDEE;CN="L, A":MAILTO:a%40b', {"ATTENDEE": [{"@CN": "L, A", "#text": "a@b"}]}),
        ("ATTENDEE;CN=a^'b^n^^^x:urn:x", {"ATTENDEE": [{"@CN": "a\"b\n^^x", "#text": "urn:x"}]}),
        ("TEL;VALUE=uri:tel:+1-2;ext=3", {"TEL": [{"@VALUE": "uri", "#text": "+1-2;ext=3"}]}),
        ("NOTE:tel: 1%202", {"NOTE": ["tel: 1%202"]}),
        ("GEO:1.5;2.5", {"GEO": [{"latitude": ["1.5"], "longitude": ["2.5"]}]}),
        ("GEO:geo:1.5,2.5", {"GEO": ["geo:1.5,2.5"]}),
        ("X-A:b;c\\,d", {"X-A": ["b;c\\,d"]}),
        ("X-A;VALUE=text:b\\,d", {"X-A": [{"@VALUE": "text", "#text": "b,d"}]}),
        ("PHOTO;ENCODING=b:QW5u", {"PHOTO": [{"@ENCODING": "b", "#text": [0]}]}),
        ("", {}),
    ],
)  # fmt: skip
def test_properties_parameters_and_parts_have_their_places(line: str, expected: Any):
    assert content(card(line)) == {"VCARD": [expected or {}]}
    assert content(card(line, end="\n")) == {"VCARD": [expected or {}]}
    inner = card(line).replace("&", "&amp;").replace("<", "&lt;")
    for data in (inner, inner.replace("\r", "&#13;"), inner.replace("\r", "&#xD;"), f"<![CDATA[{card(line)}]]>"):  # fmt: skip
        (found,) = content(f"<m><response><h/><address-data>{data}</address-data></response></m>", KINDS["xml"])["m"]  # fmt: skip
        assert found["response"][0].get("VCARD", [{}]) == [expected or {}]


def test_a_sign_in_two_bytes_may_be_cut_by_a_fold():
    raw = "BEGIN:VCARD\r\nFN:Zö\r\nEND:VCARD\r\n".encode().replace(b"\xc3\xb6", b"\xc3\r\n \xb6")
    assert plain(json.loads(read(raw).content)) == {"VCARD": [{"FN": ["Zö"]}]}


def test_components_stand_in_one_another_and_behind_one_another():
    text = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:a\nBEGIN:VALARM\nDESCRIPTION:b\nEND:VALARM\nEND:VEVENT\nend:vcalendar\n"
    event = {"SUMMARY": ["a"], "VALARM": [{"DESCRIPTION": ["b"]}]}
    assert content(text + card("FN:c")) == {
        "VCALENDAR": [{"VEVENT": [event]}], "VCARD": [{"FN": ["c"]}]
    }  # fmt: skip


@table(
    "line,old,value,written",
    [
        ("FN:x", "x", "a, b; \\ \r\nc\rd", "FN:a\\, b\\; \\\\ \\nc\\nd"),
        ("FN:x", "x", "a\x00\x1fb\x7f", "FN:a\ufffd\ufffdb\ufffd"),
        ("N:y;x;;", "x", "a;b", "N:y;a\\;b;;"),
        ("EMAIL;CN=x:y", "x", 'a "b" ^ ^n', "EMAIL;CN=a ^'b^' ^ ^^n:y"),
        ("EMAIL;CN=x:y", "x", "a, b", 'EMAIL;CN="a, b":y'),
        ('EMAIL;CN="x":y', "x", "a", 'EMAIL;CN="a":y'),
        ("ATTENDEE:mailto:x", "x", "å ?%\n@b", "ATTENDEE:mailto:å%20?%25%0A@b"),
        ("X-A:x", "x", "a;b\n", "X-A:a;b\\n"),
    ],
)  # fmt: skip
def test_a_value_is_written_with_the_escapes_of_its_place(
    line: str, old: str, value: str, written: str
):
    assert swapped(card(line), value, old) == card(written)


def test_a_line_that_was_written_is_folded_and_no_other():
    long = f"NOTE:{'y' * 100}"
    text = card(long, "FN:x", long)
    assert swapped(text, "å" * 60, "x") == card(long, f"FN:{'å' * 36}\r\n {'å' * 24}", long)
    assert swapped(card(f"FN:{'x' * 72}\r\n xxx"), "a", f"{'x' * 72}\r\n xxx") == card("FN:a")
    assert swapped(card("FN:x", end="\n"), "z" * 80, "x") == card(
        f"FN:{'z' * 72}\n {'z' * 8}", end="\n"
    )


def test_a_line_within_xml_is_folded_by_what_it_means():
    text = "<address-data>BEGIN:VCARD&#13;\nFN:x&#13;\nEND:VCARD&#13;\n</address-data>"
    written = swapped(text, "<&>" * 30, "x", KINDS["xml"])
    assert written.split("\n")[1:3] == [f"FN:{'&lt;&amp;&gt;' * 24}&#13;", f" {'&lt;&amp;&gt;' * 6}&#13;"]  # fmt: skip
    assert UNFOLDED not in written.encode()
    section = swapped("<calendar-data><![CDATA[BEGIN:VCARD\nFN:x\nEND:VCARD]]></calendar-data>", "]]>", "x", KINDS["xml"])  # fmt: skip
    assert "FN:]]]]><![CDATA[>\n" in section


@table(
    "text",
    [
        "BEGIN:VCARD\r\nFN:Ann\r\n", "BEGIN:VCARD\r\nFN:Ann\r\nEND:VEVENT\r\n", "FN:Ann\r\n",
        card("FN Ann"), card("FN;TYPE:Ann"), card('FN;X="a:Ann'), card('FN;X=a"b:Ann'), card('FN;X="a"b:Ann'),
        card(":Ann"), card("a.b.FN:Ann"), card("F N:Ann"), card("BEGIN;X=1:VEVENT", "END:VEVENT"),
        card("VERSION:2.1", "FN:Ann"), card("FN;ENCODING=QUOTED-PRINTABLE:Ann"), card("FN;CHARSET=latin1:Ann"),
        card("FN;ENCODING=8bit;ENCODING=quoted-printable:Ann"), card("FN:Ann\0"), card("FN:A\x0bnn"), card("FN:A\rnn"),
        card("FN:A\r\n\r\n nn"), card(f"FN{';A=1' * 201}:Ann"), " BEGIN:VCARD\r\nEND:VCARD", "\r\n " + card("FN:Ann"),
    ],
)  # fmt: skip
def test_what_is_odd_is_not_read(text: str):
    with pytest.raises(VaultError) as raised:
        read(text)
    assert raised.value.code is Code.UNREADABLE_BODY
    assert "Ann" not in str(raised.value)
    kept = content(f"<a><address-data><![CDATA[{text}]]></address-data></a>", KINDS["xml"]) if "\0" not in text and "\x0b" not in text else {}  # fmt: skip
    assert "VCARD" not in json.dumps(kept).replace("BEGIN:VCARD", "").replace("END:VCARD", "")


def test_bytes_that_are_no_utf8_and_depth_are_refused():
    with pytest.raises(VaultError) as raised:
        read(b"BEGIN:VCARD\r\nFN:A\xff\r\nEND:VCARD\r\n")
    assert raised.value.code is Code.UNREADABLE_BODY
    with pytest.raises(VaultError) as raised:
        read("BEGIN:A\n" * 65 + "END:A\n" * 65)
    assert raised.value.code is Code.TOO_LARGE
    read("BEGIN:A\n" * 64 + "END:A\n" * 64)
    read("\ufeff" + card("FN:Ann"))


@table(
    "piece",
    [
        b"\r\n ", b"\n\t", b";", b",", b"\\", b";A=", b';A="', b'",', b"a.", b"^", b"\r\nFN:a", b"\r\nN:;;,,", b"=", b":",
        b"\r\nBEGIN:A\r\nEND:A", b"%", b"\r\nATTENDEE:mailto:%41", b"&#13;\n ", b"&amp;", UNFOLDED, b"\n" + UNFOLDED,
        b" " + UNFOLDED, b"\r\n " + UNFOLDED + b"x", b"-", b"\r",
    ],
)  # fmt: skip
def test_reading_and_folding_take_time_by_the_length_alone(piece: bytes):
    began = process_time()
    for before in (b"BEGIN:VCARD\r\nN:", b"BEGIN:VCARD\r\nN", b""):
        text = before + piece * (20_000 // len(piece)) + b"\r\nEND:VCARD\r\n"
        for document, kind in ((text, KINDS[""]), (b"<address-data>%b</address-data>" % text, KINDS["xml"])):  # fmt: skip
            with suppress(VaultError):
                read(document, kind)
            refold(document, xml=kind is KINDS["xml"])
            line_readings(document)
    assert process_time() - began < 20  # a second, whatever it is


# ------------------------------------------------------------------ cards and calendars

XML_TYPE = ((b"Content-Type", b"application/xml"),)
CARD = ((b"Content-Type", b"text/vcard; charset=utf-8"),)
CARD_FIELDS = (
    "name: {kind: name, at: $.VCARD.FN}", "surname: {kind: name, at: $.VCARD.N.surname}",
    'email: {kind: email, at: "$.VCARD.EMAIL[*]", token: {shape: email, same: true}, find: [exact]}',
    "born: {kind: date, at: $.VCARD.BDAY, token: {shape: date, else: opaque}}", "photo: {kind: text, at: $.VCARD.LOGO}",
    'guest: {kind: email, at: "$.VCALENDAR.VEVENT[*].ATTENDEE[*][\'#text\']"}',
    'guest_name: {kind: name, at: "$.VCALENDAR.VEVENT[*].ATTENDEE[*][\'@CN\']"}',
)  # fmt: skip
CARD_OPERATIONS = (
    '{match: "PUT /{id*}", update: p, request: {vobject: $, absent: erase}, response: {vobject: $}}',
    '{match: "GET /{id*}", read: p, response: {vobject: $}}',
    ('{match: "REPORT /{book*}", read: p, request: {xml: $, fields: {email: "$[\'addressbook-query\'].filter[\'prop-filter\']'
    '.EMAIL[\'text-match\']"}}, response: {xml: "$.multistatus.response[*]", id: "$.href /{id*}"}}'),
)  # fmt: skip
ANNS_CARD = (
    "BEGIN:VCARD\r\nVERSION:4.0\r\nFN:Ann Wexlomere\\, MD\r\nitem1.EMAIL;TYPE=home;PREF=1:Ann@Wexlomere.example\r\n"
    "N:Wexlomere;A;;;\r\nBDAY:19310227\r\nX-A:<&>\r\nEND:VCARD\r\n"
)
GUESTS = (
    'BEGIN:VCALENDAR\nBEGIN:VEVENT\nATTENDEE;CN="Wexlomere, Ann":mailto:ann@wexlomere.example\n'
    "ATTENDEE;CN=Bo Wexlomere;RSVP=TRUE:MAILTO:bo@wexlomere.example\nEND:VEVENT\nEND:VCALENDAR\n"
)
QUERY = (
    "<c:addressbook-query xmlns:c='u'><c:filter><c:prop-filter name='%s'><c:text-match match-type='%s'>%s"
    "</c:text-match></c:prop-filter></c:filter></c:addressbook-query>"
)


async def cards() -> Desk:
    return await desk(*CARD_OPERATIONS, fields=CARD_FIELDS)


@table("card", [ANNS_CARD, GUESTS, GUESTS + ANNS_CARD])
async def test_cards_are_swapped_and_turned_back(card: str):
    one = await cards()
    raw = card.encode()
    call = await one.send("PUT /kim/book/1.vcf", raw, CARD)
    sent = call.sent.body
    assert not [text for text in (b"xlomere", b"1931", b"Ann", b"ann@", b"bo@") if text in sent]
    values = re.compile(rb"(?<=FN:)[^\r]*|(?<=PREF=1:).*?(?=\r)|(?<=\nN:)[^;]*|(?<=BDAY:)[^\r]*|(?<=CN=)[^:;]*|(?i:(?<=mailto:)[^\n]*)")  # fmt: skip
    assert values.sub(b"", re.sub(rb"\r?\n ", b"", sent)) == values.sub(b"", raw)
    assert max(map(len, sent.split(b"\n"))) <= 76
    assert (await call.answer(201, sent, CARD)).body == raw
    assert (await (await one.send("GET /kim/book/1.vcf")).answer(200, sent, CARD)).body == raw
    calendar = ((b"Content-Type", b"text/calendar"),)
    assert (await (await one.send("GET /kim/book/1.vcf")).answer(200, sent, calendar)).body == raw


async def test_cards_within_xml_are_turned_back_in_their_records():
    one = await cards()
    bodies = list[str]()
    for number in (1, 2):
        card = ANNS_CARD.replace("Ann", f"Ann{number}").replace("0227", f"022{number}")
        call = await one.send(f"PUT /kim/{number}", card.encode(), CARD)
        bodies.append(call.sent.body.decode())
        await call.answer(201)
    response = "<d:response><d:href>/kim/%d</d:href><d:prop><c:address-data>%s</c:address-data></d:prop></d:response>"
    many = "<d:multistatus xmlns:d='DAV:' xmlns:c='u'><d:response><d:href>/kim/</d:href></d:response>%s</d:multistatus>"
    for way in (
        lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace("\r", "&#13;"),
        "<![CDATA[{}]]>".format,
    ):
        answer = many % "".join(response % (at, way(text)) for at, text in enumerate(bodies, 1))
        call = await one.send(
            "REPORT /kim/book", b"<c:addressbook-multiget xmlns:c='u'/>", XML_TYPE
        )
        seen = (await call.answer(207, answer.encode(), XML_TYPE)).body.decode()
        shown = [ANNS_CARD.replace("Ann", f"Ann{at}").replace("0227", f"022{at}") for at in (1, 2)]
        assert seen == many % "".join(
            response % (at, way(text)) for at, text in enumerate(shown, 1)
        )


async def test_a_search_of_webdav_is_of_a_whole_value_or_refused():
    one = await cards()
    call = await one.send(
        "REPORT /b", (QUERY % ("EMAIL", "equals", "Ann@Wexlomere.example")).encode(), XML_TYPE
    )
    assert b"xlomere" not in call.sent.body
    assert re.search(
        rb"name='EMAIL'><c:text-match match-type='equals'>[a-z0-9]+@example.org<", call.sent.body
    )
    for name, way in (
        ("EMAIL", "contains"),
        ("EMAIL", "Equals"),
        ("FN", "equals"),
        ("", "equals"),
        ("EMAIL' name='FN", "equals"),
    ):
        with pytest.raises(VaultError) as raised:
            await one.send(
                "REPORT /b", (QUERY % (name, way, "Ann@Wexlomere.example")).encode(), XML_TYPE
            )
        assert raised.value.code in (Code.SEARCH_REFUSED, Code.UNREADABLE_BODY)
        assert "Wexlo" not in str(raised.value)
    assert (
        await one.send("REPORT /b", (QUERY % ("FN", "contains", "")).encode(), XML_TYPE)
    ).sent.body


@table(
    "card,code",
    [
        (ANNS_CARD.replace("4.0", "2.1"), Code.UNREADABLE_BODY),
        (ANNS_CARD.replace("END:VCARD", "END:VCAR"), Code.UNREADABLE_BODY),
        (ANNS_CARD.replace("X-A:<&>", "NOTE:of Wexlo\r\n mere\\, Ann"), Code.VALUE_ELSEWHERE),
        (ANNS_CARD.replace("X-A:<&>", "NOTE:Ann Wexlomere\\, M\r\n D"), Code.VALUE_ELSEWHERE),
        (ANNS_CARD.replace("X-A:<&>", "LOGO;ENCODING=b:QW5u"), Code.VALUE_UNFIT),
        (ANNS_CARD.replace("FN:", "F-N:Ann\r\nFN:"), Code.AMBIGUOUS_JSON),
        (GUESTS.replace("CN=Bo Wexlomere", "CN=Bo,Wexlomere"), Code.VALUE_UNFIT),
    ],
)  # fmt: skip
async def test_cards_that_cannot_be_read_or_tell_values_elsewhere_are_refused(
    card: str, code: Code
):
    with pytest.raises(VaultError) as raised:
        await (await cards()).send("PUT /1", card.encode(), CARD)
    assert raised.value.code is code
    assert "Wexlo" not in str(raised.value)


async def test_a_rule_of_cards_takes_no_other_body_and_other_rules_no_cards():
    for kind in (
        b"text/plain",
        b"application/json",
        b"application/xml",
        b"text/vcard; charset=latin1",
    ):
        with pytest.raises(VaultError) as raised:
            await (await cards()).send("PUT /1", ANNS_CARD.encode(), ((b"Content-Type", kind),))
        assert raised.value.code is Code.UNREADABLE_BODY
    with pytest.raises(VaultError) as raised:
        await (await desk("{match: POST /p, create: p}")).send("POST /p", ANNS_CARD.encode(), CARD)
    assert raised.value.code is Code.UNREADABLE_BODY


@table("card", ["BEGIN:VCARD\nFN:x\n", "FN:x", ANNS_CARD.replace("4.0", "2.1")])
async def test_a_card_of_an_answer_that_cannot_be_read_passes(card: str):
    one = await cards()
    assert (await (await one.send("GET /1")).answer(200, card.encode(), CARD)).body == card.encode()


async def test_cards_and_json_on_one_path_are_told_by_their_type():
    one = await desk(
        '{match: "PUT /{id}", when: {type: text/vcard}, update: p, request: {vobject: $}}',
        '{match: "PUT /{id}", when: {type: application/json}, update: p, request: {object: $}}', fields=CARD_FIELDS,
    )  # fmt: skip
    assert b"Wexlo" not in (await one.send("PUT /1", ANNS_CARD.encode(), CARD[:1])).sent.body
    for named, sent in (("Ann", True), ("Bo", False)):
        forked = await desk(
            f'{{match: "PUT /{{id}}", when: {{$.VCARD.KIND: {named}}}, update: p, request: {{vobject: $}}}}',
            '{match: "PUT /{id}", pass: true}', fields=CARD_FIELDS,
        )  # fmt: skip
        body = ANNS_CARD.replace("X-A:<&>", "KIND:Bo").encode()
        assert (b"Wexlo" in (await forked.send("PUT /1", body, CARD)).sent.body) is sent

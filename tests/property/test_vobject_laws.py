"""Cards: every value that another reader sees at a named place is swapped, nothing else is, and turned
back the card is what it was, byte for byte; also within a document of XML.
"""

import re
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.redactor.bodies.xml_bodies import read_any_answer, read_xml
from proxy.redactor.message import Media, Request
from proxy.redactor.plan import OperationPlan, make_plan
from proxy.redactor.redact import ParsedBody
from proxy.redactor.restore import rewritten
from tests.support.rules import rules_of

CARD = ((b"Content-Type", b"text/vcard"),)
TEXTS = st.text("aéZ\U0001f600<&>\"'^ \t]x;,:=\\n\n", max_size=12) | st.text(
    "aé,", min_size=60, max_size=200
)
#: Places of the fields of an entity, and those of another one.
NAMED = (
    ("$.VCARD.FN", "$.VCARD.EMAIL['#text']", "$.VCARD.EMAIL['@CN']"),
    ("$.VCARD.FN", "$.VCARD.N.given", "$.VCARD.N.surname"),
)
FIELDS = 'fields: {name: "%s", email: "%s", born: "%s"}'


@cache
def plans(number: int) -> list[OperationPlan]:
    """A plan of requests with cards, and one of answers with cards in XML."""
    inner = tuple(place.replace("$.", "$.m.response.") for place in NAMED[number])
    rules = (
        f'{{match: "PUT /c/{{id}}", update: contact, request: {{vobject: $, {FIELDS % NAMED[number]}}}}}',
        f'{{match: "GET /c/{{id}}", read: contact, response: {{xml: $.m.response, {FIELDS % inner}}}}}',
    )
    return [make_plan(one) for one in rules_of(*rules).operations]


def as_text(text: str) -> str:
    return re.sub(r"([\\;,])", r"\\\1", text).replace("\n", "\\n")


def as_parameter(text: str) -> str:
    text = re.sub(r"\^(?=[n^'\"\n])", "^^", text).replace('"', "^'").replace("\n", "^n")
    return f'"{text}"' if re.search("[;:,]", text) else text


def folded(line: str, end: str) -> str:
    rows, size = [""], 0
    for char in line:
        width = len(char.encode())
        if size + width > 75:
            rows.append(" ")
            size = 1
        rows[-1] += char
        size += width
    return end.join(rows)


@st.composite
def cards(draw: Any) -> tuple[bytes, list[str], str, int]:
    """A card, its named values, how its lines end, and the number of what names them."""
    lines, values = ["BEGIN:VCARD", "VERSION:4.0"], list[str]()
    number = draw(st.integers(0, 1))
    end = draw(st.sampled_from(("\r\n", "\n")))
    for name in draw(st.lists(st.sampled_from(("FN", "EMAIL", "N", "NOTE", "X-Y")), max_size=7)):
        group, text, other = draw(st.sampled_from(("", "a.", "item1."))), draw(TEXTS), draw(TEXTS)
        match name:
            case "FN":
                lines.append(f"{group}FN;X=1:{as_text(text)}")
                values.append(text)
            case "EMAIL":
                lines.append(
                    f"{group}email;TYPE=home;CN={as_parameter(other)};TYPE=x:{as_text(text)}"
                )
                values += [] if number else [other, text]
            case "N":
                lines.append(f"{group}N:{as_text(other)};{as_text(text)},{as_text(other)};b,c")
                values += [other, text, other] if number else []
            case _:
                lines.append(f"{group}{name}:{as_text(text)}")
    lines.append("END:VCARD")
    return "".join(folded(line, end) + end for line in lines).encode(), values, end, number


def texts_of(parsed: ParsedBody) -> list[str]:
    spots = [spot for one in parsed.items for spot in one.spots]
    return [spot.value.text for spot in spots if spot.value is not None]


def read(card: bytes, number: int) -> ParsedBody:
    parsed = read_xml(plans(number)[0], Request("PUT", b"/c/1", CARD, card))
    assert parsed is not None
    return parsed


def written(document: bytes, parsed: ParsedBody, values: dict[str, str]) -> bytes:
    rows = [
        [Value(values[spot.value.text]) for spot in one.spots if spot.value] for one in parsed.items
    ]
    return rewritten(document, parsed, rows).content


def logical(card: bytes) -> list[str]:
    return re.sub(rb"\r?\n[ \t]", b"", card).decode().splitlines()


@given(cards())
def test_all_values_are_swapped_and_turned_back_byte_for_byte(
    made: tuple[bytes, list[str], str, int],
):
    card, values, end, number = made
    parsed = read(card, number)
    assert sorted(texts_of(parsed)) == sorted(values)
    tokens = {text: f"T{at:0>30}" for at, text in enumerate(dict.fromkeys(values))}
    sent = written(card, parsed, tokens)
    assert all(len(row) <= 75 for row in sent.split(end.encode()))
    assert sorted(texts_of(read(sent, number))) == sorted(tokens[text] for text in values)
    assert [line.split(":")[0] for line in logical(sent) if "CN=" not in line] == [
        line.split(":")[0] for line in logical(card) if "CN=" not in line
    ]
    back = written(sent, read(sent, number), {token: text for text, token in tokens.items()})
    assert back == card


@given(cards())
def test_the_same_within_a_document_of_xml(made: tuple[bytes, list[str], str, int]):
    card, values, _, number = made
    plan, operation = plans(number)[1].response, plans(number)[1].operation
    assert plan is not None
    tokens = {text: f"T{at:0>30}" for at, text in enumerate(dict.fromkeys(values))}
    sent = written(card, read(card, number), tokens).decode()
    for way in (lambda text: escape(text).replace("\r", "&#13;"), "<![CDATA[{}]]>".format):
        if "]]>" in card.decode():
            continue
        document = f"<m><response><address-data>{way(sent)}</address-data></response></m>".encode()
        parsed = read_any_answer(plan, Media.XML, document, operation)
        assert sorted(texts_of(parsed)) == sorted(tokens[text] for text in values)
        back = written(document, parsed, {token: text for text, token in tokens.items()})
        expected = way(card.decode())
        assert (
            back.decode() == f"<m><response><address-data>{expected}</address-data></response></m>"
        )


@given(cards(), st.data())
def test_an_odd_card_is_refused_or_read_as_its_lines_say(
    made: tuple[bytes, list[str], str, int], data: Any
):
    card, _, _, number = made
    piece = data.draw(st.sampled_from([b"\r\n ", b"\n\t", b";", b":", b'"', b"\\", b"\r", b"\0", b"\xff", b"END:VCARD\r\n", b"\r\nFN:a\r\n",
                                       b"\r\n\r\n ", b"=QUOTED-PRINTABLE", b",", b"^"]) | st.binary(max_size=3))  # fmt: skip
    at = data.draw(st.integers(0, len(card)))
    odd = card[:at] + piece + card[data.draw(st.integers(at, min(at + 4, len(card)))) :]
    plans(number)
    try:
        parsed = read(odd, number)
    except VaultError:
        return
    lines = [line for line in logical(odd) if re.match(r"(?i)(?:[a-z0-9_-]+\.)?FN[;:]", line)]
    names = [
        spot.value.text
        for one in parsed.items
        for spot in one.spots
        if spot.field == "name" and spot.value
    ]
    assert len(names) == len(lines)
    for name, line in zip(names, lines, strict=True):
        assert as_text(name) in as_text(
            re.sub(r"\\([\\;,nN])", lambda sign: "\n" if sign[1] in "nN" else sign[1], line)
        )

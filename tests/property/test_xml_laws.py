"""Documents of XML: every value that another reader sees at a named place is swapped, nothing else is,
and turned back each is what it was.
"""

from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.redactor.bodies.xml_bodies import read_xml
from proxy.redactor.message import Request
from proxy.redactor.plan import OperationPlan, make_plan
from proxy.redactor.redact import ParsedBody
from proxy.redactor.restore import rewritten, splice
from tests.support.rules import rules_of

XML = ((b"Content-Type", b"text/xml"),)
BLANK = " \t\r\n"
TEXTS = st.text("aéZ\U0001f600<&>\"' \n\t]x;#", max_size=8)
WHITE = st.text(BLANK, max_size=3)
NAMED = ("name", "email", "phone")
RULE = """{match: POST /c, create: contact, request: {xml: $.book.person, fields: {name: $.book.person.name,
  email: $.book.person.mail.email, born: "$.book.person['@phone']"}}, response: {xml: $, id: $.id}}"""


@cache
def plan() -> OperationPlan:
    return make_plan(rules_of(RULE).operations[0])


@st.composite
def spelled(draw: Any, quote: str = "") -> str:
    """A text as a document writes it: in references, in a section, or plainly."""
    text = draw(TEXTS)
    if not quote and "]]>" not in text and draw(st.booleans()):
        return f"<![CDATA[{text}]]>"
    ways = []
    for char in text:
        plain = char not in "<&>" and char != quote and not (quote and char in BLANK)
        forms = [f"&#{ord(char)};", f"&#x{ord(char):X};", *([char, char, char] if plain else [])]
        ways.append(draw(st.sampled_from(forms)))
    return "".join(ways)


@st.composite
def elements(draw: Any, name: str, inner: st.SearchStrategy[str]) -> str:
    prefix = draw(st.sampled_from(("", "p:", "q:")))
    attributes = [f' o="{draw(spelled(chr(34)))}"', f" p:o = '{draw(spelled(chr(39)))}'"]
    phone = [f'\n phone="{draw(spelled(chr(34)))}"'] if name == "person" else []
    some = draw(st.lists(st.sampled_from([*attributes, *phone]), unique=True))
    tag, content = prefix + name + "".join(some), draw(inner)
    if not content and draw(st.booleans()):
        return f"<{tag}{draw(WHITE)}/>"
    return f"<{tag}{draw(WHITE)}>{content}</{prefix}{name}>"


def several(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    between = st.sampled_from(("", " ", "\r\n  ", "<!-- x -->", "<?x y?>"))
    return st.lists(st.one_of(between, *parts), max_size=6).map("".join)


TEXT = st.tuples(WHITE, spelled(), WHITE).map("".join)
MAIL = elements("mail", several(elements("email", TEXT)))
PERSON = elements("person", several(elements("name", TEXT), MAIL, elements("other", TEXT)))
DOCUMENTS = st.tuples(
    st.sampled_from(("", "\ufeff", '<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-8"?>\n')),
    several(PERSON, elements("name", TEXT)),
).map(lambda one: f'{one[0]}<book xmlns:p="u" xmlns:q="v">{one[1]}</book>\n'.encode())  # fmt: skip


def local(name: str) -> str:
    return name.rpartition("}")[2]


def values_in(document: bytes) -> list[str]:
    """What another reader sees at the named places, without white space round it."""
    texts: list[str] = []
    for person in ET.fromstring(document):  # made here
        if local(person.tag) != "person":
            continue
        texts += [text for name, text in person.items() if local(name) == "phone"]
        for one in person:
            if local(one.tag) == "name":
                texts.append(one.text or "")
            elif local(one.tag) == "mail":
                texts += [deep.text or "" for deep in one if local(deep.tag) == "email"]
    return sorted(text.strip(BLANK) for text in texts)


def without_values(document: bytes) -> list[Any]:
    """What it sees anywhere else."""
    root = ET.fromstring(document)  # made here
    seen: list[Any] = []
    for one in root.iter():
        others = [pair for pair in one.items() if pair[0] != "phone"]
        text = "" if local(one.tag) in ("name", "email") and one not in list(root) else one.text
        seen.append((one.tag, others, text, one.tail))
    return seen


def read(document: bytes) -> ParsedBody:
    parsed = read_xml(plan(), Request("POST", b"/c", XML, document))
    assert parsed is not None
    return parsed


def written(document: bytes, parsed: ParsedBody, values: list[str]) -> bytes:
    rest = iter(values)
    rows = [[Value(next(rest)) for _ in item.spots] for item in parsed.items]
    return rewritten(document, parsed, rows).content


def texts_of(parsed: ParsedBody) -> list[str]:
    return [spot.value.text for one in parsed.items for spot in one.spots if spot.value is not None]


@given(DOCUMENTS, st.data())
def test_all_values_are_swapped_and_nothing_else_and_turned_back(document: bytes, data: Any):
    parsed = read(document)
    texts = texts_of(parsed)
    assert sorted(text.strip(BLANK) for text in texts) == values_in(document)
    tokens = [f"T{number}" for number in range(len(texts))]
    sent = written(document, parsed, tokens)
    assert values_in(sent) == sorted(tokens)
    assert without_values(sent) == without_values(document)
    spans = [(spot.start, spot.end, b"") for item in parsed.items for spot in item.spots]
    kept = splice(document, spans)
    assert len(kept) <= len(document)
    again = read(sent)
    assert texts_of(again) == tokens
    back = written(sent, again, texts)
    assert values_in(back) == values_in(document)
    assert without_values(back) == without_values(document)
    assert texts_of(read(back)) == [*texts]
    others = data.draw(st.lists(TEXTS, min_size=len(texts), max_size=len(texts)))
    assert values_in(written(sent, again, others)) == sorted(one.strip(BLANK) for one in others)


@given(DOCUMENTS, st.data())
def test_an_odd_document_is_refused_or_read_as_others_read_it(document: bytes, data: Any):
    piece = data.draw(
        st.sampled_from([b"<!--x-->", b"<b>", b"</name>", b"&", b"\0", b"\xff", b"<name>a</name>", b"]]>",
                         b"<?x?>", b"<Name/>", b" phone='1'", b"<!DOCTYPE x>", b"<mail>a</mail>", b"<b/>"])
        | st.binary(max_size=3)
    )  # fmt: skip
    at = data.draw(st.integers(0, len(document)))
    odd = document[:at] + piece + document[data.draw(st.integers(at, min(at + 4, len(document)))) :]
    try:
        texts = texts_of(read(odd))
    except VaultError:
        return
    try:
        expected = values_in(odd)
    except ET.ParseError:  # of a prefix, which says nothing here
        assert b":" in odd
        return
    assert sorted(text.strip(BLANK) for text in texts) == expected

"""The first look of the guard, beside its verdicts in ``test_guard``."""

import base64
import json
import random
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.redactor import guard, value_scan
from proxy.redactor.guard import Guard
from proxy.redactor.message import Request
from proxy.redactor.plan import make_plan
from proxy.redactor.redact import BodyObject, Spot
from tests.support.rules import operation_of
from tests.support.table import table

OPERATION = operation_of('{match: "PUT /contacts/{id}", update: contact}')


@given(
    st.lists(st.sampled_from(["\\", '"', *"unbx/0d83cEö\0\1\2% ", "\\ud83d\\ude00"])).map("".join)
)
@example("a\\u0001b\\u0000")
def test_escapes_are_undone_together_as_one_by_one(text):
    part = text.encode()
    undone = value_scan._ESCAPES.sub(value_scan._character, part)
    assert value_scan._without_escapes(part) == undone


def packed(before: str, text: str) -> str:
    return base64.b64encode(f"{before}{text} and more".encode()).decode()


LEAKED = "Quib/Ån+?"
SPELLINGS = (
    *(LEAKED, json.dumps(LEAKED)[1:-1], quote(LEAKED, safe=""), quote(LEAKED).replace("%20", "+")),
    *(packed("", LEAKED), packed("a", LEAKED), packed("ab", LEAKED)),
    base64.urlsafe_b64encode(b"\xff\xff" + LEAKED.encode()).decode(),
    json.dumps(packed("", LEAKED)).replace("/", "\\/")[1:-1],
)
ODD = ('"Ann"', ' "Ann "', "Ann", "&Ann&", "QW5u", '"QW5u="', "\\u0041nn", "%41nn", "A+B", "\\\\")


@given(
    st.lists(
        st.sampled_from(SPELLINGS)
        | st.sampled_from(ODD)
        | st.sampled_from(["{", '"', ", ", "A b"]),
        max_size=6,
    ).map("".join),
    st.sampled_from(["{", "[", "a="]),
    st.sampled_from([("QuibQ", 0), ("n=b", 90), ("x % y", 9), ("Ab\\n", 30), ("Zz9/", 200)]),
    st.data(),
)
def test_a_long_part_of_a_body_is_searched_as_a_short_one(text, first, padding, data):
    """Whatever surrounds a value, and wherever the swapped places are."""
    word, times = padding
    body = f"{first}{word * times}{text}{word * times}{first}".encode()
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=4, max_size=4)))
    spots = [
        Spot("email", places[0], places[1], Value(LEAKED)),
        Spot("name", places[2], places[3], Value("Ann")),
    ]
    sent = Request("PUT", b"/contacts/1", (), body)
    row = [Value("tok"), Value("token")]
    told = []
    for long, few in ((1 << 30, 256), (1, 256), (1, 0)):
        with pytest.MonkeyPatch.context() as patch:
            for one in (guard, value_scan):
                patch.setattr(one, "LONG_BODY", long)
            patch.setattr(value_scan, "_FEW_PLACES", few)
            try:
                Guard(make_plan(OPERATION), lambda *_: None).check(
                    [BodyObject(spots)], [row], {}, sent
                )
                told.append("")
            except VaultError as error:
                told.append(str(error))
    assert told[0] == told[1] == told[2]


@table("before", ["", "a", "ab"])
def test_a_value_in_base64_is_found_in_a_long_body_that_is_full_of_it(before):
    values = {f"{number} Quibblethwaite": "name" for number in range(9)}
    noise = base64.b64encode(random.Random(1).randbytes(40_000)).decode()
    for text in values:
        body = json.dumps([noise, packed(before, text), noise]).encode()
        assert value_scan.suspects(values, *value_scan.unswapped(body, [], values)) == [text]


def test_a_short_value_in_other_words_of_a_long_body_is_not_examined_closely():
    body = json.dumps(["Annelie, and others like Annex"] * 5000).encode()
    values = {"Ann": "name"}
    assert value_scan.suspects(values, *value_scan.unswapped(body, [], values)) == []
    whole = body[:-1] + b', "Ann"]'
    assert value_scan.suspects(values, *value_scan.unswapped(whole, [], values)) == ["Ann"]


@given(
    st.text(min_size=11, max_size=30),
    st.binary(max_size=4),
    st.binary(max_size=4),
    st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]),
    st.sampled_from([b"", b"Bearer ", b"eyJhbGciOiJFUzI1NiJ9."]),
)
def test_a_longer_value_in_base64_is_suspected_wherever_its_code_begins(
    value, before, after, encode, lead
):
    raw = value.encode("utf-8", "surrogatepass")
    heap = b"\n" + lead + encode(before + raw + after).rstrip(b"=") + b"\n\n{}\n"
    for _ in range(2):  # the second time what the rows stand for is known
        assert value_scan.suspects({value: "note"}, heap) == [value]


@table(
    ("content", "long"),
    [
        (b"Filter coffee, whole beans, 500 g; Lindenallee 12 " * 4000, False),
        (b"x" * 100_000 + b"\\n100%" * 100, False),
        (b"x" * 100_000 + b"\\n" * 300, True),
        (b"%20" * 300 + b"x" * 100_000, True),
        (base64.b64encode(random.Random(1).randbytes(100_000)), True),
    ],
)
def test_it_tells_what_takes_long_to_search(content: bytes, long: bool) -> None:
    assert value_scan.takes_long(b'{"note":"%b"}' % content) is long

import base64
import json
import random
from collections.abc import Callable
from urllib.parse import quote

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor import guard, value_scan
from proxy.redactor.guard import BodyCutter, CutBody, Guard
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.plan import make_plan
from proxy.redactor.redact import BodyObject, Spot
from tests.support.rules import operation_of
from tests.support.table import table

OPERATION = operation_of('{match: "PUT /contacts/{id}", update: contact}')
#: One for all tests: it remembers what it searched of the head before.
GUARD = Guard(make_plan(OPERATION), lambda *_: None)


def leak(
    values: dict[str, str],
    body: bytes = b"",
    headers: RawHeaders = (),
    target: bytes = b"/contacts/17",
    tokens: tuple[str, ...] = (),
) -> tuple[str, str] | None:
    """The field and the place that the guard refuses; ``values``: field by text."""
    texts = [*values]
    spots = [Spot(field, 0, 0, Value(text)) for text, field in values.items()]
    row = [Value(token) for token in (*tokens, *("tok",) * len(texts))][: len(texts)]
    sent = Request("PUT", target, headers, body)
    errors: list[VaultError] = []
    try:
        GUARD.check([BodyObject(spots)], [row], {}, sent)
    except VaultError as error:
        errors.append(error)
    if not errors:
        return None
    assert errors[0].code is Code.VALUE_ELSEWHERE
    assert not any(text and text in str(errors[0]) for text in texts)
    (detail,) = errors[0].details
    return detail.text, detail.source


MAIL = "Ann.Å@x.example"


def packed(before: str) -> Callable[[str], str]:
    return lambda text: base64.b64encode(f"{before}{text} and more".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "inside": "to {}, please".format,
    "escaped": lambda text: json.dumps(text)[1:-1],
    "every escape": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "percent": lambda text: quote(text, safe=""),
    "base64": packed(""),
    "base64 1": packed("a"),
    "base64 2": packed("ab"),
    "url-safe": lambda text: base64.urlsafe_b64encode(b"\xff\xff" + text.encode()).decode(),
    "percent in JSON": lambda text: f"/x?a={quote(text)}",
}


def test_each_head_is_searched_whatever_the_one_before_had():
    values, token = {MAIL: "email"}, ((b"X-A", b"tok"),)
    field, address = ((b"X-A", MAIL.encode()),), f"/contacts/{quote(MAIL)}".encode()
    for _ in range(2):
        assert leak(values, b"{}", token) is None
        assert leak(values, b"{}", field) == ("email", "the header field X-A")
        assert leak(values, b"{}", token) is None
        assert leak(values, b"{}", token, address) == ("email", "the address")


@table("name", FORMS)
def test_a_value_is_found_in_every_form_and_everywhere(name):
    text = FORMS[name](MAIL)
    values = {MAIL: "email", "Ek": "name"}
    assert leak(values, f'{{"a": "tok", "b": "{text}"}}'.encode()) == ("email", "the body")
    cookie = ((b"Cookie", f"a=1; b={text}".encode()),)
    assert leak(values, b"{}", cookie) == ("email", "the header field Cookie")
    if "\\" not in text:
        address = quote(text, safe="%=")
        assert leak(values, b"", (), f"/contacts/17?x={address}".encode()) == (
            "email",
            "the address",
        )
        assert leak(values, b"", (), f"/contacts/{address}".encode())
        form = f"a=tok&b={address}".encode()
        assert leak(values, form) == ("email", "the body")


@table(
    ("values", "body", "headers", "target"),
    [
        ({"Ann": "name"}, b'{"a": "tok", "b": "Ann"}', (), b"/contacts/1"),
        ({"Ann": "name"}, b'["\\u0041nn"]', (), b"/contacts/1"),
        ({"Ann": "name"}, b"a=tok&b=Ann", (), b"/contacts/1"),
        ({"Ann": "name"}, b'{"b": "QW5u"}', (), b"/contacts/1"),
        ({"Ann": "name"}, b"", ((b"X-Name", b"Ann"),), b"/contacts/1"),
        ({"Ann": "name"}, b"", ((b"Cookie", b"a=b; n=Ann; c=d"),), b"/contacts/1"),
        ({"Ann": "name"}, b"", (), b"/contacts/1?n=Ann&x=y"),
        ({"Ann": "name"}, b"", (), b"/contacts/Ann"),
        ({"Li": "name"}, b'{"b": "Li"}', (), b"/contacts/1"),
        ({"4711": "pin"}, b'{"b": "4711"}', (), b"/contacts/1"),
        ({"4711113": "pin"}, b'{"b": 4711113}', (), b"/contacts/1"),
        ({"quibbles": "name"}, b"", ((b"Sec-WebSocket-Protocol", b"v1, quibbles"),), b"/live"),
    ],
)
def test_a_short_value_is_found_as_a_whole_one(values, body, headers, target):
    assert leak(values, body, headers, target)


@table(
    ("values", "body", "headers", "target"),
    [
        ({"Ann": "name"}, b'{"a": "Annual report", "b": "by Ann"}', (), b"/contacts/1"),
        ({"Ann": "name"}, b"a=Annual&Ann=1", (), b"/contacts/1?plan=Annex"),
        ({"Ann": "name"}, b'{"Ann": 1}', (), b"/contacts/1"),
        ({"street": "name"}, b'{"street": "tok"}', (), b"/contacts/1"),
        ({"street": "name"}, b"street=tok&x=1", (), b"/contacts/1"),
        ({"contacts": "name"}, b'{"a": "tok"}', (), b"/contacts/1"),
        ({"1": "name", "30": "name", "m": "name"}, b'{"a": 1, "b": "30", "c": "m"}', (), b"/"),
        ({"100000": "name"}, b'{"a": 1000000}', (), b"/contacts/1"),
        ({"example.com": "name"}, b"", ((b"Host", b"crm.example.com"),), b"/contacts/1"),
        ({"Mozilla": "name"}, b"", ((b"User-Agent", b"Mozilla/5.0"),), b"/contacts/1"),
        ({"Chromium": "name"}, b"", ((b"Sec-CH-UA", b'"Chromium";v="1"'),), b"/contacts/1"),
        ({"": "name", "tok": "email"}, b'{"a": "tok", "b": ""}', (), b"/contacts/1"),
    ],
)
def test_ordinary_text_is_no_alarm(values, body, headers, target):
    assert leak(values, body, headers, target) is None


@table("runs", [0, 3, 300])
@table("value", ["Quibblethwaite", "Grünwald-Østergård", "Quibble", "???~~~???~~~"])
def test_a_value_in_base64_is_found_among_other_long_words(value, runs):
    words = ["f" * (14 + number % 50) for number in range(runs)]
    for before in ("", "a", "ab"):
        for way in (base64.b64encode, base64.urlsafe_b64encode):
            text = way(f"{before}{value}, and more".encode()).decode()
            body = json.dumps({"a": "tok", "words": [*words, text, *words]}).encode()
            assert leak({value: "name"}, body) == ("name", "the body")
    assert leak({value: "name"}, json.dumps(words).encode()) is None


def test_a_value_inside_its_own_tokens_is_none():
    values = {"1987-04-12": "born", "1990-01-01": "died"}
    body = b'{"born": "1990-01-01", "died": "1987-04-12"}'
    assert leak(values, body, tokens=("1990-01-01", "1987-04-12")) is None
    assert leak({"123456": "pin"}, b'{"a": "9123456"}', tokens=("9123456",)) is None


def test_what_a_rule_lets_out_is_none():
    spots = [Spot("nick", 0, 0, Value("Annabelle")), Spot("name", 0, 0, Value("Annabelle"))]
    sent = Request("PUT", b"/contacts/1", (), b'{"nick": "Annabelle", "name": "tok"}')
    row = [Value("Annabelle"), Value("tok")]
    Guard(make_plan(OPERATION), lambda *_: None).check([BodyObject(spots)], [row], {}, sent)


def test_what_a_search_looks_for_is_guarded_too():
    sent = Request("GET", b"/contacts?email=tok", ((b"Cookie", b"last=ann@x.example"),), b"")
    with pytest.raises(VaultError):
        Guard(make_plan(OPERATION), lambda *_: None).check(
            [], [], {("email", "tok"): Value("ann@x.example")}, sent
        )


@pytest.mark.parametrize("text", ["Quibble 777", "Qui"])
@pytest.mark.parametrize("form", ["raw", "base64"])
def test_very_many_values_are_found_as_one_is(monkeypatch, text, form):
    monkeypatch.setattr(value_scan, "_MUCH", 1)
    for one in (guard, value_scan):
        monkeypatch.setattr(one, "FEW_VALUES", 0)
    monkeypatch.setattr(value_scan, "_CHUNK", 64)
    values = {f"Person number {number}": "name" for number in range(300)} | {text: "email"}
    rest = json.dumps([f"nobody {number}" for number in range(200)])[:-1]
    leaked = text if form == "raw" else base64.b64encode(text.encode()).decode()
    assert leak(values, f'{rest}, "{leaked}"]'.encode()) == ("email", "the body")
    assert leak(values, f"{rest}]".encode()) is None


CREATE = operation_of("{match: POST /contacts, create: contact}")
BODY = b'{"name": "Ann Lee", "email": %b, "age": 7}'


def cut(body: bytes) -> CutBody | None:
    """What is cut of a body whose shape is known."""
    plan = make_plan(CREATE)
    assert plan.request is not None
    assert plan.request.selection is not None
    for age in range(9):
        plan.request.selection.find(BODY % b'"e"' if age else body)
        plan.request.selection.find(body)
    return BodyCutter(plan, frozenset((b"null", b'""'))).cut(body)


@table("value", [b"null", b'""', b'"a@b.se"'])
def test_the_texts_of_a_body_are_cut_out_and_leave_places_for_tokens(value: bytes) -> None:
    found = cut(BODY % value)
    assert found is not None
    text = json.loads(value) or None
    request = make_plan(CREATE).request
    assert request is not None
    shown = {request.fields[leaf]: one for leaf, one in zip(found.leaves, found.texts, strict=True)}
    assert (shown["name"], shown["email"]) == ("Ann Lee", text)
    assert found.fields == {"Ann Lee": "name", **({text: "email"} if text else {})}
    found.pieces[1::2] = found.raws
    assert b"".join(found.pieces) == BODY % value


@table("value", [b'"a\\u0041"', b"17", b"[1]"])
def test_a_body_with_another_value_than_a_plain_text_is_not_cut(value: bytes) -> None:
    assert cut(BODY % value) is None


def test_a_value_in_the_name_of_a_file_is_told_as_such():
    part = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
    name = part % (b"scan", b'; filename="Ann Lindqvist passport.pdf"', b"...") + b"--b--\r\n"
    assert leak({"Ann Lindqvist": "name"}, name) == ("name", "the name of a file")
    text = part % (b"note", b"", b"Ann Lindqvist") + part % (b"scan", b'; filename="a.pdf"', b".")
    assert leak({"Ann Lindqvist": "name"}, text) == ("name", "the body")


def test_a_head_that_comes_again_in_part_is_searched_as_one_that_is_new():
    targets = (
        b"/contacts/17",
        b"/contacts/18?q=Ann+Lee",
        b"/contacts/A%6Een",
        b"/contacts/17?x=\\u0041",
    )
    fields: tuple[RawHeaders, ...] = (
        *((), ((b"x-a", b"Annelie"),), ((b"host", b"Annelie"),)),
        *(((b"x-a", b"Bo%20Lee"), (b"cookie", b"a=1")), ((b"x-a", b""),)),
    )
    chance, again = random.Random(1), Guard(make_plan(OPERATION), lambda *_: None)
    for _ in range(500):
        sent = Request("PUT", chance.choice(targets), chance.choice(fields), b"{}")
        anew = Guard(make_plan(OPERATION), lambda *_: None)
        assert again._heap(sent, b"{}") == anew._heap(sent, b"{}")
    assert b"\nAnnelie\n" in again._heap(Request("PUT", targets[0], fields[1], b"{}"), b"{}")

"""Filters of SCIM: what is compared with protected attributes is swapped, and nothing else."""

import json
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.inner_texts import JSON_TEXT, URL_VALUE, Spelling
from proxy.redactor.json.tree import read_json_value, write_json_value
from proxy.redactor.request_rules import Parameter
from proxy.redactor.search.expressions import (
    attribute_at,
    attribute_of,
    expressed_values,
    read_scim_filter,
)
from proxy.redactor.search.sought import SoughtValue
from tests.support.effort import examples
from tests.support.table import table

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
FILTER = Parameter(
    "filter",
    attributes={
        ("username",): "login",
        ("emails", "value"): "mail",
        ("name", "familyname"): "family",
        ("phones",): "phone",
    },
    swapped=frozenset({"login", "mail", "phone"}),
)
#: Filters with the (field, value) of what is swapped: those of the RFC, and spellings of them.
GOOD = [
    ('userName eq "bjensen"', [("login", "bjensen")]),
    ('USERNAME Eq "b\\"j\\u0065\\/"', [("login", 'b"je/')]),
    (f'{USER}:userName ne "bjensen"', [("login", "bjensen")]),
    ('user_name eq"x"', [("login", "x")]),
    ("userName eq 17", [("login", "17")]),
    ("userName eq -1.5e3 ", [("login", "-1.5e3")]),
    ("userName eq null or userName eq true", []),
    ('userName eq ""', []),
    ("userName pr and name.familyName pr", []),
    ('title pr and userType eq "Employee"', []),
    ('meta.lastModified ge "2011-05-13T04:42:34Z"', []),
    (f'schemas eq "{USER}"', []),
    (
        'userType eq "E" and (emails co "x" or emails.type eq "y")'.replace("emails co", "mails co"),
        [],
    ),
    ('emails eq "a@x" or emails.value eq "b@x"', [("mail", "a@x"), ("mail", "b@x")]),
    ('emails[type eq "work" and value eq "a@x"]', [("mail", "a@x")]),
    ('emails[type eq "work"].value eq "a@x"', [("mail", "a@x")]),
    ('phones.value eq "1"', [("phone", "1")]),
    ('not (userName eq "a") and not(userName eq "b")', [("login", "a"), ("login", "b")]),
    ('(((userName eq "åäö 🙂")))', [("login", "åäö 🙂")]),
]  # fmt: skip
BAD = [
    "userName", "userName eq", 'userName eq "', "userName eq bjensen", "userName eq 'x'", 'userName like "x"', '"x" eq userName',
    'userName eq "x" or', 'or userName eq "x"', '(userName eq "x"', 'userName eq "x")', 'emails[value eq "x"', 'emails]', "userName eq 01",
    'userName eq "a" "b"', 'userName eq "a" userName eq "b"', 'not userName eq "x"', 'userName eq "\\x"', "userName eq \"a\nb\"", "1 eq 1",
    'a..b eq "x"', 'userName eq {"a":1}', 'userName eq ["x"]', 'userName\u00a0eq "x"', "userName eq \u201cx\u201d", 'userName; eq "x"', "(" * 40 + "a pr" + ")" * 40,
]  # fmt: skip


def url(text: str) -> bytes:
    return quote(text).encode()


def plus(text: str) -> bytes:
    return quote_plus(text, safe='"()[]:@').encode()


def bare(text: str) -> bytes:
    return text.replace("%", "%25").replace("+", "%2B").encode()


def in_json(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def in_unicode(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


WAYS = [(url, URL_VALUE), (plus, URL_VALUE), (bare, URL_VALUE), (in_json, JSON_TEXT), (in_unicode, JSON_TEXT)]  # fmt: skip


def values(raw: bytes, spelling: Spelling, parameter: Parameter = FILTER) -> list[SoughtValue]:
    data = b"before" + raw + b"behind"
    return list(expressed_values(parameter, (data, 6, 6 + len(raw)), spelling))


def swapped(raw: bytes, spelling: Spelling, token: Value) -> bytes:
    data = b"before" + raw
    for one in reversed(values(raw, spelling)):
        data = data[: one.start] + one.write(token) + data[one.end :]
    return data[6:]


@table("write, spelling", WAYS)
@table("text, sought", GOOD)
def test_what_is_compared_with_a_protected_attribute_is_sought(text, sought, write, spelling):
    assert [(one.field, one.value.text) for one in values(write(text), spelling)] == sought


@table("write, spelling", WAYS)
@table("text, sought", GOOD)
def test_a_token_takes_the_place_of_the_value_and_every_other_byte_stays(
    text, sought, write, spelling
):
    token = 'T"\\ö %+'
    sent = spelling.read(swapped(write(text), spelling, Value(token)))
    expected, end = "", 0
    for one in read_scim_filter(text):
        literal = read_json_value(text[one.start : one.end].encode())
        if literal and (literal.text in {value for _, value in sought}):
            expected += text[end : one.start] + json.dumps(token, ensure_ascii=False)
            end = one.end
    assert sent == expected + text[end:]
    assert len(read_scim_filter(sent)) == len(read_scim_filter(text))


@table("text", BAD)
def test_what_is_no_filter_is_refused_without_its_values(text):
    for write, spelling in WAYS:
        with pytest.raises(VaultError) as caught:
            values(write(text), spelling)
        assert caught.value.code is Code.BAD_REQUEST
        assert "bjensen" not in caught.value.message


@table(
    ("text", "reason"),
    [
        ('emails co "x"', "'co' needs values"),
        ('emails[value sw "x"]', "'sw' needs values"),
        ('userName ew "x"', "'ew' needs values"),
        ('userName gt "x"', "'gt' needs values"),
        ('name.familyName eq "x"', "equal values have different ones"),
        ('name[familyName eq "x"]', "equal values have different ones"),
        ('name eq "x"', "holds protected values within"),
        ('userName.part eq "x"', "holds protected values within"),
        ('emails.value.part eq "x"', "holds protected values within"),
    ],
)
def test_a_comparison_that_tokens_cannot_make_is_refused_with_its_reason(text, reason):
    with pytest.raises(VaultError) as caught:
        values(url(text), URL_VALUE)
    assert caught.value.code is Code.SEARCH_REFUSED
    assert reason in caught.value.message
    assert '"x"' not in caught.value.message


@table("raw", [b"%C0%AFa eq 1", b"a eq %22%ED%A0%80%22", b"a%0 eq 1"])
def test_a_spelling_that_only_some_read_is_refused(raw):
    with pytest.raises(VaultError) as caught:
        values(raw, URL_VALUE)
    assert caught.value.code in (Code.BAD_REQUEST, Code.UNREADABLE_BODY)


def test_a_filter_is_read_in_time_in_proportion_to_its_length():
    started = time.process_time()
    for text in ("(" * 9999, 'a eq "' + "\\" * 9000, "a." * 4000, "not " * 2000, 'a eq "b" and ' * 700, "[" * 5000, "urn:" * 2400):  # fmt: skip
        with pytest.raises(VaultError):
            values(url(text), URL_VALUE)
    assert time.process_time() - started < 0.5
    with pytest.raises(VaultError):
        values(b"a eq 1 or " * 2000 + b"a pr", URL_VALUE)


def test_attributes_are_told_apart_by_their_steps_alone():
    assert attribute_of(f"{USER}:name.familyName") == ("name", "familyname")
    assert attribute_of("family_name") == ("familyname",)
    assert attribute_of("a b") is None
    place: Path = (f"{USER}:x", "emails", PathStep.EACH, "value")
    assert attribute_at(place) == ("emails", "value")
    assert attribute_at(("a", PathStep.DEEP, "email")) == ("email",)


@given(value=st.text(min_size=1), token=st.text(min_size=1), way=st.sampled_from(WAYS))
@examples(200)
def test_any_value_is_sought_as_it_is_and_any_token_is_read_as_it_was_written(value, token, way):
    write, spelling = way
    literal = write_json_value(Value(value.encode("utf-8", "ignore").decode())).decode()
    if literal == '""':
        return
    text = f"userName eq {literal} and active eq true"
    (one,) = values(write(text), spelling)
    assert one.value.text == json.loads(literal)
    meant = token.encode("utf-8", "ignore").decode()
    sent = spelling.read(swapped(write(text), spelling, Value(meant)))
    first, _ = read_scim_filter(sent)
    assert json.loads(sent[first.start : first.end]) == meant
    assert sent.endswith(" and active eq true")

import tracemalloc

import pytest

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.redactor.inner_texts import URL_VALUE
from proxy.redactor.request_rules import ListSpelling, Parameter, VaultQuestion
from proxy.redactor.search.sought import (
    Searched,
    field_words,
    json_list,
    name_start,
    named_like,
    order_keys,
    split_values,
    url_list,
)
from tests.support.table import table

SEVERAL = Parameter("e", "email", ", ")


def test_separators_of_several_signs_are_found_in_every_spelling():
    data = b"e=a%2c%20b,+c,%20"
    found = split_values(SEVERAL, (data, 2, len(data)), URL_VALUE)
    assert [(one.value.text, data[one.start : one.end]) for one in found] == [
        ("a", b"a"),
        ("b", b"b"),
        ("c", b"c"),
    ]
    assert Searched(found).every == found


def test_what_has_no_token_stays():
    data = b"e=a,%20b"
    part = Searched(split_values(SEVERAL, (data, 2, len(data)), URL_VALUE))
    assert (
        part.written(data, lambda one: Value("T") if one.value.text == "b" else None) == b"e=a,%20T"
    )
    assert part.written(data, lambda _: None) == data


@table(
    ("send", "texts", "url", "json"),
    [
        (ListSpelling("p", ",", None), ["a", "b c"], b"p=a,b+c", b'"p":"a,b c"'),
        (ListSpelling("p", "", None), ["a", "b"], b"p=a&p=b", b'"p":["a","b"]'),
        (ListSpelling("p", "", None), [], b"p=", b'"p":[]'),
        (ListSpelling("p", ",", "-1"), [], b"p=-1", b'"p":"-1"'),
        (ListSpelling("", "", None), ["a"], b"p=a", b'["a"]'),
    ],
)
def test_lists_in_a_query_and_in_json(send, texts, url, json):
    assert url_list(send, "p", texts) == url
    assert json_list(send, texts) == json


def test_the_name_of_a_member_is_found_before_its_value():
    body = b'{"a\\"b" : 1, "c": [2]}'
    assert name_start(body, body.index(b"1")) == 1
    assert name_start(body, body.index(b"2")) == body.index(b"2"), "an element has no name"


ORDER = Parameter("o", vault=VaultQuestion({}, {"born": "born", "size": "size"}, {"name": "name"}))


@table(
    "text",
    [
        "last_name", "-last_name", "+last_name", "id,-last_name", "lastName", "LAST_NAME", "last-name",
        "last_name:desc", "last_name desc", "last_name__asc", "lastNameDesc", "person.last_name",
        "person[last_name]", "person__last_name", '{"last_name": 1}', '["id", "last_name"]', "desc(last_name)",
    ],
)  # fmt: skip
def test_a_name_is_found_with_sign_direction_and_in_lists(text):
    assert "lastname" in field_words(text)


def test_another_name_is_not():
    assert "name" not in field_words("company_name")
    assert "name" not in field_words("lastname,-names")


@table(
    ("text", "keys"),
    [
        ("born", [("born", False)]),
        ("-born, +Size", [("born", True), ("size", False)]),
        ("born:desc,size asc", [("born", True), ("size", False)]),
        ("born__descending", [("born", True)]),
        ("id,-created", []),
        (" ", []),
    ],
)
def test_an_order_is_read_with_its_directions(text, keys):
    assert order_keys(ORDER, text) == keys


@table("text", ["name", "born,id", "born.year", "lower(born)", "id,-name"])
def test_an_order_that_nobody_can_answer_whole_is_refused(text):
    with pytest.raises(VaultError, match="'o'"):
        order_keys(ORDER, text)


@table(
    "name, fits",
    [
        *((one, True) for one in (
            "first_name", "firstName", "FIRSTNAME", "_first_name", "%u0066irst_name", "first_name_contains", "firstNameStartsWith",
            "firstName_Icontains", "first_name__iexact", "firstNameNotIn", "first_name_not_contains", "firstNameIlike", "email_in", "emailEq",
            "emailLikeInsensitive", "email_gte", "emailContainsi", "email_some",
        )),
        *((one, False) for one in ("name", "first", "emails", "byEmail", "emailSentAt", "first_name_id", "contains", "")),
    ],
)  # fmt: skip
def test_a_name_that_compares_a_field_is_one_of_it(name, fits):
    assert named_like(["first_name", "email"])(name) is fits


def test_no_name_is_like_none():
    assert not named_like([])("")


def test_long_names_are_not_remembered():
    fits = named_like(["name"])
    tracemalloc.start()
    try:
        for number in range(300):
            assert not fits(f"{number}{'x' * 100_000}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert fits(f"{'_' * 100_000}name")

import tracemalloc

import pytest

from proxy.errors import VaultError
from proxy.redactor.search.field_words import field_words, named_like, order_keys
from proxy.redactor.search_rules import Parameter, VaultQuestion
from tests.support.table import table

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

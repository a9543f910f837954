from decimal import Decimal
from typing import Any

from proxy.errors import Code
from proxy.model.schema import Value, records_schema
from proxy.model.values import ValueFaults
from proxy.vault.maintenance.rehash_rules import (
    MOST_REHASH_FIELDS,
    fields_by_rule,
    read_dtk,
    read_rules,
    selected,
    value_at,
    value_of,
)
from tests.support.rehashing import DTK, read, rules
from tests.support.table import table

SCHEMA = records_schema()
PLAIN = {"strategy": "plain"}


@table("raw", [None, 7, "", "a" * 95, "a" * 97, "ä" * 96, "-" * 96])
def test_a_key_of_another_form_is_a_fault_that_does_not_repeat_it(raw: Any) -> None:
    faults = ValueFaults(10)
    read_dtk(raw, faults)
    assert [(fault.source, str(raw) in fault.text) for fault in faults.details] == [
        ("/dtk", raw == "")
    ]
    assert faults.codes == {Code.INVALID_INPUT}


def test_a_key_that_fits_is_taken() -> None:
    faults = ValueFaults(10)
    assert (read_dtk(DTK, faults), bool(faults)) == (DTK, False)


@table(
    ("raw", "places"),
    [
        (None, ["/rules"]),
        ({}, ["/rules"]),
        ([], ["/rules"]),
        ({f"m{number}": PLAIN for number in range(MOST_REHASH_FIELDS + 1)}, ["/rules"]),
        ({"key1": "plain"}, ["/rules/key1"]),
        ({"key1": {}}, ["/rules/key1/strategy"]),
        ({"key1": {"strategy": 7}}, ["/rules/key1/strategy"]),
        ({"key1": {"strategy": "rot13"}}, ["/rules/key1"]),
        ({"key1": {**PLAIN, "strategyOptions": []}}, ["/rules/key1/strategyOptions"]),
        ({"key1": {**PLAIN, "strategyOptions": {"x": 1}}}, ["/rules/key1"]),
        ({"key1": {**PLAIN, "options": {}}}, ["/rules/key1/options"]),
        ({"$..x": PLAIN, "a/b": 1}, ["/rules/$..x", "/rules/a~1b"]),
    ],
)
def test_every_fault_has_its_place(raw: Any, places: list[str]) -> None:
    faults = ValueFaults(10)
    read_rules(raw, faults)
    assert [fault.source for fault in faults.details] == places
    assert all(fault.text.endswith(".") for fault in faults.details)


def named(raw: Any, **fields: Any) -> dict[str, Value | None]:
    return {name: value for name, _, value in selected(read(raw), SCHEMA, fields)}


def test_a_rule_names_a_field_a_member_of_the_body_or_a_path_into_it() -> None:
    found = named(
        {
            "key1": PLAIN,
            "email": PLAIN,
            "$.address.lines[1]": PLAIN,
            "$.none": PLAIN,
            "key2": PLAIN,
            "range_key1": PLAIN,
        },
        key1="one",
        range_key1=7,
        body='{"email": "a@b.se", "address": {"lines": ["x", "y"]}, "key1": "other"}',
    )
    assert found == {
        "key1": Value("one"),
        "email": Value("a@b.se"),
        "$.address.lines[1]": Value("y"),
        "$.none": None,
        "key2": None,
        "range_key1": Value("7", json=True),
    }


@table("body", [None, "text", "{", "[1]", "7", " ", "{" * 5000, '{"a": [' + "[" * 5000])
def test_a_body_that_is_no_object_has_no_members(body: str | None) -> None:
    assert named({"email": PLAIN}, body=body) == {"email": None}


def test_one_rule_may_be_for_all_texts_that_are_not_named() -> None:
    found = named(
        {"*": PLAIN, "key1": PLAIN},
        record_key="k",
        key1="one",
        key2="two",
        key3=None,
        range_key1=7,
        profile_key="p",
        precommit_body="x",
        body='{"name": "Ann", "age": 41, "$x": "y", "key2": "not this", "*": "nor this"}',
    )
    assert found == {
        "key1": Value("one"),
        "profile_key": Value("p"),
        "key2": Value("two"),
        "name": Value("Ann"),
    }


def test_the_value_of_one_rule() -> None:
    fields = {"key1": "one", "body": '{"a": {"b": 1.50}}'}
    assert value_at(SCHEMA, fields, "key1") == Value("one")
    assert value_at(SCHEMA, fields, "$.a.b") == Value("1.50", json=True)
    assert value_at(SCHEMA, fields, "a") == Value('{"b":1.50}', json=True)
    assert value_at(SCHEMA, fields, "c") is None


@table("found", ["text", 7, Decimal("1.50"), True, {"a": [1]}])
def test_values_are_shown_as_they_were(found: Any) -> None:
    value = value_of(found)
    assert value is not None
    assert fields_by_rule(value) == found


def test_rules_keep_their_order() -> None:
    assert list(rules(key2="plain", key1="zero")) == ["key2", "key1"]

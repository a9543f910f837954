from typing import Any

import pytest

from proxy.demo.store import ContactFault, blank, luhn, read_contact

NAMED = {"first_name": "Ann", "last_name": "Lindqvist"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "a@b"), ("email", "a b@c.de"), ("email", "a@@c.de"), ("email", "@c.de"),
        ("email", 5), ("phone", "call me"), ("phone", "12"),
        ("phone", "+46\u0661\u0662\u0663\u0664"), ("birth_date", "1990-02-30"),
        ("birth_date", "19900228"), ("birth_date", "28.02.1990"),
        ("birth_date", "1990-02-28T00:00"), ("card", "4242424242424241"), ("card", "42424242"),
        ("card", "4242-"), ("first_name", ""), ("first_name", "   "), ("last_name", None),
        ("last_name", 7), ("note", "x" * 201), ("tags", "press"), ("tags", [1]), ("vip", "yes"),
        ("address", "Sveavägen 21"), ("address", {"street": 21}), ("address", {"city": ["Lund"]}),
    ],
)  # fmt: skip
def test_unfit_values_are_found_and_named_by_field(field: str, value: Any) -> None:
    _, faults = read_contact({**NAMED, field: value}, blank())
    assert [fault.field for fault in faults] == [field]
    assert faults[0].message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "Ann.Lindqvist+x@mail.example.com"),
        ("email", "åsa@exämple.se"),
        ("email", ""),
        ("email", None),
        ("phone", "+46 70 174 06 05"),
        ("phone", "(020) 915-0142"),
        ("birth_date", "2000-02-29"),
        ("card", "4242 4242 4242 4242"),
        ("card", "5555-5555-5555-4444"),
        ("card", "378282246310005"),
        ("note", "x" * 200),
        ("tags", []),
        ("tags", ["press", ""]),
        ("vip", True),
    ],
)
def test_fit_values_are_taken_as_they_are(field: str, value: Any) -> None:
    contact, faults = read_contact({**NAMED, field: value}, blank())
    assert faults == []
    assert contact[field] == value


def test_what_is_not_submitted_comes_from_the_base() -> None:
    base = {
        **blank(),
        **NAMED,
        "tags": ["press"],
        "address": {"street": "Storgatan 1", "city": "Lund"},
    }
    contact, faults = read_contact(
        {"last_name": "Berg", "address": {"city": "Malmö"}, "shoe_size": 41}, base
    )
    assert faults == []
    assert contact == {
        **base,
        "last_name": "Berg",
        "address": {"street": "Storgatan 1", "city": "Malmö"},
    }


def test_every_fault_is_told_at_once() -> None:
    _, faults = read_contact({"email": "x", "card": "1"}, blank())
    assert [fault.field for fault in faults] == ["first_name", "last_name", "email", "card"]
    assert ContactFault("first_name", "is required") in faults


def test_luhn_knows_every_wrong_digit() -> None:
    assert luhn("79927398713")
    assert not any(luhn(f"7992739871{digit}") for digit in "012456789")
    assert not luhn("97927398713")

"""The checks an ordinary contacts application makes before it stores anything."""

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import date
from typing import Any, NamedTuple

from proxy.demo.store import Contact

_EMAIL = re.compile(r"[^\s@]+@[^\s@.]+(\.[^\s@.]+)+")
_PHONE = re.compile(r"\+?\(?[0-9][0-9 ()./-]{4,24}")
_CARD = re.compile(r"[0-9](?:[ -]?[0-9]){11,18}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST = 200


class ContactFault(NamedTuple):
    """One thing that is wrong with a submitted contact: the field, and what to write instead."""

    field: str
    message: str


def blank() -> Contact:
    """A contact with nothing filled in; also the list of members that are stored at all."""
    return {
        "first_name": "",
        "last_name": "",
        "email": "",
        "phone": "",
        "birth_date": "",
        "card": "",
        "address": {"street": "", "city": ""},
        "tags": [],
        "note": "",
        "vip": False,
    }


def read_contact(submitted: Mapping[str, Any], base: Contact) -> tuple[Contact, list[ContactFault]]:
    """``base`` with the submitted members over it, and what is wrong with the result.

    Unknown members are dropped. Members of ``address`` are laid over those of the base one by one.
    """
    contact = {name: deepcopy(submitted.get(name, base[name])) for name in blank()}
    address = contact["address"]
    if isinstance(address, Mapping):
        contact["address"] = {
            part: address.get(part, base["address"][part]) for part in ("street", "city")
        }
    faults = [
        ContactFault(name, message)
        for name, check in _CHECKS.items()
        if (message := check(contact[name]))
    ]
    return contact, faults


def luhn(text: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _line(value: object) -> str:
    if value is None or (isinstance(value, str) and len(value) <= _LONGEST):
        return ""
    return f"must be text of at most {_LONGEST} characters"


def _name(value: object) -> str:
    return _line(value) or ("" if isinstance(value, str) and value.strip() else "is required")


def _optional(fits: Callable[[str], object], message: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        unfit = _line(value)
        return unfit if unfit or not value or fits(str(value)) else message

    return check


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return _DAY.fullmatch(text) is not None


def _address(value: object) -> str:
    if not isinstance(value, Mapping):
        return "must be an object with street and city"
    return _line(value["street"]) or _line(value["city"])


def _tags(value: object) -> str:
    fits = isinstance(value, list) and all(isinstance(tag, str) and not _line(tag) for tag in value)
    return "" if fits else "must be a list of short texts"


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


_CHECKS: dict[str, Callable[[Any], str]] = {
    "first_name": _name,
    "last_name": _name,
    "email": _optional(_EMAIL.fullmatch, "must look like name@example.com"),
    "phone": _optional(_PHONE.fullmatch, "must be a phone number: digits, spaces and + ( ) . / -"),
    "birth_date": _optional(_is_date, "must be a date such as 1990-12-31"),
    "card": _optional(
        lambda text: _CARD.fullmatch(text) and luhn(text),
        "must be a card number; a digit seems to be wrong",
    ),
    "address": _address,
    "tags": _tags,
    "note": _line,
    "vip": _flag,
}

"""Contacts in one JSON file, written whole, and the usual checks of such an application."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from proxy.errors import Code, VaultError

#: A contact as it is stored and answered: JSON members, with an integer ``id`` once it is stored.
Contact = dict[str, Any]


class ContactStore:
    """All contacts of the application.

    One process, one event loop; every change is on disk when it returns.

    Raises ``VaultError`` with ``BAD_STORE`` for a file that is not one of ours, and
    ``NOT_WRITABLE`` for a folder that takes no files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changes = 0  #: how often ``notify`` was called, by changes of the contacts above all
        self._changed = asyncio.Event()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._next, self._contacts = _load(path)
            if not path.exists():
                self._write(self._next, self._contacts)
        except OSError as fault:
            reason = fault.strerror or "unknown fault"
            raise VaultError(
                Code.NOT_WRITABLE,
                f"Cannot keep contacts in {path}: {reason}. Choose a folder that this user may "
                "write to.",
            ) from fault

    def __len__(self) -> int:
        return len(self._contacts)

    def __iter__(self) -> Iterator[Contact]:
        """Copies of all contacts, oldest first."""
        return iter(deepcopy(list(self._contacts.values())))

    def get(self, number: int) -> Contact | None:
        """A copy of the contact with that id."""
        return deepcopy(self._contacts.get(number))

    def add(self, values: Contact) -> Contact:
        """Store a new contact under the next free id; ids are never used twice."""
        contact = {"id": self._next, **deepcopy(values)}
        self._commit(self._next + 1, {**self._contacts, self._next: contact})
        return deepcopy(contact)

    def replace(self, number: int, values: Contact) -> Contact:
        """Store other values under an id that exists; ``KeyError`` where it does not."""
        if number not in self._contacts:
            raise KeyError(number)
        contact = {**deepcopy(values), "id": number}
        self._commit(self._next, {**self._contacts, number: contact})
        return deepcopy(contact)

    def remove(self, number: int) -> bool:
        """Forget a contact; ``False`` when there is none of that id."""
        if number not in self._contacts:
            return False
        rest = {key: contact for key, contact in self._contacts.items() if key != number}
        self._commit(self._next, rest)
        return True

    async def changed(self, since: int, within: float) -> bool:
        """Wait until ``changes`` differs from ``since``, for at most so many seconds.

        Returns whether it does.
        """
        if self.changes != since:
            return True
        try:
            await asyncio.wait_for(self._changed.wait(), within)
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """Wake all that wait for a change."""
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _commit(self, following: int, contacts: dict[int, Contact]) -> None:
        self._write(following, contacts)
        self._next, self._contacts = following, contacts
        self.notify()

    def _write(self, following: int, contacts: dict[int, Contact]) -> None:
        content = {"next_id": following, "contacts": list(contacts.values())}
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)


def _load(path: Path) -> tuple[int, dict[int, Contact]]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return int(content["next_id"]), {
            int(contact["id"]): contact for contact in content["contacts"]
        }
    except FileNotFoundError:
        return 1, {}
    except (ValueError, KeyError, TypeError) as fault:
        raise VaultError(
            Code.BAD_STORE,
            f"{path} is not a file of the contacts application, or it is damaged. Move it away "
            "to begin with no contacts.",
        ) from fault


# Invented people for an application that has none yet.
#
# The card numbers are the usual test numbers, the addresses use domains that exist for examples
# (RFC 2606).

_PATIENCE = aiohttp.ClientTimeout(total=60)

PEOPLE: tuple[dict[str, Any], ...] = (
    {"first_name": "Ann", "last_name": "Lindqvist", "email": "ann.lindqvist@example.com",
     "phone": "+46 70 174 06 05", "birth_date": "1987-04-12", "card": "4242424242424242",
     "address": {"street": "Sveavägen 21", "city": "Stockholm"},
     "tags": ["newsletter", "customer since 2016"], "note": "Calls back on Tuesdays.", "vip": True},
    {"first_name": "Tomás", "last_name": "O’Brien", "email": "tomas.obrien@example.org",
     "phone": "+353 20 915 0142", "birth_date": "1972-10-30", "card": "5555555555554444",
     "address": {"street": "4 Harbour Row", "city": "Cobh"}, "tags": ["supplier"], "note": "",
     "vip": False},
    {"first_name": "Ελένη", "last_name": "Παππά", "email": "eleni.pappa@example.net",
     "phone": "+30 21 5550 0177", "birth_date": "1995-01-08", "card": "4111111111111111",
     "address": {"street": "Οδός Ακακιών 3", "city": "Volos"}, "tags": ["press"],
     "note": "Prefers e-mail.", "vip": False},
)  # fmt: skip


async def plant(proxy: str) -> int:
    """Add the invented people through the proxy at that address, if the application has no
    contacts; how many.

    Raises ``VaultError`` (``BAD_RULES``) when one of them is refused: the rules do not fit this
    application.
    """
    async with aiohttp.ClientSession(proxy, timeout=_PATIENCE, raise_for_status=True) as client:
        try:
            return await _fill(client)
        except aiohttp.ClientResponseError as fault:
            raise VaultError(
                Code.BAD_RULES,
                "The sample application cannot be filled through the proxy, which answered "
                f"{fault.status}: look at what was changed in the rule file since it last worked; "
                "`domicile rules test` tries it.",
            ) from None


async def _fill(client: aiohttp.ClientSession) -> int:
    async with client.get("/api/contacts") as answer:
        if (await answer.json())["total"]:
            return 0
    for person in PEOPLE:
        async with client.post("/api/contacts", json=person):
            pass
    return len(PEOPLE)


_EMAIL = re.compile(r"[^\s@]+@[^\s@.]+(\.[^\s@.]+)+")
_PHONE = re.compile(r"\+?\(?[0-9][0-9 ()./-]{4,24}")
_CARD = re.compile(r"[0-9](?:[ -]?[0-9]){11,18}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST = 200


class ContactFault(NamedTuple):
    """A fault of a submitted contact: the field, and what to write instead."""

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
    """Return ``base`` updated by the submitted members, and the faults of the result.

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

"""Contacts in one JSON file, written whole and atomically, so that they are there at the next
start.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

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
        """Wait until ``changes`` is no longer ``since``, at most so many seconds; whether it is."""
        if self.changes != since:
            return True
        try:
            await asyncio.wait_for(self._changed.wait(), within)
        except TimeoutError:
            return False
        return True

    def notify(self) -> None:
        """Wake everyone who waits for a change."""
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
    {
        "first_name": "Ann",
        "last_name": "Lindqvist",
        "email": "ann.lindqvist@example.com",
        "phone": "+46 70 174 06 05",
        "birth_date": "1987-04-12",
        "card": "4242424242424242",
        "address": {"street": "Sveavägen 21", "city": "Stockholm"},
        "tags": ["newsletter", "customer since 2016"],
        "note": "Calls back on Tuesdays.",
        "vip": True,
    },
    {
        "first_name": "Tomás",
        "last_name": "O’Brien",
        "email": "tomas.obrien@example.org",
        "phone": "+353 20 915 0142",
        "birth_date": "1972-10-30",
        "card": "5555555555554444",
        "address": {"street": "4 Harbour Row", "city": "Cobh"},
        "tags": ["supplier"],
        "note": "",
        "vip": False,
    },
    {
        "first_name": "Ελένη",
        "last_name": "Παππά",
        "email": "eleni.pappa@example.net",
        "phone": "+30 21 5550 0177",
        "birth_date": "1995-01-08",
        "card": "4111111111111111",
        "address": {"street": "Οδός Ακακιών 3", "city": "Volos"},
        "tags": ["press"],
        "note": "Prefers e-mail.",
        "vip": False,
    },
)


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

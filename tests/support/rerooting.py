"""A vault with records, past versions, files and what the proxy collects, whose hash root is rotated."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.crypto.master_key import MasterKey
from proxy.errors import VaultError
from proxy.model.filter_reader import read_find
from proxy.model.record import DEFAULTS
from proxy.storage import open_store
from proxy.storage.notes import Agreement
from proxy.vault.collection import HistoryPolicy
from proxy.vault.environments import make_keyset
from proxy.vault.maintenance.hash_rotation import HashRotation
from proxy.vault.maintenance.key_rotation import drop_hash_root, renew_hash_root
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_many
from proxy.vault.records.find import find_page
from proxy.vault.records.update import change_records
from proxy.vault.schema_store import Entries, Origin, SchemaEntry
from tests.support.attached import LIMIT, Files
from tests.support.contacts import CONTACT, Contacts, contact, make_contacts
from tests.support.memory_objects import MemoryObjects
from tests.support.patience import PATIENCE
from tests.support.vaults import person

COUNT = 70
QUESTIONS: list[Any] = [
    {"id": "r3"},
    {"name": "Ann Ek 3"},
    {"name": {"$not": "Ann Ek 3"}},
    {"name": {"$like": "ek 3"}},
    {"name": {"$not": {"$like": "ek 3"}}},
    {"parent": ["r1", "r2"]},
    {"extra": {"$.tag": "t3"}},
    {"city": "Umeå"},
]


class House:
    """A vault with records of callers and what the proxy collects, whose hash root is rotated."""

    def __init__(self, contacts: Contacts, master: MasterKey, path: Path) -> None:
        self.contacts, self.master, self.path = contacts, master, path
        self.vault, self.records = contacts.vault, contacts.records
        self.keyset = self.vault.keyset
        self.dropped = 0
        self.reported: list[VaultError] = []
        self.work = HashRotation(self.vault, self.reported.append, self._drop, 0.0)

    async def _drop(self, agreed: Agreement | None) -> None:
        self.agreed = agreed
        await drop_hash_root(self.contacts.store, self.master, self.keyset, agreed)
        self.vault.both_roots.ask_both(on=False)
        self.dropped += 1

    async def rotate(self) -> None:
        """Another root, without the work that follows."""
        self.vault.both_roots.ask_both(on=True)
        await renew_hash_root(self.contacts.store, self.master, self.keyset, 0.0)

    async def finish(self) -> None:
        """The work that follows."""
        await self.work.begin()
        async with asyncio.timeout(PATIENCE):
            await self.work.settled()
        assert self.reported == []

    def digests(self) -> set[bytes]:
        """Every hash that stands in the store."""
        found: set[bytes] = set()
        with sqlite3.connect(self.path) as connection:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            for (table,) in tables.fetchall():
                names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                wanted = [
                    name for name in names if name in ("key", "hash", "name") or name[:2] == "x_"
                ]
                if not wanted or table[1] != "_" or table[0] == "i":
                    continue
                for row in connection.execute(f"SELECT {', '.join(wanted)} FROM {table}"):
                    found.update(cell for cell in row if isinstance(cell, bytes))
        return found

    def entries(self) -> int:
        """How many entries the token index of contacts has."""
        table = self.records.collection.table
        with sqlite3.connect(self.path) as connection:
            count: int = connection.execute(f"SELECT count(*) FROM t_{table}").fetchone()[0]
            return count

    async def answers(self) -> list[Any]:
        """What questions find, each by the keys of records and their number."""
        found = []
        for where in QUESTIONS:
            page = await find_page(self.records, read_find(CONTACT, {"filter": where}, DEFAULTS))
            found.append((sorted(str(one.key) for one in page.records), page.total))
        return found


async def declare(vault: Any) -> None:
    entries = Entries(vault.store, "test")
    await entries.load()
    await entries.put(SchemaEntry(CONTACT, Origin.API), SchemaEntry(person().schema, Origin.RULES))


@pytest.fixture(name="house")
async def hash_house(tmp_path: Path) -> AsyncIterator[House]:
    path, master = tmp_path / "vault.db", MasterKey(os.urandom(32))
    store = await open_store(f"sqlite:///{path}")
    keyset = await make_keyset(store, master, "test")
    history = HistoryPolicy(keep_deleted=True)
    made = House(await make_contacts(store, keyset, history), master, path)
    await declare(made.vault)
    yield made
    await made.work.close()
    await store.close()


async def fill(house: House) -> Files:
    """Records with parts, past versions and files; some are gone."""
    await house.contacts.add(
        *[
            contact(
                f"r{number}",
                name=f"Ann Ek {number}",
                parent=f"r{number // 2}",
                city="Umeå",
                extra={"tag": f"t{number}", "all": [number]},
            )
            for number in range(COUNT)
        ]
    )
    house.contacts.clock.advance(1)
    some = [contact(f"r{number}", note="new") for number in range(0, COUNT, 2)]
    await change_records(house.records, some, "u", no_changes)
    objects = MemoryObjects()
    files = Files(house.contacts, objects, await house.vault.keep_files(objects, LIMIT))
    await files.add(b"content", "cv.pdf", "r1")
    await delete_many(house.records, ["r69"], "u", no_changes)
    return files

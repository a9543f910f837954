"""A vault with records, past versions, files and kept answers, keys that can be rotated, and what
seals anew.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from proxy.crypto.aead import sealed_by
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from proxy.storage.changes import Change, Remember, ReplaceCiphertext
from proxy.storage.notes import Agreement
from proxy.storage.rows import Past, StoredReply
from proxy.vault.environments import load_keyset, make_keyset
from proxy.vault.maintenance.key_rotation import drop_keys, renew_keys
from proxy.vault.maintenance.reencryption import ReencryptionJob
from proxy.vault.records.commit import no_changes
from proxy.vault.records.history import record_versions
from proxy.vault.records.update import change_records
from tests.support.attached import LIMIT, Files
from tests.support.contacts import contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.memory_objects import MemoryObjects
from tests.support.patience import PATIENCE


class Slow(MemoryStore):
    """A store that lets tests look between two pages, and that fails when they say so."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()
        self.fails = False
        #: called when past versions are gone through
        self.scanned: Callable[[], Any] = lambda: None

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if isinstance(changes[0], ReplaceCiphertext) and not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()
        if self.fails:
            raise VaultError(Code.VAULT_DOWN, "The store is down.")
        await super().commit(table, changes)

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        found = await super().past_scan(table, after, limit)
        if not found:
            await (self.scanned() or asyncio.sleep(0))
        return found


class Desk:
    """What one process has of it."""

    def __init__(self, files: Files, store: Any, objects: MemoryObjects, master: MasterKey) -> None:
        self.files, self.contacts, self.master = files, files.contacts, master
        self.store, self.objects, self.vault = store, objects, files.contacts.vault
        self.table = self.contacts.records.collection.table
        self.reported: list[VaultError] = []
        self.retired: list[str] = []
        self.uri = ""  #: where another owner of the store finds it
        self.work = ReencryptionJob(self.vault, self.reported.append, self._retire)

    async def _retire(self, keys: Sequence[str], agreed: Agreement | None) -> None:
        if await drop_keys(self.store, self.master, self.vault.keyset, keys, agreed):
            self.retired += keys

    async def fill(self, count: int) -> None:
        """Records, each with a past version; the first one with two files, one of them of several
        chunks.
        """
        await self.contacts.add(*[contact(f"r{number}", age=1) for number in range(count)])
        self.contacts.clock.advance(1)
        await change_records(
            self.contacts.records,
            [contact(f"r{number}", age=2) for number in range(count)],
            "u",
            no_changes,
        )
        for name, content in CONTENTS.items():
            await self.files.add(content, name, "r0")

    async def judge(self, count: int) -> None:
        """All of that is there and opens."""
        for number in range(count):
            told, total = await record_versions(self.contacts.records, f"r{number}", 10, 0)
            assert ([one.fields["age"] for one in told], total) == ([2, 1], 2)
        attached = {one.filename: one for one in await self.files.of("r0")}
        assert attached.keys() == CONTENTS.keys()
        for name, content in CONTENTS.items():
            assert await self.files.read(attached[name].file_id, key="r0") == content

    async def answered(self, name: bytes, expires_at: int) -> None:
        """Keep an answer."""
        reply = StoredReply(name.ljust(16), expires_at, b"digest", b"")
        sealed = self.contacts.records.collection.sealer.reply(reply, b"the answer")
        await self.store.commit(self.table, [Remember(reply._replace(sealed=sealed), 0)])

    async def rotate(self) -> None:
        """Another data key."""
        await renew_keys(self.store, self.master, self.vault.keyset)

    async def stored(self) -> tuple[str, ...]:
        """The data keys that the store has."""
        return (await load_keyset(self.store, self.master, "test")).data_keys

    async def sealing(self) -> set[str]:
        """The keys that rows, past versions, files and their contents are sealed with."""
        rows = await self.store.scan(self.table, 0, 10_000)
        pasts = await self.store.past_scan(self.table, (0, 0), 10_000)
        files = await self.files.rows()
        headers = [await self.files.contents.header(file.object) for file in files]
        bodies = [row.body for row in rows] + [row.key_sealed for row in rows if row.key_sealed]
        return {*map(sealed_by, [*bodies, *headers])} | {sealed_by(one.body) for one in pasts} | {
            sealed_by(file.sealed) for file in files
        }  # fmt: skip

    async def done(self) -> None:
        """Wait until nothing is under way."""
        async with asyncio.timeout(PATIENCE):
            await self.work.settled()

    async def whole(self) -> None:
        """Begin, and wait."""
        await self.work.begin()
        await self.done()

    async def close(self) -> None:
        """As a process that ends."""
        await self.work.close()


CONTENTS = {"small.txt": b"a small file", "large.bin": bytes(range(256)) * 1000}


async def opened(store: Store, objects: MemoryObjects, master: MasterKey) -> Desk:
    """What a process finds."""
    contacts = await make_contacts(store, await make_keyset(store, master, "test"))
    files = Files(contacts, objects, await contacts.vault.keep_files(objects, LIMIT))
    desk = Desk(files, store, objects, master)
    await desk.work.load()
    await desk.work.resume()
    return desk

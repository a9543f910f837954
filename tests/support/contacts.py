"""Records over the vault's own interface, on an engine and a clock that tests own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from proxy.crypto.keyset import Keyset
from proxy.model.record import Record, RecordDraft
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.base import Store
from proxy.storage.changes import Change, Conflict, Remove
from proxy.storage.rows import Row
from proxy.vault.collection import HistoryPolicy, TableSpec, VaultContext
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.repository import Records
from proxy.vault.table_state import Sequencer
from proxy.vault.vault import Vault, VaultOptions
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore

CONTACT = Schema(
    "contact",
    (
        Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED),
        Field("name", FieldType.STRING, Storage.INDEXED_HASHED, partial_match=True),
        Field("city", FieldType.STRING, Storage.INDEXED),
        Field("parent", FieldType.STRING, Storage.INDEXED_HASHED),
        Field("age", FieldType.INTEGER, Storage.INDEXED),
        Field("sum", FieldType.DECIMAL, Storage.INDEXED),
        Field("note", FieldType.STRING, Storage.ENCRYPTED),
        Field("extra", FieldType.JSON, Storage.INDEXED_HASHED),
    ),
)


class Overtaken(MemoryStore):
    """Lets so many removals fail, as if others were faster."""

    times = 0

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if self.times and any(isinstance(one, Remove) for one in changes):
            self.times -= 1
            raise Conflict(changes[0])
        await super().commit(table, changes)


@dataclass
class Contacts:
    """Everything a test of the write use cases turns."""

    store: Store
    clock: ManualClock
    vault: Vault
    records: Records
    events: Counter[str]

    async def add(self, *drafts: RecordDraft) -> list[Record]:
        """Create them, as the client ``someone``."""
        return await store_records(self.records, drafts, "someone", no_changes)

    async def row(self, key: str) -> Row | None:
        """What the store has under a key, expired or not."""
        digest = self.records.collection.key_hash(key)
        return (await self.store.by_keys(self.records.collection.table, (digest,))).get(digest)

    async def get(self, key: str) -> Record | None:
        """The record with that key, unless it has expired."""
        row = (await self.records.collection.by_key((key,))).get(key)
        return None if row is None else self.records.open(row)

    async def keys(self, *keys: str) -> list[str]:
        """Those of the keys whose records exist."""
        return sorted(await self.records.collection.by_key(keys))


async def make_contacts(
    store: Store | None = None,
    keyset: Keyset | None = None,
    history: HistoryPolicy | None = None,
    recipe: TableSpec | None = None,
    *,
    detect_rollback: bool = False,
) -> Contacts:
    """A vault with the records of ``CONTACT``."""
    clock, events = ManualClock(), Counter[str]()
    store = store or MemoryStore()

    def observe(event: str, _schema: str, count: int) -> None:
        events[event] += count

    history = history or HistoryPolicy()
    around = VaultContext(
        "test",
        keyset or Keyset.create("test"),
        store,
        clock,
        Sequencer(clock),
        "SE",
        observe,
        history,
    )
    vault = Vault(around, VaultOptions("test", "SE", 7 * 86_400_000, history, detect_rollback))
    collection = await vault.collection(recipe or TableSpec(CONTACT, {}, None, addressed=False))
    return Contacts(store, clock, vault, Records(collection), events)


def contact(
    key: str | None, *, expires_at: int | UnsetType | None = UNSET, at: str = "", **fields: Any
) -> RecordDraft:
    """A draft of a contact."""
    own = {} if key is None else {"id": key}
    return RecordDraft(key, {**own, **fields}, expires_at, at)

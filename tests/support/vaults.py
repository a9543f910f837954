"""A vault over the in-memory reference engine, with a clock that tests own."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from proxy.crypto.keyset import Keyset
from proxy.model.schema import Field, Schema, Storage, Value
from proxy.storage.base import Store
from proxy.tokenization import SHAPES
from proxy.vault.collection import Collection, TableSpec, VaultContext
from proxy.vault.next_version import ProxiedDraft
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.table_state import Sequencer
from proxy.vault.vault import Vault, VaultOptions
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore

#: name -> (kind, shape, options, storage)
FIELDS: dict[str, tuple[str, str, dict[str, Any], Storage]] = {
    "name": ("name", "opaque", {}, Storage.ENCRYPTED),
    "email": ("email", "email", {"same": True}, Storage.INDEXED_HASHED),
    "phone": ("phone", "numeric", {"keep_last": 2}, Storage.ENCRYPTED),
    "born": ("date", "date", {}, Storage.INDEXED),
    "tags": ("text", "opaque", {}, Storage.ENCRYPTED),
}


def person(expires: int | None = None) -> TableSpec:
    """A schema with one field of each way to restore."""
    fields = tuple(Field(name, storage=spec[3], kind=spec[0]) for name, spec in FIELDS.items())
    shapes = {name: SHAPES[spec[1]](spec[2]) for name, spec in FIELDS.items()}
    return TableSpec(Schema("person", fields), shapes, expires, addressed=True)


@dataclass
class Bench:
    """Everything a test of the vault turns."""

    store: Store
    clock: ManualClock
    vault: Vault
    people: Collection
    events: Counter[str] = field(default_factory=Counter)

    def verbs(self) -> list[str]:
        """The verbs of the store that the collection uses from now on."""
        store, used = self.store, list[str]()

        class Counting:
            def __getattr__(self, name: str) -> object:
                used.append(name)
                return getattr(store, name)

        self.people.store = Counting()  # type: ignore[assignment]  # hands on whatever is asked for
        return used


async def make_bench(
    store: Store | None = None, keyset: Keyset | None = None, recipe: TableSpec | None = None
) -> Bench:
    """A vault with the collection of ``person``; pass store and keyset on to see what another
    process would.
    """
    clock, events = ManualClock(), Counter[str]()
    store = store or MemoryStore()
    keyset = keyset or Keyset.create("test")

    def observe(event: str, _schema: str, count: int) -> None:
        events[event] += count

    around = VaultContext("test", keyset, store, clock, Sequencer(clock), "SE", observe)
    vault = Vault(around, VaultOptions("test", "SE", pending_keep=7 * 86_400_000))
    return Bench(store, clock, vault, await vault.collection(recipe or person()), events)


def draft(**fields: str | list[str]) -> ProxiedDraft:
    """A draft of text values."""
    return ProxiedDraft(
        {
            name: tuple(Value(text) for text in ([given] if isinstance(given, str) else given))
            for name, given in fields.items()
        }
    )


def token(held: StagedWrite, name: str) -> str:
    """The (first) token that stands for a field of what was staged."""
    return held.tokens[name][0].token

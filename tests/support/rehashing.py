"""Records of the record-based family, and rules that rehash them."""

from typing import Any

from proxy.crypto.keyset import Keyset
from proxy.model.record import RecordDraft
from proxy.model.schema import records_schema
from proxy.model.values import ValueFaults
from proxy.storage.base import Store
from proxy.vault.collection import TableSpec
from proxy.vault.maintenance.rehash import Rehash
from proxy.vault.maintenance.rehash_rules import RehashRules, read_rules
from tests.support.contacts import Contacts, make_contacts

DTK = "k3yA" * 24
OTHER_DTK = "k3yB" * 24


async def make_records(store: Store | None = None, keyset: Keyset | None = None) -> Contacts:
    """A vault with the built-in schema."""
    return await make_contacts(
        store, keyset, recipe=TableSpec(records_schema(), {}, None, addressed=False)
    )


def record(key: str, **fields: Any) -> RecordDraft:
    """A draft of a record."""
    return RecordDraft(key, {"record_key": key, **fields})


def rules(**strategies: str | dict[str, Any]) -> RehashRules:
    """Rules by field: the name of a strategy, or the whole rule."""
    return read(
        {
            name: {"strategy": rule} if isinstance(rule, str) else rule
            for name, rule in strategies.items()
        }
    )


def read(raw: Any) -> RehashRules:
    """Rules without a fault."""
    faults = ValueFaults(10)
    found = read_rules(raw, faults)
    assert faults.details == []
    return found


def plan(
    held: Contacts, dtk: str = DTK, job: str = "", /, **strategies: str | dict[str, Any]
) -> Rehash:
    """A rehash of these records."""
    return Rehash(held.records, rules(**strategies), dtk, job)

"""One operation ready to run: its plan, its collection, its counters. Made when rules load, read by every request."""

from collections.abc import Mapping, Sequence

from proxy.audit.witness import Witness
from proxy.model.value import Value
from proxy.redactor.exchange.notices import Notices
from proxy.redactor.exchange.teller import Teller
from proxy.redactor.plan import Plan
from proxy.redactor.redact import Item
from proxy.redactor.rules import Entity
from proxy.telemetry.metrics import Cell, Metrics
from proxy.vault.collection import Collection


class Joined:
    """One operation ready to run: its plan, its collection, its counters."""

    __slots__ = ("collection", "notices", "plan", "protected", "restored", "teller")

    def __init__(self, plan: Plan, collection: Collection, metrics: Metrics, witness: Witness) -> None:
        self.plan = plan
        self.collection = collection
        self.teller = Teller(witness, collection.around.environment, plan.operation)
        self.notices = Notices(metrics, plan.operation)
        entity = plan.operation.entity
        self.protected = _cells(metrics, "domicile_protected_values_total", entity)
        self.restored = _cells(metrics, "domicile_restored_values_total", entity)


def _cells(metrics: Metrics, name: str, entity: Entity) -> dict[str, Cell]:
    return {field: metrics.cell(name, entity.name, field) for field in entity.fields}


def count(cells: Mapping[str, Cell], items: Sequence[Item], values: Sequence[Sequence[Value | None]]) -> set[str]:
    """Count the values of each field; the fields that there were any of."""
    fields: set[str] = set()
    for item, row in zip(items, values, strict=True):
        for spot, value in zip(item.spots, row, strict=True):
            if value is not None:
                cells[spot.field].value += 1
                fields.add(spot.field)
    return fields

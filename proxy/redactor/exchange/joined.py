"""One operation ready to run: its plan, its collection, its counters. Made when rules load, read by every request."""

from proxy.redactor.plan import Plan
from proxy.redactor.rules import Entity
from proxy.telemetry.metrics import Cell, Metrics
from proxy.vault.collection import Collection


class Joined:
    """One operation ready to run: its plan, its collection, its counters."""

    __slots__ = ("collection", "plan", "protected", "restored")

    def __init__(self, plan: Plan, collection: Collection, metrics: Metrics) -> None:
        self.plan = plan
        self.collection = collection
        entity = plan.operation.entity
        self.protected = _cells(metrics, "domicile_protected_values_total", entity)
        self.restored = _cells(metrics, "domicile_restored_values_total", entity)


def _cells(metrics: Metrics, name: str, entity: Entity) -> dict[str, Cell]:
    return {field: metrics.cell(name, entity.name, field) for field in entity.fields}

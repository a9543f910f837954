"""One operation ready to run: its plan, its collection, its counters.

Made when rules load, read by every request.
"""

from collections.abc import Mapping

from proxy.audit.services import AuditServices
from proxy.redactor.exchange.audit import Teller
from proxy.redactor.exchange.notices import Notices
from proxy.redactor.plan import OperationPlan
from proxy.redactor.rules import Entity
from proxy.telemetry.metrics import MetricCell, Metrics
from proxy.vault.collection import Collection


class BoundOperation:
    """One operation ready to run: its plan, its collection, its counters."""

    __slots__ = ("collection", "notices", "plan", "protected", "restored", "teller")

    def __init__(
        self, plan: OperationPlan, collection: Collection, metrics: Metrics, audit: AuditServices
    ) -> None:
        self.plan = plan
        self.collection = collection
        self.teller = Teller(audit, collection.around.environment, plan.operation)
        self.notices = Notices(metrics, plan.operation)
        entity = plan.operation.entity
        self.protected = _cells(metrics, "domicile_protected_values_total", entity)
        self.restored = _cells(metrics, "domicile_restored_values_total", entity)


def _cells(metrics: Metrics, name: str, entity: Entity) -> dict[str, MetricCell]:
    return {field: metrics.cell(name, entity.name, field) for field in entity.fields}


def count(cells: Mapping[str, MetricCell], counts: Mapping[str, int]) -> None:
    """Count so many values of each field."""
    for name, number in counts.items():
        cells[name].value += number

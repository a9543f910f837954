"""Query parameters of a read that its rule does not name: they may look for values in the clear.

Told once each, by a name that is nobody's: a word of the rule or of many interfaces. ``page`` and
its like hold nobody's data anywhere, and what the rule lets pass was looked at.
"""

from typing import Final
from urllib.parse import unquote_plus

from proxy.redactor.coverage import parameter_word
from proxy.redactor.form import pattern_matches
from proxy.redactor.rules import IdSource, Operation
from proxy.telemetry import logs
from proxy.telemetry.metrics import MetricCell, Metrics

_log = logs.logger("rules")

#: Parameters that hold nobody's data in any interface.
HARMLESS: Final = frozenset(
    (
        "_ after before callback count cursor direction embed expand first format include lang "
        "language last limit locale next offset page page_number page_size pagenumber pagesize "
        "per_page perpage prev previous rows size skip start take timezone top tz v version"
    ).split()
)
#: Names that are remembered of one operation, and looked at in one request.
_REMEMBERED: Final = 1000
_MOST: Final = 100


class UnnamedParameters:
    """Notices those of one operation; made when rules load."""

    __slots__ = ("_cells", "_metrics", "_named", "_operation", "_words")

    def __init__(self, metrics: Metrics, operation: Operation) -> None:
        rule, ident = operation.request, operation.id
        search = rule.search
        self._metrics = metrics
        self._operation = operation
        self._named = [*rule.query, *(search.query if search is not None else ())]
        if ident is not None and ident.source is IdSource.QUERY:
            self._named.append(ident.name)
        fields = operation.entity.fields.values()
        steps = (step for field in fields for step in (field.name, *field.at))
        self._words = frozenset(step.lower() for step in steps if isinstance(step, str))
        #: by name as it was sent, what counts its requests; ``None``: it needs no notice
        self._cells: dict[bytes, MetricCell | None] = {}

    def look(self, target: bytes) -> None:
        """Count the parameters of a request target, and tell of those that are new."""
        cells = self._cells
        for member in target.partition(b"?")[2].split(b"&", _MOST)[:_MOST]:
            name = member.partition(b"=")[0]
            if name not in cells:
                if len(cells) >= _REMEMBERED:
                    continue
                cells[name] = self._new(name)
            cell = cells[name]
            if cell is not None:
                cell.value += 1

    def _new(self, raw: bytes) -> MetricCell | None:
        name = unquote_plus(raw.decode("latin-1"))
        bare = name.lower().replace("-", "_").removesuffix("[]")
        if not name or bare in HARMLESS or bare.replace("_", "") in HARMLESS:
            return None
        if any(pattern_matches(pattern, name) for pattern in self._named):
            return None
        word, operation = parameter_word(name, self._words | HARMLESS), self._operation
        labels = operation.endpoint.name, operation.label, word
        cell = self._metrics.cell("domicile_unnamed_parameters_total", *labels)
        if cell.value == 0:
            _log.warning(
                "a parameter of a ruled read is not named: what it looks for reaches the "
                "application in the clear; name it under query, with pass: true where it holds "
                "nobody's data",
                endpoint=operation.endpoint.name,
                operation=operation.label,
                parameter=word,
            )
        return cell

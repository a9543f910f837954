"""Cells that cost an integer addition each, and their text for a scrape.

The hot path never calls prometheus-client: a caller asks once for its cell (``metrics.cell(name,
label, ...)``) and adds to a plain attribute. ``render`` turns all cells into the text format, and
loads that library. One cell belongs to one thread at a time; adding is not atomic across threads.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from proxy.telemetry.metric_table import METRICS, MetricKind, MetricSpec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

#: The content type of what ``Metrics.render`` answers.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricCell:
    """A time series: ``cell.value += n`` for a counter, ``cell.value = x`` for a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Histogram:
    """A histogram: ``observe(seconds)``."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one observation in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    def cumulated(self) -> list[tuple[str, float]]:
        """The buckets for the text format: upper bound and count up to it, the last ``+Inf``."""
        rows: list[tuple[str, float]] = []
        count = 0
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += here
            rows.append((bound, count))
        return rows


class Metrics:
    """All time series of one process.

    Names and label counts are checked when a series is created, not per use.
    """

    def __init__(self) -> None:
        self._registry: CollectorRegistry | None = None  #: from the first scrape on
        self._cells: dict[str, dict[tuple[str, ...], MetricCell]] = {}
        self._buckets: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self._watched: dict[str, dict[tuple[str, ...], Callable[[], float]]] = {}

    def cell(self, name: str, *labels: str) -> MetricCell:
        """The cell of a counter or gauge under these label values; the same one each time."""
        _declared(name, ("counter", "gauge"), labels)
        return self._cells.setdefault(name, {}).setdefault(labels, MetricCell())

    def buckets(self, name: str, *labels: str) -> Histogram:
        """The histogram of that name under these label values; the same one each time."""
        declared = _declared(name, ("histogram",), labels)
        return self._buckets.setdefault(name, {}).setdefault(labels, Histogram(declared.bounds))

    def watch(self, name: str, read: Callable[[], float], *labels: str) -> None:
        """A gauge whose value ``read`` returns at each scrape: lengths of queues and pools."""
        _declared(name, ("gauge",), labels)
        self._watched.setdefault(name, {})[labels] = read

    def info(self, name: str, *labels: str) -> None:
        """Make these labels the only series of a gauge, at 1, such as the active version."""
        _declared(name, ("gauge",), labels)
        cell = MetricCell()
        cell.value = 1
        self._cells[name] = {labels: cell}

    def samples(self, name: str) -> list[tuple[tuple[str, ...], float]]:
        """The label values and the value of every cell of that name."""
        return [(labels, cell.value) for labels, cell in self._cells.get(name, {}).items()]

    def forget(self, prefix: str) -> None:
        """Drop every cell whose first label begins with that text, as its subject is gone."""
        for cells in self._cells.values():
            for labels in [labels for labels in cells if labels and labels[0].startswith(prefix)]:
                del cells[labels]

    def render(self) -> bytes:
        """All metrics in the text format, for ``CONTENT_TYPE``."""
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        if self._registry is None:
            self._registry = CollectorRegistry(auto_describe=False)
            self._registry.register(_Cells(self))
            ProcessCollector(registry=self._registry)
        return generate_latest(self._registry)

    def families(self) -> "Iterator[Metric]":
        """Every declared metric as prometheus-client's families, with the samples there are."""
        for name, declared in METRICS.items():
            if declared.kind == "histogram":
                yield self._histogram(name, declared)
            else:
                yield self._simple(name, declared)

    def _simple(self, name: str, declared: MetricSpec) -> "Metric":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        family = (CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily)(
            name, declared.help, labels=declared.labels
        )
        series = self._cells.get(name, {})
        if not declared.labels and name not in self._watched:
            series = series or {(): MetricCell()}
        for labels, cell in list(series.items()):
            family.add_metric(labels, cell.value)
        for labels, read in list(self._watched.get(name, {}).items()):
            family.add_metric(labels, read())
        return family

    def _histogram(self, name: str, declared: MetricSpec) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily

        family = HistogramMetricFamily(name, declared.help, labels=declared.labels)
        series = self._buckets.get(name, {})
        if not declared.labels:
            series = series or {(): Histogram(declared.bounds)}
        for labels, buckets in list(series.items()):
            family.add_metric(labels, buckets.cumulated(), buckets.total)
        return family


class _Cells:
    """The bridge to prometheus-client: collected at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        return self._metrics.families()


def _declared(name: str, kinds: tuple[MetricKind, ...], labels: tuple[str, ...]) -> MetricSpec:
    declared = METRICS.get(name)
    if declared is None:
        raise ValueError(
            f"{name} is not in the table of metrics: add it to METRICS with its labels and its "
            "meaning"
        )
    if declared.kind not in kinds:
        raise ValueError(f"{name} is a {declared.kind}, not a {' or '.join(kinds)}")
    if len(labels) != len(declared.labels):
        raise ValueError(
            f"{name} takes {len(declared.labels)} labels ({', '.join(declared.labels)}), not "
            f"{len(labels)}"
        )
    return declared

"""The files of k8s/monitoring: every query parses, and asks for metrics and labels that there are.

They are parsed by the grammar of Prometheus; no package of the registries holds the server itself.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser as promql
import pytest
import yaml

from proxy.telemetry.metric_table import METRICS
from tests.support.tree import ROOT

FOLDER = ROOT / "k8s" / "monitoring"

#: Of Prometheus itself, and of every process that its client library watches.
FOREIGN = {"up": {"job", "instance"}, "process_resident_memory_bytes": {"instance"}}

#: What a scrape adds to each series, and what histograms have besides.
ADDED, BUCKET = {"instance"}, {"le"}


def document(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text("utf-8"))


ALERTS: dict[str, Any] = {
    alert["alert"]: alert
    for group in document("prometheus-rule.yaml")["spec"]["groups"]
    for alert in group["rules"]
}
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    for name, alert in ALERTS.items():
        yield name, alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


QUERIES = dict(queries())


def parsed(expression: str) -> Any:
    """The tree of a query; Grafana's variables are filled in first."""
    return promql.parse(
        expression.replace("$__rate_interval", "5m").replace("$instance", "127.0.0.1:8082")
    )


def nodes(tree: Any) -> Iterator[Any]:
    """A part of a query and everything in it."""
    yield tree
    for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
        if (part := getattr(tree, name, None)) is not None and not isinstance(part, str):
            yield from nodes(part)
    for part in getattr(tree, "args", None) or ():
        yield from nodes(part)


def labels_of(metric: str) -> set[str]:
    """The labels of the series of that name; fails where there is none."""
    if metric in FOREIGN:
        return FOREIGN[metric]
    base = re.sub("_(bucket|sum|count)$", "", metric)
    histogram = base in METRICS and METRICS[base].kind == "histogram"
    assert metric in METRICS or (histogram and base != metric), metric
    assert not (histogram and base == metric), f"{metric} is a histogram: ask for its buckets"
    more = BUCKET if histogram and metric.endswith("_bucket") else set()
    return set(METRICS[base if histogram else metric].labels) | ADDED | more


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_metrics_and_labels_that_there_are(name):
    tree = parsed(QUERIES[name])
    selectors = [node for node in nodes(tree) if isinstance(node, promql.VectorSelector)]
    assert selectors
    labels: set[str] = set()
    for selector in selectors:
        known = labels_of(selector.name or "")
        assert {matcher.name for matcher in selector.matchers.matchers} <= known
        labels |= known
    for node in nodes(tree):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= labels


@pytest.mark.parametrize(
    "expression",
    ["sum by (instance (domicile_records)", "rate(domicile_requests_total)", "domicile_records{"],
)
def test_a_query_at_fault_would_be_found(expression):
    with pytest.raises(ValueError, match=r"."):
        parsed(expression)


@pytest.mark.parametrize("metric", ["domicile_recrods", "domicile_request_seconds"])
def test_a_metric_that_is_none_would_be_found(metric):
    with pytest.raises(AssertionError):
        labels_of(metric)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_is_wrong_and_what_to_do(name):
    alert = ALERTS[name]
    assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert set(alert["annotations"]) == {"summary", "description"}
    told = set(re.findall(r"\$labels\.([a-z]+)", " ".join(alert["annotations"].values())))
    kept = [
        set(node.modifier.labels)
        for node in nodes(parsed(alert["expr"]))
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None
    ]
    assert told <= (kept[0] if kept else {"instance", "job"})


def test_the_files_are_of_the_kinds_that_the_operator_reads():
    for name, kind in (
        ("prometheus-rule.yaml", "PrometheusRule"),
        ("service-monitor.yaml", "ServiceMonitor"),
    ):
        content = document(name)
        assert (content["apiVersion"], content["kind"]) == ("monitoring.coreos.com/v1", kind)
    assert "domicile_reload_failed" in ALERTS["DomicileReloadFailed"]["expr"]


def test_the_service_monitor_finds_the_service_and_shows_its_token():
    monitor = document("service-monitor.yaml")["spec"]
    services = list(yaml.safe_load_all((ROOT / "k8s/base/services.yaml").read_text("utf-8")))
    (admin,) = [one for one in services if one["metadata"]["name"] == "contacts-admin"]
    assert monitor["selector"]["matchLabels"].items() <= admin["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in admin["spec"]["ports"]}
    secrets = list(yaml.safe_load_all((ROOT / "k8s/secret.example.yaml").read_text("utf-8")))
    credentials = endpoint["authorization"]["credentials"]
    (secret,) = [one for one in secrets if one["metadata"]["name"] == credentials["name"]]
    assert credentials["key"] in secret["stringData"]


def test_the_panels_of_the_dashboard_stand_beside_one_another():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)


def test_every_legend_names_a_label_of_its_query():
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = set(
                re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"])))
            )
            assert named <= grouped, panel["title"]

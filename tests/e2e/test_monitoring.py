"""The files of k8s/monitoring: every query parses, and asks for metrics and labels that there are.

They are parsed by the grammar of Prometheus, and then asked of a real one, which scrapes a real
instance.
"""

import asyncio
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from proxy.telemetry.metrics import METRICS
from tests.support.application import Application
from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.prometheus import NoPrometheus, program, prometheus
from tests.support.scraping import FIELD
from tests.support.serving import serving
from tests.support.table import table
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

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


@table("name", QUERIES)
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


@table(
    "expression",
    ["sum by (instance (domicile_records)", "rate(domicile_requests_total)", "domicile_records{"],
)
def test_a_query_at_fault_would_be_found(expression):
    with pytest.raises(ValueError, match=r"."):
        parsed(expression)


@table("metric", ["domicile_recrods", "domicile_request_seconds"])
def test_a_metric_that_is_none_would_be_found(metric):
    with pytest.raises(AssertionError):
        labels_of(metric)


@table("name", ALERTS)
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


# ---------------------------------------------------------------- a real Prometheus

#: By alert: the series that make it fire after so many minutes, a sample each minute.
FIRING: dict[str, tuple[dict[str, str], int]] = {
    "DomicileReloadFailed": ({'domicile_reload_failed{instance="a",what="rules"}': "1x20"}, 5),
    "DomicileCertificateEnds": (
        {'domicile_tls_certificate_end_timestamp_seconds{instance="a",name="n"}': "90000x30"}, 15,
    ),
    "DomicileAuditDown": ({'domicile_audit_down{instance="a"}': "1x20"}, 5),
    "DomicileAlarm": ({'domicile_alarms_total{instance="a",kind="bait"}': "0 0 0 1x10"}, 5),
    "DomicileUnmatchedValues": (
        {'domicile_unmatched_suspected{endpoint="e",method="GET",path="/x",kind="email"}': "1x5"}, 2,
    ),
    "DomicileApplicationSuspended": (
        {'domicile_upstream_suspended{instance="a",endpoint="e"}': "1x20"}, 5,
    ),
    "DomicileDown": ({'up{job="domicile",instance="a"}': "0x20"}, 5),
    "DomicileApplicationFails": (
        {
            'domicile_requests_total{instance="a",endpoint="e",outcome="failed"}': "0+10x20",
            'domicile_requests_total{instance="a",endpoint="e",outcome="matched"}': "0+90x20",
        }, 15,
    ),
    "DomicileSlow": (
        {
            f'domicile_request_seconds_bucket{{instance="a",endpoint="e",outcome="matched",step="total",le="{le}"}}': "0+9x30"
            if le == "+Inf" else "0x30" for le in ("2.5", "5", "+Inf")
        }, 20,
    ),
    "DomicileCommitsSlow": (
        {
            f'domicile_vault_commit_seconds_bucket{{instance="a",le="{le}"}}': "0+9x30"
            if le == "+Inf" else "0x30" for le in ("0.5", "1", "+Inf")
        }, 20,
    ),
    "DomicileAnswersWithTokens": (
        {'domicile_vault_events_total{instance="a",schema="s",event="unrestored"}': "0 0 2x9"}, 5,
    ),
    "DomicileTokensAltered": (
        {'domicile_altered_tokens_total{instance="a",entity="e",field="f"}': "0 0 2x9"}, 5,
    ),
    "DomicileShapeFills": (
        {'domicile_shape_fill_ratio{instance="a",entity="e",field="f"}': "0.7x9"}, 5,
    ),
    "DomicileKeyLost": ({'domicile_reload_failed{instance="a",what="keys"}': "0 1x9"}, 5),
    "DomicileVaultDown": (
        {'domicile_refused_requests_total{instance="a",endpoint="e",code="vault_down"}': "0 0 2x9"}, 5,
    ),
    "DomicileAuditUnshipped": (
        {'domicile_audit_unshipped{instance="a",sink="syslog"}': "20000x30"}, 15,
    ),
}  # fmt: skip


#: Panels that have nothing to show of an instance without TLS of which nobody complains.
CALM = {
    "Days until a certificate ends A", "Faults of the application A",
    "Requests to the vault's interface A", "Tokens that the application changes A",
    "Values suspected where no rule is A",
}  # fmt: skip


#: Counters that are there with the first event: these fire for it as well.
FIRST = {
    "DomicileAnswersWithTokens": 'domicile_vault_events_total{instance="a",schema="s",event="unrestored"}',
    "DomicileTokensAltered": 'domicile_altered_tokens_total{instance="a",entity="e",field="f"}',
}


@pytest.fixture
def promtool(unavailable: Unavailable) -> str:
    try:
        return program("promtool")
    except NoPrometheus as fault:
        unavailable("queries asked of a real Prometheus", str(fault))


def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path, promtool: str) -> None:
    """Judged by ``promtool test rules``."""
    assert FIRING.keys() == ALERTS.keys()
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document("prometheus-rule.yaml")["spec"]))
    cases = []
    first = [(name, ({one: "_ _ _ 1x99"}, 5)) for name, one in FIRST.items()]
    for name, (series, minute) in (*FIRING.items(), *first):
        rule = ALERTS[name]
        cases.append(
            {
                "interval": "1m",
                "input_series": [{"series": one, "values": told} for one, told in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                    for at, fires in (
                        (f"{minute}m", True),
                        ("0m", "for" not in rule and "increase" not in rule["expr"]),
                    )
                ],
            }
        )
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_records_of_a_vault_that_two_instances_share_count_once(
    tmp_path: Path, promtool: str
) -> None:
    (query,) = (one for one in QUERIES.values() if "domicile_records{" in one)
    series = [
        f'domicile_records{{instance="{one}",schema="person",state="live"}}' for one in ("a", "b")
    ]
    case = {
        "input_series": [{"series": one, "values": "40x3"} for one in series],
        "promql_expr_test": [{
            "expr": query.replace("$instance", ".*"), "eval_time": "2m",
            "exp_samples": [{"labels": '{schema="person",state="live"}', "value": 40}],
        }],
    }  # fmt: skip
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"tests": [case]}))
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


async def test_every_query_is_answered_by_a_real_prometheus(tmp_path: Path, promtool: str) -> None:
    assert promtool
    async with serving(Application().app()) as upstream:
        async with running(tmp_path / "run", rules(upstream)) as instance:
            await asyncio.to_thread(_ask_all, tmp_path, instance)


def _ask_all(folder: Path, instance: Instance) -> None:
    admin = instance.admin.removeprefix("http://")
    spec = document("prometheus-rule.yaml")["spec"]
    bearer = FIELD["Authorization"].removeprefix("Bearer ")
    answered = set()
    with prometheus(folder, spec, admin, bearer) as server:
        server.until('up{job="domicile"} == 1')
        moving = 'rate(domicile_requests_total{outcome="matched"}[1m]) > 0'
        end = time.monotonic() + PATIENCE
        while not server.query(moving):
            body = json.dumps({"name": "Zorbina", "email": "z@wexlomere.example"}).encode()
            head = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"{instance.proxy}/people", body, head)
            with urllib.request.urlopen(asked) as answer:
                assert answer.status == 201
            assert time.monotonic() < end
            time.sleep(0.3)
        for name, query in QUERIES.items():
            filled = query.replace("$__rate_interval", "1m").replace("$instance", admin)
            if server.query(filled):
                answered.add(name)
        rules = [one for group in server.get("/api/v1/rules")["groups"] for one in group["rules"]]
        assert {(one["name"], one["health"]) for one in rules} == {(one, "ok") for one in ALERTS}
        assert [one["name"] for one in rules if one["state"] == "firing"] == []
    assert {name for name in QUERIES if name not in ALERTS} - answered <= CALM

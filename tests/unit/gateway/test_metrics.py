import json
import re

import pytest
from msgspec.structs import replace

from proxy.errors import Code
from proxy.gateway.metrics import MeteredAccessLog
from proxy.gateway.ports import RequestEvent
from proxy.redactor.message import EXCHANGE_STEPS, Timing
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.gateway import endpoint, operation

SEEN = RequestEvent("crm", "-", "GET", 200, 10, 0.0125, "passed", None)


@pytest.fixture
def metrics():
    return Metrics()


def journal(metrics, level: str = "info") -> MeteredAccessLog:
    logs.configure(logs.Style(level, "json"))
    at = endpoint("http://x")
    return MeteredAccessLog(metrics, RuleSet("v", (at,), (), (operation(at),)))


@pytest.fixture(autouse=True)
def _style():
    yield
    logs.configure(logs.Style(format="text"))


def lines(capfd) -> list[dict[str, object]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_each_request_is_counted_by_outcome(metrics):
    notes = journal(metrics)
    for outcome in ("passed", "passed", "matched"):
        notes.record(replace(SEEN, outcome=outcome))
    text = metrics.render().decode()
    assert 'domicile_requests_total{endpoint="crm",operation="-",outcome="passed"} 2.0' in text
    assert 'domicile_requests_total{endpoint="crm",operation="-",outcome="matched"} 1.0' in text


def buckets_sum(text: str, step: str) -> float:
    (line,) = [line for line in text.splitlines() if "_sum{" in line and f'step="{step}"' in line]
    return float(line.rpartition(" ")[2])


def test_the_steps_of_a_matched_request_are_observed_and_add_up_to_the_whole(metrics):
    timing = Timing(10.0, 10.001, 10.003, 10.013, 10.113, stage=0.004, settle=0.02)
    journal(metrics).record(
        replace(SEEN, operation="PUT /people/{id}", outcome="matched", seconds=0.2, timing=timing)
    )
    text = metrics.render().decode()
    expected = {
        "match": 0.001,
        "receive": 0.002,
        "redact": 0.006,
        "stage": 0.004,
        "application": 0.1,
        "settle": 0.02,
        "restore": 0.067,
    }
    assert {step: buckets_sum(text, step) for step in EXCHANGE_STEPS} == pytest.approx(expected)
    assert buckets_sum(text, "total") == pytest.approx(sum(expected.values()))
    assert (
        '_bucket{endpoint="crm",le="0.1",operation="PUT /people/{id}",outcome="matched",step="total"} 0.0'
        in text
    )


def test_a_request_that_ends_early_has_the_steps_that_it_came_to(metrics):
    timing = Timing(10.0, 10.001, 10.003)
    journal(metrics).record(
        replace(SEEN, operation="x", outcome="refused", code=Code.TOO_LARGE, timing=timing)
    )
    counts = {
        step: f'_count{{endpoint="crm",operation="x",outcome="refused",step="{step}"}} 1.0'
        in metrics.render().decode()
        for step in EXCHANGE_STEPS
    }
    assert [step for step, count in counts.items() if count] == ["match", "receive", "redact"]


def test_a_request_that_no_rule_names_has_its_whole_time_alone(metrics):
    journal(metrics).record(SEEN)
    assert set(re.findall('step="([a-z]+)"', metrics.render().decode())) == {"total"}


def test_an_operation_that_never_fired_shows(metrics):
    notes = journal(metrics)
    cell = metrics.cell("domicile_operation_fired_timestamp_seconds", "crm", "PUT /people/{id}")
    assert cell.value == 0
    notes.record(replace(SEEN, operation="PUT /people/{id}"))
    assert cell.value > 1_700_000_000
    notes.record(replace(SEEN, operation="of rules that are gone"))


def test_a_fault_of_the_application_is_counted_by_code_and_told(metrics, capfd):
    failed = replace(SEEN, outcome="failed", code=Code.UPSTREAM_TIMEOUT, status=504)
    journal(metrics).record(replace(failed, address="http://app.example:3001"))
    assert (
        'domicile_upstream_errors_total{code="upstream_timeout",endpoint="crm"} 1.0'
        in metrics.render().decode()
    )
    (line,) = lines(capfd)
    assert (line["level"], line["code"], line["status"], line["duration_ms"]) == (
        "warning",
        "upstream_timeout",
        504,
        12.5,
    )
    assert line["address"] == "http://app.example:3001"


def test_what_makes_a_refused_request_ambiguous_is_told_by_its_place(metrics, capfd):
    refused = replace(SEEN, outcome="refused", code=Code.AMBIGUOUS_JSON, source="/people/0/email")
    journal(metrics).record(refused)
    (line,) = lines(capfd)
    assert (line["code"], line["source"]) == ("ambiguous_json", "/people/0/email")


def test_a_refused_request_is_counted_by_code_and_no_fault_of_the_application(metrics):
    notes, name = journal(metrics), "domicile_refused_requests_total"
    for code, count in ((Code.VAULT_DOWN, 0), (Code.VAULT_DOWN, 1), (Code.TOO_LARGE, 1)):
        if count:
            notes.record(replace(SEEN, outcome="refused", code=code))
        assert f'{name}{{code="{code}",endpoint="crm"}} {count}.0' in metrics.render().decode()
    assert "upstream_errors_total{" not in metrics.render().decode()


def test_ordinary_requests_are_lines_of_level_debug(metrics, capfd):
    journal(metrics).record(SEEN)
    assert lines(capfd) == []
    journal(metrics, "debug").record(SEEN)
    (line,) = lines(capfd)
    assert (line["method"], line["status"], line["size"], line["operation"]) == (
        "GET",
        200,
        10,
        "-",
    )


def test_a_method_that_a_caller_made_up_is_not_told(metrics, capfd):
    notes = journal(metrics, "debug")
    notes.record(replace(SEEN, method="Quibblethwaite"))
    notes.record(
        replace(SEEN, method="Quibblethwaite", outcome="refused", code=Code.BAD_REQUEST, status=400)
    )
    assert [line["method"] for line in lines(capfd)] == ["other"] * 2

import json

import pytest
from msgspec.structs import replace

from proxy.errors import Code
from proxy.gateway.metrics import MetricsJournal
from proxy.gateway.ports import Seen
from proxy.redactor.rules import RuleSet
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.gateway import endpoint, operation

SEEN = Seen("crm", "-", "GET", 200, 10, 0.0125, "passed", None)


@pytest.fixture
def metrics():
    return Metrics()


def journal(metrics, level: str = "info") -> MetricsJournal:
    logs.configure(logs.Style(level, "json"))
    at = endpoint("http://x")
    return MetricsJournal(metrics, RuleSet("v", (at,), (), (operation(at),)))


@pytest.fixture(autouse=True)
def _style():
    yield
    logs.configure(logs.Style(format="text"))


def lines(capfd) -> list[dict[str, object]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_each_request_is_counted_by_outcome(metrics):
    notes = journal(metrics)
    for outcome in ("passed", "passed", "matched"):
        notes.seen(replace(SEEN, outcome=outcome))
    text = metrics.render().decode()
    assert 'domicile_requests_total{endpoint="crm",operation="-",outcome="passed"} 2.0' in text
    assert 'domicile_requests_total{endpoint="crm",operation="-",outcome="matched"} 1.0' in text


def test_an_operation_that_never_fired_shows(metrics):
    notes = journal(metrics)
    cell = metrics.cell("domicile_operation_fired_timestamp_seconds", "crm", "PUT /people/{id}")
    assert cell.value == 0
    notes.seen(replace(SEEN, operation="PUT /people/{id}"))
    assert cell.value > 1_700_000_000
    notes.seen(replace(SEEN, operation="of rules that are gone"))


def test_a_fault_of_the_application_is_counted_by_code_and_told(metrics, capfd):
    journal(metrics).seen(replace(SEEN, outcome="failed", code=Code.UPSTREAM_TIMEOUT, status=504))
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


def test_a_refused_request_is_no_fault_of_the_application(metrics):
    journal(metrics).seen(replace(SEEN, outcome="refused", code=Code.TOO_LARGE))
    assert "upstream_errors_total{" not in metrics.render().decode()


def test_ordinary_requests_are_lines_of_level_debug(metrics, capfd):
    journal(metrics).seen(SEEN)
    assert lines(capfd) == []
    journal(metrics, "debug").seen(SEEN)
    (line,) = lines(capfd)
    assert (line["method"], line["status"], line["size"], line["operation"]) == (
        "GET",
        200,
        10,
        "-",
    )


def test_a_method_that_a_caller_made_up_is_not_told(metrics, capfd):
    notes = journal(metrics, "debug")
    notes.seen(replace(SEEN, method="Quibblethwaite"))
    notes.seen(
        replace(SEEN, method="Quibblethwaite", outcome="refused", code=Code.BAD_REQUEST, status=400)
    )
    assert [line["method"] for line in lines(capfd)] == ["other"] * 2

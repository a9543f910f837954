import pytest

from proxy.clock import ManualClock
from proxy.net.coverage_report import (
    CoverageReport,
    RuledUse,
    RuledUses,
    UnruledPath,
    joined_reports,
)
from proxy.redactor.load import load_text
from proxy.telemetry.metrics import Metrics

HEAD = 'version: 1\nendpoint: {name: crm, upstream: "http://a"}\n'
RULES, OTHERS = load_text(HEAD), load_text(f"{HEAD}# other\n")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def requests(metrics: Metrics, operation: str, count: int, outcome: str = "matched") -> None:
    metrics.cell("domicile_requests_total", "crm", operation, outcome).value += count


def parameter(metrics: Metrics, count: int, *kinds: str) -> None:
    key = "crm", "GET /a", "query", "name"
    metrics.cell("domicile_unnamed_parameters_total", *key).value += count
    for kind in kinds:
        metrics.cell("domicile_unnamed_suspected", *key, kind).value = 1


def test_operations_are_counted_whatever_became_of_their_requests(clock: ManualClock) -> None:
    metrics = Metrics()
    uses = RuledUses(metrics, clock, RULES, CoverageReport())
    assert uses.uses() == []
    requests(metrics, "GET /a", 3)
    requests(metrics, "GET /a", 2, "refused")
    requests(metrics, "GET /b", 0)
    requests(metrics, "-", 9, "passed")
    met = clock()
    assert uses.uses() == [RuledUse("crm", "GET /a", met, 5)]
    clock.advance(1000)
    requests(metrics, "GET /a", 1)
    assert uses.uses() == [RuledUse("crm", "GET /a", met, 6)]


def test_a_process_goes_on_from_the_one_before(clock: ManualClock) -> None:
    old = RuledUse("crm", "GET /a", 17, 5)
    named = RuledUse("crm", "GET /a", 18, 2, "query", "name", ("phone",))
    gone = RuledUse("crm", "GET /gone", 19, 1)
    earlier = CoverageReport(ruled=[old, named, gone], rules=RULES.version)
    metrics = Metrics()
    uses = RuledUses(metrics, clock, RULES, earlier)
    assert uses.uses() == [old, named, gone]
    requests(metrics, "GET /a", 1)
    parameter(metrics, 1, "email")
    assert [(one.since, one.count, one.kinds) for one in uses.uses()] == [
        (17, 6, ()),
        (18, 3, ("email", "phone")),
        (19, 1, ()),
    ]


def test_under_other_rules_parameters_are_met_anew(clock: ManualClock) -> None:
    named = RuledUse("crm", "GET /a", 18, 2, "query", "name")
    report = CoverageReport(ruled=[RuledUse("crm", "GET /a", 17, 5), named], rules=RULES.version)
    assert [one.part for one in RuledUses(Metrics(), clock, OTHERS, report).uses()] == [""]
    metrics = Metrics()
    uses = RuledUses(metrics, clock, RULES, report)
    parameter(metrics, 3)
    assert uses.uses()[1].count == 5
    uses.announce(OTHERS)
    assert uses.rules == OTHERS.version
    assert [one.part for one in uses.uses()] == [""]
    parameter(metrics, 1)
    assert uses.uses()[1] == RuledUse("crm", "GET /a", clock(), 1, "query", "name")
    uses.announce(OTHERS)
    assert len(uses.uses()) == 2


def test_reports_of_several_workers_are_one():
    one = CoverageReport(
        [UnruledPath("crm", "GET", "/a", 20, 3, ("email",), {"answer": ("email",)})],
        [RuledUse("crm", "GET /b", 10, 5), RuledUse("crm", "GET /b", 9, 1, "query", "q")],
        "before",
    )
    other = CoverageReport(
        [
            UnruledPath("crm", "GET", "/a", 10, 4, ("iban",), {"request": ("iban",)}),
            UnruledPath("crm", "PUT", "/a", 30, 1),
        ],
        [RuledUse("crm", "GET /b", 20, 7), RuledUse("crm", "GET /b", 21, 2, "query", "p")],
        "now",
    )
    places: dict[str, tuple[str, ...]] = {"answer": ("email",), "request": ("iban",)}
    assert joined_reports([one, other]) == CoverageReport(
        [
            UnruledPath("crm", "GET", "/a", 10, 7, ("email", "iban"), places),
            UnruledPath("crm", "PUT", "/a", 30, 1),
        ],
        [RuledUse("crm", "GET /b", 10, 12), RuledUse("crm", "GET /b", 21, 2, "query", "p")],
        "now",
    )
    assert joined_reports([]) == CoverageReport()
    assert joined_reports([one]) == one

import msgspec
import pytest

from proxy.net.coverage_report import (
    CoverageReport,
    RuledUse,
    RuledUses,
    RuleMarks,
    UnruledPath,
    coverage_data,
    joined_reports,
)
from proxy.redactor.load import load_text
from proxy.telemetry.metrics import Metrics
from tests.support.clock import ManualClock
from tests.support.table import table

HEAD = """version: 1
endpoint: {name: crm, upstream: "http://a"}
entities: {p: {fields: {name: {kind: name, token: {same: true}}}}}
operations:
  - {match: GET /a, read: p, query: {q: name}}
"""
RULES, OTHERS = load_text(HEAD), load_text(f"{HEAD}  - {{match: GET /c, pass: true}}\n")
CHANGED = load_text(HEAD.replace("{q: name}", "{q: name, name: name}"))
MARK = RuleMarks(RULES).of("crm", "GET /a")


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
    named = RuledUse("crm", "GET /a", 18, 2, "query", "name", ("phone",), MARK)
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


def test_a_parameter_is_met_anew_where_its_rule_has_changed_and_stays_where_not(
    clock: ManualClock,
) -> None:
    named = RuledUse("crm", "GET /a", 18, 2, "query", "name", (), MARK)
    report = CoverageReport(ruled=[RuledUse("crm", "GET /a", 17, 5), named], rules=RULES.version)
    assert [one.part for one in RuledUses(Metrics(), clock, CHANGED, report).uses()] == [""]
    assert RuledUses(Metrics(), clock, OTHERS, report).uses() == report.ruled
    metrics = Metrics()
    uses = RuledUses(metrics, clock, RULES, report)
    parameter(metrics, 3)
    uses.announce(OTHERS)
    assert uses.rules == OTHERS.version
    parameter(metrics, 1)
    assert [(one.part, one.count) for one in uses.uses()] == [("", 5), ("query", 6)]
    uses.announce(CHANGED)
    assert [one.part for one in uses.uses()] == [""]
    parameter(metrics, 1)
    mark = RuleMarks(CHANGED).of("crm", "GET /a")
    assert uses.uses()[1] == RuledUse("crm", "GET /a", clock(), 1, "query", "name", (), mark)
    uses.announce(CHANGED)
    assert len(uses.uses()) == 2


@table(("rules", "left"), [(RULES, 1), (OTHERS, 1), (CHANGED, 0)])
def test_the_report_shows_parameters_that_the_rules_do_not_name_by_now(rules, left):
    moved = load_text("# moved\n" + HEAD) if rules is RULES else rules
    use = RuledUse("crm", "GET /a", 18, 2, "query", "name", ("phone",), MARK)
    data = coverage_data(CoverageReport(ruled=[use], rules="before"), moved)
    assert (len(data["parameters"]), data["ok"]) == (left, not left)


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
        {"crm": "http://a"},
    )
    places: dict[str, tuple[str, ...]] = {"answer": ("email",), "request": ("iban",)}
    assert joined_reports([one, other]) == CoverageReport(
        [
            UnruledPath("crm", "GET", "/a", 10, 7, ("email", "iban"), places),
            UnruledPath("crm", "PUT", "/a", 30, 1),
        ],
        [
            RuledUse("crm", "GET /b", 9, 1, "query", "q"),
            RuledUse("crm", "GET /b", 10, 12),
            RuledUse("crm", "GET /b", 21, 2, "query", "p"),
        ],
        "now",
        {"crm": "http://a"},
    )
    assert joined_reports([]) == CoverageReport()
    assert joined_reports([one]) == one


def test_a_path_with_hidden_words_says_which_rule_may_name_it_by_now():
    rules = load_text(HEAD + '  - {match: "GET|PUT /kunder/{id}", update: p}\n')
    report = CoverageReport(
        [
            UnruledPath("crm", method, "/{word}/{id}", 20, 3, ("email",))
            for method in ("GET", "POST")
        ],
        rules="before",
    )
    data = coverage_data(report, rules)
    assert [one.get("perhaps") for one in data["unknown"]] == ["GET|PUT /kunder/{id}", None]
    assert (data["ok"], data["ids"]) == (False, 1)
    now = msgspec.structs.replace(report, rules=rules.version)
    assert ["perhaps" in one for one in coverage_data(now, rules)["unknown"]] == [False, False]


def test_a_count_of_several_rules_of_one_path_says_so(clock: ManualClock) -> None:
    several = load_text(
        f"{HEAD}"
        "  - {match: POST /b, when: {form action: delete}, delete: p, id: form ids, keep: 30d}\n"
        "  - {match: POST /b, when: {form action: mark}, pass: true}\n"
    )
    metrics = Metrics()
    requests(metrics, "POST /b", 2)
    uses = RuledUses(metrics, clock, several, CoverageReport())
    data = coverage_data(CoverageReport([], uses.uses()), several)
    assert [(one["match"], one["count"], one.get("rules")) for one in data["ruled"]] == [
        ("GET /a", 0, None), ("POST /b", 2, 2),
    ]  # fmt: skip
    assert [(one["count"], one["rules"]) for one in data["passed"]] == [(2, 2)]
    whens = [one.get("when") for one in (*data["ruled"], *data["passed"])]
    assert whens == [None, "form action: delete", "form action: mark"]


def test_arguments_of_a_field_of_graphql_that_no_rule_names_are_in_the_report(
    clock: ManualClock,
) -> None:
    rules = load_text(
        HEAD + "  - {match: POST /g, graphql: {Mutation.add: {create: p, object: input}}}\n"
    )
    metrics, label = Metrics(), "POST /g Mutation.add"
    uses = RuledUses(metrics, clock, rules, CoverageReport())
    key = "crm", label, "body", "$.object.birthDate"
    metrics.cell("domicile_unnamed_parameters_total", *key).value += 1
    metrics.cell("domicile_unnamed_suspected", *key, "birth_date").value = 1
    report = CoverageReport(ruled=uses.uses(), rules=rules.version)
    (one,) = coverage_data(report, rules)["parameters"]
    assert (one["match"], one["parameter"]) == (label, "$.object.birthDate")
    assert one["suspected"] == ["birth_date"]

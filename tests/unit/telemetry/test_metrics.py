import random
import re
from functools import partial

import pytest

from proxy.telemetry.metrics import CONTENT_TYPE, METRICS, Histogram, HistogramRow, Metrics
from tests.support.table import table


def series(metrics: Metrics) -> dict[str, float]:
    """Every sample of the text format by its name and labels."""
    text = metrics.render().decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^(domicile_[^ ]*(?:\{.*\})?) ([^ ]+)$", text, re.MULTILINE)
    }


def test_a_counter_shows_what_was_added_under_its_labels():
    metrics = Metrics()
    cell = metrics.cell("domicile_requests_total", "crm", "POST /contacts", "matched")
    cell.value += 1
    cell.value += 2
    found = series(metrics)
    assert (
        found[
            'domicile_requests_total{endpoint="crm",operation="POST /contacts",outcome="matched"}'
        ]
        == 3
    )


def test_the_same_labels_give_the_same_cell_and_others_another():
    metrics = Metrics()
    first = metrics.cell("domicile_vault_events_total", "contact", "staged")
    assert metrics.cell("domicile_vault_events_total", "contact", "staged") is first
    assert metrics.cell("domicile_vault_events_total", "contact", "settled") is not first


def test_two_objects_share_nothing():
    one, other = Metrics(), Metrics()
    one.cell("domicile_rules_reload_failures_total").value += 1
    assert series(one)["domicile_rules_reload_failures_total"] == 1
    assert series(other)["domicile_rules_reload_failures_total"] == 0


def test_a_histogram_counts_each_observation_in_its_bucket_and_all_above():
    metrics = Metrics()
    buckets = metrics.buckets("domicile_vault_commit_seconds")
    for seconds in (0.0005, 0.003, 5.0):
        buckets.observe(seconds)
    found = series(metrics)
    assert found['domicile_vault_commit_seconds_bucket{le="0.0005"}'] == 1
    assert found['domicile_vault_commit_seconds_bucket{le="0.002"}'] == 1
    assert found['domicile_vault_commit_seconds_bucket{le="0.004"}'] == 2
    assert found['domicile_vault_commit_seconds_bucket{le="+Inf"}'] == 3
    assert found["domicile_vault_commit_seconds_count"] == 3
    assert found["domicile_vault_commit_seconds_sum"] == pytest.approx(5.0035)


def test_an_observation_at_a_bound_belongs_to_that_bucket():
    buckets = Histogram((1.0, 2.0))
    buckets.observe(1.0)
    assert buckets.cumulated() == [("1.0", 1), ("2.0", 1), ("+Inf", 1)]


def test_amounts_that_wait_are_counted_as_one_after_the_other_before_anybody_reads():
    metrics, chance = Metrics(), random.Random(13)
    of = partial(metrics.buckets, "domicile_request_seconds", "crm", "POST", "matched")
    whole, steps = of("total"), [of("match"), of("redact")]
    alone = [Histogram(whole.bounds) for _ in range(3)]
    row = HistogramRow(whole, steps)
    for number in range(1000):
        amounts = [chance.choice((0.0, chance.expovariate(50), *whole.bounds)) for _ in range(3)]
        row.waiting.append(tuple(amounts))
        for one, amount in zip(alone, amounts, strict=True):
            if one is alone[0] or amount > 0.0:
                one.observe(amount)
        if number % 97 == 0:
            row = HistogramRow(whole, steps)  # as where rules were loaded again
        if number % 61 == 0:
            assert whole.total == pytest.approx(alone[0].total)
    for one, other in zip((whole, *steps), alone, strict=True):
        assert one.counts == other.counts
        assert one.total == pytest.approx(other.total)
    assert not row.waiting
    labels = 'endpoint="crm",operation="POST",outcome="matched",step="total"'
    assert series(metrics)[f"domicile_request_seconds_count{{{labels}}}"] == 1000


def test_a_watched_gauge_is_read_at_each_scrape():
    metrics = Metrics()
    depth = 3
    metrics.watch("domicile_vault_writer_queue", lambda: depth)
    assert series(metrics)["domicile_vault_writer_queue"] == 3
    depth = 9
    assert series(metrics)["domicile_vault_writer_queue"] == 9


def test_a_watched_gauge_keeps_its_labels():
    metrics = Metrics()
    metrics.watch("domicile_upstream_connections", lambda: 7, "crm", "idle")
    assert series(metrics)['domicile_upstream_connections{endpoint="crm",state="idle"}'] == 7


def test_the_version_in_force_replaces_the_one_before():
    metrics = Metrics()
    metrics.info("domicile_rules_info", "one")
    metrics.info("domicile_rules_info", "two")
    shown = {name for name in series(metrics) if name.startswith("domicile_rules_info")}
    assert shown == {'domicile_rules_info{version="two"}'}


def test_the_text_holds_every_declared_metric_and_the_process(capsys):
    text = Metrics().render().decode()
    for name, declared in METRICS.items():
        assert f"# TYPE {name} {declared.kind}\n" in text
    assert "process_resident_memory_bytes" in text
    assert CONTENT_TYPE.startswith("text/plain")


@table(
    ("ask", "sentence"),
    [
        (lambda metrics: metrics.cell("domicile_people_total"), "not in the table"),
        (lambda metrics: metrics.cell("domicile_requests_total", "crm"), "takes 3 labels"),
        (lambda metrics: metrics.cell("domicile_vault_commit_seconds"), "is a histogram, not a counter or gauge"),
        (lambda metrics: metrics.buckets("domicile_vault_writer_queue"), "is a gauge, not a histogram"),
        (lambda metrics: metrics.watch("domicile_vault_events_total", float, "a", "b"), "is a counter, not a gauge"),
        (lambda metrics: metrics.info("domicile_rules_info"), "takes 1 labels"),
    ],
)  # fmt: skip
def test_a_name_kind_or_label_count_outside_the_table_is_refused_at_once(ask, sentence):
    with pytest.raises(ValueError, match=sentence):
        ask(Metrics())


@table("name, declared", METRICS.items())
def test_names_follow_the_conventions_of_prometheus(name, declared):
    assert re.fullmatch(r"domicile_[a-z_]+", name)
    assert (declared.kind == "counter") == name.endswith("_total")
    assert (declared.kind == "histogram") == bool(declared.bounds)
    assert list(declared.bounds) == sorted(declared.bounds)
    assert declared.help.endswith(".")

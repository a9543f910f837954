import contextlib
import json
import threading
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.cli.http_client import HttpAnswer
from proxy.cli.site import Site, failure_of, reason_of
from tests.support.adopted import Adopted
from tests.support.patience import PATIENCE


def command(office: Adopted, *more: str) -> list[str]:
    return ["adopt", "--proxy", office.proxy, *more]


def test_every_record_is_written_through_the_proxy_once(office, told):
    report = told(*command(office))
    assert (report["complete"], report["converted"], report["passes"]) == (True, 5, 2)
    assert (report["tokens"], report["clear"], report["conditional"]) == (5, 0, 5)
    assert office.records["p3"] == {
        "id": "p3", "name": "t-Ann 3", "email": "t-a3@b.example", "n": 3
    }  # fmt: skip
    # the application itself is asked once whether it heeds conditions, with nothing in it
    assert (office.writes("proxy"), office.writes("application")) == (5, 1)
    assert told(*command(office))["converted"] == 0
    assert office.writes("proxy") == 5


def test_several_records_are_written_at_a_time_after_the_first(office, told):
    started = threading.Barrier(2, timeout=PATIENCE)
    office.page = 5
    office.before = lambda ident: None if ident == "p0" else started.wait() and None
    assert told(*command(office, "--parallel", "2"))["converted"] == 5
    assert office.most_busy == 2
    office.before, office.most_busy = lambda _: None, 0
    office.records["p0"]["name"] = office.records["p1"]["name"] = "Bo"
    assert told(*command(office, "--parallel", "1"))["converted"] == 2
    assert office.most_busy == 1


def test_an_application_that_ignores_conditions_is_warned_of(office, told, capsys):
    office.heeds = False
    before = {name: dict(one) for name, one in office.records.items()}
    assert told(*command(office, "--dry-run"))["conditions"] is None
    assert office.records == before
    report = told(*command(office))
    assert (report["conditions"], report["converted"], report["conditional"]) == (False, 5, 0)
    assert {name: one["n"] for name, one in office.records.items()} == {
        name: one["n"] for name, one in before.items()
    }
    office.records["p0"]["name"] = "Bo"
    assert main(command(office)) == 0
    said = capsys.readouterr()
    assert all("ignores If-Match" in text for text in said)  # at once, and in the report


def test_a_dry_run_counts_and_changes_nothing(office, told, capsys):
    office.change("p1", name="t-Ann 1")
    office.change("p2", name=None, email="")
    report = told(*command(office, "--dry-run"))
    assert [report[one] for one in ("clear", "mixed", "tokens", "empty")] == [3, 1, 0, 1]
    assert main(command(office, "--dry-run")) == 0
    assert "Nothing was changed. 4 records to write again." in capsys.readouterr().out
    assert not any("PATCH" in one for one in office.requests)
    assert list(Path.cwd().glob("*.json")) == []


def test_what_is_refused_is_told_by_its_address_and_status_and_the_rest_goes_on(office, told):
    office.refuse = {"p2": 422}
    report = told(*command(office), status=1)
    assert (report["converted"], report["refused"], report["complete"]) == (4, 1, False)
    assert report["refusals"] == [{"source": "/people/p2", "text": "status 422"}]
    assert office.records["p2"]["name"] == "Ann 2"


def test_fields_that_no_record_shows_are_told(office, told, capsys):
    assert told(*command(office, "--dry-run"))["unseen_fields"] == []
    for record in office.records.values():
        record.pop("email", None)
    assert told(*command(office, "--dry-run"))["unseen_fields"] == ["email"]
    assert main(command(office)) == 0
    assert "No record showed email: such values stay" in capsys.readouterr().out


def test_an_id_that_is_a_value_is_not_told(office, told):
    office.records = {"p0": {"id": "p0", "name": "p0", "email": None}}
    office.refuse = {"p0": 422}
    assert told(*command(office), status=1)["refusals"][0]["source"] == "a record"


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_not_is_told_at_once(office, told, status):
    office.refuse = dict.fromkeys(office.records, status)
    refusal = told(*command(office), status=1)
    assert "--header" in refusal["message"]
    assert office.writes("proxy") == 1


def test_header_fields_come_from_the_environment(office, told, monkeypatch):
    office.secret = "Bearer 17"
    header = ("--header", "Authorization: ${env:THE_TOKEN}")
    assert "THE_TOKEN is not set" in told(*command(office, *header), status=1)["message"]
    monkeypatch.setenv("THE_TOKEN", "Bearer 17")
    assert told(*command(office, *header))["complete"]
    assert "--header" in told(*command(office), status=1)["message"]


def test_the_address_of_the_proxy_is_not_that_of_the_application(office, told):
    both = ("--application", office.proxy)
    assert "--application" in told(*command(office, *both), status=1)["message"]


def test_words_that_are_no_rate_and_no_paging_are_wrong_usage(office, capsys):
    for words in (("--rate", "fast"), ("--rate", "0/s"), ("--pages", "$.a[*]"), ("--pages", "?")):
        assert main(command(office, *words)) == 2
    assert "such as 20/s" in capsys.readouterr().err
    for words in (("--patience", "-1"), ("--patience", "soon"), ("--list", "people")):
        assert main(command(office, *words)) == 2
        assert "such as" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["Bearer abc", "Authorization Bearer: abc", ": abc"])
def test_a_header_field_without_its_name_is_refused_before_anything_is_sent(office, told, text):
    refusal = told(*command(office, "--header", text), status=1)["message"]
    assert ("'NAME: VALUE'" in refusal, "abc" in refusal) == (True, False)
    assert office.requests == []


def test_a_side_that_does_not_answer_is_named_before_patience_ends(office, told, capsys):
    office.failures = [503, 503, 503]
    assert told(*command(office, "--dry-run"))["clear"] == 5
    assert main(command(office, "--application", "http://127.0.0.1:1", "--patience", "0.1")) == 1
    said = capsys.readouterr().err
    assert said.count("gives no answer: waiting up to 0 s.") == 1
    office.failures = [500]
    assert "(status 500): see its log." in told(*command(office), status=1)["message"]


def test_a_list_without_records_says_what_may_be_wrong(office, told, capsys):
    office._list = lambda side, query: (200, {"people": list(office.records.values())}, {})
    assert main(command(office, "--dry-run", "--pages", "whole")) == 0
    assert "GET /people showed no record." in capsys.readouterr().out


@pytest.mark.parametrize("number", ["0", "33", "many"])
def test_how_many_at_a_time_is_bounded(office, capsys, number):
    assert main(command(office, "--parallel", number)) == 2
    assert "from 1 to 32" in capsys.readouterr().err


def test_a_rate_is_kept(office, told, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("proxy.cli.site.time.sleep", waits.append)
    monkeypatch.setattr("proxy.cli.site.time.monotonic", lambda: 100.0)
    assert told(*command(office, "--rate", "120/m"))["converted"] == 5
    assert waits[:5] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_the_report_for_people_says_what_is_left(office, capsys):
    office.tags = False
    office.refuse = {"p2": 400}
    assert main(command(office)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "contact of crm, by GET /people and PATCH /people/{id}",
        "5 records: 1 in the clear, 4 as tokens, 0 in part, 0 without values",
        "4 written again, passes: 2",
    ]
    assert "strong entity tag" in lines[3]
    assert lines[4:] == [
        "  /people/p2: status 400",
        "Not complete: see to what was refused, and run the same command again.",
    ]


def test_an_entity_that_the_rules_do_not_name_is_refused(office, told):
    refusal = told(*command(office, "person"), status=1)
    assert (refusal["code"], "contact of crm" in refusal["message"]) == ("bad_rules", True)


def test_the_state_file_holds_no_values_and_no_ids(office, told):
    office.refuse = {"p0": 422}
    told(*command(office, "--state", "here.json"), status=1)
    state = json.loads(Path("here.json").read_text())
    assert (state["converted"], state["passes"]) == (4, 2)
    assert not any(word in json.dumps(state) for word in ("Ann", "p0", "b.example"))


def test_a_list_that_does_not_answer_may_be_another_one(office, told):
    office.failures = [302]
    message = told(*command(office, "--dry-run"), status=1)["message"]
    assert "(status 302): say with --header who may, or name another list with --list" in message


def test_values_that_check_refuses_are_counted_by_field_before_anything_is_written(
    office, told, capsys
):
    rules = Path("rules.yaml").read_text()
    checked = rules.replace("email: {kind: email}", "email: {kind: email, check: true}")
    assert checked != rules
    Path("rules.yaml").write_text(checked)
    office.records["p1"]["email"] = office.records["p2"]["email"] = "nobody"
    assert told(*command(office, "--dry-run"))["refusable"] == {"email": 2}
    assert main(command(office, "--dry-run")) == 0
    said = capsys.readouterr().out
    assert "Values that check refuses, as far as the list shows them: email 2." in said
    assert "nobody" not in said


def test_a_refusal_of_the_proxy_names_the_fields():
    errors = [
        {"detail": "phone: is no telephone number"},
        {"detail": "phone: is no telephone number"},
    ]
    body = {"code": "value_invalid", "errors": [*errors, {"detail": "born: is no date"}]}
    headers = {"domicile-answer": "proxy"}
    text = "status 422 value_invalid: phone: is no telephone number; born: is no date"
    assert reason_of(HttpAnswer(422, headers, json.dumps(body).encode())) == text
    assert reason_of(HttpAnswer(422, {}, json.dumps(body).encode())) == "status 422"


def test_a_value_that_stands_elsewhere_is_told_by_field_and_place():
    headers = {"domicile-answer": "proxy"}
    errors = [{"title": "value_elsewhere", "source": "the body", "detail": "name"}]
    body = json.dumps({"code": "value_elsewhere", "errors": errors}).encode()
    told = reason_of(HttpAnswer(422, headers, body))
    assert told == "status 422 value_elsewhere: a value of name in the body"


@pytest.mark.parametrize(("headers", "hinted"), [({}, True), ({"domicile-answer": "proxy"}, False)])
def test_an_application_that_refuses_the_name_of_its_host_is_told(headers, hinted):
    with contextlib.closing(Site("http://127.0.0.1:1", {}, 1)) as site:
        error = failure_of(site, "GET /people", HttpAnswer(400, headers, b""))
    assert ("with --application" in error.message) is hinted

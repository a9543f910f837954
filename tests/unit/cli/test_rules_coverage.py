import json
import os
from pathlib import Path

import pytest

from proxy.bootstrap.rules import rules_at
from proxy.cli import main
from proxy.net.coverage_report import RuleMarks

RULES = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:9"}
entities: {note: {fields: {text: {kind: text}}}}
operations:
  - {match: "POST /notes", create: note}
  - {match: "GET /static/{path*}", pass: true}
"""
MET = [
    {"endpoint": "crm", "method": "GET", "path": "/people/{id}", "since": 0, "count": 7}
    | {"kinds": ["phone", "email"], "answers": ["2xx", "4xx"]},
    {"endpoint": "crm", "method": "GET", "path": "/health", "since": 0, "count": 2, "kinds": []},
    {"endpoint": "crm", "method": "POST", "path": "/notes", "since": 0, "count": 1, "kinds": []},
    {"endpoint": "gone", "method": "GET", "path": "/a", "since": 0, "count": 1, "kinds": ["iban"]},
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "domicile.yaml").write_text("rules: rules.yaml\n")
    (tmp_path / "data").mkdir()
    return tmp_path


def met(folder: Path, *paths: dict[str, object]) -> None:
    """As 0.1.0 wrote it; it told no answers."""
    (folder / "data" / "coverage.json").write_text(json.dumps(list(paths)))


def reported(folder: Path, rules: str, **report: list[dict[str, object]]) -> None:
    (folder / "data" / "coverage.json").write_text(json.dumps({"rules": rules, **report}))


def test_what_rules_name_and_what_they_do_not_is_told_and_suspicion_fails(folder, capsys):
    met(folder, *MET)
    assert main(["coverage", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert [one["match"] for one in shown["ruled"]] == ["POST /notes"]
    assert [one["match"] for one in shown["passed"]] == ["GET /static/{path*}"]
    assert shown["unknown"][0] == {
        "endpoint": "crm",
        "method": "GET",
        "path": "/people/{id}",
        "suspected": ["email", "phone"],
        "places": {},
        "answers": ["2xx", "4xx"],
        "since": "1970-01-01T00:00:00Z",
        "count": 7,
        "next": "domicile rules learn",
    }
    assert [one["path"] for one in shown["unknown"]] == ["/people/{id}", "/health", "/a"]
    assert main(["coverage"]) == 1
    text = capsys.readouterr().out
    assert (
        "unknown  crm       GET /people/{id}     email, phone  2xx, 4xx  1970-01-01T00:00:00Z  7"
        in text
    )
    assert "unknown  crm       GET /health          none                    1970" in text
    assert text.endswith(
        "\nShapes of paths that no rule names: 3\n"
        "Rules for paths in which values are suspected are proposed by: domicile rules learn\n"
    )


def test_pages_and_exports_that_no_rule_names_are_told_with_the_rule_to_write(folder, capsys):
    """They show tokens, of which an e-mail address looks like a value."""

    def path(path: str, kind: str, places: dict[str, list[str]]) -> dict[str, object]:
        answer = {"part": "answer", "owner": [], "member": [], "kind": kind, "count": 1}
        kinds = [one for each in places.values() for one in each]
        of_answer = {"kinds": kinds, "places": places, "members": [answer]}
        return {
            "endpoint": "crm",
            "method": "GET",
            "path": path,
            "since": 0,
            "count": 1,
        } | of_answer

    met = (
        path("/list", "html", {"answer": ["email"]}),
        path("/export", "csv", {"answer": ["email"]}),
        path("/find", "html", {"address": ["email"], "answer": ["email"]}),
        path("/about", "html", {}),
    )
    reported(folder, "", unknown=[*met], ruled=[])
    export = "{restore: csv, columns: {COLUMN: FIELD}, id: column ID}"
    assert main(["coverage"]) == 1
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "Shapes of paths that no rule names: 4",
        "Pages and exports show tokens, which may look like values, until a rule restores them:",
        '  - {match: "GET /list", read: note, response: {restore: html, columns: {HEAD: FIELD}}}',
        f'  - {{match: "GET /export", read: note, response: {export}}}',
        "Rules for paths in which values are suspected are proposed by: domicile rules learn",
    ]


def test_it_says_whose_report_it_is_by_which_rules_and_of_when(folder, capsys):
    assert main(["coverage"]) == 0
    rules, report, *_ = capsys.readouterr().out.splitlines()
    assert rules == f"Rules: {folder / 'rules.yaml'}"
    assert report.startswith(f"Report: {folder / 'data'}, no instance has written one yet")
    met(folder, MET[1])
    for number in (1, 2):  # each worker writes its own
        os.utime(folder / "data" / "coverage.json", (number, number))
        (folder / "data" / "coverage.json").rename(folder / "data" / f"coverage-{number}.json")
        met(folder)
    (folder / "data" / "coverage.json").unlink()
    assert main(["coverage"]) == 0
    report = capsys.readouterr().out.splitlines()[1]
    assert report.startswith(f"Report: {folder / 'data'}, as of 1970-01-01T00:00:02Z (")
    assert main(["coverage", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["as_of"] == "1970-01-01T00:00:02Z"
    assert (shown["data"], shown["rules"]) == (str(folder / "data"), [str(folder / "rules.yaml")])


def test_without_suspicion_it_fails_only_where_it_is_strict(folder, capsys):
    assert main(["coverage", "--strict"]) == 0
    met(folder, MET[1])
    assert main(["coverage"]) == 0
    assert main(["coverage", "--strict"]) == 1
    capsys.readouterr()


def test_an_application_that_the_rules_do_not_name_is_ruled_by_nobody(folder, capsys):
    met(folder, {**MET[3], "path": "/notes", "method": "POST"})
    assert main(["coverage", "--json"]) == 1
    (unknown,) = json.loads(capsys.readouterr().out)["unknown"]
    assert (unknown["endpoint"], unknown["path"]) == ("gone", "/notes")
    (folder / "rules.yaml").unlink()
    (folder / "domicile.yaml").write_text("")
    assert main(["coverage", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["unknown"]) == 1


def test_paths_met_before_there_were_rules_are_those_of_the_one_application(folder, capsys):
    met(folder, {**MET[3], "endpoint": "default", "path": "/notes", "method": "POST"})
    assert main(["coverage", "--json", "--strict"]) == 0
    assert json.loads(capsys.readouterr().out)["unknown"] == []


@pytest.mark.parametrize("content", ["{", '[{"path": 1}]'])
def test_a_file_that_cannot_be_read_is_a_fault(folder, capsys, content):
    (folder / "data" / "coverage.json").write_text(content)
    assert main(["coverage"]) == 1
    assert "remove it, and it is made anew" in capsys.readouterr().err


def test_strictly_a_folder_without_rules_is_a_fault(folder, capsys):
    (folder / "domicile.yaml").unlink()
    assert main(["coverage"]) == 0
    assert main(["coverage", "--strict"]) == 1
    assert "nothing is protected" in capsys.readouterr().err


def test_rules_tell_since_when_and_how_often_they_fired_and_what_they_do_not_name(folder, capsys):
    one = {"endpoint": "crm", "operation": "POST /notes", "since": 0, "count": 4}
    rules = rules_at(folder / "rules.yaml")
    rule = RuleMarks(rules).of("crm", "POST /notes")
    of_form = {**one, "part": "form", "parameter": "{word}", "count": 2, "rule": rule}
    path = {**MET[0], "places": {"address": ["email"], "answer": ["email", "phone"]}}
    reported(folder, rules.version, unknown=[path], ruled=[one, {**of_form, "kinds": ["email"]}])
    assert main(["coverage", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["ruled"][0]["since"], shown["ruled"][0]["count"]) == ("1970-01-01T00:00:00Z", 4)
    assert (shown["passed"][0]["since"], shown["passed"][0]["count"]) == (None, 0)
    (parameter,) = shown["parameters"]
    assert parameter.items() >= {
        "match": "POST /notes", "place": "form", "suspected": ["email"], "count": 2,
    }.items()  # fmt: skip
    assert main(["coverage"]) == 1
    text = capsys.readouterr().out
    assert "address: email; answer: email, phone" in text
    assert "POST /notes, form {word}" in text
    assert "Parameters and members of ruled requests that no rule names: 1\n" in text


def test_a_parameter_fails_where_a_value_is_suspected_or_strictly_under_the_rules_it_was_met(
    folder, capsys
):
    rules = rules_at(folder / "rules.yaml")
    mark = RuleMarks(rules).of("crm", "POST /notes")
    one = {"endpoint": "crm", "operation": "POST /notes", "since": 0, "count": 4, "part": "form"}
    for rule, kinds, arguments, status in (
        (mark, ["email"], [], 1),
        (mark, [], [], 0),
        (mark, [], ["--strict"], 1),
        ("other", ["email"], ["--strict"], 0),
        ("", ["email"], ["--strict"], 0),
    ):
        use = {**one, "parameter": "note", "kinds": kinds, "rule": rule}
        reported(folder, rules.version, ruled=[use])
        assert main(["coverage", *arguments]) == status
    capsys.readouterr()


def test_requests_that_tell_of_versions_of_a_record_are_hinted_at(folder, capsys):
    path = {"endpoint": "crm", "method": "POST", "path": "/notes/{id}/publish", "count": 1}
    for rules, paths, signs in (
        (RULES, [path], ["/publish"]),
        (RULES, [MET[1]], []),
        (RULES.replace("{fields:", "{versions: keep, fields:"), [path], []),
    ):
        (folder / "rules.yaml").write_text(rules)
        met(folder, *({**one, "since": 0, "kinds": []} for one in paths))
        main(["coverage", "--json"])
        assert json.loads(capsys.readouterr().out)["versions"] == signs
        main(["coverage"])
        assert ("versions: keep" in capsys.readouterr().out) is bool(signs)


def test_learn_without_a_source_proposes_rules_for_what_the_instances_have_met(folder, capsys):
    assert main(["rules", "learn"]) == 1
    assert "data/coverage.json cannot be read (No such file" in capsys.readouterr().err
    member = {"part": "response", "owner": [], "member": ["email"], "kind": "email", "count": 1}
    for number in (1, 2):  # two workers
        shape: dict[str, object] = {"endpoint": "crm", "method": "GET"}
        shape |= {
            "path": f"/people{number}/{{id}}",
            "since": 0,
            "count": number,
            "kinds": ["email"],
            "members": [member],
        }
        reported(folder, "none", unknown=[shape], ruled=[])
        name = f"coverage-{number}.json"
        (folder / "data" / "coverage.json").rename(folder / "data" / name)
    assert main(["rules", "learn"]) == 0
    proposal = capsys.readouterr().out
    assert all(f"GET /people{number}/{{id}}" in proposal for number in (1, 2))

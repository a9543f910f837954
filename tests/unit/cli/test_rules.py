import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proxy.cli import main
from proxy.redactor.load.rule_keys import reference
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from tests.support.rules import with_operations

TEXT = with_operations(
    '{match: "GET /n/{id}", read: note}', "{match: GET /c, read: contact, response: {id: $.id}}"
).replace("born:  {kind: date}", "born:  {kind: text}")


@pytest.fixture(autouse=True)
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "crm.yaml"
    path.write_text(TEXT)
    return path


def test_rules_in_order_are_counted(capsys):
    assert main(["rules", "check", "crm.yaml"]) == 0
    shown = capsys.readouterr().out
    assert (
        "are in order: endpoints 1, entities 2, operations 2 protected and 0 passed on purpose, tests 0"
        in shown
    )
    assert "warning" not in shown


def test_the_rules_of_the_settings_are_those_that_count(rules, capsys):
    folder = rules.parent / "here"
    folder.mkdir()
    rules.rename(folder / "crm.yaml")
    (rules.parent / "domicile.yaml").write_text("rules: here/\n")
    assert main(["rules", "check", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["endpoints"] == ["crm"]
    assert data["operations"] == ["GET /n/{id}", "GET /c"]
    assert data["warnings"] == []


def test_warnings_are_shown_and_are_no_fault(rules, capsys):
    rules.write_text(TEXT.replace("text: {kind: text}", "text: {kind: text, token: plain}"))
    assert main(["rules", "check", "crm.yaml"]) == 0
    assert "  warning: crm.yaml:11:33: the shape plain" in capsys.readouterr().out


def test_faults_are_named_by_place_and_end_with_status_1(rules, capsys):
    rules.write_text(TEXT.replace("read: note", "raed: note"))
    assert main(["rules", "check", "crm.yaml"]) == 1
    assert (
        "  crm.yaml:13:28: unknown key 'raed' in operation; did you mean 'read'?\n"
        in capsys.readouterr().err
    )
    assert main(["rules", "check", "crm.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["details"][0]["source"] == "crm.yaml:13:28"


def test_explain_shows_the_effective_rule(capsys):
    assert main(["rules", "explain", "--rules", "crm.yaml", "GET", "/n/17"]) == 0
    assert "  id: path id\n" in capsys.readouterr().out
    assert main(["rules", "explain", "--rules", "crm.yaml", "GET", "/n/17", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operation"]["match"] == "GET /n/{id}"


def test_explain_takes_a_request_as_match_has_it(capsys):
    assert main(["rules", "explain", "--rules", "crm.yaml", "GET /n/17"]) == 0
    assert "  id: path id\n" in capsys.readouterr().out
    assert main(["rules", "explain", "--rules", "crm.yaml", "GET"]) == 1
    assert "A request has a method and a path" in capsys.readouterr().err


def test_check_takes_a_folder_without_rules_as_serve_does(tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert main(["rules", "check", str(tmp_path / "none")]) == 0
    assert "warning: there is no rule file at" in capsys.readouterr().out
    assert main(["rules", "check", str(tmp_path / "nowhere")]) == 1


def test_explain_tells_that_no_rule_names_a_request(capsys):
    assert main(["rules", "explain", "--rules", "crm.yaml", "GET", "/x"]) == 0
    assert "No rule names this request: it passes unchanged" in capsys.readouterr().out


def test_schema_prints_the_json_schema(capsys):
    assert main(["rules", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    tree = read_tree(TEXT, "f", RuleFaults())
    assert tree is not None
    jsonschema.Draft202012Validator(schema).validate(plain_values(tree))


def test_schema_prints_the_reference_for_people(capsys):
    assert main(["rules", "schema", "--markdown"]) == 0
    assert capsys.readouterr().out == reference() + "\n"


def test_diff_tells_what_loses_protection_and_ends_with_status_1(rules, capsys):
    new = rules.with_name("new.yaml")
    new.write_text(TEXT.replace("text: {kind: text}", "text: {kind: text, token: plain}"))
    assert main(["rules", "diff", "crm.yaml", "crm.yaml"]) == 0
    assert capsys.readouterr().out == "0 lose protection, 0 gain it, 0 are different otherwise\n"
    assert main(["rules", "diff", "crm.yaml", "new.yaml"]) == 1
    assert capsys.readouterr().out == (
        "loses protection\n  note.text: token: opaque becomes plain\n"
        "1 lose protection, 0 gain it, 0 are different otherwise\n"
    )
    assert main(["rules", "diff", "new.yaml", "crm.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ok": True,
        "loses": [],
        "gains": [{"subject": "note.text", "text": "token: plain becomes opaque"}],
        "changes": [],
    }


def test_diff_shows_the_one_loss_of_a_rewrite_first_and_counts_the_rest(rules, capsys):
    many = [
        f"{{match: POST /a{number}, create: note, response: {{id: $.id}}}}" for number in range(9)
    ]
    rules.write_text(with_operations(*many, "{match: POST /b, create: note}"))
    new = rules.with_name("new.yaml")
    rewritten = with_operations(*reversed(many)).replace("id: $.id", "id: $.key")
    new.write_text(rewritten.replace("note:", "memo:").replace(": note", ": memo"))
    assert main(["rules", "diff", "crm.yaml", "new.yaml"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "loses protection", "  crm: POST /b: no rule names it any more: it passes as it comes",
    ]  # fmt: skip
    assert said[2] == "has another name"
    assert said[3].startswith("  entity note: it is called now: memo, and so is its schema")
    assert said[4:] == [
        "is different otherwise; --all lists each",
        "  id of the answer (9)",
        "1 lose protection, 0 gain it, 10 are different otherwise",
    ]
    assert main(["rules", "diff", "--all", "crm.yaml", "new.yaml"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[4:7] == [
        "is different otherwise", "  id of the answer: $.id becomes $.key, of 9:", "    crm: POST /a0",
    ]  # fmt: skip
    assert main(["rules", "diff", "--json", "crm.yaml", "new.yaml"]) == 1
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 10


def test_diff_names_what_it_cannot_read(rules, capsys):
    assert main(["rules", "diff", "crm.yaml", "none.yaml"]) == 1
    assert "none.yaml: cannot be read" in capsys.readouterr().err
    assert main(["rules", "diff", "main:rules", "crm.yaml"]) == 1
    assert "git has no rules of main: fatal: not a git repository" in capsys.readouterr().err
    assert main(["rules", "diff", "--output=x:rules", "crm.yaml"]) == 2


HAR: dict[str, Any] = {
    "request": {"method": "GET", "url": "http://127.0.0.1:3000/contacts/17"},
    "response": {
        "status": 200,
        "content": {"text": '{"id": 17, "email": "ann@wexlomere.example"}'},
    },
}


def test_learn_proposes_rules_that_check_takes(rules, capsys):
    told: dict[str, Any] = {"request": {**HAR["request"], "url": "http://127.0.0.1:3000/activity"}}
    content = {"text": '[{"id": 1, "text": "ann@wexlomere.example was added"}]'}
    told["response"] = {"status": 200, "content": content}
    (rules.parent / "crm.har").write_text(json.dumps({"log": {"entries": [HAR, told]}}))
    assert main(["rules", "learn", "--name", "sales", "crm.har"]) == 0
    said = capsys.readouterr().out
    assert 'match: "GET /contacts/{id}"' in said
    assert "wexlomere" not in said
    assert main(["rules", "learn", "--out", "new.yaml", "--json", "crm.har"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["file"], data["left_out"][0]["request"]) == ("new.yaml", "GET /activity")
    assert data["left_out"][0]["because"].startswith("email, text suspected")
    assert main(["rules", "learn", "--out", "other.yaml", "crm.har"]) == 0
    assert "\n2 things left out: nothing of it is protected" in capsys.readouterr().out
    assert "\n# left out: GET /activity, because email" in Path("other.yaml").read_text()
    assert main(["rules", "check", "new.yaml"]) == 0
    assert "endpoints 1, entities 1, operations 1" in capsys.readouterr().out


def test_a_proposal_is_not_written_where_an_instance_would_load_it(rules, capsys):
    (rules.parent / "crm.har").write_text(json.dumps({"log": {"entries": [HAR]}}))
    (rules.parent / "rules").mkdir()
    assert main(["rules", "learn", "--out", "rules/new.yaml", "crm.har"]) == 1
    assert "would be among the rules of the settings" in capsys.readouterr().err
    assert not (rules.parent / "rules" / "new.yaml").exists()
    (rules.parent / "domicile.yaml").write_text("rules: crm.yaml\n")
    assert main(["rules", "learn", "--out", "rules/new.yaml", "crm.har"]) == 0


def test_learn_names_what_it_cannot_do(rules, capsys):
    for words, said in (
        (["crm.yaml"], "neither a HAR file"),
        (["none.har"], "none.har cannot be read"),
        (["--out", "crm.yaml", "crm.har"], "crm.yaml cannot be written (File exists)"),
    ):
        (rules.parent / "crm.har").write_text(json.dumps({"log": {"entries": [HAR]}}))
        assert main(["rules", "learn", *words]) == 1
        assert said in capsys.readouterr().err
    assert rules.read_text() == TEXT
    assert main(["rules", "learn", "--name", "a b", "crm.har"]) == 2

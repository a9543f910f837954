import argparse
import asyncio
import json
from typing import Any

import pytest

from proxy.cli import main
from tests.support.api import interface
from tests.support.auth import HERE

TEXT = {"type": "string"}
CUSTOMER = "name: customer\nfields:\n  id: {type: primary_key}\n  email: {type: string}\n"
DESK = """
name: desk
schema: customer
actions: [read, write]
fields:
  email: {valueType: redacted, format: "[a-z]{8}@example.org"}
"""


PERSON = """
name: person
fields:
  id: {type: primary_key}
  email: {type: string, storage: indexed_hashed, partial_match: true}
  age: {type: integer, storage: indexed, required: true}
"""


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    (tmp_path / "customer.yaml").write_text(CUSTOMER)
    (tmp_path / "desk.yaml").write_text(DESK)
    (tmp_path / "person.yaml").write_text(PERSON)
    assert main(["schema", "apply", "customer.yaml"]) == 0
    capsys.readouterr()


def told(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> Any:
    assert main([*command, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_a_file_is_put_in_force_listed_and_shown(capsys):
    assert told(capsys, "policy", "list") == {"policies": []}
    assert told(capsys, "policy", "apply", "desk.yaml")["policies"][0]["name"] == "desk"
    assert main(["policy", "apply", "desk.yaml"]) == 0
    assert capsys.readouterr().out == "desk: in force\n"
    assert main(["policy", "list"]) == 0
    assert capsys.readouterr().out == "desk  customer  read, write\n"
    assert told(capsys, "policy", "show", "desk")["fields"]["email"]["valueType"] == "redacted"
    assert main(["policy", "show", "desk"]) == 0
    assert "  email  redacted: [a-z]{8}@example.org\n" in capsys.readouterr().out


def test_conditions_and_origins_are_shown_as_they_are_written(tmp_path, capsys):
    rows = (
        'rows: {filter: {email: [a@example.org, "Åsa@example.org"]}}\nexternal_acl: '
        "https://app.example.com/allowed\n"
    )
    (tmp_path / "desk.yaml").write_text(DESK.partition("fields:")[0] + rows)
    assert main(["policy", "apply", "desk.yaml"]) == 0
    assert main(["policy", "show", "desk"]) == 0
    shown = capsys.readouterr().out
    assert '  rows: {"filter": {"email": ["a@example.org", "Åsa@example.org"]}}\n' in shown
    assert "  external_acl: https://app.example.com/allowed\n" in shown


def test_a_fault_in_one_file_changes_nothing(tmp_path, capsys):
    (tmp_path / "other.yaml").write_text(
        DESK.replace("name: desk", "name: other").replace("email", "iban")
    )
    refused = told(capsys, "policy", "apply", "desk.yaml", "other.yaml", status=1)
    assert refused["code"] == "invalid_policy"
    assert told(capsys, "policy", "list") == {"policies": []}
    assert told(capsys, "policy", "show", "desk", status=1)["code"] == "not_found"


def test_what_does_not_fit_any_more_is_told(tmp_path, capsys):
    told(capsys, "policy", "apply", "desk.yaml")
    (tmp_path / "customer.yaml").write_text(
        CUSTOMER.replace("email: {type: string}", "age: {type: integer}")
    )
    assert main(["schema", "apply", "customer.yaml"]) == 0
    capsys.readouterr()
    assert main(["policy", "list"]) == 0
    assert "does not fit" in capsys.readouterr().out
    assert main(["policy", "show", "desk"]) == 0
    assert "does not fit: /fields/email" in capsys.readouterr().out


def test_a_client_is_made_under_policies_that_there_are(capsys):
    create = ("client", "create", "--environment", "default", "--policy", "desk", "crm")
    refused = told(capsys, *create, status=1)
    assert [detail["source"] for detail in refused["details"]] == ["/policies/0"]
    told(capsys, "policy", "apply", "desk.yaml")
    ident = told(capsys, *create)["client_id"]
    clients = {item["client_id"]: item for item in told(capsys, "client", "list")["clients"]}
    assert clients[ident]["policies"] == ["desk"]


def test_policies_belong_to_an_environment(capsys):
    told(capsys, "policy", "apply", "desk.yaml")
    told(capsys, "environment", "create", "--id", "acme", "Acme AB")
    assert told(capsys, "policy", "list", "--environment", "acme") == {"policies": []}
    told(capsys, "client", "create", "--environment", "acme", "--policy", "desk", "crm", status=1)
    refused = told(capsys, "policy", "list", "--environment", "nobody", status=1)
    assert refused["code"] == "not_found"


def test_check_reads_the_files_of_the_setting(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DOMICILE__POLICIES", str(tmp_path / "desk.yaml"))
    (tmp_path / "desk.yaml").write_text(DESK.replace("read, write", "fly"))
    assert main(["check"]) == 1
    captured = capsys.readouterr()
    assert "desk.yaml:4" in captured.out + captured.err


async def test_policies_of_an_instance_are_put_listed_and_shown(tmp_path, capsys, monkeypatch):
    (tmp_path / "here").mkdir()
    async with interface(tmp_path / "here", tokens=True) as here:
        await here.declare("customer", {"fields": {"id": {"type": "primary_key"}, "email": TEXT}})
        made = await here.office.client(admin=True)
        token = here.office.service.tokens.issue(made.client, (HERE,))
        monkeypatch.setattr("proxy.cli.remote.Remote.new_token", lambda _: token)
        monkeypatch.setenv("DOMICILE_CLIENT_ID", made.client.id)
        monkeypatch.setenv("DOMICILE_CLIENT_SECRET", made.secret)

        async def asked(*words: str, status: int = 0) -> Any:
            url = ("--url", here.client.address)
            return await asyncio.to_thread(told, capsys, "policy", *words, *url, status=status)

        assert (await asked("apply", "desk.yaml"))["policies"][0]["name"] == "desk"
        assert [item["name"] for item in (await asked("list"))["policies"]] == ["desk"]
        assert (await asked("show", "desk"))["fields"]["email"]["valueType"] == "redacted"
        assert (await asked("show", "none", status=1))["code"] == "not_found"


def test_the_command_takes_an_address():
    from proxy.cli.declare import POLICY_COMMAND

    parser = argparse.ArgumentParser()
    apply = POLICY_COMMAND.children["apply"].arguments
    assert apply is not None
    apply(parser)
    given = parser.parse_args(["--url", "http://127.0.0.1:8081", "a.yaml"])
    assert (given.url, given.environment) == ("http://127.0.0.1:8081", "default")


def test_a_file_is_declared_listed_and_shown(capsys):
    listed = told(capsys, "schema", "list")["schemas"]
    origins = [(item["name"], item["origin"]) for item in listed]
    assert origins == [("records", "builtin"), ("customer", "api")]
    assert told(capsys, "schema", "apply", "person.yaml")["schemas"][0]["created"] is True
    listed = told(capsys, "schema", "list")["schemas"]
    assert [item["name"] for item in listed] == ["records", "customer", "person"]
    assert list(told(capsys, "schema", "show", "person")["fields"]) == ["id", "email", "age"]
    assert main(["schema", "show", "person"]) == 0
    assert "  email  string, indexed_hashed, partial_match\n" in capsys.readouterr().out


def test_who_declares_partial_match_is_told_what_it_tells(capsys, monkeypatch):
    warning = "  warning: person.email: with partial_match whoever reads the database"
    assert main(["schema", "apply", "person.yaml"]) == 0
    assert warning in capsys.readouterr().out
    monkeypatch.setenv("DOMICILE__SCHEMAS", "person.yaml")
    monkeypatch.setenv("DOMICILE__RECORDS__PARTIAL_MATCH", "[key3]")
    assert main(["check"]) == 0
    shown = capsys.readouterr().out
    assert warning in shown
    assert "  warning: records.key3: with partial_match" in shown


def test_a_change_is_told_before_and_after(tmp_path, capsys):
    told(capsys, "schema", "apply", "person.yaml")
    (tmp_path / "person.yaml").write_text(PERSON.replace("type: integer", "type: decimal"))
    before = told(capsys, "schema", "apply", "--dry-run", "person.yaml")
    assert before["schemas"][0]["migrates"] is True
    assert told(capsys, "schema", "show", "person")["fields"]["age"]["type"] == "integer"
    after = told(capsys, "schema", "apply", "person.yaml")["schemas"][0]
    assert (after["fields"]["age"]["type"], after["migration"]["state"]) == ("decimal", "done")
    assert main(["schema", "apply", "person.yaml"]) == 0
    assert capsys.readouterr().out.startswith("person: as it was")


def test_faults_of_files_have_their_lines_and_nothing_is_declared(tmp_path, capsys):
    (tmp_path / "other.yaml").write_text(
        PERSON.replace("name: person", "name: other").replace("integer", "number")
    )
    assert main(["schema", "apply", "person.yaml", "other.yaml"]) == 1
    assert "other.yaml:6" in capsys.readouterr().err
    listed = told(capsys, "schema", "list")["schemas"]
    assert [item["name"] for item in listed] == ["records", "customer"]


def test_a_schema_that_is_not_there_is_told(capsys):
    assert told(capsys, "schema", "show", "none", status=1)["code"] == "unknown_schema"


def test_without_a_vault_there_is_nothing_to_declare_in(tmp_path, capsys, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert told(capsys, "schema", "list", status=1)["code"] == "bad_store"

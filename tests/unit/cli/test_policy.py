import argparse
import asyncio
import json
from typing import Any

import pytest

from proxy.cli import main
from proxy.cli.policy import RemotePolicies
from proxy.cli.remote import Remote
from proxy.errors import Code, VaultError
from proxy.model.policy_reader import read_policy
from tests.support.api import Interface, interface
from tests.support.auth import HERE
from tests.support.examples import CONTACT

CUSTOMER = "name: customer\nfields:\n  id: {type: primary_key}\n  email: {type: string}\n"
DESK = """
name: desk
schema: customer
actions: [read, write]
fields:
  email: {valueType: redacted, format: "[a-z]{8}@example.org"}
"""


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    (tmp_path / "customer.yaml").write_text(CUSTOMER)
    (tmp_path / "desk.yaml").write_text(DESK)
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
    assert "policy apply" in str(told(capsys, *create, status=1))
    told(capsys, "policy", "apply", "desk.yaml")
    ident = told(capsys, *create)["client_id"]
    clients = {item["client_id"]: item for item in told(capsys, "client", "list")["clients"]}
    assert clients[ident]["policies"] == ["desk"]


def test_policies_belong_to_an_environment(capsys):
    told(capsys, "policy", "apply", "desk.yaml")
    told(capsys, "environment", "create", "--id", "acme", "Acme AB")
    assert told(capsys, "policy", "list", "--environment", "acme") == {"policies": []}
    told(capsys, "client", "create", "--environment", "acme", "--policy", "desk", "crm", status=1)


def test_check_reads_the_files_of_the_setting(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DOMICILE__POLICIES", str(tmp_path / "desk.yaml"))
    (tmp_path / "desk.yaml").write_text(DESK.replace("read, write", "fly"))
    assert main(["check"]) == 1
    captured = capsys.readouterr()
    assert "desk.yaml:4" in captured.out + captured.err


DESK_POLICIES = read_policy(
    "desk", {"schema": "contact", "actions": ["read"], "fields": {"email": "hidden"}}
)


async def served(here: Interface) -> RemotePolicies:
    made = await here.office.client(admin=True)
    instance = Remote(here.client.address, made.client.id, made.secret)
    instance._token = here.office.service.tokens.issue(made.client, (HERE,))
    return RemotePolicies(instance)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def test_policies_of_an_instance_are_put_listed_and_shown(tmp_path):
    async with interface(tmp_path, tokens=True) as here:
        await here.declare("contact", CONTACT)
        where = await served(here)
        await where.check(DESK_POLICIES)
        applied = await asyncio.to_thread(run, where.apply(DESK_POLICIES))
        assert (applied["name"], applied["created"]) == ("desk", True)
        assert [item["name"] for item in await asyncio.to_thread(run, where.listed())] == ["desk"]
        assert (await asyncio.to_thread(run, where.one("desk")))["fields"] == {"email": "hidden"}
        with pytest.raises(VaultError) as refused:
            await asyncio.to_thread(run, where.one("none"))
        assert refused.value.code is Code.NOT_FOUND
        where._instance.close()


def test_the_command_takes_an_address():
    from proxy.cli.policy import COMMAND

    parser = argparse.ArgumentParser()
    apply = COMMAND.children["apply"].arguments
    assert apply is not None
    apply(parser)
    given = parser.parse_args(["--url", "http://127.0.0.1:8081", "a.yaml"])
    assert (given.url, given.environment) == ("http://127.0.0.1:8081", "default")

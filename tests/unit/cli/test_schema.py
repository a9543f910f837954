import asyncio
import json
from typing import Any

import pytest

from proxy.cli import main
from proxy.cli.remote import Remote
from proxy.cli.schema import RemoteSchemas
from proxy.model.schema_document import read_definition
from tests.support.api import interface
from tests.support.auth import HERE

CUSTOMER = """
name: customer
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
    capsys.readouterr()


def told(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> Any:
    assert main(["schema", *command, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_a_file_is_declared_listed_and_shown(capsys):
    assert [(item["name"], item["origin"]) for item in told(capsys, "list")["schemas"]] == [
        ("records", "builtin")
    ]
    assert told(capsys, "apply", "customer.yaml")["schemas"][0]["created"] is True
    assert [item["name"] for item in told(capsys, "list")["schemas"]] == ["records", "customer"]
    assert list(told(capsys, "show", "customer")["fields"]) == ["id", "email", "age"]
    assert main(["schema", "show", "customer"]) == 0
    assert "  email  string, indexed_hashed, partial_match\n" in capsys.readouterr().out


def test_who_declares_partial_match_is_told_what_it_tells(capsys, monkeypatch):
    warning = "  warning: customer.email: with partial_match whoever reads the database"
    assert main(["schema", "apply", "customer.yaml"]) == 0
    assert warning in capsys.readouterr().out
    monkeypatch.setenv("DOMICILE__SCHEMAS", "customer.yaml")
    monkeypatch.setenv("DOMICILE__RECORDS__PARTIAL_MATCH", "[key3]")
    assert main(["check"]) == 0
    shown = capsys.readouterr().out
    assert warning in shown
    assert "  warning: records.key3: with partial_match" in shown


def test_a_change_is_told_before_and_after(tmp_path, capsys):
    told(capsys, "apply", "customer.yaml")
    (tmp_path / "customer.yaml").write_text(CUSTOMER.replace("type: integer", "type: decimal"))
    before = told(capsys, "apply", "--dry-run", "customer.yaml")
    assert before["schemas"][0]["migrates"] is True
    assert told(capsys, "show", "customer")["fields"]["age"]["type"] == "integer"
    after = told(capsys, "apply", "customer.yaml")["schemas"][0]
    assert (after["fields"]["age"]["type"], after["migration"]["state"]) == ("decimal", "done")
    assert main(["schema", "apply", "customer.yaml"]) == 0
    assert capsys.readouterr().out.startswith("customer: as it was")


def test_faults_of_files_have_their_lines_and_nothing_is_declared(tmp_path, capsys):
    (tmp_path / "other.yaml").write_text(
        CUSTOMER.replace("name: customer", "name: other").replace("integer", "number")
    )
    assert main(["schema", "apply", "customer.yaml", "other.yaml"]) == 1
    assert "other.yaml:6" in capsys.readouterr().err
    assert [item["name"] for item in told(capsys, "list")["schemas"]] == ["records"]


def test_a_schema_that_is_not_there_is_told(capsys):
    assert told(capsys, "show", "none", status=1)["code"] == "unknown_schema"


def test_without_a_vault_there_is_nothing_to_declare_in(tmp_path, capsys, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert told(capsys, "list", status=1)["code"] == "bad_store"


VISIT = read_definition(
    "visit", {"fields": {"id": {"type": "primary_key"}, "room": {"type": "string"}}}
)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def test_schemas_of_an_instance_are_tried_declared_listed_and_shown(tmp_path):
    async with interface(tmp_path, tokens=True) as here:
        made = await here.office.client(admin=True)
        instance = Remote(here.client.address, made.client.id, made.secret)
        instance._token = here.office.service.tokens.issue(made.client, (HERE,))
        where = RemoteSchemas(instance)
        tried = await asyncio.to_thread(run, where.apply(VISIT, dry_run=True))
        assert tried == {"created": True, "migrates": False, "changes": []}
        assert [item["name"] for item in await asyncio.to_thread(run, where.listed())] == [
            "records"
        ]
        applied = await asyncio.to_thread(run, where.apply(VISIT, dry_run=False))
        assert (applied["name"], applied["created"], applied["records"]) == ("visit", True, 0)
        again = await asyncio.to_thread(run, where.apply(VISIT, dry_run=False))
        assert (again["created"], again["changes"]) == (False, [])
        assert list((await asyncio.to_thread(run, where.one("visit")))["fields"]) == ["id", "room"]
        instance.close()

import asyncio
from functools import partial
from typing import Any

import pytest

from proxy.bootstrap.offline import stopped_environments
from proxy.cli import main
from proxy.config import load_settings
from proxy.vault.environments import Environments

pytestmark = pytest.mark.usefixtures("vault")


@pytest.fixture
def run(told):
    return partial(told, "environment")


def test_an_environment_is_made_listed_and_removed(run):
    made = run("create", "--id", "acme", "Acme AB")
    assert (made["environment_id"], made["name"]) == ("acme", "Acme AB")
    listed = run("list")["environments"]
    assert [item["environment_id"] for item in listed] == ["default", "acme"]
    assert listed[1] == made
    assert run("delete", "acme") == {"environment_id": "acme", "records": 0}
    assert [item["environment_id"] for item in run("list")["environments"]] == ["default"]
    assert run("create", "--id", "acme", "Again", status=1)["code"] == "conflict"


def test_without_an_id_it_gets_a_random_one(run):
    first, second = (run("create", "Acme AB")["environment_id"] for _ in range(2))
    assert first != second


def test_for_people_it_says_what_comes_next(capsys):
    assert main(["environment", "create", "--id", "acme", "Acme AB"]) == 0
    assert "domicile client create --environment acme" in capsys.readouterr().out
    assert main(["environment", "list"]) == 0
    default, acme = capsys.readouterr().out.splitlines()
    assert (default.split()[0], acme.split()[0], acme.endswith("  Acme AB")) == (
        "default",
        "acme",
        True,
    )
    assert main(["environment", "delete", "acme"]) == 0
    assert "its keys are destroyed" in capsys.readouterr().out


def test_records_stay_unless_it_is_said_that_they_go(run, monkeypatch):
    async def many(_book: Environments, _ident: str) -> int:
        return 5

    run("create", "--id", "acme", "Acme AB")
    monkeypatch.setattr(Environments, "records", many)
    fault = run("delete", "acme", status=1)
    assert (fault["code"], "--records" in fault["message"]) == ("environment_in_use", True)
    assert run("delete", "acme", "--records")["records"] == 5


@pytest.mark.parametrize(("ident", "code"), [("default", "conflict"), ("nobody", "not_found")])
def test_what_cannot_be_removed_is_told(run, ident, code):
    assert run("delete", ident, "--records", status=1)["code"] == code


def test_what_makes_no_environment_is_told_with_every_fault(run):
    fault = run("create", "--id", "Acme", "", status=1)
    assert [detail["source"] for detail in fault["details"]] == ["/environment_id", "/name"]


def test_while_an_instance_runs_it_says_whom_to_ask(run):
    async def while_running() -> Any:
        async with stopped_environments(load_settings(None, {})):
            return await asyncio.to_thread(run, "list", status=1)

    fault = asyncio.run(while_running())
    assert fault["code"] == "store_busy"
    assert "--url" in fault["message"]


def test_without_a_vault_nothing_is_made(run, tmp_path, monkeypatch):
    monkeypatch.setenv("DOMICILE__DATA", str(tmp_path / "other"))
    assert "domicile init" in run("create", "x", status=1)["message"]
    assert not (tmp_path / "other").exists()

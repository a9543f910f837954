import asyncio
import json
from functools import partial
from typing import Any

import pytest

from proxy.bootstrap.offline import stopped_clients
from proxy.cli import main
from proxy.config import load_settings
from proxy.vault.environments import Environments

pytestmark = pytest.mark.usefixtures("vault")


@pytest.fixture
def run(told):
    return partial(told, "client")


@pytest.fixture
def environment(told):
    return partial(told, "environment")


def test_a_client_is_made_and_told_how_to_come_in(run):
    made = run("create", "--environment", "default", "crm")
    assert (len(made.pop("client_id")), len(made.pop("client_secret"))) == (16, 43)
    assert made == {
        "environment_id": "default",
        "vault_url": "http://127.0.0.1:8081",
        "token_url": "http://127.0.0.1:8081/oauth2/token",
    }


def test_the_addresses_of_the_settings_are_the_ones_told(run, monkeypatch):
    monkeypatch.setenv("DOMICILE__AUTH__AUDIENCES", "https://SE-vault.example.com/")
    assert (
        run("create", "--environment", "default", "crm")["token_url"]
        == "https://se-vault.example.com/oauth2/token"
    )


def test_the_list_has_every_client_and_no_secret(run):
    made = [
        run("create", "--environment", "default", *more) for more in (["crm"], ["--admin", "chief"])
    ]
    listed = run("list")["clients"]
    assert {item["client_id"]: (item["name"], item["admin"]) for item in listed} == {
        made[0]["client_id"]: ("crm", False),
        made[1]["client_id"]: ("chief", True),
    }
    assert "secret" not in json.dumps(listed)


def test_for_people_the_list_is_a_line_a_client(run, capsys):
    assert main(["client", "list"]) == 0
    assert capsys.readouterr().out == "There is no client yet.\n"
    made = run("create", "--environment", "default", "crm")
    run("disable", made["client_id"])
    assert main(["client", "list"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[0] == made["client_id"]
    assert line.split()[2:] == ["default", "disabled", "crm"]


def test_a_disabled_client_gets_no_new_secret(run):
    made = run("create", "--environment", "default", "crm")
    assert run("disable", made["client_id"])["disabled"]
    assert run("rotate-secret", made["client_id"], status=1)["code"] == "conflict"


def test_a_new_secret_takes_the_place_of_the_old_one(run):
    made = run("create", "--environment", "default", "crm")
    renewed = run("rotate-secret", made["client_id"])
    assert renewed["client_id"] == made["client_id"]
    assert renewed["client_secret"] != made["client_secret"]


@pytest.mark.parametrize("verb", ["disable", "rotate-secret"])
def test_a_client_that_is_not_there_is_told(run, verb):
    assert run(verb, "nobody", status=1)["code"] == "not_found"


def test_what_makes_no_client_is_told_with_every_fault(run):
    fault = run("create", "--environment", "other", "", status=1)
    assert [detail["source"] for detail in fault["details"]] == ["/name", "/environment_id"]


def test_without_an_environment_nothing_is_made():
    assert main(["client", "create", "crm"]) == 2


def test_while_an_instance_runs_it_says_whom_to_ask(run):
    async def while_running() -> Any:
        async with stopped_clients(load_settings(None, {})):
            return await asyncio.to_thread(run, "list", status=1)

    fault = asyncio.run(while_running())
    assert fault["code"] == "store_busy"
    assert "--url" in fault["message"]


def test_without_a_vault_it_says_how_to_make_one(run, tmp_path, monkeypatch):
    monkeypatch.setenv("DOMICILE__DATA", str(tmp_path / "other"))
    fault = run("list", status=1)
    assert "domicile init" in fault["message"]
    assert not (tmp_path / "other").exists()


def test_an_environment_is_made_listed_and_removed(environment):
    made = environment("create", "--id", "acme", "Acme AB")
    assert (made["environment_id"], made["name"]) == ("acme", "Acme AB")
    listed = environment("list")["environments"]
    assert [item["environment_id"] for item in listed] == ["default", "acme"]
    assert listed[1] == made
    assert environment("delete", "acme") == {"environment_id": "acme"}
    assert [item["environment_id"] for item in environment("list")["environments"]] == ["default"]
    assert environment("create", "--id", "acme", "Again", status=1)["code"] == "conflict"


def test_without_an_id_it_gets_a_random_one(environment):
    first, second = (environment("create", "Acme AB")["environment_id"] for _ in range(2))
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


def test_records_stay_unless_it_is_said_that_they_go(environment, monkeypatch):
    async def many(_book: Environments, _ident: str) -> int:
        return 5

    environment("create", "--id", "acme", "Acme AB")
    monkeypatch.setattr(Environments, "records", many)
    fault = environment("delete", "acme", status=1)
    assert (fault["code"], "--records" in fault["message"]) == ("environment_in_use", True)
    assert environment("delete", "acme", "--records") == {"environment_id": "acme"}


@pytest.mark.parametrize(("ident", "code"), [("default", "conflict"), ("nobody", "not_found")])
def test_what_cannot_be_removed_is_told(environment, ident, code):
    assert environment("delete", ident, "--records", status=1)["code"] == code


def test_what_makes_no_environment_is_told_with_every_fault(environment):
    fault = environment("create", "--id", "Acme", "", status=1)
    assert [detail["source"] for detail in fault["details"]] == ["/environment_id", "/name"]


def test_without_a_vault_nothing_is_made(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("DOMICILE__DATA", str(tmp_path / "other"))
    assert "domicile init" in environment("create", "x", status=1)["message"]
    assert not (tmp_path / "other").exists()

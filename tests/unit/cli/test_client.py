import asyncio
import json
from functools import partial
from typing import Any

import pytest

from proxy.bootstrap.offline import stopped_clients
from proxy.cli import main
from proxy.config import load_settings

pytestmark = pytest.mark.usefixtures("vault")


@pytest.fixture
def run(told):
    return partial(told, "client")


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

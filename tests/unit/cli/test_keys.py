import json
from functools import partial
from pathlib import Path

import pytest

from proxy.cli import main

pytestmark = pytest.mark.usefixtures("vault")


@pytest.fixture
def run(told):
    return partial(told, "keys")


def test_keys_are_listed_by_id_and_no_key_is_printed(run, capsys):
    data = run("list")
    assert data["data"][0]["wrapped_by"] == data["master"]["key_id"]
    assert main(["keys", "list"]) == 0
    printed = capsys.readouterr().out
    assert data["master"]["key_id"] in printed
    assert json.loads(Path("data/keys.json").read_text())["key"] not in printed


@pytest.mark.parametrize(("kind", "count"), [("data", 2), ("signing", 2), ("master", 1)])
def test_each_kind_is_rotated(run, capsys, kind, count):
    before = run("list")
    after = run("rotate", kind)
    if kind == "master":
        assert after["master"] != before["master"]
    else:
        keys = after["data"][0]["keys"] if kind == "data" else after["signing"]
        assert len(keys) == count
    again = run("list")
    assert (again["master"], again["signing"]) == (after["master"], after["signing"])
    assert again["data"][0]["keys"] == after["data"][0]["keys"]
    assert main(["keys", "rotate", kind]) == 0
    assert f"Another {kind} key is in use." in capsys.readouterr().out


def test_an_environment_that_is_not_there_is_a_fault(run):
    assert run("rotate", "data", "--environment", "nowhere", status=1)["code"] == "not_found"


def test_everything_is_opened_and_counted(run, capsys):
    data = run("verify")
    assert data["environments"] == [{"environment_id": "default", "records": {}}]
    assert main(["keys", "verify"]) == 0
    assert "Every keyset opens." in capsys.readouterr().out

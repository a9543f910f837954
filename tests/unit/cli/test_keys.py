import json
from functools import partial
from pathlib import Path

import pytest

from proxy.cli import keys, main
from proxy.crypto.key_sources import _sealed_source
from tests.support.kms import standing_in

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


@pytest.mark.parametrize(
    ("kind", "count"), [("data", 2), ("signing", 2), ("audit", 2), ("master", 1)]
)
def test_each_kind_is_rotated(run, capsys, kind, count):
    before = run("list")
    after = run("rotate", kind)
    if kind == "master":
        assert after["master"] != before["master"]
    else:
        keys = after["data"][0]["keys"] if kind == "data" else after[kind]
        assert len(keys) == count
    again = run("list")
    for listed in ("master", "signing", "audit"):
        assert again[listed] == after[listed]
    assert again["data"][0]["keys"] == after["data"][0]["keys"]
    assert main(["keys", "rotate", kind]) == 0
    assert f"Another {kind} key is in use." in capsys.readouterr().out


def test_an_environment_that_is_not_there_is_a_fault(run):
    assert run("rotate", "data", "--environment", "nowhere", status=1)["code"] == "not_found"


def test_everything_is_opened_and_counted(run, capsys):
    run("rotate", "data")
    data = run("verify")
    (first, second) = (key["key_id"] for key in data["data"][0]["keys"])
    (found,) = data["environments"]
    assert found["environment_id"] == "default"
    assert {key: set(kinds) for key, kinds in found["sealed"].items()} == {
        first: {"notes"},  # sealed anew by the next instance
        second: {"notes"},  # what the audit log remembers was written after the rotation
    }
    assert main(["keys", "verify"]) == 0
    printed = capsys.readouterr().out
    assert "Every keyset opens." in printed
    assert f"{first} sealed {found['sealed'][first]['notes']} notes" in printed


def test_what_an_older_key_is_still_needed_for_is_said():
    data = {
        "master": {"key_id": "m"},
        "signing": [],
        "data": [
            {
                "environment_id": "default", "sealings": 1, "wrapped_by": "m",
                "keys": [
                    {"key_id": "a", "seals": False, "used_by": {"replies": 3, "versions": 1}},
                    {"key_id": "b", "seals": False, "used_by": None}, {"key_id": "c", "created_at": "2026-11-29T10:00:00.000Z", "seals": True, "used_by": None},
                ],
                "reseal": {"state": "done", "records": 5, "versions": 4, "contents": 2, "unreadable": 0, "blocked_by": ["instance 1 (pod-1, process 7)"]},
                "hash": {
                    "keys": [{"key_id": "h", "makes": False}, {"key_id": "i", "created_at": "2026-11-28T10:00:00.000Z", "makes": True}],
                    "rehash": {"state": "done", "records": 5, "versions": 4, "unreadable": 0, "left": {"replies": 2}},
                },
                "token": {"keys": [{"key_id": "t", "makes": False}, {"key_id": "u", "makes": True}]},
            }
        ],
    }  # fmt: skip
    assert keys._text(data).splitlines()[1:] == [
        "data     default: 1 sealings, wrapped by m",
        "         a  (opens 3 replies, 1 versions)",
        "         b  (opens)",
        "         c, of 2026-11-29",
        "         re-encryption:  done, 5 records, 4 versions, 2 contents, 0 unreadable",
        "         waits for instance 1 (pod-1, process 7)",
        "hash     h  (older, still asked)",
        "hash     i, of 2026-11-28",
        "         rehashing: done, 5 records, 4 versions; needed for 2 replies",
        "token    t  (resolves only)",
        "token    u",
    ]


@pytest.mark.parametrize("kind", ["hash", "token"])
def test_roots_are_rotated_and_those_before_stay_as_long_as_they_are_needed(run, capsys, kind):
    (before,) = run("list")["data"][0][kind]["keys"]
    older, newer = run("rotate", kind)["data"][0][kind]["keys"]
    assert (older["key_id"], older["makes"], newer["makes"]) == (before["key_id"], False, True)
    assert main(["keys", "rotate", kind]) == (1 if kind == "hash" else 0)


def test_all_keys_are_replaced_at_once_and_what_came_of_each_is_told(run, capsys):
    before = run("list")
    after = run("replace")
    kinds = ["master", "signing", "audit", "data", "hash", "token"]
    assert sorted(one["key"] for one in after["replaced"]) == sorted(kinds)
    assert {one["fault"] for one in after["replaced"]} == {None}
    assert after["master"] != before["master"]
    for kind in ("signing", "audit"):
        assert after[kind][-1] != before[kind][-1]
    for kind in ("hash", "token"):
        assert len(after["data"][0][kind]["keys"]) == 2
    assert after["data"][0]["keys"][-1] != before["data"][0]["keys"][-1]
    again = run("replace", status=1)  # what is under the older hash root still needs it
    faults = {one["key"]: one["fault"] for one in again["replaced"]}
    assert [key for key, fault in faults.items() if fault] == ["hash"]
    assert main(["keys", "replace"]) == 1
    assert "hash of default: The hash root before is still needed" in capsys.readouterr().out


def test_a_key_file_is_sealed_by_a_key_service_and_the_vault_opens_with_it(
    run, capsys, tmp_path, monkeypatch
):
    file = Path("data/keys.json").resolve()
    before = run("list")
    bare = json.loads(file.read_text())["key"]
    with standing_in("hashicorp-vault", tmp_path) as service:
        for name, value in service.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DOMICILE__KEYS", service.address(file))
        assert "nothing has sealed" in run("list", status=1)["message"]
        told = run("rewrap", "--from", f"file://{file}")
        assert told["master"]["key_id"] == before["master"]["key_id"]
        assert told["keys"] == f"{file}, sealed by hashicorp-vault"
        assert bare not in file.read_text()
        assert run("list")["master"] == before["master"]
        assert run("rotate", "master")["master"] != before["master"]
        assert main(["keys", "rewrap"]) == 0
        assert "and 1 older one.\n" in capsys.readouterr().out
        service.fault = "disabled"
        _sealed_source.cache_clear()  # as another process has it
        error = run("list", status=1)
        assert (error["code"], "enable it" in error["message"]) == ("bad_keys", True)

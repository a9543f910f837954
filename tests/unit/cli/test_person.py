"""What the command makes of answers; the instance stands in for itself in ``tests/e2e``."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.events import MARKED, REPEATED
from proxy.cli import main, remote

ONE = {"schema": "contact", "record_key": "c-1", "fields": ["email"]}


class Instance(remote.Remote):
    """Answers in two parts."""

    asked: list[tuple[str, Any, Any]]

    def __init__(self, found: list[dict[str, Any]], **meta: Any) -> None:
        super().__init__("http://vault.test", "", "")
        self.asked = []
        self.found, self.meta = found, meta

    def content(self, _method: str, path: str, content: Any = None, headers: Any = None) -> Any:
        self.asked.append((path, content, headers))
        last = "next=" in path
        meta = {"looked_at": 2, "schemas": ["contact"], "next": None if last else "a/b"}
        return {"data": self.found if last else [], "meta": {**meta, **self.meta}}


def run(
    monkeypatch: pytest.MonkeyPatch, instance: Instance, *words: str, value: str = "ann@x.example"
) -> int:
    monkeypatch.setattr(remote, "remote", lambda _arguments: instance)
    monkeypatch.setattr(sys, "stdin", io.StringIO(value + "\n"))
    return main(["person", *words])


def test_all_parts_are_one_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance([{**ONE, "record": {"id": "c-1"}}])
    target = tmp_path / "ann.json"
    assert run(monkeypatch, instance, "export", "--purpose", "asked", str(target)) == 0
    assert json.loads(target.read_text()) == {
        "looked_at": 4, "schemas": ["contact"], "records": [{**ONE, "record": {"id": "c-1"}}],
    }  # fmt: skip
    assert [path for path, _, _ in instance.asked] == [
        "/api/persons/find", "/api/persons/find?next=a%2Fb",
    ]  # fmt: skip
    assert instance.asked[0][1:] == ({"value": "ann@x.example"}, {"x-purpose": "asked"})
    assert "1 records of 4" in capsys.readouterr().out
    assert run(monkeypatch, instance, "export", str(target)) == 1


LINES: list[dict[str, Any]] = [
    {"records": ["aaaaaaaaaaaa"]},
    {"records": ["bbbbbbbbbbbb", "aaaaaaaaaaaa"]},
    # it ended nothing: the record may have been made again since the delete that it repeats
    {"records": ["aaaaaaaaaaaa"], "reason": REPEATED, "at": "2026-11-23T02:00:00.000Z"},
    {"records": ["iiiiiiiiiiii"], "reason": REPEATED, "operation": "delete_attachment"},
    {"records": ["cccccccccccc"], "at": "2026-11-22T02:00:00.000Z"},  # not after the backup
    {"records": ["dddddddddddd"], "event": "write"},
    {"records": ["eeeeeeeeeeee"], "files": ["F"], "operation": "delete_attachment"},
    {"records": ["ffffffffffff"], "operation": "migrate_record"},
    {"records": ["gggggggggggg"], "reason": MARKED},
    {"records": ["hhhhhhhhhhhh"], "reason": "nobody knows whether the application took it"},
    {"count": 1},
]


def test_records_that_were_deleted_since_the_backup_are_taken_from_the_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = {"at": "2026-11-22T02:00:00.001Z", "event": "delete", "schema": "contact"}
    lines = [
        json.dumps({"n": n, **about, **one}, separators=(",", ":")) for n, one in enumerate(LINES)
    ]
    (log := tmp_path / "shipped.log").write_text("".join(f"node app: {one}\n" for one in lines))
    instance = Instance([{**ONE, "erased": True}])
    since = ["--since", "2026-11-22T03:00:00+01:00", "--lines", str(log)]
    assert run(monkeypatch, instance, "erase-again", *since, "--yes", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["deleted"], told["unclear"], told["erased"]) == (2, 2, True)
    path, content, _ = instance.asked[0]
    assert path == "/api/persons/erase"
    assert content == {"deleted": dict.fromkeys(["aaaaaaaaaaaa", "bbbbbbbbbbbb"], about["at"])}
    log.write_text('"event":"delete"\n')
    assert run(monkeypatch, instance, "erase-again", *since) == 1
    assert "Line 1 of shipped.log is no line of an audit log." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "one", "status"),
    [
        ((), {**ONE, "record": {}}, 0),
        (("--yes",), {**ONE, "erased": True}, 0),
        (("--yes",), {**ONE, "erased": False, "code": "access_denied"}, 1),
    ],
)
def test_what_is_still_there_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    one: dict[str, Any],
    status: int,
) -> None:
    instance = Instance([one])
    assert run(monkeypatch, instance, "erase", *words, "--json") == status
    told = json.loads(capsys.readouterr().out)
    assert told["erased"] is (bool(words) and not status)
    assert "record" not in told["records"][0]
    assert instance.asked[0][0] == f"/api/persons/{'erase' if words else 'find'}"


def test_what_does_not_open_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, Instance([], unreadable=1), "export") == 1
    assert json.loads(capsys.readouterr().out)["unreadable"] == 2
    assert run(monkeypatch, Instance([]), "erase", value=" ") == 1


def test_each_line_is_a_value_and_other_values_of_the_records_are_hinted_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {**ONE, "others": ["phone"], "record": {"id": "c-1"}}
    instance = Instance([record])
    target = str(tmp_path / "ann.json")
    value = "ann@x.example\n\n 070 1 \nAnn Lind"
    assert run(monkeypatch, instance, "export", "--mentions", target, value=value) == 0
    assert instance.asked[0][1] == {
        "value": "ann@x.example", "also": ["070 1", "Ann Lind"], "mentions": True,
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "other values of a person in contact.phone: look at them" in said
    assert run(monkeypatch, instance, "erase", value=value) == 0
    assert instance.asked[-1][1] == {"value": "ann@x.example", "also": ["070 1", "Ann Lind"]}
    assert "contact.phone" in capsys.readouterr().out


def test_the_list_of_what_would_be_erased_says_which_are_in_doubt_without_their_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instance = Instance([{**ONE, "record": {"id": "c-1"}, "in_doubt": [{"name": "Ann Lind"}]}])
    assert run(monkeypatch, instance, "erase") == 0
    said = capsys.readouterr().out
    assert "; in doubt, look at its versions first" in said
    assert "Ann Lind" not in said
    assert run(monkeypatch, instance, "erase", "--json") == 0
    assert json.loads(capsys.readouterr().out)["records"][0]["in_doubt"] is True

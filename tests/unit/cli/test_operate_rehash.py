import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main, operate
from tests.support.fakevault import FakeVault, fake_vault
from tests.support.rehashing import DTK


def test_what_it_takes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehash", "--rules"]) == 2
    assert "RULES" in capsys.readouterr().err


class Rehashing:
    """The operations of a vault, as the command meets them."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []
        self.pages = [["a", "b"], ["c"]]

    def answer(self, method: str, path: str, _headers: Any, body: bytes) -> tuple[int, Any]:
        if path.startswith("/api/records/rehash/tokens"):
            number = int("next=" in path)
            data = [
                {"record_key": key, "profile_key": None, "fields": {"key1": "t"}}
                for key in self.pages[number]
            ]
            return 200, {
                "data": data,
                "meta": {"count": len(data), "next": None if number else "n/1"},
            }
        self.asked.append((method, json.loads(body) if body else None))
        return (202 if method == "POST" else 200), self.states.pop(0)


def state(name: str, done: int = 0, failed: int = 0) -> dict[str, Any]:
    return {"state": name, "run": "1", "total": 3, "done": done, "failed": failed, "unreadable": 0}


@pytest.fixture(autouse=True)
def at_home(client: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operate, "_LOOK", 0.0)
    monkeypatch.setenv("DOMICILE_DTK", DTK)
    (tmp_path / "rules.json").write_text('{"key1": {"strategy": "uuid"}}')


@pytest.fixture
def vault() -> Iterator[tuple[FakeVault, Rehashing]]:
    with fake_vault() as made:
        rehashing, otherwise = Rehashing(), made.answer

        def answer(method: str, path: str, headers: Any, body: bytes) -> Any:
            answers = rehashing.answer if path.startswith("/api/records/rehash") else otherwise
            return answers(method, path, headers, body)

        made.answer = answer  # type: ignore[method-assign]  # what is not of this command is told as ever
        yield made, rehashing


def run(vault: FakeVault, *more: str) -> int:
    return main(["rehash", "--url", vault.url, *more])


def test_a_run_is_begun_followed_and_its_tokens_are_fetched(
    vault: Any, tmp_path: Path, capsys: Any
) -> None:
    fake, rehashing = vault
    rehashing.states = [state("running"), state("running", 2), state("done", 3)]
    assert run(fake, "--rules", "rules.json", "--tokens", "t.jsonl") == 0
    wanted = {"dtk": DTK, "rules": {"key1": {"strategy": "uuid"}}, "forget": False}
    assert rehashing.asked == [("POST", wanted), ("GET", None), ("GET", None)]
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    assert [json.loads(line)["record_key"] for line in lines] == ["a", "b", "c"]
    assert (tmp_path / "t.jsonl").stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr()
    assert "done: 3 of 3 records" in said.out
    assert DTK not in said.out + said.err


def test_without_rules_the_run_under_way_is_followed(vault: Any, capsys: Any) -> None:
    fake, rehashing = vault
    rehashing.states = [state("running", 1), state("done", 3, failed=1)]
    assert run(fake, "--json") == 1
    assert json.loads(capsys.readouterr().out)["failed"] == 1
    rehashing.states = [{"state": "none"}]
    assert run(fake) == 0
    assert "no rehash of all records yet" in capsys.readouterr().out


def test_old_tokens_are_forgotten_and_runs_are_stopped(vault: Any, capsys: Any) -> None:
    fake, rehashing = vault
    rehashing.states = [state("done", 3)]
    assert run(fake, "--forget") == 0
    assert (
        "Old tokens, in whose place there are newer ones, are found no longer."
        in capsys.readouterr().out
    )
    rehashing.states = [state("stopped", 1)]
    assert run(fake, "--stop") == 0
    assert rehashing.asked == [("POST", {"forget": True}), ("DELETE", None)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--stop", "--forget"), "stands alone"),
        (("--rules", "none.json"), "cannot be read"),
        (("--rules", "bad.json"), "is not JSON"),
        (("--tokens", "rules.json"), "is there already"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_asked(
    vault: Any, tmp_path: Path, capsys: Any, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "bad.json").write_text("{")
    fake, rehashing = vault
    assert run(fake, *words) == 1
    assert told in capsys.readouterr().err
    assert rehashing.asked == []


def test_a_key_has_to_be_in_the_environment(
    vault: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOMICILE_DTK")
    assert run(vault[0], "--rules", "rules.json") == 1
    assert "DOMICILE_DTK" in capsys.readouterr().err

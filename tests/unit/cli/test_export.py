import json
import shutil

import pytest

from proxy.cli import main
from tests.support.fakevault import FakeVault, fake_vault


@pytest.fixture(autouse=True)
def at_home(client):
    assert main(["init"]) == 0


@pytest.fixture
def vault():
    with fake_vault() as made:
        made.records = {f"k{n}": {"id": f"k{n}", "age": n, "name": f"Person{n}"} for n in range(5)}
        yield made


def run(vault: FakeVault, command: str, *more: str) -> int:
    return main([command, "--url", vault.url, "--schema", "contact", *more])


@pytest.mark.parametrize("name", ["a.jsonl.sealed", "a.csv.sealed", "a.sealed"])
def test_what_was_exported_is_sealed_and_imported_again(vault, tmp_path, name):
    before = dict(vault.records)
    assert run(vault, "export", name) == 0
    content = (tmp_path / name).read_bytes()
    assert b"Person" not in content
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    vault.records.clear()
    assert run(vault, "import", name) == 0
    assert vault.records == before


def test_in_the_clear_only_when_told(vault, tmp_path, capsys):
    assert run(vault, "export", "--clear", "a.jsonl") == 0
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == list(
        vault.records.values()
    )
    assert "in the clear" in capsys.readouterr().out


def test_a_file_that_is_there_is_not_overwritten(vault, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("mine")
    assert run(vault, "export", "a.jsonl") == 1
    assert (tmp_path / "a.jsonl").read_text() == "mine"
    assert "is there already" in capsys.readouterr().err


def test_an_export_that_fails_leaves_no_file(vault, tmp_path, capsys):
    answer = vault.answer

    def failing(method, path, headers, body):
        if "next=" in path:
            return 500, {"code": "internal", "detail": "It failed.", "errors": []}
        return answer(method, path, headers, body)

    vault.answer = failing
    assert run(vault, "export", "a.jsonl") == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("a.")] == []
    assert "It failed." in capsys.readouterr().err


def test_records_that_do_not_open_fail_an_export(vault, tmp_path, capsys):
    answer = vault.answer

    def damaged(method, path, headers, body):
        if "export" in path:
            return 200, {"data": [], "meta": {"unreadable": 1}}
        return answer(method, path, headers, body)

    vault.answer = damaged
    assert run(vault, "export", "a.jsonl") == 1
    assert "do not open" in capsys.readouterr().err


def test_another_key_does_not_open_it(vault, tmp_path, capsys):
    assert run(vault, "export", "a.jsonl.sealed") == 0
    shutil.rmtree(tmp_path / "data")
    assert main(["init"]) == 0
    assert run(vault, "import", "a.jsonl.sealed") == 1


def test_a_file_has_to_be_named(capsys):
    assert main(["export", "--schema", "contact"]) == 2
    assert "FILE" in capsys.readouterr().err

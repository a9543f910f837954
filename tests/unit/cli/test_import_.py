import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.cli import main
from proxy.cli.import_ import translated_records, with_names
from proxy.cli.record_files import FileRecord
from proxy.cli.remote import RemoteAnswer
from proxy.errors import VaultError
from tests.support.fakevault import FakeVault, fake_vault

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def vault():
    with fake_vault() as made:
        yield made


def run(vault: FakeVault, file, *more: str) -> int:
    return main(["import", "--url", vault.url, "--schema", "contact", "--json", *more, str(file)])


def lines(path: Path, count: int, **fields: Any) -> Path:
    path.write_text("".join(json.dumps({"id": f"k{n}", **fields}) + "\n" for n in range(count)))
    return path


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_records_go_in_batches_of_a_hundred(vault, tmp_path, capsys):
    assert run(vault, lines(tmp_path / "a.jsonl", 250)) == 0
    assert len(vault.records) == 250
    assert vault.asked.count("POST /api/models/contact/batch") == 3
    assert told(capsys)["created"] == 250
    assert not (tmp_path / "a.jsonl.import").exists()


def test_a_table_is_read_by_the_types_of_the_schema(vault, tmp_path):
    (tmp_path / "a.csv").write_text("id,age,name\r\nk1,41,Ann\r\nk2,,Bo\r\n")
    assert run(vault, tmp_path / "a.csv") == 0
    assert list(vault.records.values()) == [
        {"id": "k1", "age": 41, "name": "Ann"},
        {"id": "k2", "name": "Bo"},
    ]


def test_an_answer_that_was_lost_stores_nothing_twice(vault, tmp_path, capsys):
    vault.lost = 1
    assert run(vault, lines(tmp_path / "a.jsonl", 5)) == 0
    assert told(capsys)["created"] == 5
    assert vault.asked.count("POST /api/models/contact/batch") == 2


def test_an_import_that_was_stopped_goes_on_where_it_was(vault, tmp_path, capsys):
    file = lines(tmp_path / "a.jsonl", 250)
    content = file.read_text().splitlines(keepends=True)
    content[220] = '{"id": "k220", "age": -1}\n'
    file.write_text("".join(content))
    assert run(vault, file) == 1
    assert told(capsys)["faults"] == [
        {"source": "line 221 /age", "text": "Has to be a whole number."}
    ]
    assert len(vault.records) == 200
    before = len(vault.asked)
    assert run(vault, file) == 1
    assert vault.asked[before:].count("POST /api/models/contact/batch") == 1


def test_a_file_that_changed_since_is_not_taken_for_the_same(vault, tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    lines(file, 150)
    file.write_text(file.read_text() + '{"id": "x", "age": -1}\n')
    assert run(vault, file) == 1
    file.write_text('{"id": "y"}\n')
    assert run(vault, file) == 1
    assert "belongs to an import of another content" in told(capsys)["message"]


@pytest.mark.parametrize(("existing", "counts"), [("skip", (2, 0, 1)), ("update", (2, 1, 0))])
def test_records_that_exist_are_skipped_or_updated(vault, tmp_path, capsys, existing, counts):
    vault.records["k1"] = {"id": "k1", "name": "before"}
    assert run(vault, lines(tmp_path / "a.jsonl", 3, age=7), "--existing", existing) == 0
    said = told(capsys)
    assert (said["created"], said["updated"], said["skipped"]) == counts
    assert vault.records["k1"].get("age") == (7 if existing == "update" else None)


def test_records_that_exist_stop_the_import_unless_told(vault, tmp_path, capsys):
    vault.records["k1"] = {"id": "k1"}
    assert run(vault, lines(tmp_path / "a.jsonl", 3)) == 1
    assert told(capsys)["faults"] == [{"source": "line 2 /id", "text": "The key is used."}]
    assert list(vault.records) == ["k1"]


def test_what_cannot_be_taken_goes_to_a_file_and_the_rest_is_stored(vault, tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "a"}\nno json\n{"id": "b", "age": -1}\n{"id": "c"}\n')
    assert run(vault, file, "--rejects", str(tmp_path / "left.jsonl")) == 1
    said = told(capsys)
    assert (said["created"], said["rejected"], said["complete"]) == (2, 2, True)
    assert list(vault.records) == ["a", "c"]
    left = tmp_path / "left.jsonl"
    assert [json.loads(line) for line in left.read_text().splitlines()] == [
        "no json",
        {"id": "b", "age": -1},
    ]
    assert left.stat().st_mode & 0o777 == 0o600


def test_a_file_for_what_cannot_be_taken_that_cannot_be_written_is_named(vault, tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    file.write_text("no json\n")
    assert run(vault, file, "--rejects", str(tmp_path / "none/left.jsonl")) == 1
    assert "none/left.jsonl cannot be written" in told(capsys)["message"]


def test_no_line_of_a_table_that_cannot_be_read_is_lost(vault, tmp_path, capsys):
    file = tmp_path / "a.csv"
    file.write_text('id,age\r\na,1\r\nb,old\r\nc,2,3\r\nd,"2"2\r\ne,3\r\n')
    assert run(vault, file, "--rejects", str(tmp_path / "left.jsonl")) == 1
    assert told(capsys)["rejected"] == 3
    assert list(vault.records) == ["a", "e"]
    left = [json.loads(line) for line in (tmp_path / "left.jsonl").read_text().splitlines()]
    assert left == [{"id": "b", "age": "old"}, "c,2,3", 'd,"2"2']


@pytest.mark.parametrize(
    "case",
    [
        ("a.txt", b"", "name it with --format"),
        ("a.jsonl", b"\xff\xfe", "not UTF-8"),
        ("a.csv", b"", "names the fields"),
    ],
)
def test_a_file_that_is_none_of_ours_is_told(vault, tmp_path, capsys, case):
    name, content, text = case
    (tmp_path / name).write_bytes(content)
    assert run(vault, tmp_path / name) == 1
    assert text in told(capsys)["message"]


def test_a_file_that_is_not_there_and_a_schema_that_is_not(vault, tmp_path, capsys):
    assert run(vault, tmp_path / "none.jsonl") == 1
    assert "cannot be read" in told(capsys)["message"]
    assert (
        main(["import", "--url", vault.url, "--schema", "x", str(lines(tmp_path / "a.jsonl", 1))])
        == 1
    )
    assert "no such schema" in capsys.readouterr().err


def test_credentials_come_from_the_environment_alone(vault, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("DOMICILE_CLIENT_SECRET")
    assert run(vault, lines(tmp_path / "a.jsonl", 1)) == 1
    assert "DOMICILE_CLIENT_SECRET" in told(capsys)["message"]


def test_a_schema_has_to_be_named(capsys):
    assert main(["import", "a.jsonl"]) == 2
    assert "--schema" in capsys.readouterr().err


@pytest.mark.parametrize("existing", ["overwrite", ""])
def test_what_becomes_of_records_that_exist_is_one_of_three(existing, capsys):
    assert main(["import", "--schema", "contact", "--existing", existing, "a.jsonl"]) == 2
    assert "skip" in capsys.readouterr().err


class Instance:
    """Keeps records of Sweden."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, _method: str, _path: str, content: Any) -> RemoteAnswer:
        self.asked.append(content["country"])
        status = {"se": 200, "DE": 400, "xx": 503}.get(content["country"], 409)
        return RemoteAnswer(status, {"code": "vault_down", "detail": "down", "errors": []})


def read(
    *records: dict[str, Any], schema: str = "records", instance: Instance | None = None
) -> list[FileRecord]:
    entries = iter([FileRecord(number, record) for number, record in enumerate(records, 1)])
    return list(translated_records(cast(Any, instance or Instance()), schema, entries))


def test_other_names_and_what_the_service_sets_are_understood() -> None:
    exported = {
        "key": "a", "record_key": "a", "range_key": 7, "version": 3, "is_encrypted": True, "country": "se", "key1": None,
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "attachments": [], "expires_at": None,
    }  # fmt: skip
    (entry,) = read(exported)
    assert entry.record == {
        "record_key": "a", "range_key1": 7, "stated_version": 3, "is_encrypted": True, "key1": None, "expires_at": None,
    }  # fmt: skip


def test_records_of_other_schemas_stay_as_they_are() -> None:
    assert read({"key": "a", "country": "de"}, schema="contact") == [
        FileRecord(1, {"key": "a", "country": "de"})
    ]
    assert with_names("contact", {"key1": "string"}) == {"key1": "string"}


def test_a_record_of_another_country_is_refused_and_each_country_asked_about_once() -> None:
    instance = Instance()
    found = read(
        *({"key": "a", "country": name} for name in ("se", "de", "se", "DE", "de", None, 7)),
        instance=instance,
    )
    assert [entry.record is None for entry in found] == [
        False, True, False, True, True, False, True,
    ]  # fmt: skip
    assert "another country" in found[1].fault
    assert instance.asked == ["se", "de", "DE"]


def test_an_instance_that_cannot_tell_ends_the_import() -> None:
    with pytest.raises(VaultError):
        read({"key": "a", "country": "xx"})


def test_two_names_that_disagree_are_a_fault_of_the_line() -> None:
    (entry,) = read({"key": "a", "record_key": "b"})
    assert (entry.record, entry.line) == (None, 1)
    assert "another name" in entry.fault
    assert entry.unread == {"key": "a", "record_key": "b"}


def test_a_line_that_is_at_fault_already_stays_so() -> None:
    fault = FileRecord(4, None, "this line is not JSON")
    assert list(translated_records(SimpleNamespace(), "records", iter([fault]))) == [fault]  # type: ignore[arg-type]  # asked nothing


def test_types_are_known_by_both_names() -> None:
    types = with_names(
        "records",
        {"record_key": "primary_key", "range_key1": "integer", "stated_version": "integer"},
    )
    assert (types["key"], types["range_key"], types["version"]) == (
        "primary_key",
        "integer",
        "integer",
    )

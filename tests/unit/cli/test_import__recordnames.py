from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.cli.import_ import translated_records, with_names
from proxy.cli.record_files import FileRecord
from proxy.cli.remote import RemoteAnswer
from proxy.errors import VaultError


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
        False,
        True,
        False,
        True,
        True,
        False,
        True,
    ]
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

import pytest

from proxy.model.schema import Field, FieldType, Schema, Storage

SCHEMA = Schema(
    "person",
    (
        Field("name"),
        Field("email", storage=Storage.INDEXED_HASHED, kind="email"),
        Field("age", FieldType.INTEGER, Storage.INDEXED),
    ),
)


def test_a_field_is_found_by_its_name() -> None:
    assert SCHEMA.field("email").kind == "email"
    with pytest.raises(KeyError):
        SCHEMA.field("phone")


def test_what_is_encrypted_has_nothing_outside_the_sealed_body() -> None:
    assert [field.name for field in SCHEMA.kept_outside] == ["email", "age"]


def test_the_names_are_those_of_the_specification() -> None:
    assert [str(kind) for kind in FieldType] == [
        "primary_key", "string", "integer", "decimal", "boolean", "datetime", "date", "time", "json",
    ]  # fmt: skip
    assert [str(kind) for kind in Storage] == ["indexed", "indexed_hashed", "encrypted"]

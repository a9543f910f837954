from typing import Any

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.model.schema_document import (
    LONGEST_STRING,
    MOST_SCHEMA_FIELDS,
    RESERVED,
    read_definition,
    write_definition,
)
from tests.support.table import table

KEY = {"id": {"type": "primary_key"}}


def faults(raw: Any, name: str = "contact") -> list[tuple[str, str]]:
    with pytest.raises(VaultError) as refused:
        read_definition(name, raw)
    assert refused.value.code is Code.INVALID_SCHEMA
    return [(detail.source, detail.text) for detail in refused.value.details]


def places(raw: Any, name: str = "contact") -> list[str]:
    return [place for place, _ in faults(raw, name)]


def field_faults(definition: Any, name: str = "x") -> list[str]:
    found = places({"fields": {**KEY, name: definition}})
    assert all(place.startswith(f"/fields/{name}") for place in found)
    return [place.removeprefix(f"/fields/{name}") for place in found]


def test_the_example_of_the_interface_is_read() -> None:
    schema = read_definition(
        "contact",
        {
            "fields": {
                "id": {"type": "primary_key"},
                "email": {
                    "type": "string",
                    "storage": "indexed_hashed",
                    "partial_match": True,
                    "required": True,
                    "max_length": 300,
                },
            }
        },
    )
    assert schema == Schema(
        "contact",
        (
            Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED, required=True),
            Field(
                "email",
                FieldType.STRING,
                Storage.INDEXED_HASHED,
                required=True,
                max_length=300,
                partial_match=True,
            ),
        ),
    )


@table("kind", [kind for kind in FieldType if kind is not FieldType.PRIMARY_KEY])
def test_a_field_of_any_type_is_found_by_its_exact_value_unless_something_else_is_said(
    kind: FieldType,
) -> None:
    schema = read_definition("contact", {"fields": {**KEY, "x": {"type": str(kind)}}})
    assert schema.field("x") == Field("x", kind, Storage.INDEXED_HASHED)


@table("kind", [kind for kind in FieldType if kind is not FieldType.PRIMARY_KEY])
@table("storage", Storage)
def test_what_is_written_out_is_read_back_as_the_same_schema(
    kind: FieldType, storage: Storage
) -> None:
    raw = {"fields": {"x": {"type": str(kind), "storage": str(storage), "required": True}, **KEY}}
    schema = read_definition("contact", raw)
    written = write_definition(schema)
    assert read_definition("contact", written) == schema
    assert list(written["fields"]) == ["x", "id"]


def test_partial_match_on_a_plain_string_is_redundant_and_allowed() -> None:
    raw = {"fields": {**KEY, "x": {"type": "string", "storage": "indexed", "partial_match": True}}}
    assert read_definition("contact", raw).field("x").partial_match


@table("raw", [None, [], "fields", 1])
def test_a_definition_is_an_object(raw: Any) -> None:
    assert places(raw) == [""]


def test_other_members_of_a_definition_are_refused_by_their_pointers() -> None:
    assert places({"fields": KEY, "a/b": 1, "name": "x"}) == ["/a~1b", "/name"]
    assert places({"field": KEY}) == ["/field", "/fields"]
    assert places({"fields": [KEY]}) == ["/fields"]


def test_there_is_exactly_one_primary_key() -> None:
    assert places({"fields": {}}) == ["/fields"]
    assert places({"fields": {"a": {"type": "string"}}}) == ["/fields"]
    assert places(
        {"fields": {**KEY, "b": {"type": "primary_key"}, "c": {"type": "primary_key"}}}
    ) == [
        "/fields/b/type",
        "/fields/c/type",
    ]


@table("name", ["", "1a", "_a", "a-b", "a b", "a" * 65, "é", "a\n", "$or"])
def test_names_are_letters_digits_and_underscores(name: str) -> None:
    assert places({"fields": KEY}, name) == ["name"]
    assert places({"fields": {**KEY, name: {"type": "string"}}}) == [f"/fields/{name}"]


@table("name", sorted(RESERVED))
def test_no_field_is_called_like_a_member_that_is_there_already(name: str) -> None:
    assert field_faults({"type": "string"}, name) == [""]


def test_a_long_name_is_a_name() -> None:
    name = "a" * 64
    assert read_definition(name, {"fields": {name: {"type": "primary_key"}}}).name == name


@table(
    "definition, expected",
    [
        ("string", [""]),
        (None, [""]),
        ({}, ["/type"]),
        ({"type": "text"}, ["/type"]),
        ({"type": ["string"]}, ["/type"]),
        ({"type": None}, ["/type"]),
        ({"type": "string", "storage": "plain"}, ["/storage"]),
        ({"type": "string", "storage": 1}, ["/storage"]),
        ({"type": "string", "required": "yes"}, ["/required"]),
        ({"type": "string", "required": None}, ["/required"]),
        ({"type": "string", "unique": True}, ["/unique"]),
        ({"type": "string", "max_length": 0}, ["/max_length"]),
        ({"type": "string", "max_length": LONGEST_STRING + 1}, ["/max_length"]),
        ({"type": "string", "max_length": "300"}, ["/max_length"]),
        ({"type": "string", "max_length": True}, ["/max_length"]),
        ({"type": "string", "max_length": None}, ["/max_length"]),
        ({"type": "integer", "max_length": 5}, ["/max_length"]),
        ({"type": "string", "partial_match": 1}, ["/partial_match"]),
        ({"type": "string", "storage": "encrypted", "partial_match": True}, ["/partial_match"]),
        ({"type": "date", "partial_match": True}, ["/partial_match"]),
        ({"type": "json", "partial_match": True}, ["/partial_match"]),
        (
            {"type": "integer", "max_length": 5, "partial_match": True, "a": 1},
            ["/a", "/max_length", "/partial_match"],
        ),
    ],
)
def test_each_fault_of_a_field_is_told_with_its_place(definition: Any, expected: list[str]) -> None:
    assert field_faults(definition) == expected


@table(
    ("more", "expected"),
    [
        ({"storage": "indexed"}, ["/fields/id/storage"]),
        ({"storage": "encrypted"}, ["/fields/id/storage"]),
        ({"required": False}, ["/fields/id/required"]),
        ({"max_length": 129}, ["/fields/id/max_length"]),
    ],
)
def test_the_primary_key_is_required_and_hashed_and_short(
    more: dict[str, Any], expected: list[str]
) -> None:
    assert places({"fields": {"id": {"type": "primary_key", **more}}}) == expected


def test_the_primary_key_may_be_searched_for_in_part() -> None:
    raw = {"fields": {"id": {"type": "primary_key", "partial_match": True, "max_length": 128}}}
    field = read_definition("contact", raw).field("id")
    assert (field.partial_match, field.max_length) == (True, 128)


def test_all_faults_are_told_at_once_and_none_repeats_what_was_sent() -> None:
    found = faults(
        {
            "fields": {
                "a-b": {"type": "Secret1"},
                "c": {"type": "string", "storage": "Secret2", "Secret": 1},
            }
        },
        "no name",
    )
    assert [place for place, _ in found] == [
        "name",
        "/fields/a-b",
        "/fields/a-b/type",
        "/fields/c/Secret",
        "/fields/c/storage",
        "/fields",
    ]
    assert not any("Secret" in text for _, text in found)


def test_a_schema_has_so_many_fields_at_most() -> None:
    fields = {**KEY, **{f"f{number}": {"type": "string"} for number in range(MOST_SCHEMA_FIELDS)}}
    assert places({"fields": fields}) == ["/fields"]
    fields.pop("f0")
    assert len(read_definition("contact", {"fields": fields}).fields) == MOST_SCHEMA_FIELDS


def test_a_detail_is_a_place_and_a_text() -> None:
    (found,) = faults({"fields": {}})
    assert Detail(*found).text.startswith("A schema has exactly one")

import gc

from proxy.model.schema import (
    KEYS,
    RECORD_KEY,
    SEARCHABLE,
    FieldType,
    Path,
    PathStep,
    RecordKeys,
    Storage,
    Value,
    records_schema,
    spell,
)
from proxy.model.schema_document import write_definition
from tests.support.table import table


def test_it_has_every_field_of_the_specification() -> None:
    schema = records_schema()
    assert schema.primary is schema.field(RECORD_KEY)
    hashed = [
        "profile_key",
        "parent_key",
        *(f"service_key{n}" for n in range(1, 6)),
        *(f"key{n}" for n in range(1, 26)),
    ]
    for name in hashed:
        assert (schema.field(name).type, schema.field(name).storage) == (
            FieldType.STRING,
            Storage.INDEXED_HASHED,
        ), name
    for name in (f"range_key{n}" for n in range(1, 11)):
        assert (schema.field(name).type, schema.field(name).storage) == (
            FieldType.INTEGER,
            Storage.INDEXED,
        ), name
    for name in (f"decimal_key{n}" for n in range(1, 21)):
        assert (schema.field(name).type, schema.field(name).storage) == (
            FieldType.DECIMAL,
            Storage.INDEXED,
        ), name
    for name in ("body", "precommit_body"):
        assert (schema.field(name).type, schema.field(name).storage) == (
            FieldType.STRING,
            Storage.ENCRYPTED,
        ), name
    assert [field.name for field in schema.fields if field.required] == [RECORD_KEY]


def test_a_key_is_plain_or_searchable_by_choice() -> None:
    schema = records_schema(
        RecordKeys(frozenset(("key1",)), frozenset(("key1", "key2", RECORD_KEY)))
    )
    assert schema.field("key1").storage is Storage.INDEXED
    assert not schema.field("key1").partial_match  # a plain text needs no index for its parts
    assert schema.field("key2").partial_match
    assert schema.field(RECORD_KEY).partial_match
    assert not schema.field("key3").partial_match


@table(
    "keys",
    [RecordKeys(), RecordKeys(frozenset(KEYS)), RecordKeys(partial_match=frozenset(SEARCHABLE))],
)
def test_its_definition_can_be_told(keys: RecordKeys) -> None:
    told = write_definition(records_schema(keys))["fields"]
    assert len(told) == 67
    assert told["key7"]["storage"] == ("indexed" if keys.plain else "indexed_hashed")


def test_a_number_is_not_the_text_of_it() -> None:
    assert Value("1.0", json=True) != Value("1.0")
    assert Value("1.0", json=True) != Value("1.00", json=True)
    assert len({Value("a"), Value("a"), Value("a", json=True)}) == 2


def test_values_cost_the_cycle_collector_nothing() -> None:
    assert not gc.is_tracked(Value("Ann"))


@table(
    ("path", "text"),
    [
        ((), "$"),
        (("email",), "$.email"),
        (("items", PathStep.EACH, "first_name"), "$.items[*].first_name"),
        ((PathStep.DEEP, "email"), "$..email"),
        ((PathStep.DEEP, PathStep.MEMBERS), "$..*"),
        ((PathStep.DEEP, PathStep.EACH, PathStep.MEMBERS), "$..[*].*"),
        ((0, "first-name"), "$[0]['first-name']"),
        (("", "0th"), "$['']['0th']"),
    ],
)
def test_a_path_is_spelled_as_a_selector(path: Path, text: str):
    assert spell(path) == text


def test_a_relative_path_is_spelled_from_its_own_root():
    assert spell(("address", "street"), "@") == "@.address.street"

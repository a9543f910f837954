from decimal import Decimal
from typing import Any

import msgspec
import pytest

from proxy.errors import Code, VaultError
from proxy.model.record import DEFAULTS, RecordDraft, RecordLimits
from proxy.model.record_reader import read_draft, read_drafts
from proxy.model.schema import Field, FieldType, Schema, Storage
from tests.support.table import table

SCHEMA = Schema(
    "contact",
    (
        Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED),
        Field("name", required=True),
        Field("age", FieldType.INTEGER),
        Field("sum", FieldType.DECIMAL),
        Field("extra", FieldType.JSON),
        Field("a/b~c", FieldType.BOOLEAN),
    ),
)
GOOD = {
    "id": "c1", "name": "Ann", "age": Decimal("41.0"), "sum": 12, "extra": {"a": 1}, "a/b~c": None,
}  # fmt: skip


def draft(
    raw: Any, partial: bool = False, limits: RecordLimits = DEFAULTS, pointer: str = ""
) -> RecordDraft:
    return read_draft(SCHEMA, raw, partial=partial, limits=limits, pointer=pointer)


def faults(raw: Any, **more: Any) -> list[str]:
    with pytest.raises(VaultError) as caught:
        draft(raw, **more)
    assert caught.value.code is Code.INVALID_RECORD
    return [detail.source for detail in caught.value.details]


def test_a_record_becomes_a_draft_of_typed_values():
    found = draft(GOOD)
    assert found.key == "c1"
    assert found.fields == {**GOOD, "age": 41, "sum": Decimal(12)}
    assert isinstance(found.fields["sum"], Decimal)
    assert found.expires_at is msgspec.UNSET


def test_a_null_is_kept_and_what_was_not_sent_is_absent():
    assert draft({"id": "c1", "name": "Ann", "age": None}).fields == {
        "id": "c1",
        "name": "Ann",
        "age": None,
    }


def test_an_update_may_leave_out_everything():
    found = draft({}, partial=True)
    assert (found.key, found.fields) == (None, {})
    assert faults({"id": None, "name": None}, partial=True) == ["/id", "/name"]


def test_expiry_is_an_instant_or_never():
    assert draft({**GOOD, "expires_at": "1970-01-01T00:00:01Z"}).expires_at == 1000
    assert draft({**GOOD, "expires_at": None}).expires_at is None
    assert faults({**GOOD, "expires_at": 5}) == ["/expires_at"]


def test_all_faults_are_told_at_once_with_their_pointers():
    raw = {
        "age": "x",
        "a/b~c": 1,
        "extra": {"deep": ["\0"]},
        "unknown": 1,
        "created_at": "x",
        "record_key": "c1",
    }
    assert faults(raw, pointer="/3") == [
        "/3/age", "/3/a~1b~0c", "/3/extra/deep/0", "/3/unknown", "/3/record_key", "/3/id", "/3/name",
    ]  # fmt: skip


@table("raw", [[], "x", 1, None, True])
def test_a_record_is_an_object(raw):
    assert faults(raw, pointer="/0") == ["/0"]


def test_no_text_repeats_a_value():
    marker = "Zaphod77"
    with pytest.raises(VaultError) as caught:
        draft(
            {
                "id": 5,
                "name": [marker],
                "age": marker,
                "sum": marker,
                "extra": marker,
                "a/b~c": marker,
                "x": marker,
            }
        )
    assert marker not in f"{caught.value.message} {caught.value.details}"
    assert len(caught.value.details) == 7


def many(raw: Any, limits: RecordLimits = DEFAULTS, partial: bool = False) -> list[RecordDraft]:
    return read_drafts(SCHEMA, raw, partial=partial, limits=limits, pointer="/records")


def refused(raw: Any, code: Code, **more: Any) -> list[str]:
    with pytest.raises(VaultError) as caught:
        many(raw, **more)
    assert caught.value.code is code
    return [detail.source for detail in caught.value.details]


def test_a_batch_is_read_in_order():
    raw = [{"id": f"c{n}", "name": "Ann"} for n in range(100)]
    assert [(found.key, found.at) for found in many(raw)] == [
        (f"c{n}", f"/records/{n}") for n in range(100)
    ]


def test_faults_of_a_batch_begin_with_the_number_of_the_record():
    raw = [{"id": "c1", "name": "Ann"}, {"id": "c2"}, {"id": "c1", "name": 1}, 5]
    assert refused(raw, Code.INVALID_RECORD) == [
        "/records/1/name",
        "/records/2/name",
        "/records/2/id",
        "/records/3",
    ]


def test_a_batch_has_bounds():
    assert refused({}, Code.INVALID_INPUT) == ["/records"]
    assert refused([], Code.INVALID_INPUT) == ["/records"]
    assert refused([{}] * 3, Code.BATCH_TOO_LARGE, limits=RecordLimits(batch=2)) == ["/records"]


def test_updates_that_name_no_key_are_no_duplicates():
    assert len(many([{"name": "Ann"}, {"name": "Ann"}], partial=True)) == 2


def test_a_reader_is_compiled_once_for_a_schema():
    from proxy.model import record_reader

    one = record_reader._reader(SCHEMA, DEFAULTS)
    assert record_reader._reader(SCHEMA, DEFAULTS) is one
    assert record_reader._reader(SCHEMA, RecordLimits()) is not one


def test_a_schema_without_a_primary_key_has_drafts_without_a_key():
    assert (
        read_draft(Schema("s", (Field("name"),)), {"name": "x"}, partial=False, limits=DEFAULTS).key
        is None
    )


def test_a_record_of_very_many_unknown_members_is_refused_by_what_is_told_of_them():
    raw = {
        **{f"m{number}": 1 for number in range(300)},
        "id": "c1",
        "name": 5,
        "expires_at": "never",
    }
    with pytest.raises(VaultError) as caught:
        draft(raw, limits=RecordLimits(faults=301))
    places = [detail.source for detail in caught.value.details]
    assert places == [*[f"/m{number}" for number in range(300)], "/name"]
    assert "1 more" in caught.value.message  # expires_at


def test_members_beyond_what_is_told_are_counted_in_order():
    with pytest.raises(VaultError) as caught:
        draft(
            {"id": "c1", **{f"m{number}": 1 for number in range(5)}, "age": "x"},
            limits=RecordLimits(faults=2),
        )
    assert [detail.source for detail in caught.value.details] == ["/m0", "/m1"]
    assert "5 more" in caught.value.message  # three members, the age, and the name that is missing

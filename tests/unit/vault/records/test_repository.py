from decimal import Decimal

import pytest
from msgspec import UNSET

from proxy.audit.events import EventKind
from proxy.errors import Code, VaultError
from proxy.model.record import Action, Fields, Record, RecordDraft
from proxy.model.rights import FULL
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage.rows import Row, RowState
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.collection import TableSpec
from proxy.vault.records.repository import Records
from tests.support.api import interface
from tests.support.audit import audit_context
from tests.support.examples import CONTACT
from tests.support.vaults import make_bench

SCHEMA = Schema(
    "contact",
    (
        Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED),
        Field("name", FieldType.STRING, Storage.INDEXED_HASHED, partial_match=True),
        Field("city", FieldType.STRING, Storage.INDEXED),
        Field("age", FieldType.INTEGER, Storage.INDEXED),
        Field("sum", FieldType.DECIMAL, Storage.INDEXED),
        Field("paid", FieldType.BOOLEAN, Storage.INDEXED_HASHED),
        Field("note", FieldType.STRING, Storage.ENCRYPTED),
        Field("extra", FieldType.JSON, Storage.INDEXED_HASHED),
    ),
)
FIELDS: Fields = {
    "id": "c1",
    "name": "Ann Ek",
    "city": " Umeå",
    "age": 41,
    "sum": Decimal("12.50"),
    "paid": True,
    "note": "secret",
    "extra": {"tags": ["a", 1]},
}


async def records() -> Records:
    bench = await make_bench()
    return Records(await bench.vault.collection(TableSpec(SCHEMA, {}, None, addressed=False)))


async def test_a_row_opens_to_the_record_it_was_made_of() -> None:
    made = await records()
    row = made.new_row("c1", FIELDS, 7, "client", None)
    record = made.open(row)
    assert (record.key, record.fields, record.version, record.action, record.by) == (
        "c1",
        FIELDS,
        1,
        Action.CREATE,
        "client",
    )
    assert (row.state, row.key) == (RowState.LIVE, made.collection.key_hash("c1"))


async def test_only_plain_fields_are_readable_in_the_row() -> None:
    made = await records()
    row = made.new_row("c1", FIELDS, 7, "client", None)
    readable = [cell for cell in row.cells if not isinstance(cell, bytes)]
    assert readable == ["Umeå", 41, "12.5"]
    assert b"secret" not in row.body


async def test_a_column_is_asked_by_the_same_cell_that_stands_in_it() -> None:
    made = await records()
    row = made.new_row("c1", FIELDS, 7, "client", None)
    names = [field.name for field in SCHEMA.column_fields]
    assert [made.cell(name, FIELDS[name]) for name in names] == list(row.cells)
    assert (
        made.cell("name", "Ann Ek ") == made.cell("name", "Ann Ek") != made.cell("name", "ann ek")
    )
    assert made.cell("sum", Decimal("12.5000")) == "12.5"
    assert len({made.column(name) for name in names}) == len(names)
    with pytest.raises(KeyError):
        made.column("note")


async def test_parts_of_texts_and_leaves_of_documents_are_among_the_hashes() -> None:
    made = await records()
    found = made.hashes(FIELDS)
    assert any(found.issuperset(entries) for entries in made.part_entries("name", "nn E"))
    assert not any(
        found.issuperset(entries) for entries in made.part_entries("name", "zzqqxxjjwwvvkk")
    )
    assert made.leaf_hash("extra", ("tags",), "a", inside=True) in found
    assert made.leaf_hash("extra", ("tags", 1), 1, inside=False) in found
    assert made.leaf_hash("extra", ("tags",), "a", inside=False) not in found


async def test_the_next_version_keeps_key_and_creation() -> None:
    made = await records()
    row = made.new_row("c1", FIELDS, 7, "client", None)
    following = made.next_row(row, {**FIELDS, "sum": Decimal(3)}, "other", 99)
    record = made.open(following)
    assert (record.version, record.action, record.by, record.expires_at) == (
        2,
        Action.UPDATE,
        "other",
        99,
    )
    assert record.fields["sum"] == Decimal(3)
    assert isinstance(record.fields["sum"], Decimal)
    assert (following.key, following.created_at) == (row.key, row.created_at)


async def test_the_note_of_a_deletion_opens_as_the_last_version() -> None:
    made = await records()
    row = made.new_row("c1", FIELDS, 7, "client", None)
    record = made.open_past(made.last_past(row, "eve"), row.created_at)
    assert (record.action, record.by, record.version, record.fields) == (
        Action.DELETE,
        "eve",
        2,
        FIELDS,
    )


async def test_a_body_in_another_row_does_not_open() -> None:
    made = await records()
    one, other = (
        made.new_row(key, {**FIELDS, "id": key}, rid, "c", None)
        for key, rid in (("c1", 7), ("c2", 8))
    )
    with pytest.raises(VaultError) as caught:
        made.open(one._replace(body=other.body))
    assert caught.value.code is Code.CANNOT_OPEN
    assert [record.key for record in made.open_all([one._replace(body=other.body), other])] == [
        "c2"
    ]


async def test_what_the_proxy_has_collected_is_read_as_a_record() -> None:
    bench = await make_bench()
    collection = bench.people
    content = RecordBody(
        {
            "name": (TokenizedValue(1, "Ann", False, "t", False),),
            "tags": tuple(TokenizedValue(n, f"{n}", False, f"t{n}", False) for n in (2, 3)),
        }
    )
    row = collection.new_row(content, 5, b"s" * 16)
    sealed = collection.sealer.record(5, b"s" * 16).key("17", row.updated_at)
    record = Records(collection).open(
        row._replace(state=RowState.LIVE, key=collection.key_hash("17"), key_sealed=sealed)
    )
    assert (record.key, record.fields) == ("17", {"name": "Ann", "tags": ["2", "3"]})
    assert Records(collection).collects("17")


async def test_new_rows_have_every_field_of_their_own_alone_and_together() -> None:
    made = await records()
    drafts = [
        RecordDraft(f"c{number}", {**FIELDS, "id": f"c{number}"}, expires)
        for number, expires in enumerate((UNSET, None, 0, 9_000_000_000_000))
    ]
    keys = [made.collection.key_hash(draft.key or "") for draft in drafts]
    alone = [
        made.new_rows([draft], [key], [rid], "client", made.collection.clock())[0]
        for rid, (draft, key) in enumerate(zip(drafts, keys, strict=True), 7)
    ]
    now = made.collection.clock()
    for rows in (
        alone,
        made.new_rows(drafts, keys, range(7, 11), "client", made.collection.clock()),
    ):
        for rid, (row, draft, key) in enumerate(zip(rows, drafts, keys, strict=True), 7):
            expires = None if draft.expires_at is UNSET else draft.expires_at
            cells = made.cells(draft.fields)
            assert row == Row(
                rid, key, None, RowState.LIVE, 1, now, now, expires, row.salt, row.body, cells
            )
            assert type(row) is Row
            opened = made.open(row)
            assert (opened.fields, opened.by, opened.action) == (
                draft.fields,
                "client",
                Action.CREATE,
            )
        assert len({row.salt for row in rows}) == len(rows)
    assert made.new_rows([], [], [], "client", 0) == []


# ---- audit


AT = Record(1, "1", {"id": "1", "name": "x"}, 1, 0, 0)


async def test_records_tell_the_context_of_their_request_and_no_other(tmp_path):
    async with interface(tmp_path) as here:
        await here.declare("contact", CONTACT)
        one, other = audit_context(), audit_context()
        records = here.catalog.records("contact")
        mine, _ = records.under(FULL, None, one), records.under(FULL, None, other)
        mine.note_written([AT], [RecordDraft("1", AT.fields)])
        mine.when(lambda _record: None).note_shown(["1"])
        mine.note(EventKind.REVEAL, [None, None], ["name"])
        written, shown = one.events
        assert (written.kind, written.fields, [*written.keys]) == (
            EventKind.WRITE,
            {"id", "name"},
            ["1"],
        )
        assert (shown.kind, shown.fields, shown.unnamed) == (
            EventKind.REVEAL,
            {field.name for field in records.schema.fields},
            2,
        )
        assert other.events == []


async def test_without_a_request_nothing_is_collected(tmp_path):
    async with interface(tmp_path) as here:
        await here.declare("contact", CONTACT)
        records = here.catalog.records("contact")
        records.note_shown(["1"])
        records.note_files(EventKind.DELETE, ["1"], ["f"])
        assert records.audit is None
        assert records.tampered(2).args
        assert here.catalog.records("contact") is records

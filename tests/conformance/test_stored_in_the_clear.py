"""What the files of a store tell: the values of fields declared ``indexed``, and nothing else of
anybody.
"""

import base64
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.model.filter_reader import read_aggregate, read_find
from proxy.model.record import DEFAULTS, Record
from proxy.model.record_reader import read_draft
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage import open_store
from proxy.storage.postgres.address import parse_address
from proxy.storage.postgres.link import connect
from proxy.vault.collection import HistoryPolicy, TableSpec
from proxy.vault.records.aggregate import aggregate_groups
from proxy.vault.records.commit import no_changes
from proxy.vault.records.delete import delete_one
from proxy.vault.records.find import find_page
from proxy.vault.records.update import change_records
from tests.conformance.test_storage import PLACES
from tests.support.contacts import make_contacts

#: A value of each type that stands nowhere by chance; booleans tell nothing to look for.
MARKS: dict[FieldType, Any] = {
    FieldType.STRING: "Zaphod Beeblebrox", FieldType.INTEGER: 7423198465127,
    FieldType.DECIMAL: Decimal("83459127364.5911"), FieldType.DATETIME: "1957-03-28T19:43:27.631Z",
    FieldType.DATE: "1957-03-29", FieldType.TIME: "19:43:28",
    FieldType.JSON: {"planet": "Magrathea", "inner": [{"dolphins": "Slartibartfast"}]},
}  # fmt: skip
OPEN = (Storage.INDEXED,)
CLOSED = (Storage.INDEXED_HASHED, Storage.ENCRYPTED)


def schema(storages: tuple[Storage, ...]) -> Schema:
    fields = [Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED, partial_match=True)]
    for kind in MARKS:
        for storage in storages:
            partial = kind is FieldType.STRING and storage is Storage.INDEXED_HASHED
            fields.append(Field(f"{kind}_{storage}", kind, storage, partial_match=partial))
    return Schema("contact", tuple(fields))


def spellings(value: Any) -> list[bytes]:
    """How a value may stand in a file: as text in several codings, as a whole number."""
    if isinstance(value, dict):
        return [form for text in ("Magrathea", "Slartibartfast") for form in spellings(text)]
    if isinstance(value, int | Decimal):
        whole = int(value) if isinstance(value, int) else int(value * 10**4)
        # SQLite takes 1, 2, 3, 4, 6 or 8 bytes; the longer ones hold the shorter
        size = (whole.bit_length() + 8) // 8
        return [str(value).encode(), whole.to_bytes(size, "big"), whole.to_bytes(size, "little")]
    text = str(value)
    return [
        form
        for one in (text, text.lower(), text.upper(), text[:12], text[-9:])
        for form in (
            one.encode(),
            one.encode("utf-16-le"),
            one.encode().hex().encode(),
            base64.b64encode(one.encode())[:-3],
        )
    ]


async def filled(
    uri: str, folder: Path, storages: tuple[Storage, ...]
) -> tuple[bytes, list[Record]]:
    """Everything that a store holds after writes, searches, history and deletions."""
    store = await open_store(uri)
    recipe = TableSpec(schema(storages), {}, None, addressed=False)
    contacts = await make_contacts(
        store, recipe=recipe, history=HistoryPolicy(keep=10**9, keep_deleted=True)
    )
    records = contacts.records
    sent = {f"{kind}_{storage}": value for kind, value in MARKS.items() for storage in storages}
    for key in ("Trillian McMillan", "Marvin Android", "Arthur P. Dent"):
        await contacts.add(
            read_draft(records.schema, {"id": key, **sent}, partial=False, limits=DEFAULTS)
        )
    changed = read_draft(
        records.schema, {"id": "Marvin Android", **sent}, partial=True, limits=DEFAULTS
    )
    await change_records(records, [changed], "me", no_changes)
    await delete_one(records, "Arthur P. Dent", "me", no_changes)
    where = {"search_keys": "beeblebrox"}
    found = await find_page(records, read_find(records.schema, {"filter": where}, DEFAULTS))
    grouped = {
        "metrics": {"n": {"func": "count"}},
        "filter": where,
        "group_by": {"keys": ["id"], "limit": 1},
    }
    page = await aggregate_groups(records, read_aggregate(records.schema, grouped, DEFAULTS), "me")
    cursor = str(page.next).encode()
    content = await content_of(uri, folder)
    await store.close()
    content += (
        await content_of(uri, folder)
        + cursor
        + base64.urlsafe_b64decode(cursor + b"=" * (-len(cursor) % 4))
    )
    return content, found.records


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def content_of(uri: str, folder: Path) -> bytes:
    """The files of an embedded store, or every cell of every table of one on a server."""
    if not uri.startswith("postgresql:"):
        return files_of(folder)
    address = parse_address(uri)
    connection = await connect(address)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
    cells = [
        cell
        for (table,) in await connection.fetch(tables, address.schema)
        for row in await connection.fetch(f'SELECT * FROM "{table}"')
        for cell in row
    ]
    await connection.close()
    return b"\n".join(
        cell
        if isinstance(cell, bytes)
        else cell.to_bytes(8, "big", signed=True)
        if isinstance(cell, int)
        else str(cell).encode()
        for cell in cells
    )


LASTING = [name for name in PLACES if name != "memory"]


@pytest.mark.parametrize("engine", LASTING)
async def test_of_hashed_and_encrypted_fields_nothing_is_readable(tmp_path, engine):
    content, records = await filled(PLACES[engine](tmp_path), tmp_path, CLOSED)
    assert [record.key for record in records] == ["Trillian McMillan", "Marvin Android"]
    for value in (*MARKS.values(), "Trillian McMillan", "Marvin Android", "Arthur P. Dent"):
        assert [form for form in spellings(value) if form in content] == []


@pytest.mark.parametrize("engine", LASTING)
async def test_what_is_indexed_is_readable_so_the_search_would_find_the_rest(tmp_path, engine):
    content, records = await filled(PLACES[engine](tmp_path), tmp_path, OPEN)
    assert len(records) == 2
    for kind, value in MARKS.items():
        assert any(form in content for form in spellings(value)) is (kind is not FieldType.JSON), (
            kind
        )

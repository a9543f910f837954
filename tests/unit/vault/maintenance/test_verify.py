import os
from typing import Any

from proxy.model.record import Record
from proxy.storage.changes import Change, Detach, Reindex, Replace, UpdateFile
from proxy.storage.rows import File
from proxy.vault.maintenance.verify import VaultFindings, extent, verify_vault
from proxy.vault.records.attachment_metadata import new_id
from proxy.vault.records.commit import no_changes as nothing_more
from proxy.vault.records.update import change_records
from proxy.vault.schema_store import Entries, Origin, SchemaEntry
from tests.support.attached import Files, as_object, make_files
from tests.support.contacts import CONTACT, contact
from tests.support.table import table


async def furnished() -> Files:
    """Two records with history, JSON and columns, and two files."""
    files = await make_files()
    entries = Entries(files.contacts.store, "test")
    await entries.load()
    await entries.put(SchemaEntry(CONTACT, Origin.API))
    await files.contacts.add(
        contact("c", name="Zorbina", city="Lund", age=4, extra={"a": [1, "x"]})
    )
    await change_records(files.contacts.records, [contact("c", name="Quuxia")], "x", nothing_more)
    await files.add(os.urandom(200_000))
    await files.add(b"", "empty", key="c")
    return files


async def look(files: Files) -> VaultFindings:
    return await verify_vault([(files.contacts.vault, files.contents)], lambda *_: None)


async def found(files: Files) -> list[str]:
    return [fault.text for fault in (await look(files)).faults]


async def commit(files: Files, *changes: Change) -> None:
    await files.contacts.store.commit(files.contacts.records.collection.table, changes)


async def test_a_vault_in_order_has_no_faults_and_everything_was_looked_at():
    files = await furnished()
    told: list[tuple[str, int]] = []
    findings = await verify_vault(
        [(files.contacts.vault, files.contents)], lambda *progress: told.append(progress)
    )
    assert findings.faults == []
    assert dict(findings.counts) == {
        "records": 3,
        "versions": 1,
        "attachments": 2,
        "bytes": 200_000,
    }
    assert (
        sum(count for what, count in told if what == "records")
        == 3
        == await extent([(files.contacts.vault, files.contents)])
    )
    assert sum(count for what, count in told if what == "attachments") == 2
    assert findings.left.total() == 0


async def row_of(files: Files, key: str) -> Any:
    return await files.contacts.row(key)


async def test_a_body_that_was_changed_or_put_back_is_found_by_its_number():
    files = await furnished()
    row = await row_of(files, "c")
    await commit(
        files, Replace(row._replace(body=row.body[:-1] + bytes([row.body[-1] ^ 1])), row.version)
    )
    (fault,) = (await look(files)).faults
    assert (fault.schema, fault.rid, fault.text) == (
        "contact",
        row.rid,
        "The record does not open.",
    )


async def test_columns_and_index_agree_with_the_body():
    files = await furnished()
    row = await row_of(files, "c")
    cells = tuple("Malm" if cell == "Lund" else cell for cell in row.cells)
    await commit(files, Replace(row._replace(cells=cells), row.version))
    (fault,) = await found(files)
    assert fault == "A column, or the state, is not what is sealed in the record."
    other = files.contacts.records.collection.sealer
    genuine = other.with_body(row._replace(cells=cells), other.open(row))
    await commit(files, Replace(genuine, row.version))
    assert await found(files) == ["A column holds something else than the record."]
    await commit(files, Replace(row, row.version))
    record: Record = files.contacts.records.open(row)
    one = next(iter(files.contacts.records.hashes(record.fields)))
    await commit(files, Reindex(row.rid, drop=(one,)))
    assert await found(files) == ["The record is missing in the index of parts."]


async def file_of(files: Files, size: int) -> File:
    return next(file for file in await files.rows() if file.size == size)


@table(
    ("change", "text"),
    [
        (lambda file: file._replace(sealed=b"x"), "An attachment does not open."),
        (lambda file: file._replace(size=3), "An attachment does not open."),
        (lambda file: file._replace(name=bytes(16)), "An attachment does not open."),
    ],
)
async def test_a_changed_row_of_a_file_is_found(change, text):
    files = await furnished()
    file = await file_of(files, 200_000)
    await commit(files, UpdateFile(change(file), file.rid))
    findings = await look(files)
    assert [(fault.rid, fault.text) for fault in findings.faults] == [(file.rid, text)]


async def test_contents_that_are_lost_changed_or_cut_are_found():
    files = await furnished()
    file = await file_of(files, 200_000)
    opened = await files.objects.open(file.object)
    sealed = await opened.read(0, opened.size)
    changed = sealed[:100_000] + bytes([sealed[100_000] ^ 1]) + sealed[100_001:]
    for content, text in (
        (changed, "The content of an attachment does not open."),
        (sealed[:-1], "An attachment does not open."),
        (None, "The content of an attachment is missing."),
    ):
        await files.objects.delete(file.object)
        if content is not None:
            await files.objects.put(file.object, as_object(content))
        assert await found(files) == [text]


async def test_what_a_running_instance_removes_is_counted_and_no_fault():
    files = await furnished()
    file = await file_of(files, 0)
    await commit(files, Detach(file.rid, file.file_id))
    await files.objects.put(new_id().hex() + "0" * 16, as_object(b"x"))
    findings = await look(files)
    assert (findings.faults, dict(findings.left)) == ([], {"orphaned": 1, "doomed": 1})


async def test_a_past_version_that_does_not_open_is_found():
    files = await furnished()
    row = await row_of(files, "c")
    table = files.contacts.store._tables[files.contacts.records.collection.table]  # type: ignore[attr-defined]  # the reference's
    for at, past in table.past.items():
        table.past[at] = past._replace(body=b"x")
    assert [(fault.rid, fault.text) for fault in (await look(files)).faults] == [
        (row.rid, "A past version does not open.")
    ]


async def test_a_table_without_a_definition_is_looked_at_as_far_as_it_can_be():
    files = await furnished()
    entries = Entries(files.contacts.store, "test")
    await entries.load()
    await entries.remove("contact", "none")
    findings = await look(files)
    assert (findings.faults, findings.counts["records"], findings.counts["attachments"]) == (
        [],
        3,
        2,
    )

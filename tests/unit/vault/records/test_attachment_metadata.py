import uuid

import pytest

from proxy.errors import Code, VaultError
from proxy.model.query import Equals, Query
from proxy.storage.changes import Attach, UpdateFile
from proxy.storage.rows import Row
from proxy.vault.attachment_content import StoredContent
from proxy.vault.attachments.service import IncomingFile, Owner, download, upload
from proxy.vault.proxied.merge_duplicates import rename
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from proxy.vault.records.attachment_metadata import (
    Label,
    adopted,
    attachments_of,
    file_of,
    handed_over,
    id_of,
    new_id,
    open_file,
    with_attachments,
)
from proxy.vault.records.commit import no_changes
from proxy.vault.records.find import find_page
from proxy.vault.records.merge import merge_records
from proxy.vault.records.repository import Records
from tests.support.attached import in_pieces, make_files
from tests.support.contacts import Contacts, contact, make_contacts
from tests.support.memory_objects import MemoryObjects
from tests.support.table import table
from tests.support.vaults import draft, make_bench


async def rows() -> tuple[Contacts, Row, Row]:
    contacts = await make_contacts()
    await contacts.add(contact("a"), contact("b"))
    first, second = await contacts.row("a"), await contacts.row("b")
    assert first is not None
    assert second is not None
    return contacts, first, second


def kept(file_id: bytes | None = None, size: int = 5) -> StoredContent:
    return StoredContent((file_id or new_id()).hex() + "0" * 16, b"s" * 16, size, "ab" * 32)


LABEL = Label("cv.pdf", "text/plain")


async def test_what_is_sealed_of_a_file_opens_with_its_row():
    contacts, row, _ = await rows()
    file = file_of(contacts.records.collection, row, kept(), LABEL)
    opened = open_file(contacts.records.collection, row, file)
    assert (opened.attachment.filename, opened.attachment.mime_type, opened.attachment.size) == (
        "cv.pdf",
        "text/plain",
        5,
    )
    assert opened.stored == kept(file.file_id)
    assert b"cv.pdf" not in file.sealed
    assert file.object.startswith(file.file_id.hex())


@table(
    "moved",
    [
        lambda file, other: file._replace(rid=other.rid),
        lambda file, _: file._replace(file_id=new_id()),
        lambda file, _: file._replace(object="0" * 48),
        lambda file, _: file._replace(size=6),
        lambda file, _: file._replace(sealed=file.sealed[:-1]),
        lambda file, _: file._replace(sealed=b""),
    ],
)
async def test_what_was_moved_or_changed_does_not_open(moved):
    contacts, row, other = await rows()
    file = moved(file_of(contacts.records.collection, row, kept(), LABEL), other)
    for opener in (row, other):
        with pytest.raises(VaultError) as caught:
            open_file(contacts.records.collection, opener, file)
        assert caught.value.code is Code.CANNOT_OPEN


async def test_files_handed_over_are_sealed_anew_and_their_content_stays():
    contacts, row, other = await rows()
    file = file_of(contacts.records.collection, row, kept(), LABEL)
    contacts.clock.advance(7)
    (change,) = handed_over(contacts.records.collection, (row, other), {"x": file}, [])
    assert isinstance(change, UpdateFile)
    assert (change.holder, change.file.rid, change.file.file_id) == (
        row.rid,
        other.rid,
        file.file_id,
    )
    assert (change.file.object, change.file.created_at) == (file.object, file.created_at)
    assert (
        open_file(contacts.records.collection, other, change.file).stored
        == open_file(contacts.records.collection, row, file).stored
    )
    with pytest.raises(VaultError) as caught:
        handed_over(contacts.records.collection, (row, other), {"x": file}, [change.file])
    assert caught.value.code is Code.FILE_EXISTS


async def test_one_that_does_not_open_is_left_out_and_counted():
    contacts, row, _ = await rows()
    good = file_of(contacts.records.collection, row, kept(), LABEL)
    bad = file_of(contacts.records.collection, row, kept(), Label("other", "a/b"))._replace(
        sealed=b"x"
    )
    await contacts.store.commit(contacts.records.collection.table, [Attach(good), Attach(bad)])
    found = await attachments_of(contacts.records.collection, [row.rid, 99])
    assert {rid: [item.filename for item in items] for rid, items in found.items()} == {
        row.rid: ["cv.pdf"]
    }
    assert contacts.events["unopenable_file"] == 1
    assert await attachments_of(contacts.records.collection, []) == {}


def test_an_id_has_one_spelling():
    made = uuid.uuid4()
    assert id_of(str(made)) == made.bytes
    assert [id_of(text) for text in ("", "x", str(made).upper(), made.hex, f"{{{made}}}")] == [
        None
    ] * 5
    assert uuid.UUID(bytes=new_id()).version == 4


async def test_a_search_shows_what_records_have_attached_in_the_order_of_their_making():
    files = await make_files()
    made = await files.add(b"x")
    files.contacts.clock.advance(1)
    other = await files.add(b"y", "other")
    for tests in ((), (Equals("record_key", ("a",)),)):
        found = await find_page(files.contacts.records, Query(tests))
        assert {
            record.key: record.attachments for record in found.records if record.attachments
        } == {"a": (made, other)}
    assert await with_attachments(files.contacts.records, []) == []


async def test_a_record_that_is_migrated_takes_its_files_along():
    files = await make_files()
    made = await files.add(b"x")
    files.contacts.clock.advance(1)
    other = await files.add(b"y", "other", key="b")
    await files.contacts.add(contact("c"))
    await files.add(b"z", key="c")
    with pytest.raises(VaultError) as caught:
        await merge_records(files.contacts.records, "a", "c", "x", no_changes)
    assert (caught.value.code, caught.value.details[0].source) == (Code.FILE_EXISTS, "source/0")
    await merge_records(files.contacts.records, "a", "b", "x", no_changes)
    assert [file.file_id for file in await files.of("b")] == [made.file_id, other.file_id]
    assert await files.read(made.file_id, key="b") == b"x"
    await files.contacts.vault.maintain()
    assert len(await files.names()) == 3


@table(
    ("name", "numbered"),
    [
        ("cv.pdf", "cv (2).pdf"),
        ("cv", "cv (2)"),
        (".profile", ".profile (2)"),
        ("x" * 255, "x" * 251 + " (2)"),
    ],
)
async def test_a_record_that_is_joined_with_another_keeps_the_files_of_both(name, numbered):
    bench = await make_bench()
    for key in ("old", "new"):
        (held,) = await stage_creates(bench.people, [draft(name=key)], [None])
        await bind(bench.people, [(held, key)])
        bench.clock.advance(1)
    records = Records(bench.people)
    contents = await bench.vault.keep_files(MemoryObjects(), 1000)
    for key in ("old", "new"):
        label = Label(name, "a/b")
        await upload(
            contents,
            Owner(records, key),
            IncomingFile(label, in_pieces(key.encode())),
            lambda _: (),
        )
        bench.clock.advance(1)
    rows = await bench.people.by_key(["old"])
    await rename(bench.people, rows["old"].rid, "new")
    rows = await bench.people.by_key(["old", "new"])
    assert list(rows) == ["new"]
    rid = rows["new"].rid
    found = (await attachments_of(records.collection, [rid]))[rid]
    assert [item.filename for item in found] == [numbered, name]
    await bench.vault.maintain()
    read = [await download(contents, Owner(records, "new"), item.file_id) for item in found]
    assert [b"".join([piece async for piece in one.pieces(0, 3)]) for one in read] == [
        b"old",
        b"new",
    ]


async def test_a_file_that_does_not_open_stays_behind_when_records_are_joined():
    contacts, row, other = await rows()
    file = file_of(contacts.records.collection, row, kept(), LABEL)
    assert (
        adopted(contacts.records.collection, (row, other), [file._replace(sealed=b"x")], []) == []
    )
    assert contacts.events["unopenable_file"] == 1

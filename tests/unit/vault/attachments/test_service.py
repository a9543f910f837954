"""The use cases on attachments, over the embedded engine and a folder; ``tests/conformance`` holds
the other engines and backends to the same.
"""

import asyncio
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.storage.changes import Detach, Remove
from proxy.vault.attachment_content import PIECE
from proxy.vault.attachments.service import (
    IncomingFile,
    change,
    download,
    move,
    remove_attachment,
    replace_attachment_of,
    upload,
)
from proxy.vault.records.attachment_metadata import Label
from tests.support.attached import (
    LIMIT,
    Files,
    as_object,
    everything,
    in_pieces,
    make_files,
    nothing,
)
from tests.support.contacts import contact

SIZES = [0, 1, 65_536, PIECE, PIECE + 65_537]


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    store = await open_store(f"sqlite:///{tmp_path}/vault.db")
    made = await make_files(store, await open_objects(f"file://{tmp_path}/files"))
    yield made
    await made.contents.close()
    await store.close()


async def code_of(asked) -> Code:
    with pytest.raises(VaultError) as caught:
        await asked
    return caught.value.code


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_comes_back_as_it_was_uploaded(files, size):
    content = os.urandom(size)
    made = await files.add(content, "résumé 2026.pdf", mime="application/pdf")
    now = files.contacts.clock()
    assert (made.filename, made.mime_type, made.size) == (
        "résumé 2026.pdf",
        "application/pdf",
        size,
    )
    assert made.hash == hashlib.sha256(content).hexdigest()
    assert (made.created_at, made.updated_at) == (now, now)
    assert uuid.UUID(made.file_id).version == 4
    assert await files.of() == (made,)
    assert await files.read(made.file_id) == content
    assert files.contacts.events["attached"] == 1


async def test_every_range_is_that_of_the_content(files):
    content = os.urandom(PIECE + 70_000)
    made = await files.add(content)
    edges = [
        0, 1, 65_535, 65_536, 65_537, PIECE - 1, PIECE, PIECE + 1, len(content) - 1, len(content),
    ]  # fmt: skip
    for start in edges:
        for stop in edges:
            if start < stop:
                assert await files.read(made.file_id, start, stop) == content[start:stop]


async def test_a_file_needs_its_record(files):
    assert await code_of(files.add(b"x", key="nobody")) is Code.NOT_FOUND
    await files.contacts.add(contact("c", expires_at=files.contacts.clock() + 10))
    made = await files.add(b"x", key="c")
    files.contacts.clock.advance(10)
    assert await code_of(files.add(b"x", "y", key="c")) is Code.NOT_FOUND
    assert await code_of(files.read(made.file_id, key="c")) is Code.NOT_FOUND


async def test_a_record_has_one_file_of_a_name(files):
    await files.add(b"x", "é")
    assert await code_of(files.add(b"y", "e\u0301")) is Code.FILE_EXISTS
    await files.add(b"y", "É")
    await files.add(b"y", "é", key="b")
    assert len(await files.names()) == 3


async def test_a_file_over_the_limit_leaves_nothing(files):
    await files.add(b"x" * LIMIT, "fits")
    assert await code_of(files.add(b"x" * (LIMIT + 1))) is Code.TOO_LARGE
    assert len(await files.names()) == 1


async def test_an_upload_that_breaks_off_leaves_nothing(files):
    async def breaking() -> AsyncIterator[bytes]:
        yield b"x" * PIECE
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await upload(
            files.contents, files.owner(), IncomingFile(Label("x", "a/b"), breaking()), nothing
        )
    assert (await files.names(), await files.of()) == ([], ())


async def test_a_record_that_ends_during_an_upload_gets_no_file(files):
    row = await files.contacts.row("a")

    async def ending() -> AsyncIterator[bytes]:
        yield b"x"
        await files.contacts.store.commit(
            files.contacts.records.collection.table, [Remove(row.rid)]
        )

    asked = upload(
        files.contents, files.owner(), IncomingFile(Label("x", "a/b"), ending()), nothing
    )
    assert await code_of(asked) is Code.NOT_FOUND
    assert (await files.names(), await files.rows()) == ([], [])


async def test_of_many_uploads_under_one_name_one_is_taken(files):
    results = await asyncio.gather(
        *(files.add(b"%d" % n) for n in range(16)), return_exceptions=True
    )
    refused = [error for error in results if isinstance(error, VaultError)]
    assert {error.code for error in refused} == {Code.FILE_EXISTS}
    assert len(refused) == 15
    (made,) = await files.of()
    assert made.hash == hashlib.sha256(await files.read(made.file_id)).hexdigest()
    assert len(await files.names()) == 1


async def test_replacing_keeps_the_id_and_lets_go_of_the_old_content(files):
    made = await files.put(b"first")
    files.contacts.clock.advance(5)
    reading = await download(files.contents, files.owner(), made.file_id)
    again = await files.put(b"second", mime="text/html")
    assert (again.file_id, again.created_at) == (made.file_id, made.created_at)
    assert (again.updated_at, again.mime_type) == (made.updated_at + 5, "text/html")
    assert await files.of() == (again,)
    assert await files.read(made.file_id) == b"second"
    await files.contacts.vault.maintain()
    assert len(await files.names()) == 1
    assert b"".join([piece async for piece in reading.pieces(0, 5)]) == b"first", (
        "who reads the old one goes on"
    )


async def test_a_file_that_is_deleted_while_it_is_replaced_stays_deleted(files):
    made = await files.add(b"first")

    async def deleting() -> AsyncIterator[bytes]:
        yield b"second"
        await remove_attachment(files.owner(), made.file_id, nothing)

    asked = replace_attachment_of(
        files.contents, files.owner(), IncomingFile(Label("cv.pdf", "a/b"), deleting())
    )
    assert await code_of(asked) is Code.CONFLICT
    assert await files.of() == ()
    await files.contacts.vault.maintain()
    assert await files.names() == []


async def test_name_and_type_can_be_changed_alone_or_together(files):
    made = await files.add(b"x")
    await files.add(b"y", "other")
    files.contacts.clock.advance(5)
    changed = await change(files.owner(), made.file_id, ("new", None))
    assert (changed.filename, changed.mime_type, changed.updated_at) == (
        "new",
        "text/plain",
        made.updated_at + 5,
    )
    assert (await change(files.owner(), made.file_id, (None, "a/b"))).mime_type == "a/b"
    assert (await change(files.owner(), made.file_id, ("new", "c/d"))).filename == "new"
    assert await code_of(change(files.owner(), made.file_id, ("other", None))) is Code.FILE_EXISTS
    assert await code_of(change(files.owner(), str(uuid.uuid4()), ("z", None))) is Code.UNKNOWN_FILE
    assert await files.read(made.file_id) == b"x"
    assert await code_of(files.add(b"z", "new")) is Code.FILE_EXISTS
    await files.add(b"z", "cv.pdf")


async def test_files_move_with_their_content_all_or_none(files):
    one = await files.add(b"one", "1")
    files.contacts.clock.advance(1)
    two = await files.add(b"two", "2")
    taken = await files.add(b"three", "2", key="b")
    with pytest.raises(VaultError) as caught:
        await move(files.owner(), "b", [one.file_id, two.file_id], nothing)
    assert (caught.value.code, [d.source for d in caught.value.details]) == (
        Code.FILE_EXISTS,
        ["/attachment_ids/1"],
    )
    with pytest.raises(VaultError) as caught:
        await move(files.owner(), "b", [one.file_id, taken.file_id, "x"], nothing)
    assert caught.value.code is Code.UNKNOWN_FILE
    assert [detail.source for detail in caught.value.details] == [
        "/attachment_ids/1",
        "/attachment_ids/2",
    ]
    assert await files.of() == (one, two)
    files.contacts.clock.advance(5)
    await move(files.owner(), "b", [one.file_id], nothing)
    assert await files.of() == (two,)
    assert {file.filename for file in await files.of("b")} == {"1", "2"}
    assert await files.read(one.file_id, key="b") == b"one"
    assert await code_of(files.read(one.file_id)) is Code.UNKNOWN_FILE
    await files.contacts.vault.maintain()
    assert len(await files.names()) == 3


async def test_a_move_needs_both_records_and_to_itself_changes_nothing(files):
    made = await files.add(b"x")
    with pytest.raises(VaultError) as caught:
        await move(files.owner("c"), "d", [made.file_id], nothing)
    assert caught.value.code is Code.NOT_FOUND
    assert [detail.source for detail in caught.value.details] == ["source", "destination"]
    await move(files.owner(), "a", [made.file_id], nothing)
    assert await files.of() == (made,)
    assert await code_of(move(files.owner(), "a", ["x"], nothing)) is Code.UNKNOWN_FILE


async def test_a_deleted_file_is_gone_and_its_content_with_the_next_upkeep(files):
    made, other = await files.add(b"x"), await files.add(b"y", "other")
    await remove_attachment(files.owner(), made.file_id, nothing)
    for asked in (
        remove_attachment(files.owner(), made.file_id, nothing),
        files.read(made.file_id),
    ):
        assert await code_of(asked) is Code.UNKNOWN_FILE
    assert await files.of() == (other,)
    await files.contacts.vault.maintain()
    assert len(await files.names()) == 1
    assert (
        await code_of(remove_attachment(files.owner(), other.file_id.upper(), nothing))
        is Code.UNKNOWN_FILE
    )


async def test_files_go_with_their_record_however_it_ends(files):
    clock, collection = files.contacts.clock, files.contacts.records.collection
    await files.contacts.add(contact("c", expires_at=clock() + 10))
    await files.add(b"x")
    await files.add(b"y", key="c")
    row = await files.contacts.row("a")
    await collection.store.commit(collection.table, [Remove(row.rid)])
    clock.advance(10)
    await files.contacts.vault.maintain()
    assert (await files.names(), await files.rows()) == ([], [])
    assert await collection.store.doomed(10) == []


async def test_what_shall_be_committed_with_it_is(files):
    other = await files.add(b"x", "other")
    row = await files.contacts.row("a")
    seen = []

    def then(made):
        seen.append(made)
        return [Detach(row.rid, uuid.UUID(other.file_id).bytes)]

    incoming = IncomingFile(Label("new", "a/b"), in_pieces(b"y"))
    made = await upload(files.contents, files.owner(), incoming, then)
    assert seen == [((made, row.rid),)]
    assert await files.of() == (made,)


# ---------------------------------------------------------------- attacks on what is stored


async def exchange(files: Files, one: str, other: str) -> None:
    """Exchange the contents of two objects."""
    contents = {}
    for name in (one, other):
        opened = await files.objects.open(name)
        contents[name] = await opened.read(0, opened.size)
        opened.close()
        await files.objects.delete(name)
    await files.objects.put(one, as_object(contents[other]))
    await files.objects.put(other, as_object(contents[one]))


async def test_exchanged_objects_do_not_open(files):
    one, two = await files.add(b"first"), await files.add(b"other", "2")
    await exchange(files, *await files.names())
    for made in (one, two):
        assert await code_of(files.read(made.file_id)) is Code.CANNOT_OPEN
    assert files.contacts.events["unopenable_file"] == 2


async def test_a_lost_object_is_told_apart_from_a_deleted_file(files):
    made = await files.add(b"x")
    await files.objects.delete((await files.names())[0])
    assert await code_of(files.read(made.file_id)) is Code.CANNOT_OPEN
    assert files.contacts.events["unopenable_file"] == 1


async def test_a_changed_chunk_is_never_given_and_what_came_before_it_is_right(files):
    content = os.urandom(3 * PIECE)
    made = await files.add(content)
    (name,) = await files.names()
    opened = await files.objects.open(name)
    sealed = bytearray(await opened.read(0, opened.size))
    opened.close()
    sealed[2 * PIECE + 1000] ^= 1
    await files.objects.delete(name)
    await files.objects.put(name, as_object(bytes(sealed)))
    reading = await download(files.contents, files.owner(), made.file_id)
    got = b""

    async def read() -> None:
        nonlocal got
        async for piece in reading.pieces(0, len(content)):
            got += piece

    assert await code_of(read()) is Code.CANNOT_OPEN
    assert content.startswith(got)
    assert len(got) < 3 * PIECE
    assert await files.read(made.file_id, 0, PIECE) == content[:PIECE]
    assert files.contacts.events["unopenable_file"] == 1


@pytest.mark.parametrize("kept", [0, 11, 12, 100, -1])
async def test_a_cut_object_does_not_open(files, kept):
    made = await files.add(b"x" * 200)
    (name,) = await files.names()
    opened = await files.objects.open(name)
    sealed = await opened.read(0, opened.size)
    opened.close()
    await files.objects.delete(name)
    await files.objects.put(name, as_object(sealed[:kept]))
    assert await code_of(files.read(made.file_id)) is Code.CANNOT_OPEN


async def test_neither_content_nor_name_nor_type_is_readable_anywhere(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path}/vault.db")
    files = await make_files(store, await open_objects(f"file://{tmp_path}/files"))
    await files.add(
        b"Zorbina Quuxmouth 4711-0815 " * 10_000, "Zorbina.pdf", mime="application/x-zorbina"
    )
    made = await files.add(b"x", "quuxmouth.pdf", key="b")
    await change(files.owner("b"), made.file_id, ("Zorbina second.pdf", None))
    found = everything(tmp_path).lower()
    assert len(found) > 180_000
    assert [mark for mark in (b"zorbina", b"quuxmouth", b"4711-0815") if mark in found] == []
    await files.contents.close()
    await store.close()

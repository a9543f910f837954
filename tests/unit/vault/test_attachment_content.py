import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.stream import CHUNK, sealed_size
from proxy.errors import Code, VaultError
from proxy.vault.attachment_content import PIECE, TRANSFERS, Contents, StoredContent
from tests.support.memory_objects import MemoryObjects
from tests.support.table import table

FILE = b"\xab" + bytes(15)
KEYSET = Keyset.create("test")


def made(limit: int = 10 * PIECE, keyset: Keyset = KEYSET) -> Contents:
    return Contents(MemoryObjects(), keyset.streams(), limit)


async def pieces(content: bytes, step: int = 50_000):
    for at in range(0, len(content), step):
        yield content[at : at + step]


async def keep(contents: Contents, content: bytes, scope: bytes = b"scope") -> StoredContent:
    async with contents.sealed(FILE, scope, pieces(content)) as kept:
        return kept


async def read(
    contents: Contents,
    kept: StoredContent,
    start: int = 0,
    stop: int | None = None,
    scope: bytes = b"scope",
) -> bytes:
    opened = await contents.open(kept, scope)
    try:
        return b"".join([piece async for piece in opened.pieces(start, stop)])
    finally:
        opened.close()


async def test_a_content_is_kept_sealed_under_a_name_that_begins_with_its_file():
    contents, content = made(), os.urandom(PIECE + 3)
    kept = await keep(contents, content)
    assert kept.object.startswith(FILE.hex())
    assert await read(contents, kept) == content
    assert await read(contents, kept, CHUNK - 1, CHUNK + 1) == content[CHUNK - 1 : CHUNK + 1]
    (stored,) = await contents.objects.listed("ab")
    assert (stored.name, stored.size) == (kept.object, sealed_size(len(content)))


@table("step", [1000, CHUNK, 5 * CHUNK + 1])
async def test_pieces_of_any_size_make_one_content(step):
    contents, content = made(), os.urandom(3 * PIECE + 3)

    async def pieces() -> AsyncIterator[bytes]:
        yield content[:100]
        for at in range(100, len(content), step):
            yield content[at : at + step]

    async with contents.sealed(FILE, b"scope", pieces()) as kept:
        assert (kept.size, kept.hash) == (len(content), hashlib.sha256(content).hexdigest())
    assert await read(contents, kept) == content
    with pytest.raises(VaultError) as caught:
        await keep(made(len(content) - 1), content)
    assert caught.value.code is Code.TOO_LARGE


async def test_it_opens_for_what_it_is_bound_to_alone():
    contents = made()
    kept, other = await keep(contents, b"first"), await keep(contents, b"other")
    objects = contents.objects.objects  # type: ignore[attr-defined]  # the reference shows what it has
    objects[other.object] = objects[kept.object]
    for wrong in (
        kept._replace(salt=bytes(16)),
        kept._replace(size=4),
        kept._replace(object=other.object),
    ):
        with pytest.raises(VaultError) as caught:
            await read(contents, wrong)
        assert caught.value.code is Code.CANNOT_OPEN
    with pytest.raises(VaultError):
        await read(contents, kept, scope=b"another schema")
    stranger = Contents(contents.objects, Keyset.create("test").streams(), 10)
    with pytest.raises(VaultError):
        await read(stranger, kept)


async def test_it_is_known_to_be_on_its_way_until_its_row_is_committed():
    contents = made()
    async with contents.sealed(FILE, b"", pieces(b"x")) as kept:
        assert contents.uploading() == {kept.object}
    assert contents.uploading() == frozenset()


async def test_no_more_transfers_than_there_may_be():
    contents = made()
    with ExitStack() as stack:
        for _ in range(TRANSFERS):
            stack.enter_context(contents.transfer())
        with pytest.raises(VaultError) as caught:
            await keep(contents, b"x")
        assert caught.value.code is Code.OVERLOADED
    await keep(contents, b"x")


async def test_content_byte_by_byte_is_gathered():
    contents, content = made(), os.urandom(2000)
    async with contents.sealed(FILE, b"", pieces(content, 1)) as kept:
        assert await read(contents, kept, scope=b"") == content


async def test_dropping_hides_that_the_object_store_is_down_and_nothing_else(monkeypatch):
    contents = made()
    kept = await keep(contents, b"x")
    for code, raises in ((Code.FILES_UNAVAILABLE, False), (Code.INTERNAL, True)):

        async def fail(_name: str, code: Code = code) -> None:
            raise VaultError(code, "x")

        with monkeypatch.context() as broken:
            broken.setattr(contents.objects, "delete", fail)
            if raises:
                with pytest.raises(VaultError):
                    await contents.drop(kept.object)
            else:
                await contents.drop(kept.object)
    await contents.drop(kept.object)
    assert await contents.objects.listed("ab") == []
    await contents.close()

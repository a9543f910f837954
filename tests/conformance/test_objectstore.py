"""One contract over every backend in the registry: whole or not at all, durable names, ranges,
lists, marks.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore import BACKENDS, open_objects
from proxy.objectstore.base import NoObject, ObjectStore
from tests.support.bucket import fresh_files

#: How the tests open each backend; a backend without a line here fails the suite.
PLACES: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"file://{folder}/files",
    "memory": lambda _: "memory:",
    "s3": lambda _: fresh_files(),
}

NAME = "ab" + "0" * 46
Open = Callable[[], Awaitable[ObjectStore]]


def test_every_backend_of_the_registry_is_under_this_contract() -> None:
    assert PLACES.keys() == BACKENDS.keys()


async def test_a_scheme_that_no_backend_has_is_refused_in_words() -> None:
    with pytest.raises(VaultError, match=r"'ftp'.*there are: file, s3") as caught:
        await open_objects("ftp://host/folder")
    assert caught.value.code is Code.BAD_SETTINGS


@pytest.fixture(params=BACKENDS)
async def objects(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    opened = await open_objects(PLACES[request.param](tmp_path))
    yield opened
    await opened.close()
    await opened.close()


async def pieces(*parts: Sequence[bytes]) -> AsyncIterator[Sequence[bytes]]:
    for part in parts:
        yield part


async def content(objects: ObjectStore, name: str) -> bytes:
    opened = await objects.open(name)
    try:
        return await opened.read(0, opened.size + 1)
    finally:
        opened.close()
        opened.close()


async def names(objects: ObjectStore, shard: str) -> list[str]:
    return [stored.name for stored in await objects.listed(shard)]


async def test_an_object_comes_back_as_it_was_written(objects: ObjectStore) -> None:
    whole = os.urandom(300_000)
    assert await objects.put(
        NAME, pieces([whole[:1], whole[1:100_000]], [], [whole[100_000:]])
    ) == len(whole)
    assert await content(objects, NAME) == whole


async def test_an_empty_object_is_an_object(objects: ObjectStore) -> None:
    assert await objects.put(NAME, pieces()) == 0
    assert await content(objects, NAME) == b""
    assert await names(objects, "ab") == [NAME]


async def test_a_range_is_read_alone_and_ends_where_the_object_ends(objects: ObjectStore) -> None:
    await objects.put(NAME, pieces([b"0123456789"]))
    opened = await objects.open(NAME)
    assert opened.size == 10
    assert [await opened.read(*part) for part in ((0, 3), (7, 3), (8, 5), (10, 1), (3, 0))] == [
        b"012",
        b"789",
        b"89",
        b"",
        b"",
    ]
    opened.close()


async def test_many_read_one_object_at_once(objects: ObjectStore) -> None:
    whole = os.urandom(50_000)
    await objects.put(NAME, pieces([whole]))
    assert set(await asyncio.gather(*(content(objects, NAME) for _ in range(40)))) == {whole}


async def test_an_object_that_is_not_there_cannot_be_opened(objects: ObjectStore) -> None:
    with pytest.raises(NoObject):
        await objects.open(NAME)
    await objects.put(NAME, pieces([b"x"]))
    with pytest.raises(NoObject):
        await objects.open(NAME[:-1] + "1")


async def test_nothing_is_visible_before_the_end(objects: ObjectStore) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[Sequence[bytes]]:
        yield [b"first"]
        begun.set()
        await go_on.wait()
        yield [b"last"]

    writing = asyncio.create_task(objects.put(NAME, slowly()))
    await begun.wait()
    with pytest.raises(NoObject):
        await objects.open(NAME)
    assert await names(objects, "ab") == []
    assert await objects.clear(2**60) == 0, "what is being written is not cleared away"
    go_on.set()
    await writing
    assert await content(objects, NAME) == b"firstlast"


@pytest.mark.parametrize(
    "fault", [RuntimeError("x"), ConnectionResetError(104, "reset"), asyncio.CancelledError()]
)
async def test_what_the_pieces_raise_comes_out_and_nothing_stays(
    objects: ObjectStore, fault: BaseException
) -> None:
    async def breaking() -> AsyncIterator[Sequence[bytes]]:
        yield [b"x" * 100_000]
        raise fault

    with pytest.raises(type(fault)) as caught:
        await objects.put(NAME, breaking())
    assert caught.value is fault
    with pytest.raises(NoObject):
        await objects.open(NAME)
    assert await objects.clear(2**60) == 0


async def test_a_put_that_is_cancelled_leaves_nothing(objects: ObjectStore) -> None:
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[Sequence[bytes]]:
        while True:
            yield [b"x" * 100_000]
            begun.set()
            await asyncio.sleep(0)

    writing = asyncio.create_task(objects.put(NAME, endless()))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await objects.clear(2**60) == 0
    assert await names(objects, "ab") == []


async def test_deleting_is_for_good_and_may_be_done_twice(objects: ObjectStore) -> None:
    await objects.put(NAME, pieces([b"x"]))
    opened = await objects.open(NAME)
    await objects.delete(NAME)
    await objects.delete(NAME)
    with pytest.raises(NoObject):
        await objects.open(NAME)
    assert await opened.read(0, 1) == b"x", "who reads it goes on"
    opened.close()


async def test_lists_tell_name_size_and_age_by_shard(objects: ObjectStore) -> None:
    others = ["ab" + "1" * 46, "cd" + "0" * 46]
    for number, name in enumerate([NAME, *others]):
        await objects.put(name, pieces([b"x" * number]))
    assert [(stored.name, stored.size) for stored in await objects.listed("ab")] == [
        (NAME, 0),
        (others[0], 1),
    ]
    assert await names(objects, "cd") == [others[1]]
    assert await names(objects, "ef") == []
    first, second = await objects.listed("ab")
    assert 1_600_000_000_000 < first.at <= second.at + 10


async def test_a_place_belongs_to_whoever_claimed_it(objects: ObjectStore) -> None:
    assert await objects.owner() is None
    await objects.claim("some vault")
    assert await objects.owner() == "some vault"
    await objects.release()
    await objects.release()
    assert await objects.owner() is None
    await objects.claim("another vault")
    assert await objects.owner() == "another vault"
    assert [name for shard in ("ow", "00") for name in await names(objects, shard)] == []

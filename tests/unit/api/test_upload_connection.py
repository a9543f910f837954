"""Long uploads over real connections; what is a promise of uploads at all is tested with the
handlers.
"""

import asyncio
import errno
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from proxy.api import upload
from proxy.api.operations import OPERATIONS
from proxy.objectstore import open_objects
from tests.support.api import Client, services, serving
from tests.support.attached import LIMIT, Files, make_files
from tests.support.patience import until
from tests.support.rawclient import RawClient, get, post

PLACE = "/api/models/contact/a/files"
FILES = tuple(operation for operation in OPERATIONS if "files" in operation.path)
FORM = (
    "Authorization: Bearer writer",
    "Content-Type: multipart/form-data; boundary=b",
    "x-filename: cv",
)
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: a/b\r\n\r\n'
END = b"\r\n--b--\r\n"


class Catalog:
    def __init__(self, files: Files) -> None:
        self._files = files

    def using(self) -> Any:
        return nullcontext()

    def records(self, _name: str) -> Any:
        return self._files.contacts.records


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    made = await make_files(None, await open_objects(f"file://{tmp_path}/files"))
    yield made
    await made.contents.close()


@pytest.fixture
async def client(files: Files) -> AsyncIterator[Client]:
    async with serving(services(catalog=Catalog(files), contents=files.contents), *FILES) as client:
        yield client


@pytest.fixture
async def raw(client: Client) -> AsyncIterator[RawClient]:
    async with RawClient(int(client.address.rpartition(":")[2])) as raw:
        yield raw


def long(size: int) -> bytes:
    """A content in which nearly every place looks like the beginning of a boundary, and none is
    one.
    """
    choose = random.Random(size)
    return b"x" + b"".join(
        choose.choice([b"\r\n--", b"\r\n--a", b"\r", b"--b"]) for _ in range(size // 4)
    )


async def stored(client: Client, answer: Any) -> bytes:
    told = json.loads(answer.body)
    got = await client("GET", told["download_link"])
    assert (got.status, told["size"], told["hash"]) == (
        200,
        len(got.body),
        hashlib.sha256(got.body).hexdigest(),
    )
    return got.body


async def rest(raw: RawClient, body: bytes) -> Any:
    """Send the rest of a body; the answer."""
    async with asyncio.timeout(60):
        await raw.send(body)
        return await raw.answer()


async def begun(raw: RawClient, files: Files, body: bytes, at: int, count: int = 1) -> None:
    """Send so much of the upload of that number, and wait until its rest is awaited."""
    request = post(PLACE, body, *FORM).replace(b"x-filename: cv", b"x-filename: cv%d" % count)
    await raw.send(request[: len(request) - len(body) + at])
    await until(lambda: len(files.contents.uploading()) == 1)


async def test_a_long_body_comes_whole_and_the_connection_goes_on(client, raw, files):
    for count, content in enumerate((long(60_000), os.urandom(70_000), long(50_001)), 1):
        body = HEAD + content + END
        await begun(raw, files, body, 200, count)
        answer = await rest(raw, body[200:])
        assert answer.status == 201
        assert await stored(client, answer) == content


async def test_a_request_behind_the_body_is_the_next_one(client, raw, files):
    body = HEAD + os.urandom(80_000) + END
    await begun(raw, files, body, 500)
    await raw.send(body[500:] + get(f"{PLACE}/none", FORM[0], host="x"))
    first = await raw.answer()
    assert (first.status, (await raw.answer()).status) == (201, 404)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (b"\r\n--b\r\n" + HEAD[5:] + b"y" + END, "it has more"),
        (END + b"y" * 2000, "Something follows"),
        (b"\r\n--b", "before its last boundary"),
        (b"", "before its last boundary"),
    ],
)
async def test_another_body_is_refused_and_the_connection_goes_on(raw, files, end, text):
    body = HEAD + b"x" * 70_000 + end
    await begun(raw, files, body, 300)
    answer = await rest(raw, body[300:])
    assert answer.status == 400
    assert text.encode() in answer.body
    assert await files.names() == []
    assert (await raw.ask(get(f"{PLACE}/none", FORM[0]))).status == 404


async def test_what_is_left_of_a_refused_body_is_forgotten(client, raw, files):
    body = HEAD + b"x" * (LIMIT + 10_000) + END
    await begun(raw, files, body, 300)
    await raw.send(body[300:])
    assert (await raw.answer()).status == 413
    assert await files.names() == []
    assert (await raw.ask(post(PLACE, HEAD + b"x" + END, *FORM))).status == 201


async def test_the_rest_of_a_body_that_cannot_be_stored_may_still_come(
    client, raw, files, monkeypatch
):
    write, full = os.write, asyncio.Event()
    loop = asyncio.get_running_loop()

    def fail(descriptor: int, content: Any) -> int:
        if len(content) < 60_000:
            return write(descriptor, content)
        loop.call_soon_threadsafe(full.set)
        raise OSError(errno.ENOSPC, "x")

    body = HEAD + os.urandom(2_900_000) + END
    await begun(raw, files, body, 300)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", fail)
        await raw.send(body[300:2_500_000])
        async with asyncio.timeout(30):
            await full.wait()
        answer = await rest(raw, body[2_500_000:])
    assert answer.status == 503
    assert await files.names() == []
    assert (await raw.ask(post(PLACE, HEAD + b"x" + END, *FORM))).status == 201


async def test_a_caller_that_goes_leaves_nothing(client, files):
    body = HEAD + b"x" * 90_000 + END
    for at in (300, 80_000):
        async with RawClient(int(client.address.rpartition(":")[2])) as raw:
            await begun(raw, files, body, 300)
            await raw.send(body[300:at])
            await until(lambda: len(files.contents.uploading()) == 1)
        await until(lambda: not files.contents.uploading())
    assert await files.names() == []


async def test_a_body_that_falls_silent_ends(client, raw, files, monkeypatch):
    body = HEAD + b"x" * 90_000 + END
    monkeypatch.setattr(upload, "UPLOAD_IDLE", 0.2)
    await raw.send(post(PLACE, body, *FORM)[:-50_000])
    assert (await raw.answer()).status == 408
    assert await files.names() == []


async def test_little_by_little_is_in_order_too(client, raw, files):
    content = os.urandom(40_000)
    body = HEAD + content + END
    await begun(raw, files, body, 300)
    for at in range(300, len(body), 5000):
        await raw.send(body[at : at + 5000])
        await asyncio.sleep(0)
    assert await stored(client, await raw.answer()) == content


async def test_a_server_that_stops_waits_for_nobody(files):
    body = HEAD + b"x" * 90_000 + END
    async with serving(services(catalog=Catalog(files), contents=files.contents), *FILES) as client:
        raw = RawClient(int(client.address.rpartition(":")[2]))
        await raw.__aenter__()
        await begun(raw, files, body, 300)
    await until(lambda: not files.contents.uploading())
    await raw.__aexit__()

import asyncio
import errno
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from proxy.api import upload
from proxy.api import upload as module
from proxy.api.operation_table import OPERATIONS
from proxy.api.upload import (
    FilePart,
    Scan,
    broken_off,
    cut_short,
    misunderstood,
    of_header,
    of_part,
)
from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from tests.support.api import Client, services, serving
from tests.support.attached import LIMIT, Files, make_files
from tests.support.patience import PATIENCE, until
from tests.support.rawclient import RawClient, get, post
from tests.support.table import table

HEAD = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\nContent-Type: a/b\r\n\r\n'
)
END = b"\r\n--b--\r\n"


class Arriving:
    """A body that arrives in steps of so many bytes."""

    def __init__(self, body: bytes, step: int, fault: BaseException | None = None) -> None:
        self.body, self.step, self.fault = body, step, fault

    async def readany(self) -> bytes:
        piece, self.body = self.body[: self.step], self.body[self.step :]
        if not piece and self.fault is not None:
            raise self.fault
        return piece


def part(
    body: bytes, step: int = 4096, kind: str = "multipart/form-data; boundary=b", fault: Any = None
) -> FilePart:
    request: Any = SimpleNamespace(
        headers={"Content-Type": kind}, content=Arriving(body, step, fault)
    )
    return FilePart(request)


async def read(made: FilePart) -> bytes:
    await made.begin()
    return b"".join([piece async for piece in made.content()])


async def refused(made: FilePart) -> str:
    with pytest.raises(VaultError) as caught:
        await read(made)
    assert caught.value.code is Code.INVALID_FILE
    return caught.value.details[0].text


@table("step", [1, 2, 7, 4096])
@table(
    "content",
    [b"", b"x", b"\r\n", b"\r\n--", b"\r\n--c\r\n--\r\n", b"--c", b"x" * 9000, b"\r\n--a" * 500],
)
async def test_the_content_comes_out_as_it_was_whatever_the_pieces(content, step):
    assert await read(part(HEAD + content + END, step)) == content


@table("step", [1, 4096])
@table(
    "body",
    [
        b"\r\n" + HEAD + b"x" + END,
        HEAD.replace(b"--b\r\n", b"--b \t\r\n") + b"x" + b"\r\n--b--",
        HEAD + b"x" + END + b"\r\nbye",
        b"--b\r\ncontent-disposition:form-data;name=file\r\n\r\nx" + END,
    ],
)
async def test_what_a_body_may_have_around_its_content(body, step):
    assert await read(part(body, step)) == b"x"


async def test_a_part_without_content_may_end_with_its_head():
    assert await read(part(HEAD[:-2] + END)) == b""


async def test_the_type_is_that_of_the_part_or_that_of_any_bytes():
    made = part(HEAD + END)
    await made.begin()
    assert made.mime_type == "a/b"
    made = part(HEAD.replace(b"Content-Type: a/b\r\n", b"") + END)
    await made.begin()
    assert made.mime_type == "application/octet-stream"


@table(
    ("body", "text"),
    [
        (b"", "before its last boundary"),
        (b"hello, world", "does not begin"),
        (b"--c\r\n\r\n", "does not begin"),
        (b"--b--\r\n\r\n", "no part"),
        (HEAD, "before its last boundary"),
        (HEAD + b"x" * 9000, "before its last boundary"),
        (HEAD + b"x\r\n--b", "before its last boundary"),
        (HEAD + b"x\r\n--b\r\n" + HEAD[5:] + b"y" + END, "it has more"),
        (HEAD + b"x" + END + b"y" * 2000, "Something follows"),
        (HEAD.replace(b'"file"', b'"data"') + END, "name file"),
        (HEAD.replace(b'name="file"; ', b"") + END, "name file"),
        (HEAD.replace(b"form-data", b"attachment") + END, "name file"),
        (b"--b\r\nContent-Type: a/b\r\n\r\n" + END, "name file"),
        (b"--b\r\nnonsense\r\n\r\n" + END, "no field"),
        (b"--b\r\nX: " + b"y" * 20_000 + b"\r\n\r\n" + END, "longer than"),
        (HEAD.replace(b"a/b", b"a\xffb") + END, "RFC 9110"),
        (
            HEAD.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n") + END,
            "as it is",
        ),
    ],
)
@table("step", [3, 4096])
async def test_another_body_is_refused_in_words(body, text, step):
    assert text in await refused(part(body, step))


@table(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "x" * 71,
    ],
)
def test_a_body_needs_a_boundary(kind):
    with pytest.raises(VaultError) as caught:
        part(b"", kind=kind)
    assert caught.value.details[0].source == "Content-Type"


async def test_a_quoted_boundary_may_have_spaces():
    body = (HEAD + b"x" + END).replace(b"--b", b"--b c")
    assert await read(part(body, kind='multipart/form-data; charset=utf-8; boundary="b c"')) == b"x"


@table("fault", [web.RequestPayloadError("x"), ConnectionResetError()])
async def test_a_connection_that_ends_is_no_fault_of_the_file(fault):
    with pytest.raises(VaultError) as caught:
        await read(part(HEAD + b"x", fault=fault))
    assert caught.value.code is Code.BAD_REQUEST


async def test_an_upload_that_falls_silent_ends(monkeypatch):
    monkeypatch.setattr(module, "UPLOAD_IDLE", 0.01)
    made = part(HEAD)

    async def silent() -> bytes:
        await asyncio.Event().wait()
        return b""

    made._request.content.readany = silent  # type: ignore[method-assign]  # a body that never comes
    with pytest.raises(VaultError) as caught:
        await made.begin()
    assert caught.value.code is Code.REQUEST_TIMEOUT


BETWEEN = b"\r\n--b1"
CONTENTS = st.lists(
    st.sampled_from([b"\r", b"\n", b"--", b"b", b"1", b"\r\n--b", b"x" * 2000]), max_size=12
).map(b"".join)


def scanned(body: bytes, cuts: list[int]) -> bytes:
    """The content of a body that comes in such pieces."""
    scan, found, places = (
        Scan(BETWEEN),
        bytearray(),
        sorted({cut % (len(body) + 1) for cut in cuts}),
    )
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        piece = body[start:end]
        found += scan.content(piece)
    scan.finish()
    return bytes(found)


@given(
    CONTENTS.filter(lambda made: BETWEEN not in made),
    st.lists(st.integers(0, 1 << 16), max_size=20),
)
def test_the_content_ends_where_the_boundary_begins_however_it_is_cut(content, cuts):
    body = content + BETWEEN + b"--\r\nan epilogue"
    end = body.index(BETWEEN)  # the end of the content and the boundary may make an earlier one
    if body[end + len(BETWEEN) :].startswith(b"--"):
        assert scanned(body, cuts) == body[:end]


@given(st.lists(st.integers(0, 1 << 16), max_size=9))
@pytest.mark.parametrize(
    ("end", "text"),
    [
        (b"", "ends before"),
        (BETWEEN, "ends before"),
        (BETWEEN + b"-", "ends before"),
        (BETWEEN + b"\r\n", "it has more"),
        (BETWEEN + b"--" + b"y" * 1023, "Something follows"),
    ],
)
def test_what_is_behind_the_content_has_to_be_in_order(end, text, cuts):
    with pytest.raises(VaultError) as caught:
        scanned(b"content" + end, cuts)
    assert caught.value.code is Code.INVALID_FILE
    assert text in caught.value.details[0].text


def test_the_faults_are_told_from_a_connection_that_ended():
    assert (broken_off().code, misunderstood("file", "x").code) == (
        Code.INVALID_FILE,
        Code.INVALID_FILE,
    )
    assert cut_short().code is Code.BAD_REQUEST


FORM = 'form-data; name="file"'


@table(
    ("given", "name"),
    [
        ("a.txt", "a.txt"),
        ("a%20b.txt", "a b.txt"),
        ("100%.txt", "100%.txt"),
        ("UTF-8''p%C3%A5.txt", "på.txt"),
        (" å ", "å"),
    ],
)
def test_a_field_names_a_file_as_it_is_or_percent_encoded(given: str, name: str) -> None:
    assert of_header([given]) == name


@table(
    ("more", "name"),
    [
        ('; filename="passport å.pdf"', "passport å.pdf"),
        ("; filename=a.txt", "a.txt"),
        ('; filename="a%22b;c.txt"', 'a"b;c.txt'),
        ('; filename="100%20.txt"', "100%20.txt"),
        ("; filename*=UTF-8''p%C3%A5.txt", "på.txt"),
        ("; filename=\"p.txt\"; filename*=utf-8'sv'p%C3%A5.txt", "på.txt"),
        ('; FILENAME="a.txt"', "a.txt"),
    ],
)
def test_a_part_names_a_file_as_browsers_and_libraries_do(more: str, name: str) -> None:
    assert of_part(FORM + more) == name


@table("given", [[], ["a", "b"], [""], ["a/b"], ["%FF"], ["a\x00b"], ["x" * 256]])
def test_a_field_that_cannot_be_used_is_told(given: list[str]) -> None:
    with pytest.raises(VaultError) as caught:
        of_header(given)
    assert (caught.value.code, [one.source for one in caught.value.details]) == (
        Code.INVALID_FILE,
        ["x-filename"],
    )


@table(
    "more",
    [
        "",
        '; filename=""',
        '; filename="a/b"',
        "; filename*=iso-8859-1''p%E5",
        "; filename*=UTF-8''%FF",
        '; filename="a%0Ab"',
    ],
)
def test_a_part_that_cannot_be_used_is_told(more: str) -> None:
    with pytest.raises(VaultError) as caught:
        of_part(FORM + more)
    assert (caught.value.code, [one.source for one in caught.value.details]) == (
        Code.INVALID_FILE,
        ["file"],
    )


# ---- Long uploads over real connections; what is a promise of uploads at all is tested with the


PLACE = "/api/models/contact/a/files"
FILES = tuple(operation for operation in OPERATIONS if "files" in operation.path)
RAW_FORM = (
    "Authorization: Bearer writer",
    "Content-Type: multipart/form-data; boundary=b",
    "x-filename: cv",
)
RAW_HEAD = b'--b\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: a/b\r\n\r\n'


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
    async with asyncio.timeout(PATIENCE):
        await raw.send(body)
        return await raw.answer()


async def begun(raw: RawClient, files: Files, body: bytes, at: int, count: int = 1) -> None:
    """Send so much of the upload of that number, and wait until its rest is awaited."""
    request = post(PLACE, body, *RAW_FORM).replace(b"x-filename: cv", b"x-filename: cv%d" % count)
    await raw.send(request[: len(request) - len(body) + at])
    await until(lambda: len(files.contents.uploading()) == 1)


async def test_a_long_body_comes_whole_and_the_connection_goes_on(client, raw, files):
    for count, content in enumerate((long(60_000), os.urandom(70_000), long(50_001)), 1):
        body = RAW_HEAD + content + END
        await begun(raw, files, body, 200, count)
        answer = await rest(raw, body[200:])
        assert answer.status == 201
        assert await stored(client, answer) == content


async def test_a_request_behind_the_body_is_the_next_one(client, raw, files):
    body = RAW_HEAD + os.urandom(80_000) + END
    await begun(raw, files, body, 500)
    await raw.send(body[500:] + get(f"{PLACE}/none", RAW_FORM[0], host="x"))
    first = await raw.answer()
    assert (first.status, (await raw.answer()).status) == (201, 404)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (b"\r\n--b\r\n" + RAW_HEAD[5:] + b"y" + END, "it has more"),
        (END + b"y" * 2000, "Something follows"),
        (b"\r\n--b", "before its last boundary"),
        (b"", "before its last boundary"),
    ],
)
async def test_another_body_is_refused_and_the_connection_goes_on(raw, files, end, text):
    body = RAW_HEAD + b"x" * 70_000 + end
    await begun(raw, files, body, 300)
    answer = await rest(raw, body[300:])
    assert answer.status == 400
    assert text.encode() in answer.body
    assert await files.names() == []
    assert (await raw.ask(get(f"{PLACE}/none", RAW_FORM[0]))).status == 404


async def test_what_is_left_of_a_refused_body_is_forgotten(client, raw, files):
    body = RAW_HEAD + b"x" * (LIMIT + 10_000) + END
    await begun(raw, files, body, 300)
    await raw.send(body[300:])
    assert (await raw.answer()).status == 413
    assert await files.names() == []
    assert (await raw.ask(post(PLACE, RAW_HEAD + b"x" + END, *RAW_FORM))).status == 201


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

    body = RAW_HEAD + os.urandom(2_900_000) + END
    await begun(raw, files, body, 300)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", fail)
        await raw.send(body[300:2_500_000])
        async with asyncio.timeout(PATIENCE):
            await full.wait()
        answer = await rest(raw, body[2_500_000:])
    assert answer.status == 503
    assert await files.names() == []
    assert (await raw.ask(post(PLACE, RAW_HEAD + b"x" + END, *RAW_FORM))).status == 201


async def test_a_caller_that_goes_leaves_nothing(client, files):
    body = RAW_HEAD + b"x" * 90_000 + END
    for at in (300, 80_000):
        async with RawClient(int(client.address.rpartition(":")[2])) as raw:
            await begun(raw, files, body, 300)
            await raw.send(body[300:at])
            await until(lambda: len(files.contents.uploading()) == 1)
        await until(lambda: not files.contents.uploading())
    assert await files.names() == []


async def test_a_body_that_falls_silent_ends(client, raw, files, monkeypatch):
    body = RAW_HEAD + b"x" * 90_000 + END
    monkeypatch.setattr(upload, "UPLOAD_IDLE", 0.2)
    await raw.send(post(PLACE, body, *RAW_FORM)[:-50_000])
    assert (await raw.answer()).status == 408
    assert await files.names() == []


async def test_little_by_little_is_in_order_too(client, raw, files):
    content = os.urandom(40_000)
    body = RAW_HEAD + content + END
    await begun(raw, files, body, 300)
    for at in range(300, len(body), 5000):
        await raw.send(body[at : at + 5000])
        await asyncio.sleep(0)
    assert await stored(client, await raw.answer()) == content


async def test_a_server_that_stops_waits_for_nobody(files):
    body = RAW_HEAD + b"x" * 90_000 + END
    async with serving(services(catalog=Catalog(files), contents=files.contents), *FILES) as client:
        raw = RawClient(int(client.address.rpartition(":")[2]))
        await raw.__aenter__()
        await begun(raw, files, body, 300)
    await until(lambda: not files.contents.uploading())
    await raw.__aexit__()

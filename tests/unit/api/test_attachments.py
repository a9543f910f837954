"""The handlers of attachments over HTTP, on both engines."""

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from proxy.api.attachments import requested_range
from proxy.api.operation_table import OPERATIONS
from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.vault.attachment_content import PIECE
from tests.support.api import Client, Said, services, serving
from tests.support.attached import LIMIT, Files, as_object, make_files
from tests.support.patience import until
from tests.support.table import table

BASE = "/api/models/contact"
FILES = tuple(operation for operation in OPERATIONS if "files" in operation.path)


class Catalog:
    def __init__(self, files: Files) -> None:
        self._files = files

    def using(self) -> Any:
        return nullcontext()

    def records(self, name: str) -> Any:
        if name != "contact":
            raise VaultError(Code.UNKNOWN_SCHEMA, "There is no schema of this name.")
        return self._files.contacts.records


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    store = await open_store(f"sqlite:///{tmp_path}/vault.db")
    made = await make_files(store, await open_objects(f"file://{tmp_path}/files"))
    yield made
    await made.contents.close()
    await store.close()


@pytest.fixture
async def client(files: Files) -> AsyncIterator[Client]:
    async with serving(services(catalog=Catalog(files), contents=files.contents), *FILES) as client:
        yield client


def form(content: Any, name: str = "file", kind: str = "application/pdf") -> aiohttp.FormData:
    made = aiohttp.FormData(quote_fields=False)
    content = io.BytesIO(content) if isinstance(content, bytes) else content
    made.add_field(name, content, filename="whatever", content_type=kind)
    return made


async def upload(
    client: Client, content: bytes, name: str = "cv.pdf", key: str = "a", method: str = "POST"
) -> Said:
    return await client(
        method, f"{BASE}/{key}/files", data=form(content), headers={"x-filename": name}
    )


async def test_an_upload_is_answered_with_the_attachment_and_its_link_downloads_it(client, files):
    content = os.urandom(PIECE + 10)
    made = await upload(client, content, "cv.pdf")
    assert made.status == 201
    assert made.json.keys() == {
        "file_id", "filename", "hash", "mime_type", "size", "created_at", "updated_at", "download_link",
    }  # fmt: skip
    assert (made.json["filename"], made.json["mime_type"], made.json["size"]) == (
        "cv.pdf",
        "application/pdf",
        len(content),
    )
    got = await client("GET", made.json["download_link"])
    assert (got.status, got.body) == (200, content)
    assert got.headers["Content-Type"] == "application/octet-stream"
    assert got.headers["Content-Disposition"] == "attachment; filename*=UTF-8''cv.pdf"
    assert got.headers["ETag"] == f'"{made.json["hash"]}"'
    assert got.headers["Accept-Ranges"] == "bytes"
    assert got.headers["Content-Length"] == str(len(content))


async def test_an_empty_file_is_a_file(client, files):
    made = await upload(client, b"")
    got = await client("GET", made.json["download_link"])
    assert (made.status, got.status, got.body, got.headers["Content-Length"]) == (
        201,
        200,
        b"",
        "0",
    )
    assert (
        await client("GET", made.json["download_link"], headers={"Range": "bytes=0-"})
    ).status == 416


@table(
    ("sent", "name"),
    [
        ("r%C3%A9sum%C3%A9%20%F0%9F%98%80.pdf", "résumé 😀.pdf"),
        ("UTF-8''%e2%82%ac%20rates", "€ rates"),
        ("utf-8'sv'%C3%96", "Ö"),
        ("résumé", "résumé"),
        ("100%.txt", "100%.txt"),
        ("a'b;c.txt", "a'b;c.txt"),
    ],
)
async def test_file_names_beyond_ascii_come_through(client, files, sent, name):
    made = await upload(client, b"x", sent)
    assert made.json["filename"] == name
    got = await client("GET", made.json["download_link"])
    assert (
        got.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    )


@table("name", ["", "a%2Fb", "..", "%00", "x" * 256, "%ff", "a\\b"])
async def test_a_name_that_cannot_be_used_is_refused(client, files, name):
    answer = await upload(client, b"x", name)
    assert (answer.status, answer.json["code"], answer.json["errors"][0]["source"]) == (
        400,
        "invalid_file",
        "x-filename",
    )
    assert await files.names() == []


async def test_every_parameter_is_required(client, files):
    unnamed = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
    head = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await client("POST", f"{BASE}/a/files", data=unnamed, headers=head)
    assert (answer.status, answer.json["errors"][0]["source"]) == (400, "file")
    named = {"x-filename": "x"}
    answer = await client("POST", f"{BASE}/a/files", data=form(b"x", "other"), headers=named)
    assert (answer.status, answer.json["code"]) == (400, "invalid_file")
    two = form(b"x")
    two.add_field("file", b"y", filename="y")
    answer = await client("POST", f"{BASE}/a/files", data=two, headers=named)
    assert (answer.status, answer.json["code"]) == (400, "invalid_file")
    for kind in ("application/json", "application/octet-stream", "text/plain"):
        answer = await client(
            "POST", f"{BASE}/a/files", data=b"{}", headers={**named, "Content-Type": kind}
        )
        assert answer.status == 415
    assert await files.names() == []


async def test_statuses_of_an_upload(client, files):
    assert (await upload(client, b"x")).status == 201
    assert (await upload(client, b"x")).json["code"] == "file_exists"
    assert (await upload(client, b"x")).status == 409
    assert (await upload(client, b"x", key="nobody")).status == 404
    assert (await upload(client, b"x" * (LIMIT + 1), "large")).status == 413
    assert (
        await client(
            "POST", "/api/models/none/a/files", data=form(b"x"), headers={"x-filename": "x"}
        )
    ).status == 400
    assert (await client("POST", f"{BASE}/a/files", "", data=form(b"x"))).status == 401
    assert len(await files.names()) == 1


async def test_a_large_upload_is_refused_by_its_length_before_it_is_sent(client, files):
    headers = {
        "x-filename": "x",
        "Expect": "100-continue",
        "Content-Type": "multipart/form-data; boundary=b",
    }
    answer = await client(
        "POST", f"{BASE}/a/files", data=io.BytesIO(b"x" * (LIMIT + 70_000)), headers=headers
    )
    assert answer.status == 413


async def test_an_upload_that_exceeds_the_limit_while_it_comes_is_refused(client, files):
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(LIMIT // 100_000 + 20):
            yield b"x" * 100_000

    answer = await client(
        "POST", f"{BASE}/a/files", data=form(endless()), headers={"x-filename": "x"}
    )
    assert (answer.status, answer.json["code"]) == (413, "too_large")
    assert await files.names() == []


async def test_putting_replaces_by_name_and_makes_what_is_missing(client, files):
    made = await upload(client, b"first", method="PUT")
    again = await upload(client, b"second", method="PUT")
    assert (made.status, again.status) == (201, 201)
    assert again.json["file_id"] == made.json["file_id"]
    assert (await client("GET", made.json["download_link"])).body == b"second"


async def test_name_and_type_are_changed(client, files):
    made = await upload(client, b"x")
    await upload(client, b"y", "other")
    link = made.json["download_link"]
    answer = await client("PATCH", link, json={"filename": "new", "mime_type": "text/html"})
    assert (answer.status, answer.json["filename"], answer.json["mime_type"]) == (
        200,
        "new",
        "text/html",
    )
    assert (await client("PATCH", link, json={"filename": "other"})).status == 409
    assert (await client("PATCH", link.replace("-", "0"), json={"filename": "z"})).status == 404
    body: Any
    for body in ({}, [], {"filename": 1}, {"filename": "a/b"}, {"mime_type": "x"}, {"size": 1}):
        answer = await client("PATCH", link, json=body)
        assert (answer.status, answer.json["code"]) == (400, "invalid_input"), body
    answer = await client("PATCH", link, json={"filename": "", "mime_type": "", "x": 1})
    assert {fault["source"] for fault in answer.json["errors"]} == {"/filename", "/mime_type", ""}


async def test_parts_of_a_file(client, files):
    content = os.urandom(PIECE * 2)
    made = await upload(client, content)
    link, etag = made.json["download_link"], f'"{made.json["hash"]}"'
    for text, start, stop in (
        ("bytes=0-0", 0, 1),
        ("bytes=65535-600000", 65_535, 600_001),
        ("bytes=-5", len(content) - 5, len(content)),
    ):
        got = await client("GET", link, headers={"Range": text})
        assert (got.status, got.body) == (206, content[start:stop])
        assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(content)}"
    got = await client("GET", link, headers={"Range": f"bytes={len(content)}-"})
    assert (got.status, got.headers["Content-Range"]) == (416, f"bytes */{len(content)}")
    assert got.json["code"] == "range_unsatisfiable"
    assert (
        await client("GET", link, headers={"Range": "bytes=0-4", "If-Range": etag})
    ).status == 206
    whole = await client("GET", link, headers={"Range": "bytes=0-4", "If-Range": '"other"'})
    assert (whole.status, whole.body) == (200, content)
    assert (await client("GET", link, headers={"Range": "bytes=0-1,4-5"})).body == content


async def test_a_head_tells_what_a_download_would(client, files):
    made = await upload(client, b"x" * 100)
    got = await client("HEAD", made.json["download_link"], headers={"Range": "bytes=0-1"})
    assert (got.status, got.body, got.headers["Content-Length"]) == (200, b"", "100")


async def test_moving_and_its_statuses(client, files):
    made = await upload(client, b"x")
    there = f"{BASE}/a/files/move/b"
    ids = {"attachment_ids": [made.json["file_id"]]}
    assert (await client("POST", f"{BASE}/a/files/move/nobody", json=ids)).status == 404
    assert (await client("POST", "/api/models/none/a/files/move/b", json=ids)).status == 404
    answer = await client("POST", there, json={"attachment_ids": ["unknown"]})
    assert (answer.status, answer.json["code"]) == (401, "unknown_file")
    body: Any
    for body in ({}, [], {"attachment_ids": []}, {"attachment_ids": "x"}, {"attachment_ids": [1]}, {**ids, "x": 1},
                 {"attachment_ids": ids["attachment_ids"] * 2}, {"attachment_ids": [str(n) for n in range(101)]}):  # fmt: skip
        assert (await client("POST", there, json=body)).status == 422, body
    assert (
        await client("POST", there, data=b"{", headers={"Content-Type": "application/json"})
    ).status == 422
    await upload(client, b"y", key="b")
    assert (await client("POST", there, json=ids)).json["code"] == "file_exists"
    assert (await client("POST", there, json=ids)).status == 422
    await client("PATCH", made.json["download_link"], json={"filename": "other"})
    moved = await client("POST", there, json=ids)
    assert (moved.status, moved.body) == (204, b"")
    assert (await client("GET", made.json["download_link"])).status == 404
    assert (await client("GET", made.json["download_link"].replace("/a/", "/b/"))).body == b"x"


async def test_deleting_and_its_statuses(client, files):
    made = await upload(client, b"x")
    link = made.json["download_link"]
    assert (await client("DELETE", link.replace("/a/", "/b/"))).status == 404
    gone = await client("DELETE", link)
    assert (gone.status, gone.body) == (204, b"")
    for method in ("DELETE", "GET"):
        answer = await client(method, link)
        assert (answer.status, answer.json["code"]) == (404, "unknown_file")
        assert (await client(method, link.replace("contact", "none"))).status == 404
        assert (await client(method, link, "")).status == 401


# ---------------------------------------------------------------- what is stored was changed


async def changed(files: Files, at: int) -> None:
    """Change a byte of the one object."""
    (name,) = await files.names()
    opened = await files.objects.open(name)
    sealed = bytearray(await opened.read(0, opened.size))
    opened.close()
    sealed[at] ^= 1
    await files.objects.delete(name)
    await files.objects.put(name, as_object(bytes(sealed)))


async def test_a_file_whose_first_piece_was_changed_is_refused(client, files):
    made = await upload(client, os.urandom(100))
    await changed(files, 50)
    answer = await client("GET", made.json["download_link"])
    assert (answer.status, answer.json["code"]) == (422, "cannot_open")


async def test_a_file_whose_later_piece_was_changed_never_ends_cleanly(client, files):
    content = os.urandom(4 * PIECE)
    made = await upload(client, content)
    await changed(files, 3 * PIECE + 5000)
    got, ended = b"", False
    headers = {"Authorization": "Bearer writer"}
    async with client.session.get(
        client.address + made.json["download_link"], headers=headers
    ) as answer:
        assert answer.status == 200
        try:
            async for piece in answer.content.iter_any():
                got += piece
            ended = True
        except aiohttp.ClientPayloadError:
            pass
    assert not ended
    assert content.startswith(got)
    assert len(got) < len(content)


async def test_a_full_disk_is_told_and_the_caller_may_try_again(client, files, monkeypatch):
    async def full(*_: object) -> int:
        raise VaultError(
            Code.FILES_UNAVAILABLE,
            "The disk of the files is full: free some space. The file was not stored.",
        )

    with monkeypatch.context() as broken:
        broken.setattr(files.objects, "put", full)
        answer = await upload(client, b"x")
        assert (answer.status, answer.json["code"]) == (503, "files_unavailable")
    assert (await upload(client, b"x")).status == 201


async def test_a_vault_without_files_says_so(files):
    async with serving(services(catalog=Catalog(files)), *FILES) as client:
        assert (await upload(client, b"x")).json["code"] == "files_unavailable"


async def test_a_caller_that_goes_away_in_an_upload_leaves_nothing(client, files):
    host, _, port = client.address.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {BASE}/a/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer writer\r\nx-filename: "
        "x\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
    )
    writer.write(head.encode() + b"x" * 1_000_000)
    await writer.drain()
    await until(lambda: bool(files.contents.uploading()))
    writer.close()
    await until(lambda: not files.contents.uploading())
    assert await files.names() == []
    assert await files.objects.clear(2**60) == 0


async def test_no_answer_repeats_what_was_sent(client, files):
    secret = "Zorbina%2FQuux"
    for answer in (
        await upload(client, b"Zorbina", secret),
        await client("PATCH", f"{BASE}/a/files/x", json={"filename": "Zorbina/Quux", "Zorbina": 1}),
        await client("POST", f"{BASE}/a/files/move/b", json={"attachment_ids": ["Zorbina"]}),
    ):
        assert answer.status >= 400
        assert "Zorbina" not in json.dumps(answer.json)


ETAG = '"abc"'


@table(
    ("text", "span"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-9", (0, 10)),
        ("bytes=3-99", (3, 10)),
        ("bytes=9-", (9, 10)),
        ("bytes=-1", (9, 10)),
        ("bytes=-99", (0, 10)),
        (" Bytes = 2-3 ", (2, 4)),
    ],
)
def test_one_range_is_understood(text, span):
    assert requested_range({"Range": text}, 10, ETAG) == span


@table(
    "text",
    [
        "", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "items=0-1", "bytes=0-1,3-4",
        "bytes=0-1x", "bytes=٣-٤",
    ],
)  # fmt: skip
def test_what_is_no_single_range_is_ignored(text):
    assert requested_range({"Range": text}, 10, ETAG) is None


@table(
    ("text", "size"),
    [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)],
)
def test_a_range_behind_the_end_is_refused(text, size):
    with pytest.raises(VaultError) as caught:
        requested_range({"Range": text}, size, ETAG)
    assert caught.value.code is Code.RANGE_UNSATISFIABLE
    assert str(size) in caught.value.message


def test_a_range_counts_only_for_the_content_that_it_was_asked_of():
    assert requested_range({"Range": "bytes=0-1", "If-Range": ETAG}, 10, ETAG) == (0, 2)
    for other in ('"abd"', f"W/{ETAG}", "Sat, 21 Nov 2026 00:00:00 GMT"):
        assert requested_range({"Range": "bytes=0-1", "If-Range": other}, 10, ETAG) is None
        assert requested_range({"Range": "bytes=99-", "If-Range": other}, 10, ETAG) is None
    assert requested_range({}, 10, ETAG) is None

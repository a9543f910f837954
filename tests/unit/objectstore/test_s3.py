"""What the bucket's backend adds to the contract of every object store
(``tests/conformance/test_objectstore.py``): its address, parts, faults in words, credentials, TLS.
"""

import asyncio
import base64
import hashlib
import json
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from proxy.objectstore.base import NoObject, ObjectStore
from proxy.objectstore.s3 import PART_BYTES, parse_bucket_address
from tests.support.bucket import CREDENTIALS, Server, fresh_files, shared
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE
from tests.support.table import table

NAME = "ab" + "0" * 46
KEYS = "access_key=${env:TEST_S3_KEY}&secret_key=${env:TEST_S3_SECRET}"


async def pieces(content: bytes, step: int = 1 << 20) -> AsyncIterator[Sequence[bytes]]:
    for at in range(0, len(content), step):
        yield [content[at : at + step]]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test alone."""
    made = Server()
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


async def refusal(objects: ObjectStore) -> VaultError:
    """What a look for the mark of the vault says."""
    with pytest.raises(VaultError) as caught:
        await objects.owner()
    await objects.close()
    return caught.value


# ---------------------------------------------------------------------- the address


def test_an_address_says_bucket_prefix_and_what_may_be_told() -> None:
    address = parse_bucket_address(f"s3://my.bucket/a/b_c/?region=eu-north-1&{KEYS}")
    assert (address.bucket, address.prefix) == ("my.bucket", "a/b_c")
    assert address.label == "s3://my.bucket/a/b_c"
    assert parse_bucket_address("s3://bucket").label == "s3://bucket"


@table(
    "address, fault",
    [
        ("s3://", "name a bucket"), ("s3://Bucket/x", "name a bucket"), ("s3:bucket", "name a bucket"),
        ("s3://u:p@bucket/x", "name a bucket"), ("s3://bucket/a//b", "a prefix has"),
        ("s3://bucket/../x", "a prefix has"), ("s3://bucket/a b", "a prefix has"),
        ("s3://bucket/x#y", "name a bucket"), ("s3://bucket?speed=9", "one is none of them"),
        ("s3://bucket?region", "not the address"), ("s3://bucket?timeout=0", "from 1 to 300"),
        ("s3://bucket?timeout=soon", "from 1 to 300"), ("s3://bucket?path_style=yes", "true or false"),
        ("s3://bucket?access_key=a", "come together"),
        ("s3://bucket?access_key=a&secret_key=b", "secret_key is a reference"),
        ("s3://bucket?endpoint=minio:9000", "endpoint is http"),
        ("s3://bucket?endpoint=http://minio:9000", "insecure=true"),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_is_refused_in_words(address: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        parse_bucket_address(address)
    assert "secret" not in str(caught.value).replace("secret_key", "")


def test_an_endpoint_in_the_clear_has_to_be_meant() -> None:
    assert parse_bucket_address("s3://bucket?endpoint=http://minio:9000&insecure=true")
    assert parse_bucket_address("s3://bucket?endpoint=http://127.0.0.1:9000")


async def test_a_reference_that_leads_nowhere_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match=r"\$\{env:NO_SUCH_NAME\} holds nothing") as caught:
        await open_objects("s3://bucket?access_key=a&secret_key=${env:NO_SUCH_NAME}")
    assert caught.value.code is Code.BAD_SETTINGS
    missing = tmp_path / "none"
    with pytest.raises(VaultError, match=f"the file {missing} cannot be read"):
        await open_objects(f"s3://bucket?access_key=a&secret_key=${{file:{missing}}}")


# ---------------------------------------------------------------------- objects


async def test_a_long_object_goes_in_parts_and_comes_back_by_ranges() -> None:
    objects = await open_objects(fresh_files())
    whole = os.urandom(2 * PART_BYTES + 12_345)
    assert await objects.put(NAME, pieces(whole)) == len(whole)
    opened = await objects.open(NAME)
    assert opened.size == len(whole)
    read = [await opened.read(at, 500_000) for at in range(0, len(whole), 500_000)]
    assert b"".join(read) == whole
    assert await opened.read(PART_BYTES - 3, 7) == whole[PART_BYTES - 3 : PART_BYTES + 4]
    opened.close()
    await objects.close()


async def test_an_upload_that_fails_leaves_no_parts() -> None:
    async def breaking() -> AsyncIterator[Sequence[bytes]]:
        async for piece in pieces(bytes(3 * PART_BYTES)):
            yield piece
        raise ConnectionResetError

    address = fresh_files()
    objects = await open_objects(address)
    with pytest.raises(ConnectionResetError):
        await objects.put(NAME, breaking())
    assert shared().unfinished() == []
    assert shared().names(parse_bucket_address(address).prefix) == []
    await objects.close()


async def test_of_two_vaults_that_claim_one_place_one_is_refused() -> None:
    address = fresh_files()
    one, other = await open_objects(address), await open_objects(address)
    await one.claim("first")
    await one.claim("first")  # the answer to the first call may have got lost
    with pytest.raises(VaultError, match="Another vault has just taken s3://") as caught:
        await other.claim("second")
    assert caught.value.code is Code.BAD_STORE
    assert await other.owner() == "first"
    await one.close()
    await other.close()


# ---------------------------------------------------------------------- faults


async def test_a_bucket_that_is_not_there_is_no_missing_object() -> None:
    objects = await open_objects(shared().address("x", bucket="no-such-bucket"))
    for call in (objects.open(NAME), objects.delete(NAME), objects.listed("ab"),
                 objects.owner(), objects.claim("x"), objects.put(NAME, pieces(b"x"))):  # fmt: skip
        with pytest.raises(VaultError, match="no such bucket") as caught:
            await call
        assert caught.value.code is Code.FILES_UNAVAILABLE
    await objects.close()


@pytest.mark.parametrize(
    ("leave", "come_back"), [(Server.freeze, Server.thaw), (Server.kill, None)]
)
async def test_while_the_server_is_away_each_call_ends_in_time(
    server: Server, leave: Callable[[Server], None], come_back: Callable[[Server], None] | None
) -> None:
    objects = await open_objects(server.address("x", timeout="1"))
    await objects.put(NAME, pieces(b"content"))
    leave(server)
    began = time.monotonic()
    calls = objects.open(NAME), objects.put(NAME, pieces(b"x")), objects.delete(NAME)
    for error in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(error, VaultError), error
        assert error.code is Code.FILES_UNAVAILABLE
        assert "cannot be reached" in error.message
    assert time.monotonic() - began < PATIENCE / 2, "a few seconds, on a machine at rest"
    if come_back is not None:
        come_back(server)
        await objects.put("cd" + NAME[2:], pieces(b"y"))
        assert len(await objects.listed("cd")) == 1
    await objects.close()


async def test_other_credentials_than_the_servers_are_told_apart(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = server.client("iam")
    accounts.create_user(UserName="domicile")
    key = accounts.create_access_key(UserName="domicile")["AccessKey"]
    rights = [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]
    accounts.put_user_policy(
        UserName="domicile", PolicyName="files",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": rights}),
    )  # fmt: skip
    server.demand_rights()
    assert "look at access_key" in (await refusal(await open_objects(server.address("x")))).message
    monkeypatch.setenv("TEST_S3_KEY", key["AccessKeyId"])
    assert "look at access_key" in (await refusal(await open_objects(server.address("x")))).message
    monkeypatch.setenv("TEST_S3_SECRET", key["SecretAccessKey"])
    objects = await open_objects(server.address("x"))
    assert await objects.owner() is None
    with pytest.raises(VaultError, match="lack a right: allow s3:GetObject"):
        await objects.claim("x")
    await objects.close()


class Refusing(BaseHTTPRequestHandler):
    """A server that answers with the errors of a list, the last of them for ever."""

    answers: list[tuple[int, str]]
    asked = 0
    written: list[tuple[str, bytes]]

    def do_GET(self) -> None:
        status, code = self.answers[min(self.asked, len(self.answers) - 1)]
        type(self).asked += 1
        body = f"<Error><Code>{code}</Code></Error>".encode() if code else b"content"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 206:
            self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
            self.send_header("Last-Modified", "Mon, 23 Nov 2026 03:00:00 GMT")
            self.send_header("ETag", '"x"')
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).written.append((self.headers["x-amz-checksum-sha256"], content))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing."""


@contextmanager
def refusing(
    *answers: tuple[int, str], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, type[Refusing]]]:
    """Such a server: its endpoint, and what counts the questions."""
    handler = type("Handler", (Refusing,), {"answers": answers, "written": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://localhost:{server.server_port}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (403, "RequestTimeTooSkewed", "set the clock"), (403, "AccessDenied", "lack a right"),
        (301, "PermanentRedirect", "another region"), (400, "ExpiredToken", "have expired"),
        (507, "XMinioStorageFull", "is full"), (409, "Unheard", "refuses this (Unheard)"),
        (404, "", "cannot be reached"),
    ],
)  # fmt: skip
async def test_what_the_server_refuses_is_told_with_its_remedy(
    status: int, code: str, text: str
) -> None:
    with refusing((status, code)) as (endpoint, _):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        error = await refusal(objects)
    assert error.code is Code.FILES_UNAVAILABLE
    assert text in error.message


async def test_an_answer_that_is_not_of_the_protocol_calls_no_object_gone() -> None:
    with refusing((404, "NotFound")) as (endpoint, _):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        with pytest.raises(VaultError):
            await objects.open(NAME)
        await objects.close()
    with refusing((404, "NoSuchKey")) as (endpoint, _):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        with pytest.raises(NoObject):
            await objects.open(NAME)
        await objects.close()


async def test_a_busy_server_is_asked_again_and_not_for_ever() -> None:
    with refusing((503, "SlowDown"), (500, "InternalError"), (206, "")) as (endpoint, counted):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        assert await objects.owner() == "content"
        assert counted.asked == 3
        await objects.close()
    with refusing((503, "SlowDown")) as (endpoint, counted):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        assert "overloaded" in (await refusal(objects)).message
        assert counted.asked == 4


async def test_an_object_is_sent_with_its_checksum_and_one_that_arrives_otherwise_is_refused() -> (
    None
):
    with refusing((400, "BadDigest")) as (endpoint, server):
        objects = await open_objects(f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}")
        with pytest.raises(VaultError, match="did not arrive as it was"):
            await objects.put(NAME, pieces(b"content"))
        await objects.close()
    digest = base64.b64encode(hashlib.sha256(b"content").digest()).decode()
    assert server.written == [(digest, b"content")]


async def test_a_certificate_counts_only_with_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with refusing((206, ""), tls=context) as (endpoint, _):
        address = f"s3://bucket?endpoint={endpoint}&region=x&{KEYS}"
        assert "name its ca" in (await refusal(await open_objects(address))).message
        objects = await open_objects(f"{address}&ca={authority.certificate}")
        assert await objects.owner() == "content"
        await objects.close()

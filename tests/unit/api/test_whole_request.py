"""Requests that aiohttp does not read are answered as those that it reads: the same bytes, lines of
the audit log, and state; ``ask`` sends each both ways.
"""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from aiohttp import HttpVersion, HttpVersion11
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.api.connection import DirectAnswer
from proxy.api.whole_request import KnownHeads, WholeMessage, whole
from tests.support.api import ENGINES, Interface, interface
from tests.support.effort import examples
from tests.support.rawclient import RawClient, get, post
from tests.support.table import table

WRITER = "Authorization: Bearer writer"
JSON = "Content-Type: application/json"
PERSON = {
    "fields": {
        "id": {"type": "primary_key"},
        "email": {"type": "string", "storage": "indexed_hashed"},
        "note": {"type": "string", "storage": "encrypted"},
    }
}


def person(number: int, size: int = 10) -> dict[str, str]:
    return {"id": f"p{number}", "email": f"ann{number}@example.com", "note": "n" * size}


@pytest.fixture(params=ENGINES)
async def here(request, tmp_path, direct) -> AsyncIterator[Interface]:
    async with interface(tmp_path, request.param) as made:
        await made.declare("person", PERSON)
        for number in range(3):
            answer = await made.client("POST", "/api/models/person", json=person(number))
            assert answer.status == 201
        await made.policy("masked", "person", "read", fields={"note": "hidden"})
        direct.clear()
        yield made


@pytest.fixture
def direct(monkeypatch) -> list[int]:
    """The statuses of answers to requests that aiohttp has not read."""
    taken: list[int] = []
    before = DirectAnswer.leave

    async def counted(answer: DirectAnswer, connection: Any) -> None:
        taken.append(answer.status)
        await before(answer, connection)

    at_once = DirectAnswer.leave_at_once

    def prompt(answer: DirectAnswer, connection: Any) -> bool:
        taken.append(answer.status)
        return at_once(answer, connection)

    monkeypatch.setattr(DirectAnswer, "leave", counted)
    monkeypatch.setattr(DirectAnswer, "leave_at_once", prompt)
    return taken


def port_of(here: Interface) -> int:
    return int(here.client.address.rpartition(":")[2])


async def ask(here: Interface, request: bytes, first: bytes | None = None) -> bytes:
    """The answer to a request after another one under the same head, and the same behind one that
    came in two pieces.
    """
    answers, lines = [], []
    warm = request if first is None else first
    for piece in (0, len(warm) // 2 + 1):
        async with RawClient(port_of(here)) as client:
            await client.send(warm, piece, 0.01 if piece else 0.0)
            await client.answer(warm.split(b" ")[0].decode())
            before = len(here.audit.raw)
            answer = await client.ask(request)
            answers.append(answer.raw)
            lines.append(here.audit.raw[before:])
    changing = re.compile(rb'Date: [^\r]{29}|"next":"[^"]*"')
    told = [changing.sub(b"", answer) for answer in answers]
    assert told[0] == told[1]
    assert lines[0] == lines[1]
    return told[0]


def find(content: object, *fields: str) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return post("/api/models/person/find", body, WRITER, JSON, *fields)


CASES = {
    "read": (get("/api/models/person/p1", WRITER), 200),
    "read nothing": (get("/api/models/person/none", WRITER), 404),
    "read of no schema": (get("/api/models/nothing/p1", WRITER), 400),
    "unchanged": (get("/api/models/person/p1", WRITER, "If-None-Match: *"), 304),
    "bad condition": (get("/api/models/person/p1", WRITER, "If-Match: x"), 400),
    "read under a policy": (get("/api/models/person/p1", "Authorization: Bearer under:masked"), 200),
    "read without a token": (get("/api/models/person/p1"), 401),
    "read of another origin": (get("/api/models/person/p1", WRITER, "Origin: https://a"), 200),
    "find": (find({"filter": {"email": "ann1@example.com"}}), 200),
    "find all": (find({"filter": {}, "options": {"limit": 3}}), 200),
    "find badly": (find({"filter": {"nothing": 1}}), 400),
    "no JSON": (find(b"{"), 400),
    "no body": (post("/api/models/person/find", b"", WRITER, JSON), 400),
    "no type": (post("/api/models/person/find", b"{}", WRITER), 415),
    "create again": (post("/api/models/person", json.dumps(person(1)).encode(), WRITER, JSON), 409),
    "create badly": (post("/api/models/person", b'{"id": 1}', WRITER, JSON), 400),
}  # fmt: skip


@table("name", CASES)
async def test_a_request_that_aiohttp_has_not_read_is_answered_as_by_it(here, direct, name):
    request, status = CASES[name]
    direct.clear()
    answer = await ask(here, request)
    assert direct == [status]
    assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_a_page_in_pieces_is_the_same(here, direct):
    for first in range(1000, 2000, 100):
        batch = [person(first + number, 250) for number in range(100)]
        assert (await here.client("POST", "/api/models/person/batch", json=batch)).status == 201
    answer = await ask(here, find({"filter": {}, "options": {"limit": 1000}}))
    assert len(answer) > 300_000
    assert direct == [200]


async def test_a_record_that_was_created_so_is_there(here, direct):
    async with RawClient(port_of(here)) as client:
        for number in (100, 101, 5000):
            body = json.dumps(person(number)).encode()
            answer = await client.ask(post("/api/models/person", body, WRITER, JSON))
            assert answer.status == 201
            assert json.loads(answer.body)["id"] == f"p{number}"
        answer = await client.ask(find({"filter": {"email": "ann5000@example.com"}}))
        assert json.loads(answer.body)["data"][0]["id"] == "p5000"
    assert direct == [201, 201, 200]


async def test_what_is_unusual_goes_the_way_of_aiohttp(here, direct):
    read = get("/api/models/person/p1", WRITER)
    unusual = [
        read.replace(b"GET", b"HEAD"), read.replace(b"p1 ", b"%701 "), read.replace(b"p1 ", b"p1?a=b "),
        read.replace(b"1.1\r\n", b"1.0\r\n", 1), read.replace(b"Host", b"A: b\r\nHost"),
        get("/api/models/person/p1/history", WRITER), get("/oauth2/jwks", WRITER),
        read.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    ]  # fmt: skip
    for other in unusual:
        async with RawClient(port_of(here)) as client:
            for request in (read, other):
                assert (await client.ask(request)).status in {200, 400, 404}
    assert not direct


async def test_a_first_request_that_comes_with_its_connection_makes_its_head_known(here, direct):
    read = get("/api/models/person/p1", WRITER)

    def at_once() -> socket.socket:
        caller = socket.create_connection(("127.0.0.1", port_of(here)))
        caller.sendall(read)  # there before the loop has looked at the connection
        return caller

    with at_once() as caller:
        caller.setblocking(False)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            assert (await loop.sock_recv(caller, 2**16)).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.02)
            await loop.sock_sendall(caller, read)
        assert await loop.sock_recv(caller, 2**16)
    assert direct == [200] * 3


async def test_a_request_that_may_be_repeated_goes_the_way_of_aiohttp(here, direct):
    body = json.dumps(person(7)).encode()
    request = post("/api/models/person", body, WRITER, JSON, "Idempotency-Key: k")
    async with RawClient(port_of(here)) as client:
        answers = [await client.ask(request) for _ in range(3)]
    assert [answer.one("idempotent-replayed") for answer in answers] == [None, b"true", b"true"]
    assert {answer.body for answer in answers} == {answers[0].body}
    assert not direct


@table("field", ["X : secret", "Content-Length: 0\r\nContent-Length: 0", "X: a\0b"])
@pytest.mark.parametrize("warm", [False, True])
async def test_one_that_aiohttp_cannot_read_is_refused(here, direct, field, warm):
    async with RawClient(port_of(here)) as client:
        if warm:
            assert (await client.ask(get("/api/models/person/p1", WRITER))).status == 200
        answer = await client.ask(get("/", field), 5)
        assert answer.status == 400
    assert not direct


async def test_requests_at_once_are_answered_in_order(here, direct):
    reads = [get(f"/api/models/person/p{number}", WRITER) for number in (0, 1, 2)]
    async with RawClient(port_of(here)) as client:
        await client.ask(reads[0])
        await client.ask(reads[0])
        assert direct == [200]
        for way in (b"".join(reads * 3), *reads * 3):
            await client.send(way)
        ids = [json.loads((await client.answer()).body)["id"] for _ in range(18)]
        assert ids == ["p0", "p1", "p2"] * 6


async def test_the_rest_of_a_head_is_no_request_of_its_own(here, direct):
    """One that waits in aiohttp's parser has begun, whatever its next bytes look like."""
    read = get("/api/models/person/p1", WRITER)
    async with RawClient(port_of(here)) as client:
        await client.ask(read)
        await client.ask(read)
        begun = read + b"GET /api/models/person/p2 HTTP/1.1\r\nHost: app.test\r\nInner: "
        await client.send(begun)
        assert json.loads((await client.answer()).body)["id"] == "p1"
        await asyncio.sleep(0.05)
        answer = await client.ask(read)
        assert answer.status == 400 or json.loads(answer.body)["id"] == "p2"
    assert direct == [200]


async def test_a_request_under_way_ends_before_the_listener_does(tmp_path, monkeypatch):
    begun, go_on = asyncio.Event(), asyncio.Event()
    before = DirectAnswer.leave

    async def slow(answer: DirectAnswer, connection: Any) -> None:
        begun.set()
        await go_on.wait()
        await before(answer, connection)

    monkeypatch.setattr(DirectAnswer, "leave", slow)
    async with interface(tmp_path) as made:
        await made.declare("person", PERSON)
        client = await RawClient(port_of(made)).__aenter__()
        read = get("/api/models/person/p1", WRITER)
        assert (await client.ask(read)).status == 404
        await client.send(read)
        await begun.wait()
        asyncio.get_running_loop().call_later(0.2, go_on.set)
    answer = await client.answer()
    assert (answer.status, answer.one("connection")) == (404, b"close")
    assert await client.reader.read() == b""
    client.writer.close()


class Message(NamedTuple):
    """As aiohttp's parser gives it."""

    method: str
    path: str
    version: HttpVersion
    headers: CIMultiDictProxy[str]
    should_close: bool = False
    upgrade: bool = False
    chunked: bool = False


def test_a_connection_remembers_few_heads():
    heads = KnownHeads()
    several = [WholeMessage("GET", "/", (b"%d" % one, b""), -1, b"") for one in range(100)]
    for sent in several:
        assert heads.find(sent) is None
        message = Message("GET", "/", HttpVersion11, CIMultiDictProxy(CIMultiDict(A="b")))
        heads.learn(sent, message)
        found = heads.find(sent)
        assert found is not None
        assert found.fields is message.headers
        assert heads.find(sent._replace(length=0)) is None
    assert [sent for sent in several if heads.find(sent)] == several[98:]


@settings(examples(300), suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=40), st.integers(0, 60), st.integers(0, 60))
def test_what_is_taken_for_one_request_is_exactly_that(noise, at, drop):
    data = post("/a", b"{}", "A: b")
    changed = data[:at] + noise + data[at + drop :]
    sent = whole(changed)
    if sent is not None:
        before, after = sent.head
        digits = changed[changed.index(before) + len(before) :]
        assert changed.startswith(f"{sent.method} {sent.path} HTTP/1.1".encode())
        assert changed.endswith(b"\r\n\r\n" + sent.body)
        assert b"\r\n\r\n" not in before + after
        assert sent.length in {-1, len(sent.body)}
        assert digits

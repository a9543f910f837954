"""What callers get to see of a refusal: before they are asked for a body, behind one that they sent
at once, and in a browser.
"""

import asyncio
import socket
from pathlib import Path

from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import OK, RawServer, says

JSON, TEXT, FORM = (
    f"Content-Type: {kind}"
    for kind in ("application/json", "text/xml", "application/x-www-form-urlencoded")
)
EXPECT = "Expect: 100-continue"
CHROME = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def first(place: str, request: bytes) -> int:
    """The status of the first answer, interim ones included."""
    async with RawClient(port(place)) as client, asyncio.timeout(PATIENCE):
        await client.send(request)
        return (await client.head()).status


def sent_whole(place: str, head: bytes, size: int) -> bytes:
    """The first line of the answer, for a caller that reads nothing before it has sent everything;
    raises for a reset.
    """
    with socket.create_connection(("127.0.0.1", port(place)), timeout=PATIENCE) as caller:
        caller.sendall(head + b"x" * size)
        return caller.recv(65536).partition(b"\r\n")[0]


async def early(instance: Instance) -> None:
    proxy, vault = instance.proxy, instance.vault
    many = f"Content-Length: {10**9}"
    assert (
        await first(proxy, get("/people", EXPECT, JSON, "Content-Length: 9", method="POST")) == 100
    )
    assert (
        await first(proxy, get("/people", EXPECT, TEXT, "Content-Length: 9", method="POST")) == 415
    )
    assert await first(proxy, get("/people", EXPECT, JSON, many, method="POST")) == 413
    assert (
        await first(
            proxy, get("/people", EXPECT, TEXT, "Transfer-Encoding: chunked", method="POST")
        )
        == 415
    )
    assert (
        await first(proxy, get("/people/%FF", EXPECT, JSON, "Content-Length: 9", method="PUT"))
        == 400
    )
    assert (
        await first(vault, get("/api/records", EXPECT, JSON, "Content-Length: 9", method="POST"))
        == 401
    )
    assert await first(vault, get("/oauth2/token", EXPECT, FORM, many, method="POST")) == 413
    assert await first(
        vault, get("/oauth2/token", EXPECT, TEXT, "Content-Length: 9", method="POST")
    ) in (400, 415)


async def late(instance: Instance) -> None:
    size = 60_000_000
    length = f"Content-Length: {size}"
    for place, head, status in [
        (instance.proxy, get("/people", JSON, length, method="POST"), b"413"),
        (instance.proxy, get("/people", TEXT, length, method="POST"), b"413"),
        (instance.proxy, b"GET / HTTP/1.1\r\nX: ", b"431"),
        (instance.proxy, b"GET /", b"414"),
        (instance.vault, get("/api/records", JSON, length, method="POST"), b"401"),
        (instance.vault, get("/oauth2/token", FORM, length, method="POST"), b"413"),
    ]:
        answer = await asyncio.to_thread(sent_whole, place, head, size)
        assert answer.split(b" ")[1] == status, head


async def seen(instance: Instance) -> None:
    async with RawClient(port(instance.proxy)) as client:
        broken = post("/people", b'{"name": "Zorbina', JSON, CHROME)
        page = await client.ask(broken)
        assert (page.status, page.one("content-type")) == (400, b"text/html; charset=utf-8")
        assert b"<code>malformed_json</code>" in page.body
        assert b"Zorbina" not in page.raw
        assert b"default-src 'none'" in (page.one("content-security-policy") or b"")
        problem = await client.ask(broken.replace(CHROME.encode(), b"Accept: */*"))
        assert (problem.status, problem.one("content-type")) == (400, b"application/problem+json")
        assert b'"code": "malformed_json"' in problem.body


async def test_a_refusal_is_seen_whole_and_as_early_as_can_be(tmp_path: Path) -> None:
    async with RawServer(says(OK)) as server, running(tmp_path, rules(server.url)) as instance:
        await early(instance)
        await late(instance)
        await seen(instance)
        assert server.requests == []

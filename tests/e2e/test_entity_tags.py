"""An application that updates only the very version that its caller has read, behind the real
proxy, which restarts in between.
"""

import hashlib
import json
from pathlib import Path

import pytest

from tests.support.instance import Instance, running
from tests.support.people import ANN, rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message, Wire
from tests.support.rawserver import RawServer

JSON = "Content-Type: application/json"


class Application:
    """Keeps one person and her version; the tag of a version is compared byte for byte, as simple
    applications do.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.version = 0
        self.stored = b"{}"

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        while True:
            request = await server.read(wire)
            status = "200 OK"
            if not request.head.startswith(b"GET"):
                if self.version and request.all("if-match") != [(self.tag % self.version).encode()]:
                    await wire.send(
                        b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"
                    )
                    continue
                self.stored = json.dumps(
                    {**json.loads(self.stored), **json.loads(request.body), "id": 1}
                ).encode()
                self.version += 1
                status = "200 OK" if self.version > 1 else "201 Created"
            head = [
                f"HTTP/1.1 {status}",
                JSON,
                f"ETag: {self.tag % self.version}",
                f"Content-Length: {len(self.stored)}",
            ]
            await wire.send("\r\n".join([*head, "", ""]).encode() + self.stored)


async def asked(instance: Instance, request: bytes) -> Message:
    async with RawClient(int(instance.proxy.rpartition(":")[2])) as client:
        return await client.ask(request)


@pytest.mark.parametrize("tag", ['"v%d"', 'W/"v%d"', "v%d"])
async def test_a_version_that_was_read_is_the_one_that_is_updated_also_after_a_restart(
    tmp_path: Path, tag: str
) -> None:
    application = Application(tag)
    async with RawServer(application) as server, running(tmp_path, rules(server.url)) as instance:
        assert (
            await asked(instance, post("/people", json.dumps(ANN).encode(), JSON))
        ).status == 201
        shown = (await asked(instance, get("/people/1"))).all("ETag")[0].decode()
        assert shown != tag % 1
        await instance.stop()
        await instance.start()
        assert (await asked(instance, get("/people/1", f"If-None-Match: {shown}"))).status == 304
        change = post(
            "/people/1", b'{"born": "1932-03-04"}', JSON, f"If-Match: {shown}", method="PATCH"
        )
        answers = [await asked(instance, change) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 412]
        got = await asked(instance, get("/people/1", f"If-None-Match: {shown}"))
        assert (got.status, json.loads(got.body)["born"]) == (200, "1932-03-04")
        assert got.one("ETag") == answers[0].one("ETag")


class Content(Application):
    """Its tag is a hash of what it stores."""

    expected: list[bytes]

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        while True:
            request = await server.read(wire)
            before = f'"{hashlib.sha256(self.stored).hexdigest()}"'
            if not request.head.startswith(b"GET"):
                if b"if-match" in request.head.lower():
                    self.expected = request.all("if-match")
                    if self.expected != [before.encode()]:
                        await wire.send(
                            b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n"
                        )
                        continue
                self.version += 1
                self.stored = json.dumps(
                    {**json.loads(self.stored), **json.loads(request.body), "id": 1}
                ).encode()
            self.tag = f'"{hashlib.sha256(self.stored).hexdigest()}"'
            head = ["HTTP/1.1 200 OK", JSON, f"ETag: {self.tag}"]
            head.append(f"Content-Length: {len(self.stored)}")
            await wire.send("\r\n".join([*head, "", ""]).encode() + self.stored)


@pytest.mark.parametrize("change", [{"pin": "5678"}, {"email": "zorbina.q@wexlomere.example"}])
async def test_an_update_expects_also_the_values_that_share_a_token(
    tmp_path: Path, change: dict[str, str]
) -> None:
    """The pin has one token for all values, and the address one for every spelling: the hash of
    what the application has is the same before and after.
    """
    application = Content("")
    async with RawServer(application) as server, running(tmp_path, rules(server.url)) as instance:
        ann = json.dumps({**ANN, "pin": "1234"}).encode()
        made = await asked(instance, post("/people", ann, JSON))
        shown = (await asked(instance, get("/people/1"))).all("ETag")[0].decode()
        own = application.tag
        assert made.all("ETag")[0].decode() == shown

        def patch(body: dict[str, str], *tags: str) -> bytes:
            return post(
                "/people/1",
                json.dumps(body).encode(),
                JSON,
                *[f"If-Match: {tag}" for tag in tags],
                method="PATCH",
            )

        agreed = await asked(instance, patch({"vip": "no"}, shown))
        assert (agreed.status, application.expected) == (200, [own.encode()])
        shown = (await asked(instance, get("/people/1"))).all("ETag")[0].decode()

        await instance.stop()
        await instance.start()
        other = await asked(instance, patch(change))
        assert other.status == 200
        version = application.version
        late = await asked(instance, patch({"pin": "9999"}, shown))
        assert (late.status, application.version) == (412, version)
        gone = await asked(instance, post("/people/1", b"", f"If-Match: {shown}", method="DELETE"))
        assert (gone.status, application.version) == (412, version)
        got = await asked(instance, get("/people/1"))
        assert {**json.loads(got.body), **change} == json.loads(got.body)
        assert (
            await asked(instance, patch({"pin": "9999"}, got.all("ETag")[0].decode()))
        ).status == 200

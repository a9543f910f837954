"""An application that updates only the very version that its caller has read, behind the real
proxy, which restarts in between.
"""

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

"""A customer's filter endpoint: a real server that decides by action and key, or misbehaves as
told.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy.net.outbound import AclClient, Outbound
from proxy.net.tls import machine_context
from tests.support.api import Interface
from tests.support.patience import PATIENCE
from tests.support.rawhttp import Wire
from tests.support.rawserver import RawServer

ACTS = ("read", "write", "delete")
URL = "http://127.0.0.1:{}/allowed"


def answered(body: bytes, status: bytes = b"200 OK", *fields: bytes) -> bytes:
    """An answer as bytes."""
    return b"\r\n".join(
        (b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *fields, b"", body)
    )


@dataclass
class FilterEndpoint:
    """``allowed``: keys by action, or ``*``.

    ``says``: these bytes in place of an answer; ``None`` in it: no answer at all.
    """

    allowed: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(ACTS, "*"))
    says: list[bytes | None] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[bytes | None] = field(default_factory=list)
    port: int = 0

    async def behave(self, wire: Wire, server: RawServer) -> None:
        while True:
            message = await server.read(wire)
            question = json.loads(message.body)
            self.asked.append(question)
            self.tokens.append(message.one("Authorization"))
            answer: bytes | None
            if self.says:
                answer = self.says[0]
            else:
                (primary,) = question.keys() - {"action", "type"}
                told = self.allowed[question["action"].removeprefix("v1.restapi.")]
                answer = answered(json.dumps({primary: told}).encode())
            if answer is None:
                await wire.until_close()
                return
            await wire.send(answer)

    def told(self) -> list[tuple[str, tuple[str, ...]]]:
        """What was asked since the last time: (action, keys in order)."""
        found = [
            (item["action"].removeprefix("v1.restapi."), tuple(sorted(keys)))
            for item in self.asked
            for name, keys in item.items()
            if name not in ("action", "type")
        ]
        self.asked.clear()
        return found


@asynccontextmanager
async def filtering(here: Interface, seconds: float = PATIENCE) -> AsyncIterator[FilterEndpoint]:
    """An endpoint that the interface of ``here`` asks where a policy names it."""
    endpoint = FilterEndpoint()
    async with (
        RawServer(endpoint.behave) as server,
        Outbound(seconds, machine_context()) as outbound,
    ):
        endpoint.port = server.port
        here.services.acl = AclClient(outbound, lambda _outcome: None)
        yield endpoint

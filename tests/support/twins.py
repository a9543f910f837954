"""Two vaults that differ only in values that a client must not tell apart, and the client that asks
both of them the same.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.api import Interface, Said, interface

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CURSOR = re.compile(rb'"next":"([^"]*)"')

#: Fields of answers that say anything of their content.
_TELLING = (
    "Content-Type", "Content-Length", "Content-Range", "Idempotent-Replayed", "Allow",
    "Retry-After",
)  # fmt: skip


class Twins:
    """Both worlds. What is random in answers (ids of files, cursors, entity tags with them) has the
    same name in both, by its first appearance.
    """

    def __init__(self, one: Interface, other: Interface) -> None:
        self.worlds = (one, other)
        self.files: list[list[bytes]] = [[], []]
        self.cursors: list[str | None] = [None, None]
        self.tags: list[list[str | None]] = [[], []]

    async def seed_one(self, method: str, path: str, body: Any, as_: str = "writer") -> None:
        """Make what the first vault alone holds."""
        said = await self.worlds[0].client(method, path, as_, json=body)
        assert said.status < 300, said.json

    async def seed(self, method: str, path: str, one: Any, other: Any, as_: str = "writer") -> None:
        """Make what the vaults hold; both have to take it alike."""
        first, second = [
            await here.client(method, path, as_, json=body)
            for here, body in zip(self.worlds, (one, other), strict=True)
        ]
        assert first.status == second.status, (path, first.json, second.json)

    async def ask(self, method: str, path: str, as_: str, **more: Any) -> Said:
        """Ask both the same; the answer of the first, which is that of the second to the last byte."""
        said = [
            await here.client(
                method,
                path.replace("CURSOR", self.cursors[place] or ""),
                as_,
                **self._own(place, more),
            )
            for place, here in enumerate(self.worlds)
        ]
        told = [self._told(place, answer) for place, answer in enumerate(said)]
        assert told[0] == told[1], f"{method} {path} {more} tells the vaults apart"
        return said[0]

    async def ask_file(self, method: str, path: str, as_: str, number: int, **more: Any) -> None:
        """The same about the file of that number, whose ids differ."""
        if not self.files[0]:
            return
        place = number % len(self.files[0])
        said = [
            await here.client(method, f"{path}/{self.files[index][place].decode()}", as_, **more)
            for index, here in enumerate(self.worlds)
        ]
        told = [self._told(index, answer) for index, answer in enumerate(said)]
        assert told[0] == told[1], f"{method} {path} of a file tells the vaults apart"

    def advance(self, milliseconds: int) -> None:
        """Let time pass in both."""
        for here in self.worlds:
            here.clock.advance(milliseconds)

    def _own(self, place: int, more: dict[str, Any]) -> dict[str, Any]:
        """The request with what has another name in each vault: the last cursor and entity tag,
        the first file.
        """
        text = json.dumps(more.get("json"))
        if "TAG" in more.get("headers", {}).values():
            tag = self.tags[place][-1] if self.tags[place] else None
            headers = {
                name: tag or '"none"' if value == "TAG" else value
                for name, value in more["headers"].items()
            }
            more = {**more, "headers": headers}
        files = self.files[place]
        file = json.dumps(files[0].decode() if files else "none")
        own = text.replace('"CURSOR"', json.dumps(self.cursors[place])).replace('"FILE"', file)
        return more if own == text else {**more, "json": json.loads(own)}

    def _told(self, place: int, said: Said) -> tuple[Any, ...]:
        found = _CURSOR.search(said.body)
        if found is not None:
            self.cursors[place] = found[1].decode()
        body = _CURSOR.sub(lambda cursor: b'"next":"%d"' % len(cursor[1]), said.body)
        tag, tags = said.headers.get("ETag"), self.tags[place]
        if tag not in tags:
            tags.append(tag)
        return (
            said.status,
            self._named(place, body),
            {name: said.headers.get(name) for name in _TELLING},
            tags.index(tag),
        )

    def _named(self, place: int, body: bytes) -> bytes:
        known = self.files[place]

        def name(found: re.Match[bytes]) -> bytes:
            if found[0] not in known:
                known.append(found[0])
            return b"file %d" % known.index(found[0])

        return _UUID.sub(name, body)


@asynccontextmanager
async def twins(folder: Path, engine: str = "memory", **given: Any) -> AsyncIterator[Twins]:
    """Two vaults under the same keys, so that whatever is made with them is the same in both."""
    folders = [folder / "one", folder / "other"]
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)
    with patch("proxy.crypto.keyset._new_key", lambda: bytes(32)):
        async with (
            interface(folders[0], engine, **given) as one,
            interface(folders[1], engine, **given) as other,
        ):
            yield Twins(one, other)

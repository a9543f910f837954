"""The reference backend: objects in a dictionary, gone with the process.

For tests and for trials of rule files.
"""

import time
from collections.abc import AsyncIterable, Iterable

from proxy.objectstore.base import NoObject, ObjectStore, StoredObject


class _Opened:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    async def read(self, at: int, length: int) -> bytes:
        return self._content[at : at + length]

    def close(self) -> None:
        """Nothing to close."""


class MemoryObjects:
    """Objects of one process."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}  #: content and instant by name
        self._owner: str | None = None

    async def close(self) -> None:
        """Nothing to close: another test may look at the content."""

    async def put(self, name: str, pieces: AsyncIterable[Iterable[bytes | memoryview]]) -> int:
        content = b"".join([bytes(part) async for piece in pieces for part in piece])
        self.objects[name] = content, time.time_ns() // 1_000_000
        return len(content)

    async def open(self, name: str) -> _Opened:
        if name not in self.objects:
            raise NoObject
        return _Opened(self.objects[name][0])

    async def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    async def listed(self, shard: str) -> list[StoredObject]:
        names = sorted(name for name in self.objects if name.startswith(shard))
        return [
            StoredObject(name, len(self.objects[name][0]), self.objects[name][1]) for name in names
        ]

    async def clear(self, before: int) -> int:  # the port's; nothing is left behind in memory
        return 0

    async def owner(self) -> str | None:
        return self._owner

    async def claim(self, owner: str) -> None:
        self._owner = owner

    async def release(self) -> None:
        self._owner = None


async def open_memory_objects(_location: str, _own: bool, _shared: bool) -> ObjectStore:
    """A new, empty place."""
    return MemoryObjects()

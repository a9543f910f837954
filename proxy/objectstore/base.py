"""The port of what keeps the content of attachments: objects under random names, each written once
and never changed.

A backend is untrusted, as an engine of ``storage`` is. It knows no record and no key, and its
content is sealed.
"""

import re
from collections.abc import AsyncIterable, Iterable
from typing import NamedTuple, Protocol

#: Form of a name: 24 random bytes in hexadecimal, which reveals nothing and fits any backend.
OBJECT_NAME = re.compile(r"[0-9a-f]{48}", re.ASCII)

#: The first two digits of names; lists are read by them, so that no list has to hold everything at
#: once.
SHARDS = tuple(f"{number:02x}" for number in range(256))


class NoObject(Exception):
    """There is no object of that name, although the backend itself can be reached."""


class StoredObject(NamedTuple):
    """An object that is there."""

    name: str
    size: int  #: bytes
    at: int  #: when it was written, in milliseconds since the epoch by the backend's clock


class OpenObject(Protocol):
    """An object that is being read.

    It stays readable after a deletion, if the backend can do that.
    """

    @property
    def size(self) -> int:
        """Bytes of the whole object."""

    async def read(self, at: int, length: int) -> bytes:
        """So many bytes from that offset on; fewer only where the object ends."""

    def close(self) -> None:
        """Close it. Idempotent; every ``open`` needs it."""


class ObjectStore(Protocol):
    """An open object store. Each method may raise ``VaultError(FILES_UNAVAILABLE)``.

    That is for faults that may pass, such as a full disk or a missing mount.
    """

    async def close(self) -> None:
        """Finish the pending work, then close. Idempotent."""

    async def put(self, name: str, pieces: AsyncIterable[Iterable[bytes | memoryview]]) -> int:
        """Keep everything that ``pieces`` gives under a new name; the bytes kept.

        Durable, and visible, when it returns.

        Nothing is visible before the end. Errors of ``pieces`` are raised, and nothing stays. A
        name is used once. Each piece is iterated once, perhaps on a thread, so that making its
        bytes need not block the event loop; the next piece is requested afterwards. The bytes of a
        view are used before the next one is requested.
        """

    async def open(self, name: str) -> OpenObject:
        """Open an object for reading. Raises ``NoObject``."""

    async def delete(self, name: str) -> None:
        """Remove an object; gone already: no effect."""

    async def listed(self, shard: str) -> list[StoredObject]:
        """The objects whose name begins with these two digits, by name."""

    async def clear(self, before: int) -> int:
        """Remove what unfinished writes left behind that began before that instant; how many."""

    async def owner(self) -> str | None:
        """The mark of the vault that owns the place; ``None`` without an owner."""

    async def claim(self, owner: str) -> None:
        """Write the mark, durably. Only where there is none."""

    async def release(self) -> None:
        """Remove the mark, durably: the vault's objects are elsewhere. None: no effect."""

"""Contents of attachments, encrypted in the object store and authenticated before any output.

Besides ``seal`` this is the only file with both clear text and keys. A content is sealed as a
stream of chunks under its own key, bound to environment, schema and the name of its object. Its
salt and its length stand in the file's row, sealed under the record's key; so an object cannot be
opened alone, nor as another file.

An object's name begins with the id of its file in hexadecimal, so that a cleanup of objects without
a row can walk through both in one order.
"""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from proxy.crypto.aead import SALT_BYTES, cannot_open
from proxy.crypto.prf import random_bytes
from proxy.crypto.stream import (
    CHUNK,
    HEADER_BYTES,
    SEALED_CHUNK,
    StreamAead,
    StreamOpener,
    StreamSealer,
    chunks,
    sealed_size,
)
from proxy.errors import Code, VaultError
from proxy.objectstore.base import ObjectStore, OpenObject
from proxy.objectstore.files import Threads

#: Bytes of content that are opened together, off the event loop. A transfer holds a few times as
#: much.
PIECE = 8 * CHUNK

#: Bytes that are sealed in one go, while the next ones arrive: fewer cost more for going to and
#: fro, more no longer fit the processor's cache.
_GATHERED = 8 * CHUNK

#: Transfers at the same moment, so that all of them together take no more than some hundred
#: megabytes.
TRANSFERS = 128

#: Bytes from which on a part of a content is not copied; smaller ones are gathered, since callers
#: may send byte by byte.
_LARGE = CHUNK // 4

#: Threads that open. Sealing runs on the thread that iterates over the content.
_THREADS = 4

#: A content on its way in, piece by piece.
Arriving = AsyncIterable[bytes]


class StoredContent(NamedTuple):
    """A content that is durable in the object store, while no row names it yet."""

    object: str
    salt: bytes
    size: int  #: bytes of content
    hash: str  #: SHA-256 of the content in hexadecimal


class Traffic:
    """Threads and in-flight work shared by all environments of one object store."""

    def __init__(self) -> None:
        self.threads = Threads(_THREADS)
        self.uploading: set[str] = set()
        self.transfers = 0


class Contents:
    """The contents of one environment. ``limit`` is the bytes of one content."""

    def __init__(
        self, objects: ObjectStore, streams: StreamAead, limit: int, traffic: Traffic | None = None
    ) -> None:
        self.objects = objects
        self.limit = limit
        self._streams = streams
        self._traffic = traffic or Traffic()

    def sharing_streams(self, streams: StreamAead) -> "Contents":
        """The contents of another environment in the same object store.

        ``close`` of the first closes both.
        """
        return Contents(self.objects, streams, self.limit, self._traffic)

    def uploading(self) -> frozenset[str]:
        """Objects being written, or whose row is being committed: not named yet, but no orphans."""
        return frozenset(self._traffic.uploading)

    async def close(self) -> None:
        self._traffic.threads.close()
        await self.objects.close()

    @asynccontextmanager
    async def sealed(
        self, file_id: bytes, scope: bytes, content: Arriving
    ) -> AsyncIterator[StoredContent]:
        """Seal and keep a content; the row that names it has to be committed within the block.

        Raises ``VaultError``: TOO_LARGE as soon as the content exceeds the limit, OVERLOADED,
        FILES_UNAVAILABLE. Errors of ``content`` are raised. An object that gets no row is removed
        by ``drop``, or else by the cleanup.
        """
        name = file_id.hex() + random_bytes(8).hex()
        self._traffic.uploading.add(name)
        try:
            with self.transfer():
                salt = random_bytes(SALT_BYTES)
                sealing = _Sealing(self._streams.sealer(salt, _bound(scope, name)), self.limit)
                await self.objects.put(name, sealing.pieces(content))
            yield StoredContent(name, salt, sealing.size, sealing.digest.hexdigest())
        finally:
            self._traffic.uploading.discard(name)

    async def current(self, name: str) -> bool:
        """Whether an object is sealed with the current data key.

        Raises ``NoObject``, ``VaultError`` (FILES_UNAVAILABLE).
        """
        return self._streams.current(await self.header(name))

    async def header(self, name: str) -> bytes:
        """Read the header of an object, which names its data key; raises as ``current``."""
        opened = await self.objects.open(name)
        try:
            return await opened.read(0, HEADER_BYTES)
        finally:
            opened.close()

    @asynccontextmanager
    async def again(self, stored: StoredContent, scope: bytes) -> AsyncIterator[StoredContent]:
        """Copy a content into another object under the current data key.

        Its row has to be changed within the block.

        It uses no transfer slot, and a limit lowered since does not count. Raises as ``open``, and
        ``VaultError(CANNOT_OPEN)`` if the content differs from that of its row: then nothing is
        stored.
        """
        content = await self.open(stored, scope)
        name = stored.object[:32] + random_bytes(8).hex()
        self._traffic.uploading.add(name)
        try:
            salt = random_bytes(SALT_BYTES)
            sealing = _Sealing(self._streams.sealer(salt, _bound(scope, name)), stored.size)
            await self.objects.put(name, sealing.pieces(content.pieces()))
            if sealing.digest.hexdigest() != stored.hash:
                await self.drop(name)
                raise cannot_open()
            yield stored._replace(object=name, salt=salt)
        finally:
            self._traffic.uploading.discard(name)
            content.close()

    async def drop(self, name: str) -> None:
        """Remove an object whose row was refused for certain.

        Where that fails, the cleanup does it.
        """
        try:
            await self.objects.delete(name)
        except VaultError as error:
            if error.code is not Code.FILES_UNAVAILABLE:
                raise

    async def open(self, stored: StoredContent, scope: bytes) -> "OpenContent":
        """Open a content; the caller closes it.

        Raises ``NoObject``; ``VaultError``: CANNOT_OPEN when length or header are not its own,
        FILES_UNAVAILABLE.
        """
        opened = await self.objects.open(stored.object)
        try:
            if opened.size != sealed_size(stored.size):
                raise cannot_open()
            header = await opened.read(0, HEADER_BYTES)
            opener = self._streams.opener(header, stored.salt, _bound(scope, stored.object))
        except BaseException:
            opened.close()
            raise
        return OpenContent(opened, opener, self._traffic.threads, stored.size)

    @contextmanager
    def transfer(self) -> Iterator[None]:
        """Count one more transfer.

        Raises ``VaultError`` (OVERLOADED) when there are as many as there may be.
        """
        if self._traffic.transfers >= TRANSFERS:
            raise VaultError(
                Code.OVERLOADED, "As many files are on their way as may be: send this again later."
            )
        self._traffic.transfers += 1
        try:
            yield
        finally:
            self._traffic.transfers -= 1


class OpenContent:
    """An open content."""

    def __init__(
        self, opened: OpenObject, opener: StreamOpener, threads: Threads, size: int
    ) -> None:
        self._opened = opened
        self._opener = opener
        self._threads = threads
        self._last = chunks(size) - 1
        self.size = size

    async def pieces(self, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from ``start`` to before ``stop``, piece by piece; each was authenticated
        before it is given.

        Raises ``VaultError`` (CANNOT_OPEN) in place of a piece that was changed, cut, moved or
        exchanged.
        """
        stop = self.size if stop is None else stop
        number, step = start // CHUNK, PIECE // CHUNK
        end = max(number + 1, chunks(stop))
        while number < end:
            count = min(step, end - number)
            sealed = await self._opened.read(
                HEADER_BYTES + number * SEALED_CHUNK, count * SEALED_CHUNK
            )
            parts = await self._threads.run(self._open, number, count, sealed)
            first, beyond = number * CHUNK, (number + count) * CHUNK - stop
            opened = b"".join(parts)
            if start > first or beyond > 0:
                opened = opened[max(0, start - first) : stop - first]
            number += count
            if opened:
                yield opened

    def close(self) -> None:
        self._opened.close()

    def _open(self, number: int, count: int, sealed: bytes) -> list[bytes]:
        view = memoryview(sealed)
        return [
            self._opener.chunk(
                number + index,
                view[index * SEALED_CHUNK : (index + 1) * SEALED_CHUNK],
                last=number + index == self._last,
            )
            for index in range(count)
        ]


class _Sealing:
    """An upload into the object store: split, counted, hashed and sealed."""

    def __init__(self, sealer: StreamSealer, limit: int) -> None:
        self.size = 0
        self.digest = hashlib.sha256()
        self._sealer = sealer
        self._limit = limit

    async def pieces(self, content: Arriving) -> AsyncIterator[Iterator[bytes | memoryview]]:
        """The sealed stream, header first.

        A piece is sealed during the iteration, on whatever thread that runs, one after the other.
        """
        yield iter((self._sealer.header,))
        parts: list[bytes | bytearray] = []
        length = 0
        async for part in content:
            length += len(part)
            if len(part) >= _LARGE:
                parts.append(part)
            elif parts and isinstance(parts[-1], bytearray):
                parts[-1] += part
            else:
                parts.append(bytearray(part))
            if length >= _GATHERED:
                yield self._sealed(parts)
                parts, length = [], 0
        yield self._sealed(parts)
        yield self._finished()

    def _sealed(self, parts: Iterable[bytes | bytearray]) -> Iterator[memoryview]:
        for part in parts:
            self.size += len(part)
            if self.size > self._limit:
                raise VaultError(
                    Code.TOO_LARGE,
                    f"The file is larger than {self._limit} bytes, the most that is taken here.",
                )
            self.digest.update(part)
            yield self._sealer.update(part)

    def _finished(self) -> Iterator[bytes]:
        yield self._sealer.finish()  # not before the pieces in front of it


def _bound(scope: bytes, name: str) -> bytes:
    """Return the context that binds a content: environment, schema and object."""
    return b"o%b%b" % (scope, name.encode())

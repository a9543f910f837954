"""Notes of the store that only the keyset of an environment opens, and the root over all notes."""

import asyncio
import hashlib
from collections.abc import Callable
from functools import partial

from proxy.crypto.aead import SALT_BYTES, RecordAead
from proxy.crypto.prf import random_bytes
from proxy.errors import Code, coded
from proxy.storage.base import Store
from proxy.storage.notes import ROOT, NoteRoot, NoteWrite, ResealedNote

#: Makes the write of a note, of its name, its content, and the expected one.
NewWrite = Callable[[str, bytes | None, bytes | None], NoteWrite]


class SealedNote:
    """Content is sealed under a fresh salt at each writing and bound to environment and name of the
    note.

    A note is 16 bytes of salt, then a sealed body of ``crypto.aead``. A write compares with the
    content last read or written here, so that two processes never undo each other's changes
    unnoticed.
    """

    def __init__(self, store: Store, aead: RecordAead, environment: str, kind: str) -> None:
        self._digest = b""  # of the content that was last read or written
        self._store = store
        self._aead = aead
        self.name = f"{kind}:{environment}"
        self.stored: bytes | None = None  #: as last read or written
        #: of reads and writes: one that was asked for earlier may be answered later
        self._reading = asyncio.Lock()

    async def read(self) -> bytes | None:
        """The content; ``None`` when there is no such note. Raises ``VaultError(CANNOT_OPEN)``."""
        async with self._reading:
            self.stored = await self._store.note(self.name)
            if self.stored is None:
                return None
            content = _opened(self._aead, self.name, self.stored)
            self._digest = _digest(content)
            return content

    async def write(self, content: bytes, kind: NewWrite = NoteWrite) -> None:
        """Make this the content, durably; ``kind`` makes the write.

        Raises ``VaultError(CONFLICT)`` if another process has written since ``read``.

        A process that re-encrypted the same content has changed nothing for this caller.
        """
        expected, digest = self.stored, self._digest  # the content was made from this
        async with self._reading:
            try:
                await self._put(content, kind, expected)
            except coded(Code.CONFLICT):
                now = await self._store.note(self.name)
                if expected is None or now is None:
                    raise
                if _digest(_opened(self._aead, self.name, now)) != digest:
                    raise
                await self._put(content, kind, now)

    async def written(self, content: bytes) -> bool:
        """``write`` it; false, and nothing is written, if another process was faster."""
        try:
            await self.write(content)
        except coded(Code.CONFLICT):
            return False
        return True

    async def _put(self, content: bytes, kind: NewWrite, expected: bytes | None) -> None:
        fresh = _sealed(self._aead, self.name, content)
        await self._store.put_notes((kind(self.name, fresh, expected),))
        self.stored, self._digest = fresh, _digest(content)


def note_root(aead: RecordAead) -> NoteRoot:
    """The root over the notes of a store, sealed with the current data key; nothing is read yet."""
    return NoteRoot(partial(_sealed, aead, ROOT), partial(_opened, aead, ROOT))


async def seal_again(store: Store, aead: RecordAead, name: str) -> bool:
    """Seal a note with the current data key; return whether another key of this keyset sealed it.

    Raises ``VaultError(CANNOT_OPEN)``, and the errors of the store. No effect on unsealed notes.
    """
    stored = await store.note(name)
    if stored is None or not aead.knows(stored[SALT_BYTES:]) or aead.current(stored[SALT_BYTES:]):
        return False
    fresh = _sealed(aead, name, _opened(aead, name, stored))
    try:
        await store.put_notes((ResealedNote(name, fresh, stored),))
    except coded(Code.CONFLICT):
        return False  # another process has just written it, under the current key
    return True


def _sealed(aead: RecordAead, name: str, content: bytes) -> bytes:
    salt = random_bytes(SALT_BYTES)
    return salt + aead.seal(content, salt, _context(name))


def _opened(aead: RecordAead, name: str, stored: bytes) -> bytes:
    return aead.open(stored[SALT_BYTES:], stored[:SALT_BYTES], _context(name))


def _context(name: str) -> bytes:
    return b"note " + name.encode()


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()

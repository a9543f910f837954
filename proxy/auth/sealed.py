"""A note of the store that only the keyset of its environment opens."""

from proxy.crypto.aead import SALT_BYTES, RecordAead
from proxy.crypto.randomness import random_bytes
from proxy.storage.base import Store


class SealedNote:
    """Content is sealed under a fresh salt at each writing and bound to environment and name of the note.

    A note is: 16 bytes of salt, then a sealed body of ``crypto.aead``. Writing compares with what was last read or
    written here, so that two processes never undo each other's changes without noticing.
    """

    def __init__(self, store: Store, aead: RecordAead, environment: str, kind: str) -> None:
        self._store = store
        self._aead = aead
        self._name = f"{kind}:{environment}"
        self._stored: bytes | None = None

    async def read(self) -> bytes | None:
        """The content; ``None`` when there is no such note. Raises ``VaultError(CANNOT_OPEN)``."""
        self._stored = await self._store.note(self._name)
        if self._stored is None:
            return None
        return self._aead.open(self._stored[SALT_BYTES:], self._stored[:SALT_BYTES], self._context)

    async def write(self, content: bytes) -> None:
        """Make this the content, durably. Raises ``VaultError(CONFLICT)`` when somebody else has written since ``read``."""
        salt = random_bytes(SALT_BYTES)
        fresh = salt + self._aead.seal(content, salt, self._context)
        await self._store.put_note(self._name, fresh, self._stored)
        self._stored = fresh

    @property
    def _context(self) -> bytes:
        return b"note " + self._name.encode()

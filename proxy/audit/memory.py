"""What is remembered of the log beside its folder, so that files that were cut or taken away are missed."""

from typing import Protocol

import msgspec

from proxy.audit.chain import BEGIN, Link


class Memory(Protocol):
    """What outlives the folder: a note in the vault's store."""

    async def read(self) -> bytes | None:
        """What was written last; ``None`` at first. Raises ``VaultError``."""

    async def write(self, content: bytes) -> None:
        """Durably, in place of what was there. Raises ``VaultError``."""


class Forgetful:
    """Keeps things for as long as it lives: for what is tried in memory."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    async def read(self) -> bytes | None:
        """See ``Memory.read``."""
        return self.content

    async def write(self, content: bytes) -> None:
        """See ``Memory.write``."""
        self.content = content


class Known(msgspec.Struct, frozen=True):
    """What was there for certain."""

    base: Link = BEGIN  #: the line before the first that must still be there
    checkpoint: Link = BEGIN  #: a line that was on the disk, and all before it


async def recall(memory: Memory) -> Known:
    """What was remembered last. Raises ``VaultError``."""
    found = await memory.read()
    return Known() if found is None else msgspec.json.decode(found, type=Known)


async def remember(memory: Memory, known: Known) -> None:
    """From now on this is what must be there. Raises ``VaultError``."""
    await memory.write(msgspec.json.encode(known))

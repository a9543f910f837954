"""The form of a line, the keyed hash that ties it to the one before, and the memory of the chain.

A line is a JSON object on a line of its own. Its first members are its number ``n`` and the instant
``at``, its last two ``prev``, the hash of the line before, and ``hash``: the first 16 bytes of
HMAC-SHA-256, in hexadecimal, over every byte of the line before ``,"hash":``. The bytes as they
stand are the canonical form, so a check needs no JSON writer. Without the key a line can neither be
changed nor made.

The memory lies outside the folder, so that files that were cut or removed are missed.
"""

import re
from binascii import hexlify
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

#: The keyed hash of the chain: 16 bytes of any message.
Mac = Callable[[bytes], bytes]

#: What the first line of all shows as the hash before it.
GENESIS: Final = "0" * 32

_LINE: Final = re.compile(
    rb'(\{"n":([1-9][0-9]{0,17}),"at":"[0-9TZ:.-]{24}",[^\n]*,"prev":"([0-9a-f]{32})"),"hash":"([0-9a-f]{32})"\}\n?'
)


class Link(NamedTuple):
    """A line as the next one refers to it: its number, and its hash."""

    n: int
    hash: str


#: Before the first line.
CHAIN_START: Final = Link(0, GENESIS)


class ParsedLine(NamedTuple):
    """A line as it stands in a file, its hash not yet compared."""

    signed: bytes  #: what the hash is over
    n: int
    prev: str
    hash: str

    @property
    def link(self) -> Link:
        """The link for the next line."""
        return Link(self.n, self.hash)

    def genuine(self, mac: Mac) -> bool:
        """Whether the line was written with the key."""
        return mac(self.signed).hex() == self.hash


def chain_lines(
    mac: Mac, after: tuple[int, bytes], at: bytes, bodies: Sequence[bytes]
) -> tuple[bytes, int, bytes]:
    """Lines of these members (JSON without braces), and number and hash of the last of them.

    ``after``: number and hash of the line before.
    """
    number, prev = after
    lines: list[bytes] = []
    for body in bodies:
        number += 1
        signed = b'{"n":%d,"at":"%b",%b,"prev":"%b"' % (number, at, body, prev)
        prev = hexlify(mac(signed))
        lines.append(b'%b,"hash":"%b"}\n' % (signed, prev))
    return lines[0] if len(lines) == 1 else b"".join(lines), number, prev


def parse_line(line: bytes) -> ParsedLine | None:
    """The parts of a line; ``None`` for anything else."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    signed, number, prev, digest = match.groups()
    return ParsedLine(signed, int(number), prev.decode(), digest.decode())


class Memory(Protocol):
    """What outlives the folder: a note in the vault's store."""

    async def read(self) -> bytes | None:
        """The last content; ``None`` at first. Raises ``VaultError``."""

    async def write(self, content: bytes) -> None:
        """Replace the content, durably. Raises ``VaultError``."""


class VolatileMemory:
    """A memory that ends with the process: for trials of rules."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    async def read(self) -> bytes | None:
        """See ``Memory.read``."""
        return self.content

    async def write(self, content: bytes) -> None:
        """See ``Memory.write``."""
        self.content = content


class Checkpoint(msgspec.Struct, frozen=True):
    """What was on the disk for certain."""

    base: Link = CHAIN_START  #: the line before the first that must still be there
    checkpoint: Link = CHAIN_START  #: a line that was on the disk, and all before it


async def recall(memory: Memory) -> Checkpoint:
    """The last checkpoint. Raises ``VaultError``."""
    content = await memory.read()
    return Checkpoint() if content is None else msgspec.json.decode(content, type=Checkpoint)


async def remember(memory: Memory, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint. Raises ``VaultError``."""
    await memory.write(msgspec.json.encode(checkpoint))

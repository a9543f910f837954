"""The form of a line, and the keyed hash that ties it to the one before.

A line is a JSON object on a line of its own. Its first members are its number ``n`` and the instant
``at``, its last two ``prev``, the hash of the line before, and ``hash``: the first 16 bytes of
HMAC-SHA-256, in hexadecimal, over every byte of the line before ``,"hash":``. The bytes as they
stand are the canonical form, so nobody has to write JSON the way this program does to check them.
Who can write the files and has no key can neither change a line nor make one.
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
    """A line as the next one sees it: its number, and its hash."""

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
        """What the next line is tied to."""
        return Link(self.n, self.hash)

    def genuine(self, mac: Mac) -> bool:
        """Whether who wrote the line had the key."""
        return mac(self.signed).hex() == self.hash


def sealed(mac: Mac, after: Link, at: str, bodies: Sequence[bytes]) -> tuple[bytes, Link]:
    """Lines with these members (JSON without its braces, no line breaks) that follow ``after``; and
    the last of them.
    """
    number, before = after.n, after.hash.encode()
    lines: list[bytes] = []
    for body in bodies:
        number += 1
        line, before = sealed_one(mac, (number, before), at.encode(), body)
        lines.append(line)
    return b"".join(lines), Link(number, before.decode())


def sealed_one(mac: Mac, place: tuple[int, bytes], at: bytes, body: bytes) -> tuple[bytes, bytes]:
    """One line, and its hash; ``place``: its number, and the hash of the line before."""
    number, before = place
    signed = b"".join(
        (b'{"n":', str(number).encode(), b',"at":"', at, b'",', body, b',"prev":"', before, b'"')
    )
    digest = hexlify(mac(signed))
    return b"".join((signed, b',"hash":"', digest, b'"}\n')), digest


def parse_line(line: bytes) -> ParsedLine | None:
    """The parts of a line; ``None`` when it is none of ours."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    signed, number, before, digest = found.groups()
    return ParsedLine(signed, int(number), before.decode(), digest.decode())


# What is remembered of the log beside its folder, so that files that were cut or taken away are
# missed.


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

    base: Link = CHAIN_START  #: the line before the first that must still be there
    checkpoint: Link = CHAIN_START  #: a line that was on the disk, and all before it


async def recall(memory: Memory) -> Known:
    """What was remembered last. Raises ``VaultError``."""
    found = await memory.read()
    return Known() if found is None else msgspec.json.decode(found, type=Known)


async def remember(memory: Memory, known: Known) -> None:
    """From now on this is what must be there. Raises ``VaultError``."""
    await memory.write(msgspec.json.encode(known))

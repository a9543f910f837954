"""The form of a line, the keyed hash that ties it to the one before, and the memory of the chain.

A line is a JSON object on a line of its own. It begins with its number ``n`` and the instant
``at``, and ends with ``prev``, the hash of the line before, and ``hash``: the first 16 bytes of
HMAC-SHA-256, in hexadecimal, over every byte of the line before ``,"hash":``. The bytes as written
are the canonical form, so a check needs no JSON writer. Without the key a line can neither be
changed nor made.

Now and then a line is signed (``signatures``). Keys follow each other: a line after one of a newer
key is never one of an older.

The memory lies outside the folder, so that files that were cut or removed are missed.
"""

import base64
import re
import time
from binascii import hexlify
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from proxy.audit.events import EventKind, encode_event
from proxy.audit.signatures import LineDigest, read_signed, sign_members
from proxy.clock import Clock

#: The keyed hash of the chain: 16 bytes of any message.
Mac = Callable[[bytes], bytes]

_DAY: Final = 86_400

#: ``prev`` of the first line of all.
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

    signed: bytes  #: the bytes that the hash covers
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


class LogKey(NamedTuple):
    """A key of a log. ``id`` is that of its public half."""

    id: str
    mac: Mac
    sign: Callable[[bytes], bytes]  #: Ed25519, 64 bytes
    public: bytes


def newest_keys(keys: Sequence[LogKey], oldest: str) -> Sequence[LogKey]:
    """The keys that may have written a line behind one of that key."""
    ids = [key.id for key in keys]
    return keys[ids.index(oldest) :] if oldest in ids else keys


def read_tail(
    tail: bytes, keys: Sequence[LogKey], last: ParsedLine
) -> tuple[LineDigest | None, int]:
    """The digest of lines since a signed one, which comes first, and what that says of notes.

    No digest where a line between it and ``last`` is missing or was changed.
    """
    before: ParsedLine | None = None
    notes, digest = 0, None
    for line in tail.splitlines(keepends=True):
        parsed = parse_line(line)
        genuine = [at for at, key in enumerate(keys) if parsed and parsed.genuine(key.mac)]
        if parsed is None or not genuine:
            return None, notes
        if before is None:
            if (signed := read_signed(line)) is None:
                return None, notes
            digest, notes = LineDigest(signed[0].covers, signed[0].digest), signed[0].notes
        elif parsed.prev != before.hash or parsed.n != before.n + 1:
            return None, notes
        before, keys = parsed, keys[genuine[0] :]
    if digest is not None:
        digest.add(tail)
    return (digest if before == last else None), notes


#: Takes lines, their day, and the number of the first.
Append = Callable[[bytes, int, int], None]


class Chain:
    """The end of a growing log: its last line, the key of the next, and the signed part."""

    def __init__(self, link: Link, key: LogKey, digest: LineDigest | None = None) -> None:
        """``digest``: of lines since the last signed one; ``None``: none is signed yet."""
        self.n = link.n
        self.prev = link.hash.encode()
        self.key = key
        self.signed = 0  #: the last line that is signed, of those written here
        self._digest = digest or LineDigest(link.n + 1)

    @property
    def link(self) -> Link:
        """The last line."""
        return Link(self.n, self.prev.decode())

    def write(self, stamps: "Stamps", bodies: Sequence[bytes], append: Append) -> None:
        """Hand the lines of these members to ``append``; where that raises they are none."""
        at = stamps.next()
        lines, number, prev = chain_lines(self.key.mac, (self.n, self.prev), at, bodies)
        append(lines, stamps.day, self.n + 1)
        self._digest.add(lines)
        self.n, self.prev = number, prev

    def write_signed(
        self, stamps: "Stamps", append: Append, following: LogKey | None, **members: object
    ) -> None:
        """Write one signed line; ``following``: the key of this line and those after it, which the
        key before signs for.
        """
        digest, signer, covers = self._digest.spelled(), self.key, self._digest.covers
        if following is not None:
            members["public_key"] = base64.b64encode(following.public).decode()
        body = encode_event(EventKind.LOG, **members, covers=covers, digest=digest, key=signer.id)
        after, self._digest = self._digest, LineDigest(covers, digest)
        self.key = following or signer
        try:
            self.write(stamps, [sign_members(body, signer.sign)], append)
        except BaseException:
            self._digest, self.key = after, signer
            raise
        self.signed = self.n


class Stamps:
    """Instants as they stand in lines; ``day`` is that of the last one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._text = b""
        self.day = 0

    def next(self) -> bytes:
        """The current instant."""
        second, thousandth = divmod(self._clock(), 1000)
        if second != self._second:
            self._second = second
            self.day = second // _DAY
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%03dZ" % (self._text, thousandth)


class Memory(Protocol):
    """A note in the vault's store, which outlives the folder of the log."""

    async def read(self) -> bytes | None:
        """The last content; ``None`` at first. Raises ``VaultError``."""

    async def write(self, content: bytes) -> None:
        """Replace the content, durably. Raises ``VaultError``."""


class VolatileMemory:
    """A memory that ends with the process: for trials of rules."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    async def read(self) -> bytes | None:
        return self.content

    async def write(self, content: bytes) -> None:
        self.content = content


class Checkpoint(msgspec.Struct, frozen=True):
    """The last position of the log that was certainly on the disk."""

    base: Link = CHAIN_START  #: the line before the first that must still be there
    checkpoint: Link = CHAIN_START  #: a line that was on the disk, and all before it
    key: str = ""  #: id of the key of that line; older ones write no more


async def recall(memory: Memory) -> Checkpoint:
    """The last checkpoint. Raises ``VaultError``."""
    content = await memory.read()
    return Checkpoint() if content is None else msgspec.json.decode(content, type=Checkpoint)


async def remember(memory: Memory, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint. Raises ``VaultError``."""
    await memory.write(msgspec.json.encode(checkpoint))


# What is found wrong with chains.

#: Faults that are listed; more of them are counted.
MOST_FAULTS: Final = 1_000


class LogFault(NamedTuple):
    """Something that is wrong with a line, or between it and the one before."""

    file: str
    line: int  #: 0: of the file as a whole
    text: str


@dataclass
class LogFindings:
    """The result of reading the whole log."""

    lines: int = 0
    files: int = 0
    last: Link = CHAIN_START
    notes: int = 0  #: the counter of the notes of the store, by the last line that tells it
    proven: list[tuple[int, int]] = field(
        default_factory=list
    )  #: first and last line, by signatures
    faults: list[LogFault] = field(default_factory=list)
    more: int = 0  #: faults that are not listed
    #: of the chains of workers, by the name of their folder; lines and faults are counted above
    workers: dict[str, "LogFindings"] = field(default_factory=dict)

    def add(self, file: str, line: int, text: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(LogFault(file, line, text))
        else:
            self.more += 1

    def join(self, name: str, other: "LogFindings") -> None:
        """Add those of the chain of a worker."""
        self.workers[name] = other
        self.lines += other.lines
        self.files += other.files
        self.notes = max(self.notes, other.notes)
        self.more += other.more
        for fault in other.faults:
            self.add(f"{name}/{fault.file}", fault.line, fault.text)

    def as_json(self) -> dict[str, Any]:
        """The findings as commands and the interface tell them."""
        workers = [
            {"worker": name, "lines": one.lines, "last": one.last._asdict(), "proven": one.ranges()}
            for name, one in self.workers.items()
        ]
        return {
            "ok": not self.faults,
            "files": self.files,
            "lines": self.lines,
            "last": self.last._asdict(),
            "proven": self.ranges(),
            "notes": self.notes,
            "faults": [fault._asdict() for fault in self.faults],
            "more": self.more,
            **({"workers": workers} if workers else {}),
        }

    def ranges(self) -> list[dict[str, int]]:
        """The lines that signatures prove."""
        return [{"first": first, "last": last} for first, last in self.proven]

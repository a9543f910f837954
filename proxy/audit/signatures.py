"""Signed lines of the log, by which the public key alone verifies all lines before.

A signed line has a digest of every line since ``covers``, and a signature over its own members up
to there. The digest is SHA-256 over the digest of the signed line before (32 zero bytes at first)
and every byte since that line began. ``notes`` is the counter of the root over the notes of the
store.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

#: Whether a public key has signed: (public key, signature, message).
SignatureHolds = Callable[[bytes, bytes, bytes], bool]


def key_id(public: bytes) -> str:
    """The id by which a signed line names a public key."""
    return hashlib.sha256(public).hexdigest()[:16]


def decode_public_key(text: str) -> bytes:
    """A public key or a signature as lines spell it; no bytes for any other text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


class Signed(msgspec.Struct, frozen=True):
    """The members of a signed line that are about lines before it."""

    n: int
    covers: int
    digest: str
    key: str
    signature: str
    notes: int = 0
    public_key: str = ""


#: Start of a signature in a line; no other line has it.
SIGNATURE: Final = b',"signature":"'
_SIGNED_FROM: Final = b"domicile audit line\n"
_decode_signed = msgspec.json.Decoder(Signed).decode


def sign_members(members: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """The members of a line with a signature behind them, as JSON without its braces."""
    return b'%b%b%b"' % (members, SIGNATURE, base64.b64encode(sign(_SIGNED_FROM + members)))


def read_signed(line: bytes) -> tuple[Signed, bytes] | None:
    """The members of a signed line and the bytes it signs; ``None`` for any other."""
    end = line.rfind(SIGNATURE)
    if end < 0:
        return None
    try:
        return _decode_signed(line), _SIGNED_FROM + line[line.find(b',"event":') + 1 : end]
    except msgspec.MsgspecError:
        return None


class LineDigest:
    """The digest of lines as they are added."""

    def __init__(self, covers: int, before: str = "0" * 64) -> None:
        """``covers``: the first line; ``before``: the digest of a signed line that comes first."""
        self.covers = covers
        self._sum = hashlib.sha256(bytes.fromhex(before))
        self.add = self._sum.update  #: adds lines, as their bytes stand

    def spelled(self) -> str:
        """The digest so far, in hexadecimal."""
        return self._sum.copy().hexdigest()


class Signatures:
    """Check the signatures of a log, from the line at which reading begins.

    ``trusted``: public keys by id. A key that one of them introduces is trusted from there on.
    """

    def __init__(self, trusted: Mapping[str, bytes], holds: SignatureHolds) -> None:
        self.trusted = dict(trusted)
        self.proven: list[tuple[int, int]] = []
        self.notes = 0
        self._holds = holds
        self._bound = 0  #: the first line that the digest binds
        self._digest: LineDigest | None = None  #: since the last signed line
        self._start: LineDigest | None = None  #: since the last start of the program

    def add(self, number: int, line: bytes) -> str | None:
        """Take the next line; return a fault of its signature, if any."""
        fault, signed = None, read_signed(line)
        if signed is not None:
            fault = self._check(number, *signed)
            self._digest = LineDigest(signed[0].covers, signed[0].digest)
        if b'"reason":"started"' in line:
            self._start = LineDigest(number)
        for digest in (self._digest, self._start):
            if digest is not None:
                digest.add(line)
        return fault

    def interrupt(self) -> None:
        """Note that lines are missing or changed, which is reported already."""
        self._digest = self._start = None

    def _check(self, number: int, signed: Signed, message: bytes) -> str | None:
        present, bound = self._digest, self._bound
        if present is None or present.covers != signed.covers:
            present, bound = self._start, signed.covers
        if present is None or present.covers != signed.covers:
            self._bound = number  # it covers lines that are not there to be read
        elif present.spelled() != signed.digest:
            self._bound = number
            return "The lines before it are not those that it was signed for."
        else:
            self._bound = bound
        public = self.trusted.get(signed.key)
        if public is None:
            return None
        if not self._holds(public, decode_public_key(signed.signature), message):
            return "Its signature does not hold."
        self._prove(number, signed)
        return None

    def _prove(self, number: int, signed: Signed) -> None:
        if signed.public_key:
            following = decode_public_key(signed.public_key)
            self.trusted[key_id(following)] = following
        self.notes = max(self.notes, signed.notes)
        self.proven = [one for one in self.proven if one[1] < self._bound]
        self.proven.append((self._bound, number))

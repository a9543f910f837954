"""A file of exported records that only the keys of this vault open: chunks of a sealed stream behind one line of JSON.

The line tells what the file is, and no value: ``{"domicile": "export", "version": 1, "schema": …, "format": …, "salt": …}``. It is
bound to the content, so a file cannot be passed off as the export of another schema.
"""

import base64
import contextlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from proxy.crypto.aead import SALT_BYTES
from proxy.crypto.randomness import random_bytes
from proxy.crypto.stream import HEADER_BYTES, SEALED_CHUNK, StreamAead
from proxy.errors import Code, VaultError

_LONGEST_HEAD: Final = 4096


class Head(msgspec.Struct, frozen=True):
    """The first line of a sealed file."""

    domicile: str
    version: int
    schema: str
    format: str
    salt: str  #: base64


def seal(pieces: Iterable[str], schema: str, kind: str, aead: StreamAead) -> Iterator[bytes]:
    """The bytes of a sealed file with these pieces of text."""
    salt = random_bytes(SALT_BYTES)
    line = msgspec.json.encode(Head("export", 1, schema, kind, base64.b64encode(salt).decode())) + b"\n"
    sealer = aead.sealer(salt, line)
    yield line + sealer.header
    for piece in pieces:
        if sealed := sealer.update(piece.encode()):
            yield bytes(sealed)
    yield sealer.finish()


def head_of(file: Path) -> Head | None:
    """What a file says of itself if it is a sealed one. ``VaultError(BAD_SETTINGS)`` for one of a newer version."""
    with file.open("rb") as opened:
        line = opened.readline(_LONGEST_HEAD)
    try:
        head = msgspec.json.decode(line, type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if head.domicile != "export":
        return None
    if head.version != 1:
        raise VaultError(
            Code.BAD_SETTINGS, f"{file} was written by a newer version of domicile: read it with that one."
        )
    return head


class Opened(io.RawIOBase):
    """The content of a sealed file, opened chunk by chunk; nothing is given that is not authentic.

    Reading raises ``VaultError(CANNOT_OPEN)`` where the file was changed or cut, or belongs to other keys.
    """

    def __init__(self, place: Path, head: Head, aead: StreamAead) -> None:
        super().__init__()
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(place.open("rb"))
            line = file.readline(_LONGEST_HEAD)
            self._opener = aead.opener(file.read(HEADER_BYTES), base64.b64decode(head.salt), line)
            self._sealed = file.read(SEALED_CHUNK)
            self._file = file
            stack.pop_all()
        self._number = 0
        self._plain = b""
        self._over = False

    def readable(self) -> bool:
        """As files say it."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what readers hand over
        """Fill as much as one chunk gives; 0 at the end."""
        while not self._plain and not self._over:
            self._next()
        taken = self._plain[: len(buffer)]
        buffer[: len(taken)] = taken
        self._plain = self._plain[len(taken) :]
        return len(taken)

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()

    def _next(self) -> None:
        following = self._file.read(SEALED_CHUNK)
        self._over = not following
        self._plain = self._opener.chunk(self._number, self._sealed, last=self._over)
        self._number += 1
        self._sealed = following

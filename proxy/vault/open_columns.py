"""What a sealed body says of the columns beside it.

A body begins with a head: format, updated_at, created_at, expires_at, length of the names of the
columns that have a value. These names follow, then a digest of names and values, then the packed
body. It lies inside the seal, so it needs no key of its own. A body of an earlier version of the
program begins with the packed body, whose first byte is another one.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from proxy.storage.rows import ColumnValue, Row

_encode = msgspec.msgpack.Encoder().encode
_head = struct.Struct(">BqqqH")
_FORMAT: Final = 1
_FIRST: Final = bytes((_FORMAT,))
_NEVER: Final = -(2**63)  #: stands for no ``expires_at``
_DIGEST_BYTES: Final = 16


class OpenColumns:
    """What the rows of one table hold in the clear; shared by all who seal and open them.

    ``required``: every body of the table binds its columns, so one that does not was put back.
    """

    __slots__ = ("_names", "_order", "required")

    def __init__(self, names: Sequence[str] = (), *, required: bool = False) -> None:
        self.required = required
        self.adopt(names)

    def adopt(self, names: Sequence[str]) -> None:
        """Take the columns of a layout, which only grows at its end while a process runs."""
        self._names = frozenset(names)
        self._order = sorted((name, place) for place, name in enumerate(names))

    def bind(
        self, created: int, updated: int, expires: int | None, cells: tuple[ColumnValue, ...]
    ) -> bytes:
        """What the body of a row with these times and cells begins with."""
        names, digest = self._digest(cells)
        end = _NEVER if expires is None else expires
        return _head.pack(_FORMAT, updated, created, end, len(names)) + names + digest

    def check(self, plain: bytes, row: Row) -> tuple[bytes, int] | None:
        """The packed body, and the ``updated_at`` that it was written with; ``None`` where the row
        has other columns than those that are sealed.
        """
        _, updated, created, end, size = _head.unpack_from(plain)
        start = _head.size + size
        expires = _NEVER if row.expires_at is None else row.expires_at
        names, digest = self._digest(row.cells)
        if created != row.created_at or end != expires:
            return None
        if names == plain[_head.size : start]:
            begin = start + len(digest)
            return (plain[begin:], updated) if digest == plain[start:begin] else None
        sealed = set(plain[_head.size : start].decode().split(","))
        if sealed <= self._names or not set(names.decode().split(",")) <= sealed | {""}:
            return None
        return plain[start + _DIGEST_BYTES :], updated  # with columns that nobody reads any more

    def _digest(self, cells: tuple[ColumnValue, ...]) -> tuple[bytes, bytes]:
        width = len(cells)
        values = {
            name: cell
            for name, place in self._order
            if place < width and (cell := cells[place]) is not None
        }
        if not values:
            return b"", b""
        digest = blake2b(_encode(values), digest_size=_DIGEST_BYTES).digest()
        return ",".join(values).encode(), digest


def binds_columns(plain: bytes) -> bool:
    """Whether what a body opens to says anything of columns."""
    return plain[:1] == _FIRST


def packed_in(plain: bytes) -> bytes:
    """The packed body of what a body opens to, whichever columns it binds."""
    if not binds_columns(plain):
        return plain
    size = _head.unpack_from(plain)[-1]
    return plain[_head.size + size + (_DIGEST_BYTES if size else 0) :]

"""Head of a sealed body, which binds the columns beside it.

A body begins with a head: format, updated_at, created_at, expires_at, a digest of the columns that
have a value, length of their names. These names follow, then the packed body. It lies inside the
seal, so it needs no separate key. A body of an earlier version of the program begins with the
packed body, whose first byte differs.
"""

import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from proxy.storage.rows import ColumnValue, Row

#: A hash that knows its other one is bound as the bytes that are stored.
_encode = msgspec.msgpack.Encoder(enc_hook=bytes).encode
_head = struct.Struct(">Bqqq16sH")
_FORMAT: Final = 1
#: First byte of an opened body that binds columns.
BINDS_COLUMNS: Final = bytes((_FORMAT,))
_NEVER: Final = -(2**63)  #: stands for no ``expires_at``
_DIGEST_BYTES: Final = 16
_HEAD: Final = _head.size


class OpenColumns:
    """Columns of one table in the clear, shared by all that seal and open its rows.

    ``required``: every body of the table binds its columns, so one that does not was put back.
    """

    __slots__ = ("_joined", "_names", "required")

    def __init__(self, names: Sequence[str] = (), *, required: bool = False) -> None:
        self.required = required
        self._names: tuple[str, ...] = ()
        self.adopt(names)

    def adopt(self, names: Sequence[str]) -> None:
        """Take the columns of a layout, which only grows at its end; an earlier one is left."""
        if len(names) < len(self._names):
            return
        self._names = tuple(names)
        self._joined = ",".join(names).encode()

    def bind(
        self, created: int, updated: int, expires: int | None, cells: tuple[ColumnValue, ...]
    ) -> bytes:
        """Return the head of the body of a row with these times and cells."""
        # no call, as nearly always: this is on the way of every write
        full = None not in cells and len(cells) == len(self._names)
        values = dict(zip(self._names, cells, strict=True)) if full else self._values(cells)
        digest = blake2b(_encode(values), digest_size=_DIGEST_BYTES).digest() if values else b""
        names = self._joined if full else ",".join(values).encode()
        end = _NEVER if expires is None else expires
        return _head.pack(_FORMAT, updated, created, end, digest, len(names)) + names

    def check(self, clear: bytes, row: Row) -> tuple[bytes, int] | None:
        """The packed body, and the ``updated_at`` that it was written with; ``None`` where the row
        has other columns than those that are sealed.
        """
        _, updated, created, end, digest, size = _head.unpack_from(clear)
        expires = row.expires_at
        if created != row.created_at or end != (_NEVER if expires is None else expires):
            return None
        cells, start = row.cells, _HEAD + size
        full = None not in cells and len(cells) == len(self._names)
        values = dict(zip(self._names, cells, strict=True)) if full else self._values(cells)
        packed = _encode(values)
        read = self._names[: len(cells)]  # of a question from before the layout has grown
        genuine = (
            blake2b(packed, digest_size=_DIGEST_BYTES).digest() == digest if values else not size
        )
        if genuine or _has_more(clear[_HEAD:start], read, values):
            return clear[start:], updated
        return None

    def _values(self, cells: tuple[ColumnValue, ...]) -> dict[str, ColumnValue]:
        pairs = zip(self._names, cells, strict=False)
        if None in cells:
            return {name: cell for name, cell in pairs if cell is not None}
        return dict(pairs)


def _has_more(names: bytes, read: Sequence[str], values: Mapping[str, ColumnValue]) -> bool:
    """Whether a body binds columns that were not read with its row, and those of the row."""
    bound = set(names.decode().split(",")) - {""}
    return not bound <= set(read) and values.keys() <= bound


def binds_columns(clear: bytes) -> bool:
    """Whether an opened body binds columns."""
    return clear[:1] == BINDS_COLUMNS


def packed_in(clear: bytes) -> bytes:
    """Return the packed body of an opened body, whatever columns it binds."""
    if not binds_columns(clear):
        return clear
    return clear[_head.size + _head.unpack_from(clear)[-1] :]

"""Random bytes from the operating system, fetched in blocks.

A call to the system gives up the interpreter's lock, and with a busy writer thread it comes back tens of microseconds
later; four such calls a request were a third of its cost. A block is cut into pieces at once and a piece leaves it when
it is handed out, so that nothing of it stays behind. A child process starts with no pieces, so that parent and child
never hand out the same bytes.
"""

import os
import struct
from typing import Final

_BLOCK: Final = 8192
_PIECE: Final = 16  # bytes; nearly all that is drawn is a salt, a nonce or the digits of a token
_cut = struct.Struct(f"{_PIECE}s" * (_BLOCK // _PIECE)).unpack


class _Pool:
    """For the thread of the event loop alone, as all sealing and minting is."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def take(self, length: int) -> bytes:
        pieces = self._pieces
        if length > _PIECE:
            return os.urandom(length) if length > _BLOCK // 8 else self._join(length)
        if not pieces:
            pieces.extend(_cut(os.urandom(_BLOCK)))
        return pieces.pop()[:length]

    def several(self, count: int) -> list[bytes]:
        pieces = self._pieces
        while len(pieces) < count:
            pieces.extend(_cut(os.urandom(_BLOCK)))
        first = len(pieces) - count
        taken = pieces[first:]
        del pieces[first:]
        return taken

    def clear(self) -> None:
        self._pieces.clear()

    def _join(self, length: int) -> bytes:
        return b"".join([self.take(_PIECE) for _ in range(-(-length // _PIECE))])[:length]


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.clear)

random_bytes = _pool.take
#: So many pieces of 16 random bytes, for work on many records at once.
random_pieces = _pool.several

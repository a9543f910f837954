"""Random bytes from the operating system, fetched in blocks.

A call to the system gives up the interpreter's lock, and with a busy writer thread it comes back tens of microseconds
later; four such calls a request were a third of its cost. Bytes handed out are wiped from the block. A child process
starts with an empty block, so that parent and child never hand out the same bytes.
"""

import os
from typing import Final

_BLOCK: Final = 8192


class _Pool:
    """For the thread of the event loop alone, as all sealing and minting is."""

    def __init__(self) -> None:
        self._block = bytearray()
        self._at = _BLOCK

    def take(self, length: int) -> bytes:
        if length > _BLOCK // 8:
            return os.urandom(length)
        start = self._at
        end = start + length
        if end > _BLOCK:
            self._block = bytearray(os.urandom(_BLOCK))
            start, end = 0, length
        taken = bytes(self._block[start:end])
        self._block[start:end] = bytes(length)
        self._at = end
        return taken

    def clear(self) -> None:
        self._at = _BLOCK


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.clear)

random_bytes = _pool.take

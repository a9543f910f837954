"""Where the one part of an upload ends, found in a body that comes piece by piece (RFC 2046 section
5.1.1).
"""

import ctypes
from collections.abc import Callable
from typing import Final

from proxy.errors import Code, Detail, VaultError

# Whether bytes hold a mark, at the speed of the C library.
#
# An upload is searched for its boundary from end to end. ``bytes.find`` takes a fifth of all the
# processor time of an upload for that, under the interpreter's lock; ``memmem`` of the GNU C
# library takes a quarter of it, and without the lock.


#: Bytes from which on the call pays.
_MANY = 1024


def _searcher() -> Callable[[bytes | int, int, bytes, int], int | None] | None:
    """``memmem`` (https://man7.org/linux/man-pages/man3/memmem.3.html); ``None`` where the C
    library has none.
    """
    try:
        found = ctypes.CDLL(None).memmem
    except (OSError, AttributeError, TypeError):
        return None
    found.restype = ctypes.c_void_p  # an address: all that matters is whether there is one
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return found


_memmem = _searcher()


def find_mark(mark: bytes, inside: bytes | memoryview) -> int:
    """Where the mark stands first; -1 where it does not.

    A view has to be of bytes that can be written.
    """
    if _memmem is not None and len(inside) >= _MANY:
        place = (
            inside
            if isinstance(inside, bytes)
            else ctypes.addressof(ctypes.c_char.from_buffer(inside))
        )
        if _memmem(place, len(inside), mark, len(mark)) is None:
            return -1
    return bytes(inside).find(mark)


#: Bytes that may follow the last boundary; they mean nothing (RFC 2046, section 5.1.1).
_EPILOGUE: Final = 1024

_RETURN: Final = b"\r"
_DASHES: Final = b"--"


class Scan:
    """Takes a body from the first byte of the content on; for one thread at a time.

    ``between`` is the line end and the boundary that end the content.
    """

    __slots__ = ("_after", "_between", "_held")

    def __init__(self, between: bytes) -> None:
        self._between = between
        self._held = b""  #: the end of what came, where it may be the beginning of a boundary
        self._after: bytearray | None = None  #: what came behind the boundary, once that was there

    def content(self, piece: bytes | memoryview) -> bytes | memoryview:
        """What is certainly content, as of this piece; it may be a view of it.

        Raises ``VaultError`` (INVALID_FILE).
        """
        if self._after is not None:
            self._follow(self._after, piece)
            return b""
        between = self._between
        if self._held:
            piece, self._held = self._held + piece, b""
        end = find_mark(between, piece)
        if end >= 0:
            self._after = bytearray()
            self._follow(self._after, piece[end + len(between) :])
            return piece[:end]
        self._held = _begun(bytes(piece[1 - len(between) :]), between)
        return piece[: len(piece) - len(self._held)]

    def finish(self) -> None:
        """The body is complete.

        Raises ``VaultError`` (INVALID_FILE) where it ends before its last boundary does.
        """
        if self._after is None or len(self._after) < len(_DASHES):
            raise broken_off()

    @staticmethod
    def _follow(after: bytearray, piece: bytes | memoryview) -> None:
        after += piece[: _EPILOGUE + 1]
        if len(after) >= len(_DASHES) and not after.startswith(_DASHES):
            raise misunderstood("file", "The body has to have one part, and it has more.")
        if len(after) > _EPILOGUE:
            raise misunderstood("file", "Something follows the end of the body.")


def _begun(end: bytes, between: bytes) -> bytes:
    """What of the end of a piece, in which there is no boundary, may be the beginning of one."""
    at = end.rfind(_RETURN)  # a boundary has no other in it
    return end[at:] if at >= 0 and between.startswith(end[at:]) else b""


def broken_off() -> VaultError:
    """What is raised for a body that ends too early."""
    return misunderstood("file", "The body ends before its last boundary.")


def misunderstood(source: str, text: str) -> VaultError:
    """What is raised for a body of another shape."""
    return VaultError(
        Code.INVALID_FILE,
        "The upload is not understood; nothing was stored.",
        (Detail(source, text),),
    )


def cut_short() -> VaultError:
    """What is raised when a connection ends before its body does."""
    return VaultError(Code.BAD_REQUEST, "The body ended before it was complete.")

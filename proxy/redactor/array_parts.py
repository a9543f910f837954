"""The elements of a long JSON array, decoded part by part: while the decoder runs nobody else gets
the interpreter's lock.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from _cffi_backend import FFI  # what cffi's generated modules import: no C parser is loaded

_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])

_FFI = FFI()
_CHARS = _FFI.typeof("char *")
_cast = _FFI.cast
_from_buffer = _FFI.from_buffer

_WHITE: Final = b" \t\n\r"

#: Bytes of an array that is decoded part by part, of a part, and of a stretch in which the end of
#: one is looked for.
LONG_ARRAY: Final = 2 * 1024 * 1024
_PART: Final = 1024 * 1024
_NEAR: Final = 64 * 1024
#: Ends that are tried for each part.
_GUESSES: Final = 8
#: A comma that stands between two arrays or objects, and any.
_BETWEEN = re.compile(rb"[}\]][ \t\n\r]*+(,)[ \t\n\r]*+[{\[]")
_COMMA = re.compile(rb"(,)")


def in_parts(body: bytes, start: int, end: int) -> list[memoryview] | None:
    """The elements of the array that stands there, as views of the body.

    A part ends at a comma that seems to stand between two elements. Where it stands inside one, or
    in a string, what comes before it is no list of values. ``None``: no such comma was found, or
    this is no array.
    """
    while start < end and body[end - 1] in _WHITE:
        end -= 1
    if body[start] != 0x5B or body[end - 1] != 0x5D:  # [ ]
        return None
    view, found = memoryview(body), list[memoryview]()
    start, end = start + 1, end - 1
    while start <= end:
        for stop in _ends(body, start, end):
            text = b"[%b]" % body[start:stop]
            try:
                elements = _ELEMENTS.decode(text)
            except (msgspec.DecodeError, RecursionError):
                continue
            break
        else:
            return None
        if not elements:
            return None
        base = _cast(_CHARS, _from_buffer(text)) + 1
        for element in elements:
            at = _cast(_CHARS, _from_buffer(element)) - base + start
            found.append(view[at : at + len(element)])
        start = stop + 1
    return found


def _ends(body: bytes, start: int, end: int) -> Iterator[int]:
    """Where a part of an array may end that begins there."""
    if end - start <= _PART + _NEAR:
        yield end
        return
    at = start + _PART
    for _ in range(_GUESSES):
        match = _BETWEEN.search(body, at, at + _NEAR) or _COMMA.search(body, at, at + _NEAR)
        if match is None:
            return
        yield match.start(1)
        at = match.end(1)

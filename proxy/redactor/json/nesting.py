"""How deep a JSON document nests, by a few passes over its bytes that all run in C.

Only quotes and brackets are kept, and both kinds of brackets become one. Where no string holds a
bracket, quotes stand in pairs and can go; then every ``[]`` that goes takes one level away. Only
for documents that are valid JSON.
"""

import re
from collections.abc import Iterator

_UNIFY = bytes({ord("{"): ord("["), ord("}"): ord("]")}.get(byte, byte) for byte in range(256))
_REST = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_ESCAPED_QUOTE = re.compile(rb'\\["\\]')

#: Below this size it is quicker to count the brackets first: no document nests deeper than it has
#: brackets.
_SMALL = 4096

#: With fewer escapes than one in so many bytes it is quicker to step from one to the next.
_RARE = 1024

#: Piece by piece the system hands out no large blocks of memory, which would cost more than the
#: work on them.
_PIECE = 32 * 1024


def depth_fits(document: bytes, depth: int) -> bool:
    """Whether no value of a valid document lies inside more than ``depth`` arrays and objects,
    itself included.
    """
    if len(document) < _SMALL and document.count(b"{") + document.count(b"[") <= depth:
        return True
    kept = _skeleton(document)
    brackets = kept.translate(None, b'"')
    if 2 * kept.count(b'""') + len(brackets) != len(kept):
        # A quote without a neighbour: some string holds a bracket. Every second piece lies outside
        # of strings.
        brackets = b"".join(kept.split(b'"')[::2])
    while brackets and depth:
        brackets = brackets.replace(b"[]", b"")
        depth -= 1
    return not brackets


def _skeleton(document: bytes) -> bytes:
    """The brackets and unescaped quotes of a document."""
    kept: list[bytes] = []
    start = 0
    for _ in range(len(document) // _RARE + 1):
        escape = document.find(b"\\", start)
        if escape < 0:
            break
        kept += _kept(document, start, escape)
        start = escape + 2
    else:
        document = _ESCAPED_QUOTE.sub(b"", document[start:])
        start = 0
    kept += _kept(document, start, len(document))
    return b"".join(kept)


def _kept(document: bytes, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, _PIECE):
        yield document[at : min(at + _PIECE, end)].translate(_UNIFY, _REST)

"""Replace stretches of a body and leave every other byte as it is."""

from collections.abc import Sequence
from operator import itemgetter

_by_start = itemgetter(0)


def splice(body: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The body with each ``body[start:end]`` replaced by its bytes.

    Edits may come in any order; an empty stretch is an insertion, and insertions at one place keep their order.
    ``ValueError`` when two overlap or one lies outside of the body.
    """
    pieces: list[bytes] = []
    reached, size = 0, len(body)
    for start, end, content in sorted(edits, key=_by_start):
        if not reached <= start <= end <= size:
            raise ValueError(f"the edit of bytes {start} to {end} overlaps another one or lies outside of the body")
        pieces += (body[reached:start], content)
        reached = end
    pieces.append(body[reached:])
    return b"".join(pieces)

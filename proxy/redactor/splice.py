"""Replace stretches of a body and leave every other byte as it is."""

from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter

from proxy.offload import FEW

_by_start = itemgetter(0)


def splice(body: bytes, edits: Sequence[tuple[int, int, bytes]]) -> bytes:
    """The body with each ``body[start:end]`` replaced by its bytes.

    Edits may come in any order; an empty stretch is an insertion, and insertions at one place keep their order.
    ``ValueError`` when two overlap or one lies outside of the body.
    """
    joined: list[bytes] = []
    pieces: list[bytes] = []
    reached, size = 0, len(body)
    # To sort many keeps the interpreter's lock all the while, and nearly always they are in order.
    in_order = len(edits) > FEW and all(first[0] <= second[0] for first, second in pairwise(edits))
    ordered = edits if in_order else sorted(edits, key=_by_start)
    for start, end, content in ordered:
        if not reached <= start <= end <= size:
            raise ValueError(f"the edit of bytes {start} to {end} overlaps another one or lies outside of the body")
        pieces += (body[reached:start], content)
        reached = end
        if len(pieces) > FEW:  # no call joins, or frees, more than so many
            joined.append(b"".join(pieces))
            pieces.clear()
    pieces.append(body[reached:])
    return b"".join([*joined, *pieces])

"""Where selected values stand in a body: byte spans, never content."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Leaf(NamedTuple):
    """A selected value: ``body[start:end]`` is its raw JSON; ``name`` is the number of the selector that chose it."""

    name: int
    start: int
    end: int


class Located(NamedTuple):
    """A selected object and the leaves selected from it, in order of the document."""

    start: int
    end: int
    leaves: tuple[Leaf, ...]


class Found(NamedTuple):
    """What a selection found: its objects, and the leaves that count from the root; each in order of the document."""

    objects: list[Located]
    anchored: list[Leaf]


class Hit(NamedTuple):
    """A leaf while it is not known yet whether another one encloses it. ``owner`` -1: counted from the root."""

    start: int
    end: int
    owner: int
    name: int


def assemble(objects: Sequence[tuple[int, int]], hits: Iterable[Hit]) -> Found:
    """Give every leaf to its object; of leaves inside each other only the outermost stays.

    Where one place was selected twice, a leaf from the root wins, then the outer object, then the earlier selector.
    """
    owned: list[list[Leaf]] = [[] for _ in objects]
    anchored: list[Leaf] = []
    reached = 0
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end, hit.owner, hit.name)):
        if hit.start >= reached:
            reached = hit.end
            (anchored if hit.owner < 0 else owned[hit.owner]).append(Leaf(hit.name, hit.start, hit.end))
    located = [Located(*span, tuple(leaves)) for span, leaves in zip(objects, owned, strict=True)]
    return Found(located, anchored)

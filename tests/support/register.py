"""A record as a register, and a judge of what clients that worked on it at the same time were told.

A history is linearizable when there is an order of its calls in which each one happens at an
instant between its begin and its end, and in which every answer is right (Herlihy and Wing, 1990).
The search is that of Wing and Gong, with what was seen kept.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Done(NamedTuple):
    """One call: what was asked, what was told, and between which two ticks."""

    #: ``create``, ``brief`` (a create that expires at once), ``put``, ``update``, ``delete`` or
    #: ``read``
    verb: str
    value: int | None  #: what was to be written
    told: int | None  #: the value that was told; ``None``: there is no record
    ok: bool  #: whether it was carried out
    begin: int
    end: int


class Impossible(Exception):
    """The answer cannot have been given in this state."""


def after(state: int | None, call: Done) -> int | None:
    """The value of the register after a call that happens when it has this one."""
    absent = state is None
    if call.verb == "read":
        return _expect(call.told == state, state)
    if call.verb in {"create", "brief"}:
        _expect(call.ok == absent, None)
        if not call.ok:
            return state
        return call.value if call.verb == "create" else None
    if call.verb == "put":
        return _expect(call.ok, call.value)
    _expect(call.ok != absent, None)
    if call.verb == "delete" or absent:
        return None
    return call.value


def _expect(holds: bool, state: int | None) -> int | None:
    if not holds:
        raise Impossible
    return state


def linearizable(history: Sequence[Done], state: int | None = None) -> bool:
    """Whether some order explains the history."""
    seen: set[tuple[frozenset[int], int | None]] = set()
    waiting: list[tuple[frozenset[int], int | None]] = [(frozenset(range(len(history))), state)]
    while waiting:
        left, value = waiting.pop()
        if not left:
            return True
        if (left, value) in seen:
            continue
        seen.add((left, value))
        first_end = min(history[index].end for index in left)
        for index in left:
            if history[index].begin < first_end:
                waiting.extend(_next(history, left, index, value))
    return False


def _next(
    history: Sequence[Done], left: frozenset[int], index: int, value: int | None
) -> list[tuple[frozenset[int], int | None]]:
    try:
        return [(left - {index}, after(value, history[index]))]
    except Impossible:
        return []

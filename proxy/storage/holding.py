"""Whether a condition holds, in plain Python: what the reference engine answers with, and what is asked of a row before it is stored."""

import operator
from collections.abc import Callable
from typing import Any as Anything

from proxy.storage.query import All, Any, Compare, Compared, Holds, Indexed, Is, Where, fold
from proxy.storage.rows import Cell

_COMPARE: dict[Compare, Callable[[Anything, Anything], bool]] = {
    Compare.GT: operator.gt,
    Compare.GTE: operator.ge,
    Compare.LT: operator.lt,
    Compare.LTE: operator.le,
}


def holds(where: Where, cell: Callable[[str], Cell], indexed: Callable[[bytes], bool]) -> bool:
    """Whether a condition of ``asked.Asked`` holds for a row: its columns as they are kept, and what the token index has of it."""
    match where:
        case Is(column, values, negated):
            return (cell(column) in values) is not negated
        case Compared(column, how, value):
            kept = cell(column)
            return kept is not None and _COMPARE[how](kept, value)
        case Holds(column, text, negated):
            held = cell(column)
            return (held is not None and text in fold(str(held))) is not negated
        case Indexed(hashes, negated):
            return all(map(indexed, hashes)) is not negated
        case All(parts):
            return all(holds(part, cell, indexed) for part in parts)
        case Any(parts):
            return any(holds(part, cell, indexed) for part in parts)

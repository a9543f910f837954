"""Collecting every fault of a rule file, so that an operator mends them in one go."""

import difflib
from collections.abc import Iterable

from proxy.errors import Code, Detail, VaultError
from proxy.redactor.rules import Position

#: Faults shown at most; a file with more is broken in a way that more lines would not explain.
MOST = 200


class Faults:
    """Faults by place. ``raise_any`` turns them into one ``VaultError(BAD_RULES)`` with a detail for each."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, int, str], None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, at: Position, text: str) -> None:
        """Note a fault: where it stands, what is wrong and what to write instead; never a secret's content."""
        self._found.setdefault((at.file, at.line, at.column, text))

    def raise_any(self) -> None:
        """Raise when there is any fault: sorted by file, line and column."""
        if not self._found:
            return
        places = sorted(self._found)
        details = tuple(Detail(f"{file}:{line}:{column}", text) for file, line, column, text in places[:MOST])
        count = "1 fault" if len(places) == 1 else f"{len(places)} faults"
        raise VaultError(Code.BAD_RULES, f"The rules have {count}; nothing of them was loaded.", details)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one, else the list of what is known."""
    names = list(known)
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known here: {', '.join(names)}." if names else "nothing may stand here."

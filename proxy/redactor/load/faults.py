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
        """Note a fault: where it stands (line 0: nowhere in the file), what is wrong and what to write; no secret's content."""
        self._found.setdefault((at.file, at.line, at.column, text))

    def raise_any(self) -> None:
        """Raise when there is any fault: sorted by file, line and column."""
        if not self._found:
            return
        places = sorted(self._found)
        details = tuple(Detail(_told(file, line, column), text) for file, line, column, text in places[:MOST])
        count = "1 fault" if len(places) == 1 else f"{len(places)} faults"
        raise VaultError(Code.BAD_RULES, f"The rules have {count}; nothing of them was loaded.", details)


def _told(file: str, line: int, column: int) -> str:
    return f"{file}:{line}:{column}" if line else file


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one may have been meant for."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the nearest known one, else the list of what is known."""
    names = list(known)
    if near := nearest(word, names):
        return f"did you mean '{near}'?"
    return f"known here: {', '.join(names)}." if names else "nothing may stand here."

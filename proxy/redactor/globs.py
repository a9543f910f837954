"""Name patterns with ``*``: parameters and form members such as ``email_*`` or ``filter[*][email]``.

Only ``*`` is special and stands for any characters, none included; brackets are ordinary characters, because
frameworks write nested names with them.
"""

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression for ``fullmatch``; at most 1024 patterns are kept."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def weight(pattern: str) -> tuple[bool, int]:
    """How specific a name or pattern is: a plain name beats every pattern, the longer pattern a shorter."""
    return ("*" not in pattern, len(pattern) if "*" in pattern else 0)


def overlap(one: str, other: str) -> bool:
    """Whether some name fits both patterns."""
    reached = {(0, 0)}
    frontier = [(0, 0)]
    while frontier:
        left, right = frontier.pop()
        if left == len(one) and right == len(other):
            return True
        for step in _steps(one, left, other, right):
            if step not in reached:
                reached.add(step)
                frontier.append(step)
    return False


def _steps(one: str, left: int, other: str, right: int) -> list[tuple[int, int]]:
    """Where both patterns can stand next: a ``*`` ends, or takes a character of the other, or both go on."""
    first, second = one[left : left + 1], other[right : right + 1]
    steps = []
    if first == "*":
        steps.append((left + 1, right))
        if second:
            steps.append((left, right + 1))
    if second == "*":
        steps.append((left, right + 1))
        if first:
            steps.append((left + 1, right))
    if first and first == second != "*":
        steps.append((left + 1, right + 1))
    return steps

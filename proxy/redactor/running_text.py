"""Stretches of running text that may be tokens."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

#: Characters that are searched at once, and more than any token has.
_SEARCHED, _LONGEST = 64 * 1024, 4096


class Candidate(NamedTuple):
    """A stretch of text that may be a token.

    ``whole``: a complete value; ``quoted``: in a JSON string; ``write``: a special escaping.
    """

    text: str
    start: int
    end: int
    whole: bool
    quoted: bool
    write: Callable[[str], bytes] | None = None


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield all matches in a text; of a long one in pieces, as a search holds the lock.

    A piece is looked at so far beyond its end that no token lies across it unseen.
    """
    if len(text) <= _SEARCHED:
        yield from pattern.finditer(text)
        return
    reached = 0
    for start in range(0, len(text), _SEARCHED):
        for match in pattern.finditer(text, max(start, reached), start + _SEARCHED + _LONGEST):
            if match.start() >= start + _SEARCHED:
                break
            yield match
            reached = match.end()


def found_inside(
    text: str, offset: int, quoted: bool, patterns: Sequence[re.Pattern[str]]
) -> Iterator[Candidate]:
    """Yield the tokens in a text that begins at ``offset``, by these patterns; the longest of those
    that begin at one place.
    """
    last = -1
    spans = sorted(
        (m.start(), -m.end(), m[0]) for pattern in patterns for m in _matches(pattern, text)
    )
    for start, negative_end, token in spans:
        if start >= last:
            last = -negative_end
            yield Candidate(token, offset + start, offset + last, False, quoted)

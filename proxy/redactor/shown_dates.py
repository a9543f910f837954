"""Dates in the manner in which a page shows them: ``02.03.1984``, ``March 2, 1984``, ``2 Mar 84``.

The day that is meant is known, so the order of the numbers is none to guess. Names of months and
days are read in English alone.
"""

import datetime as dt
import re
from collections.abc import Iterator
from typing import Final

from proxy.tokenization.normalize import read_date

_MONTHS: Final = (
    "january february march april may june july august september october november december".split()
)
_DAYS: Final = "monday tuesday wednesday thursday friday saturday sunday".split()
#: Abbreviations as newspapers write them, and Django by default.
_PRESS: Final = dict(zip(
    _MONTHS, "jan feb march april may june july aug sept oct nov dec".split(), strict=True
))  # fmt: skip
_ORDINALS: Final = ("st", "nd", "rd", "th")
_PIECE: Final = re.compile(r"[^\W\d_]+|[0-9]+")
_LONGEST: Final = 60


def shown_like(text: str, token: str, value: str) -> str | None:
    """The value in the manner in which the text shows the token; ``None`` if it shows another day,
    or what is no date. A value that is none, or whose order is in doubt, is as it is stored.
    """
    meant, stored = _day(token), _day(value)
    if meant is None or len(text) > _LONGEST:
        return None
    pieces = [one[0] for one in _PIECE.finditer(text)]
    roles = next(_roles(pieces, meant), None)
    if roles is None:
        return None
    if stored is None:
        return value
    numbers = [piece for piece, role in zip(pieces, roles, strict=True) if role in "md"]
    padded = any(one[0] == "0" for one in numbers) or (
        "M" not in roles and all(len(one) == 2 for one in numbers)
    )
    days = meant, stored
    spelled = iter([_spelled(*one, days, padded) for one in zip(pieces, roles, strict=True)])
    return _PIECE.sub(lambda _: next(spelled), text)


def _day(text: str) -> dt.date | None:
    """The day of a date without a time whose order is certain."""
    date = read_date(text.strip())
    return date.day if date is not None and not (date.either or date.time) else None


def _roles(pieces: list[str], day: dt.date) -> Iterator[str]:
    """The role of each piece of a date, if it is that day: ``y``, ``m``, ``d``, a word of these, or
    an ending of the day.
    """
    numbers = [one for one in pieces if one.isdigit()]
    words = [one for one in pieces if not one.isdigit()]
    kinds = [_word(one, day) for one in words]
    months = kinds.count("M")
    if None in kinds or months > 1 or len(numbers) != 3 - months:
        return
    orders = ("dy", "yd") if months else ("ymd", "dmy", "mdy")
    for order in orders:
        if all(_is(one, part, day) for one, part in zip(numbers, order, strict=True)):
            parts, named = iter(order), iter(kinds)
            yield "".join(next(parts) if one.isdigit() else next(named) or "" for one in pieces)


def _word(word: str, day: dt.date) -> str | None:
    """The role of a word of a date; ``None`` where it is none of this day."""
    lower = word.lower()
    if lower in _names(_MONTHS[day.month - 1]):
        return "M"
    if lower in (_DAYS[day.weekday()], _DAYS[day.weekday()][:3]):
        return "W"
    return "o" if lower in _ORDINALS else None


def _names(month: str) -> tuple[str, ...]:
    return month, month[:3], _PRESS[month]


def _is(number: str, part: str, day: dt.date) -> bool:
    if part == "y":
        return number in (f"{day.year:04d}", f"{day.year % 100:02d}")
    return len(number) <= 2 and int(number) == (day.month if part == "m" else day.day)


def _spelled(piece: str, role: str, days: tuple[dt.date, dt.date], padded: bool) -> str:
    """A piece of the first day, in the same manner as one of the second."""
    meant, day = days
    match role:
        case "y":
            return f"{day.year:04d}"
        case "m" | "d":
            number = day.month if role == "m" else day.day
            return f"{number:02d}" if padded else str(number)
        case "M":
            month = _MONTHS[day.month - 1]
            style = _names(_MONTHS[meant.month - 1]).index(piece.lower())
            return _in_case(_names(month)[style], piece)
        case "W":
            name = _DAYS[day.weekday()]
            return _in_case(name[:3] if len(piece) == 3 else name, piece)
        case _:
            teen = 10 < day.day < 20
            return "th" if teen or day.day % 10 not in (1, 2, 3) else _ORDINALS[day.day % 10 - 1]


def _in_case(word: str, piece: str) -> str:
    return word.upper() if piece.isupper() else word if piece.islower() else word.title()

"""Dates: another day that was, written as the value is written.

There are few days, so a date resolves by its record.

The time of day behind a date is swapped too, unless it is midnight; the offset from UTC stays.
"""

import datetime as dt
import re
from dataclasses import dataclass

from proxy.model.schema import Value
from proxy.tokenization.base import SAME, Parser, Resolution, ShapeOptions, Tokenizer, TokenKeys
from proxy.tokenization.common import Binding, DrawnTokenizer, text_only
from proxy.tokenization.normalize import DATE_IN_TEXT, WrittenDate, read_date

_SECONDS = 86_400
_FRACTIONS = 10**9
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, slots=True)
class Date:
    """Tokens that are days of a range; the default range is that of birth dates of grown people."""

    same: bool
    first: dt.date
    last: dt.date
    name: str = "date"
    resolution: Resolution = Resolution.BY_RECORD

    def capacity(self) -> float:
        return float(self._days())

    def bind(self, keys: TokenKeys, kind: str, region: str) -> Tokenizer:
        binding = Binding(self, keys, kind, region)

        def read(value: Value) -> WrittenDate:
            text_only(binding, value)
            written = read_date(value.text.strip())
            if written is None:
                raise binding.unfit(
                    "it takes calendar dates such as 1980-02-28, 28.02.1980 or 02/28/1980"
                )
            return written

        def space(value: Value) -> int:
            read(value)
            return self._days() * _SECONDS * _FRACTIONS

        def spell(value: Value, index: int) -> Value | None:
            written = read(value)
            rest, days = divmod(index, self._days())
            day = self.first + dt.timedelta(days)
            if written.either and day.day > 12:
                # a day that is one whichever of the two numbers is meant to be the month
                return None
            return Value(written.spell(day) + _other_time(written.time, rest) + written.zone)

        return DrawnTokenizer(binding, DATE_IN_TEXT, space, spell)

    def _days(self) -> int:
        return (self.last - self.first).days + 1


def _other_time(time: str, index: int) -> str:
    """Another time of day in the same style; midnight stays, as it means no time."""
    if not time or set(_DIGIT.findall(time)) == {"0"}:
        return time
    fraction, second = divmod(index, _SECONDS)
    whole = f"{second // 3600:02d}{second // 60 % 60:02d}{second % 60:02d}{fraction:09d}"
    digits = iter(whole)
    return _DIGIT.sub(lambda _: next(digits), time)


def _date(options: ShapeOptions) -> Date:
    first, last = _day(options, "from", "1940-01-01"), _day(options, "to", "1999-12-31")
    if (last - first).days < 364:
        raise ValueError("from and to of token shape date span a year at least")
    return Date(options.flag("same"), first, last)


def _day(options: ShapeOptions, name: str, default: str) -> dt.date:
    value = options.options.get(name, default)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        return dt.date.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{name} of token shape date is a day such as {default}") from None


DATE = Parser(
    "date",
    {
        **SAME,
        "from": "first day of tokens; default 1940-01-01",
        "to": "last day of tokens; default 1999-12-31",
    },
    _date,
    kind="date",
    looks_like="date",
)

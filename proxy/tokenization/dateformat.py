"""Calendar dates as people and programs write them: read, and written again in the same manner.

Understood are year-month-day (``1980-02-28``, also with ``/`` or ``.``, or ``19800228``), day.month.year and
day/month/year or month/day/year (``28.2.1980``, ``02/28/1980``), each alone or with a time of day behind it as
ISO 8601 writes it (``T10:20``, ``T10:20:30.123Z``, `` 10:20:30+02:00``). Years have four digits.
"""

import datetime as dt
import re
from typing import NamedTuple

_TIME = r"(?P<time>[T ](?P<h>[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9})?)?)?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
_YEAR_FIRST = re.compile(rf"(?P<y>[0-9]{{4}})(?P<s>[-/.])(?P<a>[0-9]{{1,2}})(?P=s)(?P<b>[0-9]{{1,2}}){_TIME}")
_COMPACT = re.compile(rf"(?P<y>[0-9]{{4}})(?P<s>)(?P<a>[0-9]{{2}})(?P<b>[0-9]{{2}}){_TIME}")
_YEAR_LAST = re.compile(rf"(?P<a>[0-9]{{1,2}})(?P<s>[-/.])(?P<b>[0-9]{{1,2}})(?P=s)(?P<y>[0-9]{{4}}){_TIME}")

#: Finds what looks like a date inside running text.
IN_TEXT = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}|[0-9]{8})"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?(?![0-9A-Za-z])"
)


class WrittenDate(NamedTuple):
    """A date with the manner in which it was written."""

    day: dt.date
    order: str  #: order of year, month and day: ``ymd``, ``dmy`` or ``mdy``
    separator: str
    padded: bool  #: single digits are written with a zero before them
    either: bool  #: day and month could be meant the other way round (``01/02/1980``)
    time: str  #: with what separates it from the date; may be empty
    zone: str

    @property
    def normal(self) -> str:
        """One spelling for all manners: ISO 8601. Where day and month are in doubt they stay as written, padded."""
        if self.either:
            return self._replace(padded=True).spell(self.day) + self._clock()
        return self.day.isoformat() + self._clock()

    def spell(self, day: dt.date) -> str:
        """Another day in this manner, without the time of day."""
        width = 2 if self.padded else 1
        parts = {"y": f"{day.year:04d}", "m": f"{day.month:0{width}d}", "d": f"{day.day:0{width}d}"}
        return self.separator.join(parts[letter] for letter in self.order)

    def _clock(self) -> str:
        return self.time.replace(" ", "T").replace(",", ".") + self.zone


def read_date(text: str) -> WrittenDate | None:
    """The date of a text that is nothing but a date; ``None`` for anything else, and for days that never were."""
    found = _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text) or _COMPACT.fullmatch(text)
    if found is None or (found["zone"] and not found["time"]):
        return None
    first, second = int(found["a"]), int(found["b"])
    either = False
    if found.re is not _YEAR_LAST:
        order, month, day = "ymd", first, second
    elif found["s"] != "." and first <= 12 < second:
        order, month, day = "mdy", first, second
    else:
        order, month, day = "dmy", second, first
        either = found["s"] != "." and first <= 12
    try:
        date = dt.date(int(found["y"]), month, day)
    except ValueError:
        return None
    padded = len(found["a"]) == len(found["b"]) == 2
    return WrittenDate(date, order, found["s"], padded, either, found["time"] or "", found["zone"] or "")

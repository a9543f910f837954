"""Normal forms: what of two spellings of one value is equal.

Look-up hashes and same-value tokens are computed of the normal form; the vault keeps the value as
it was sent. A normal form never changes for a value once stored (hashes of it are on disk), and the
normal form of a normal form is itself.
"""

import datetime as dt
import re
import unicodedata
from collections.abc import Callable
from functools import cache, partial
from typing import Final, NamedTuple

# Calendar dates as people and programs write them: read, and written again in the same manner.
#
# Understood are year-month-day (``1980-02-28``, also with ``/`` or ``.``, or ``19800228``),
# day.month.year and day/month/year or month/day/year (``28.2.1980``, ``02/28/1980``), each alone or
# with a time of day behind it as ISO 8601 writes it (``T10:20``, ``T10:20:30.123Z``, ``
# 10:20:30+02:00``). Years have four digits.

_TIME = (
    r"(?P<time>[T "
    r"](?P<h>[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9})?)?)?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_YEAR_FIRST = re.compile(
    rf"(?P<y>[0-9]{{4}})(?P<s>[-/.])(?P<a>[0-9]{{1,2}})(?P=s)(?P<b>[0-9]{{1,2}}){_TIME}"
)
_COMPACT = re.compile(rf"(?P<y>[0-9]{{4}})(?P<s>)(?P<a>[0-9]{{2}})(?P<b>[0-9]{{2}}){_TIME}")
_YEAR_LAST = re.compile(
    rf"(?P<a>[0-9]{{1,2}})(?P<s>[-/.])(?P<b>[0-9]{{1,2}})(?P=s)(?P<y>[0-9]{{4}}){_TIME}"
)

#: Finds what looks like a date inside running text.
DATE_IN_TEXT = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}|[0-9]{8})"
    r"(?:[T "
    r"][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?(?![0-9A-Za-z])"
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
        """Common spelling of all date styles: ISO 8601.

        Where day and month are in doubt they stay as written, padded.
        """
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
    """The date of a text that is nothing but a date; ``None`` for others and impossible days."""
    match = _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text) or _COMPACT.fullmatch(text)
    if match is None or (match["zone"] and not match["time"]):
        return None
    first, second = int(match["a"]), int(match["b"])
    either = False
    if match.re is not _YEAR_LAST:
        order, month, day = "ymd", first, second
    elif match["s"] != "." and first <= 12 < second:
        order, month, day = "mdy", first, second
    else:
        order, month, day = "dmy", second, first
        either = match["s"] != "." and first <= 12
    try:
        date = dt.date(int(match["y"]), month, day)
    except ValueError:
        return None
    padded = len(match["a"]) == len(match["b"]) == 2
    return WrittenDate(
        date, order, match["s"], padded, either, match["time"] or "", match["zone"] or ""
    )


_NOT_DIALLED = re.compile(
    r"[\s\-./()\u00ad\u200b-\u200f\u2010-\u2015\u202a-\u202e\u2060-\u2069\u2212\ufeff]"
)
_CARD = re.compile(r"[0-9][0-9 \-]{6,40}[0-9]")


def plain_text(text: str) -> str:
    """Unicode compatibility composition (NFKC), without white space at the ends."""
    if text.isascii():  # nothing to compose
        return text.strip()
    done = unicodedata.normalize("NFKC", text).strip()
    # Stripping may free a combining mark that composes again: rare, and settled after one more
    # turn.
    while (again := unicodedata.normalize("NFKC", done).strip()) != done:
        done = again
    return done


def _email(text: str) -> str:
    """As text, in one letter case.

    The local part is folded too: no mail system in use tells such people apart.
    """
    # in ASCII there is nothing to compose, and folding gives lower case
    return text.strip().lower() if text.isascii() else plain_text(plain_text(text).casefold())


def _phone(text: str, region: str) -> str:
    """E.164, with ``#`` before an extension.

    Normal form of a text that is no telephone number: without separators.
    """
    # loads 20 ms and 3 MB that a vault without telephone numbers need not spend
    import phonenumbers

    base = plain_text(_NOT_DIALLED.sub("", plain_text(text)))
    try:
        number = phonenumbers.parse(base, region.upper() or None)
    except phonenumbers.NumberParseException:
        return base
    extension = f"#{number.extension}" if number.extension else ""
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164) + extension


@cache
def calling_codes() -> frozenset[str]:
    """The digits with which international telephone numbers begin, by ITU-T E.164."""
    import phonenumbers

    return frozenset(map(str, phonenumbers.COUNTRY_CODE_TO_REGION_CODE))


def phone_region(text: str, region: str) -> str | None:
    """Country of a telephone number, ``001`` for a global one; ``None`` for an invalid one.

    ``region`` is that of national numbers, as for ``normalize``.
    """
    import phonenumbers

    try:
        number = phonenumbers.parse(_NOT_DIALLED.sub("", plain_text(text)), region.upper() or None)
    except phonenumbers.NumberParseException:
        return None
    valid = phonenumbers.is_valid_number(number)
    return phonenumbers.region_code_for_number(number) if valid else None


def _date(text: str) -> str:
    """ISO 8601; a text that is no date stays a text."""
    base = plain_text(text)
    date = read_date(base)
    return base if date is None else date.normal


def _card(text: str) -> str:
    """Digits alone; a text that is no card number stays a text."""
    base = plain_text(text)
    return base.replace(" ", "").replace("-", "") if _CARD.fullmatch(base) else base


def _uuid(text: str) -> str:
    return plain_text(plain_text(text).lower())


def _code(text: str) -> str:
    """Letters and digits in capitals, and ``+``, an age mark in Swedish numbers; else the text."""
    base = plain_text(text)
    return re.sub(r"[ ./-]", "", base).upper() if _CODE.fullmatch(base) else base


_CODE: Final = re.compile(r"[A-Za-z0-9](?:[ ./+-]?[A-Za-z0-9])*")

#: Kinds of fields, and which spellings of each are equal.
FIELD_KINDS: dict[str, str] = {
    "text": (
        "any text; equal after Unicode compatibility composition and without white space at the "
        "ends"
    ),
    "name": "a name of a person; equal as text is",
    "email": "a mail address; equal whatever the letter case",
    "phone": "a telephone number; equal when both are the same number in E.164",
    "date": "a calendar date, with or without a time of day; equal whatever the manner of writing",
    "card": "a payment card number; equal when the digits are",
    "number": "a number or a code of digits; equal as text is",
    "uuid": "a UUID; equal whatever the letter case",
    "iban": "a number of a bank account; equal when letters and digits are",
    "national_id": "a number that a state gives a person; equal when letters and digits are",
}

_FORMS: dict[str, Callable[[str], str]] = {
    "text": plain_text,
    "name": plain_text,
    "email": _email,
    "date": _date,
    "card": _card,
    "number": plain_text,
    "uuid": _uuid,
    "iban": _code,
    "national_id": _code,
}


def normalize(kind: str, text: str, region: str = "") -> str:
    """The normal form of a value of that kind (``KeyError`` for an unknown kind).

    ``region`` is the ISO 3166 code of the country whose national telephone numbers are understood
    (``se``: 070… is +4670…); empty: only numbers with their country code become E.164.
    """
    return _phone(text, region) if kind == "phone" else _FORMS[kind](text)


def normalizer(kind: str, region: str = "") -> Callable[[str], str]:
    """``normalize`` of this kind and region."""
    return partial(_phone, region=region) if kind == "phone" else _FORMS[kind]


#: Case folding makes ``İ`` an i with a combining dot, which is an i to people who search.
DOTTED_I = "i\u0307"


def folded(text: str) -> str:
    """The form in which parts of texts are compared: normalized, case folded, normalized."""
    if text.isascii():
        return text.strip().lower()
    return casefolded(text).replace(DOTTED_I, "i")


def casefolded(text: str) -> str:
    """The normal form of a text, case folded, in normal form again."""
    return plain_text(plain_text(text).casefold())

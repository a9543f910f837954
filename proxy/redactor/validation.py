"""``check``: requirements on the values of a field.

The proxy refuses values that the application would have refused, but can no longer judge by their
tokens.

Pure functions. A reason never holds the value. Values come from callers, so whatever looks at one
takes time in proportion to its length at most: lengths are bounded first, and patterns run on RE2,
which does not backtrack.
"""

import datetime as dt
import re
from calendar import isleap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from proxy.model.schema import Value
from proxy.tokenization.digits import luhn_holds
from proxy.tokenization.normalize import phone_region, read_date

_CARD: Final = re.compile(r"[0-9](?:[ -]?[0-9]){11,18}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

#: Characters that a value of a form may have at all.
_LONGEST: Final = {
    "email": 320,
    "phone": 100,
    "date": 64,
    "card": 64,
    "number": 100,
    "uuid": 36,
    "iban": 50,
}
_LONGEST_STANDARD: Final = 100


class RelativeDay(NamedTuple):
    """A bound of a date: a day, or an offset of years and days from today."""

    day: dt.date | None
    years: int = 0
    days: int = 0

    def on(self, today: dt.date) -> dt.date:
        """The day that is meant today; the 29th of February is the 28th in other years."""
        if self.day is not None:
            return self.day
        year = min(max(today.year + self.years, dt.MINYEAR), dt.MAXYEAR)
        leaping = (today.month, today.day) == (2, 29) and not isleap(year)
        moved = today.replace(year=year, day=28 if leaping else today.day)
        return moved + dt.timedelta(self.days)


@dataclass(frozen=True, slots=True)
class FieldCheck:
    """Requirements on the values of one field."""

    kind: str
    regions: tuple[str, ...] = ()  #: of telephone numbers: ISO 3166 codes in capitals
    standards: tuple[str, ...] = ()  #: numbers of python-stdnum, one of which it must be: ``iban``
    pattern: str = ""  #: RE2, of the whole value
    #: of dates; of numbers; of anything else in characters
    least: RelativeDay | Decimal | int | None = None
    most: RelativeDay | Decimal | int | None = None

    def fault(self, value: Value, region: str) -> str:
        """Explain why a value is refused; empty if it is valid.

        ``region``: the ISO 3166 code of the country whose national telephone numbers are meant.
        """
        text = value.text
        if value.json and text[:1] in "[{tf":
            return "takes a text or a number alone"
        return (
            self._form(text, region)
            or self._standard(text)
            or (self._pattern(text) if self.pattern else "")
            or self._bounds(text)
        )

    def _form(self, text: str, region: str) -> str:
        if self.standards or self.kind not in _FORMS:
            return ""
        what, holds = _FORMS[self.kind]
        if len(text) > _LONGEST[self.kind]:
            return f"is no {what}"
        if self.kind != "phone":
            return "" if holds(text) else f"is no {what}"
        country = phone_region(text, self.regions[0] if self.regions else region)
        if country is None:
            return f"is no {what}; send it with its country code, such as +46 70 174 06 05"
        if self.regions and country not in self.regions:
            return f"is no {what} of {' or '.join(self.regions)}"
        return ""

    def _standard(self, text: str) -> str:
        if not self.standards:
            return ""
        fits = len(text) <= _LONGEST_STANDARD and any(
            standard_number(name).is_valid(text) for name in self.standards
        )
        return "" if fits else f"is no {' or '.join(self.standards)} whose check digits hold"

    def _pattern(self, text: str) -> str:
        if linear_pattern(self.pattern).fullmatch(text) is not None:
            return ""
        named = self.pattern if len(self.pattern) <= 80 else "of its field"
        return f"does not fit the pattern {named}"

    def _bounds(self, text: str) -> str:
        least, most = self.least, self.most
        if isinstance(least, RelativeDay) or isinstance(most, RelativeDay):
            return self._days(text)
        if isinstance(least, Decimal) or isinstance(most, Decimal):
            return self._size(text)
        if least is not None and len(text) < least:
            return f"has fewer than {least} characters"
        if most is not None and len(text) > most:
            return f"has more than {most} characters"
        return ""

    def _size(self, text: str) -> str:
        number = read_number(text)
        if number is None:
            return "is no number"
        if isinstance(self.least, Decimal) and number < self.least:
            return f"is less than {self.least}"
        if isinstance(self.most, Decimal) and number > self.most:
            return f"is more than {self.most}"
        return ""

    def _days(self, text: str) -> str:
        """Both readings of a day and a month that may be meant either way have to hold."""
        date = read_date(text.strip())
        if date is None:
            return "is no date"
        today = dt.datetime.now(dt.UTC).date()
        days = [date.day]
        if date.either:
            days.append(date.day.replace(month=date.day.day, day=date.day.month))
        if isinstance(self.least, RelativeDay) and min(days) < (first := self.least.on(today)):
            return f"is before {first.isoformat()}"
        if isinstance(self.most, RelativeDay) and max(days) > (last := self.most.on(today)):
            return f"is after {last.isoformat()}"
        return ""


def read_number(text: str) -> Decimal | None:
    """A number as JSON and people write it; ``None`` for anything else."""
    if len(text) > _LONGEST["number"] or not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None


def _is_email(text: str) -> bool:
    """An address as the standard has it (RFC 5322, RFC 6531) at a domain of two names or more."""
    library = _email_library()
    try:
        parsed = library.validate_email(
            text, check_deliverability=False, globally_deliverable=False
        )
    except library.EmailNotValidError:
        return False
    return "." in parsed.ascii_domain


@lru_cache(maxsize=1)
def _email_library() -> Any:
    # 24 ms that rules without such a check need not spend
    import email_validator

    # Names such as company.local are unregistered on the public net, but in use inside companies.
    email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()
    return email_validator


@lru_cache(maxsize=256)
def standard_number(name: str) -> Any:
    """The module of python-stdnum: ``iban``, ``se.personnummer``.

    ``ValueError`` where there is none of that name.
    """
    from stdnum.util import get_cc_module

    country, _, number = name.partition(".")
    module = get_cc_module(country, number) if number else _plain_standard(name)
    if module is None or not hasattr(module, "is_valid"):
        raise ValueError(f"python-stdnum knows no number '{name}'")
    return module


def _plain_standard(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"stdnum.{name}")
    except ImportError:
        return None


@lru_cache(maxsize=256)
def linear_pattern(pattern: str) -> Any:
    """The pattern, ready to run.

    ``ValueError`` for what RE2 does not take, such as a look-ahead or a back-reference.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else f"{reason}"
        raise ValueError(said or "it is no pattern of RE2") from None


#: By kind: the name of a value, and the test of a text.
_FORMS: Final[dict[str, tuple[str, Callable[[str], bool]]]] = {
    "email": ("mail address", _is_email),
    "phone": ("telephone number", bool),
    "date": ("date", lambda text: read_date(text.strip()) is not None),
    "card": (
        "card number whose check digit holds",
        lambda text: (
            _CARD.fullmatch(text.strip()) is not None
            and luhn_holds(re.sub(r"[ -]", "", text.strip()))
        ),
    ),
    "number": ("number", lambda text: read_number(text) is not None),
    "iban": (
        "IBAN whose check digits hold",
        lambda text: bool(standard_number("iban").is_valid(text)),
    ),
    "uuid": ("UUID", lambda text: _UUID.fullmatch(text.strip()) is not None),
}

#: The kinds that have a form.
CHECKED_KINDS: Final = tuple(_FORMS)


class FieldPort(Protocol):
    """The part of a field that validation needs."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """Kind of its values."""

    @property
    def check(self) -> FieldCheck | None:
        """Requirements on its values."""


def unchecked(entity: str, fields: Iterable[FieldPort]) -> str:
    """A hint about the fields of an entity that have a form, and take any text; empty for none."""
    names = [one.name for one in fields if one.kind in _FORMS and one.check is None]
    return (
        f"{', '.join(names)} of {entity}: any text is taken, since the application sees tokens; "
        "check: true at a field refuses what is not of its kind"
        if names
        else ""
    )


def numbers_and_pattern(entity: str, fields: Iterable[FieldPort]) -> str:
    """A hint about telephone numbers whose pattern is not all they must fit; or empty."""
    checks = [(one.name, one.check) for one in fields if one.kind == "phone"]
    names = [name for name, check in checks if check and check.pattern and not check.standards]
    return (
        f"{', '.join(names)} of {entity}: beside the pattern of check, a value has to be an "
        "assignable telephone number, so invented ones are refused; "
        "kind: text takes whatever fits the pattern"
        if names
        else ""
    )


def in_words(check: FieldCheck) -> str:
    """Describe the valid values of a field for ``rules explain``."""
    words = [" or ".join(check.standards) or check.kind]
    if check.regions:
        words.append(f"of {' or '.join(check.regions)}")
    if check.pattern:
        words.append(f"of the pattern {check.pattern}")
    if check.least is not None:
        words.append(f"from {_bound(check.least)}")
    if check.most is not None:
        words.append(f"to {_bound(check.most)}")
    return ", ".join(words)


def _bound(bound: RelativeDay | Decimal | int) -> str:
    if isinstance(bound, int):
        return f"{bound} characters"
    if isinstance(bound, Decimal):
        return f"{bound}"
    if bound.day is not None:
        return bound.day.isoformat()
    moves = [
        f"{count:+d}{unit}" for count, unit in ((bound.years, "y"), (bound.days, "d")) if count
    ]
    return "today" + "".join(moves)

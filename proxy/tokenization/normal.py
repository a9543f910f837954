"""Normal forms: what of two spellings of one value is equal.

Look-up hashes and same-value tokens are computed of the normal form; the vault keeps the value as it was sent. A
normal form never changes for a value once stored (hashes of it are on disk), and the normal form of a normal form is
itself.
"""

import re
import unicodedata
from collections.abc import Callable

from proxy.tokenization.dateformat import read_date

_NOT_DIALLED = re.compile(r"[\s\-./()\u00ad\u200b-\u200f\u2010-\u2015\u202a-\u202e\u2060-\u2069\u2212\ufeff]")
_CARD = re.compile(r"[0-9][0-9 \-]{6,40}[0-9]")


def plain_text(text: str) -> str:
    """Unicode compatibility composition (NFKC), without white space at the ends."""
    if text.isascii():  # nothing to compose
        return text.strip()
    done = unicodedata.normalize("NFKC", text).strip()
    # Stripping may free a combining mark that composes anew: rare, and settled after one more turn.
    while (again := unicodedata.normalize("NFKC", done).strip()) != done:
        done = again
    return done


def _email(text: str) -> str:
    """As text, in one letter case. The local part is folded too: no mail system in use tells such people apart."""
    return plain_text(plain_text(text).casefold())


def _phone(text: str, region: str) -> str:
    """E.164, with ``#`` before an extension. What is no telephone number: as text, without separators."""
    import phonenumbers  # loads 20 ms and 3 MB that a vault without telephone numbers need not spend

    base = plain_text(_NOT_DIALLED.sub("", plain_text(text)))
    try:
        number = phonenumbers.parse(base, region.upper() or None)
    except phonenumbers.NumberParseException:
        return base
    extension = f"#{number.extension}" if number.extension else ""
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164) + extension


def _date(text: str) -> str:
    """ISO 8601; what is no date, as text."""
    base = plain_text(text)
    found = read_date(base)
    return base if found is None else found.normal


def _card(text: str) -> str:
    """Digits alone; what is no card number, as text."""
    base = plain_text(text)
    return base.replace(" ", "").replace("-", "") if _CARD.fullmatch(base) else base


def _uuid(text: str) -> str:
    return plain_text(plain_text(text).lower())


#: Kind of a field -> what it holds and what of two spellings counts as equal.
KINDS: dict[str, str] = {
    "text": "any text; equal after Unicode compatibility composition and without white space at the ends",
    "name": "a name of a person; equal as text is",
    "email": "a mail address; equal whatever the letter case",
    "phone": "a telephone number; equal when both are the same number in E.164",
    "date": "a calendar date, with or without a time of day; equal whatever the manner of writing",
    "card": "a payment card number; equal when the digits are",
    "number": "a number or a code of digits; equal as text is",
    "uuid": "a UUID; equal whatever the letter case",
}

_FORMS: dict[str, Callable[[str], str]] = {
    "text": plain_text,
    "name": plain_text,
    "email": _email,
    "date": _date,
    "card": _card,
    "number": plain_text,
    "uuid": _uuid,
}


def normalize(kind: str, text: str, region: str = "") -> str:
    """The normal form of a value of that kind (``KeyError`` for an unknown kind).

    ``region`` is the ISO 3166 code of the country whose national telephone numbers are understood (``se``: 070… is
    +4670…); empty: only numbers with their country code become E.164.
    """
    return _phone(text, region) if kind == "phone" else _FORMS[kind](text)

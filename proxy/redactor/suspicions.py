"""Kinds of personal values that a text or a header field seems to hold.

They are found on word borders, with checksums where a kind has one. What the base64 of JSON stands
for is looked at, too.
"""

import re
from binascii import a2b_base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote_plus

from proxy.redactor.message import RawHeaders
from proxy.tokenization.digits import luhn_holds

_EMAIL: Final = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,5}[A-Za-z]{2,24}(?![\w-])"
)
_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?<!\d )(?:\+[1-9]\d{0,2}[ -]?(?:\(0?\d{1,4}\)[ -]?)?\d(?:[ "
    r"-]?\d){6,11}|0\d{1,3}[-/ ]\d{2,4}(?:[ -]?\d{2,4}){1,3})(?![\w-]| \d)"
)
_CARD: Final = re.compile(
    r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{3,4}(?![\w.-])|(?<![\w.-])3[47]\d{2}[ "
    r"-]?\d{6}[ -]?\d{5}(?![\w.-])"
)
_IBAN: Final = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_DATE: Final = re.compile(
    r"(?<![\w.-])(?:((?:19|20)\d\d)-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?![\w:-]| \d)"
    r"|(?:0?[1-9]|[12]\d|3[01])[./](?:0?[1-9]|[12]\d|3[01])[./]((?:19|20)\d\d)(?![\w:]))"
)
_NATIONAL: Final = re.compile(
    r"(?<![\w.-])(?:19|20)?(\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))[-+](\d{4})(?![\w-])"
)
_NAMED: Final = re.compile(
    r"(?<![A-Za-z])(?:first|last|given|family|middle|full|sur|nick)[_-]?name[\"']?\s{0,3}(?::\s{0,3}\"|=\s{0,3}[\"']?)[^\"'&<>\s,}]",
    re.IGNORECASE,
)
_BORN: Final = re.compile(
    r"(?<![A-Za-z])(?:birth[_-]?(?:date|day)|date[_-]?of[_-]?birth|dob|born)[\"']?\s{0,3}(?::\s{0,3}\"?|=\s{0,3}[\"']?)\d",
    re.IGNORECASE,
)

#: Bytes of a header field that are looked at.
_LONGEST_FIELD: Final = 4096
#: Age in years from which a date may be one of birth; younger ones are of orders and meetings.
_AGE: Final = 10

#: Every kind that is looked for, as logs and metrics name it.
SUSPECTED: Final = ("email", "phone", "card", "iban", "birth_date", "national_id", "name")


#: The beginning of the base64 of an object or an array in JSON, and what may follow.
_CODED: Final = re.compile(r"(?<![\w+-])(?:e[wy3]|W[wyz13])[\w+/-]{10,}", re.ASCII)
#: Characters of what it stands for that are looked at.
_CODED_SIGNS: Final = 2000
_CODED_MOST: Final = 20


def legible(text: str, most: int) -> str:
    """The beginning of a text, and where all of it is the base64 of JSON, that."""
    coded = _CODED.match(text)
    whole = coded is not None and not text[coded.end() :].strip("=")
    return _decoded(text) if whole else text[:most]


def _decoded(text: str) -> str:
    """Return the text of base64 in either alphabet, which may be cut off."""
    standard = text[:_CODED_SIGNS].replace("-", "+").replace("_", "/").rstrip("=")
    whole = standard[: len(standard) - (len(standard) % 4 == 1)]
    return a2b_base64(whole + "=" * (-len(whole) % 4)).decode("utf-8", "replace")


def suspected(text: str) -> list[str]:
    """The kinds of personal values that a text seems to hold, in the order of ``SUSPECTED``; also
    in the base64 of JSON, as some pages write what they ask for.
    """
    if "%" in text or ("+" in text and "=" in text):
        text = f"{text} {unquote_plus(text)}"
    if coded := _CODED.findall(text):
        text = " ".join([text, *map(_decoded, coded[:_CODED_MOST])])
    year = datetime.now(UTC).year - _AGE
    suspicions = {
        "email": "@" in text and _EMAIL.search(text) is not None,
        "phone": _PHONE.search(text) is not None,
        "card": any(
            luhn_holds(match[0].replace(" ", "").replace("-", "")) for match in _CARD.finditer(text)
        ),
        "iban": any(_iban_holds(match[0]) for match in _IBAN.finditer(text)),
        "birth_date": _BORN.search(text) is not None
        or any(int(match[1] or match[2]) <= year for match in _DATE.finditer(text)),
        "national_id": any(luhn_holds(match[1] + match[2]) for match in _NATIONAL.finditer(text)),
        "name": _NAMED.search(text) is not None,
    }
    return [kind for kind in SUSPECTED if suspicions[kind]]


#: Fields that browsers and libraries fill, and those with rules of their own.
_OTHER_FIELDS: Final = frozenset({b"cookie", b"referer", b"user-agent", b"authorization"})
#: Fields by which an upload that is no form tells the name of its file: AtomPub, tus, scripts.
_NAMES_FILE: Final = re.compile(
    rb"(?i)(?:slug|x-(?:upload-)?file-?name):.|content-disposition:.*filename"
    rb"|upload-metadata:(?:.*,)? ?(?:file)?name "
)
#: The kind of such a name, which no pattern tells.
_FILE_NAME: Final = "file_name"


def suspected_fields(headers: RawHeaders) -> list[str]:
    """The kinds that the header fields of a request seem to hold, the name of a file among them."""
    kinds: dict[str, None] = {}
    for name, value in headers:
        if (lower := name.lower()) not in _OTHER_FIELDS:
            text = value[:_LONGEST_FIELD]
            if _NAMES_FILE.match(b"%b:%b" % (lower, text)):
                kinds[_FILE_NAME] = None
            if lower == b"upload-metadata":
                text = b"\n".join([text, *_uploaded(text)])
            kinds.update(dict.fromkeys(suspected(text.decode("utf-8", "replace"))))
    return list(kinds)


def _uploaded(metadata: bytes) -> Iterator[bytes]:
    """The values of ``Upload-Metadata``: pairs of a key and base64."""
    for pair in metadata.split(b","):
        coded = pair.strip().partition(b" ")[2]
        with suppress(ValueError):
            yield a2b_base64(coded)


def _iban_holds(text: str) -> bool:
    """Whether the check digits of an account number hold (ISO 13616, ISO 7064 mod 97-10)."""
    compact = text.replace(" ", "")
    return (
        15 <= len(compact) <= 34
        and int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1
    )

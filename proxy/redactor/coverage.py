"""What may be told of a request that no rule names: the shape of its path, and the kinds of values suspected in it.

Both go to logs and metrics, so neither holds a value. A segment of a path is shown where it is a word of a rule file or looks
like a name of an interface; whatever looks like a value (digits, an address, a long token, anything escaped, whatever follows
``users/`` and its like) is shown as ``{id}``. Kinds are found on word borders, with checksums where a kind has one.
"""

import itertools
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote_plus

from proxy.redactor.paths import split_target
from proxy.redactor.template import Kind, parse_template
from proxy.tokenization.luhn import luhn_holds

#: Segments that are shown; the rest of a longer path is one placeholder.
_SEGMENTS: Final = 8
#: Segments of a path that differ at one place, beyond which they are taken for values; and places that are remembered.
_SIBLINGS: Final = 40
_PLACES: Final = 1000
#: Spellings of segments whose meaning is remembered.
_REMEMBERED: Final = 4096

#: What is shown of a number.
_NUMBER: Final = ("", False, False)

#: Words that name what is done or shown, and never a person.
_ROUTES: Final = frozenset(
    "active activity add admin all api app archive assets attachments auth authorize autocomplete avatar batch bulk callback"
    " check clear comments config count create csv current dashboard delete details docs download downloads edit events excel"
    " export favicon.ico feed file files find fonts form graphql health healthz help history home html ical image images img"
    " import inactive index index.html info jobs js css json list live login logout lookup manifest.json media merge metadata"
    " metrics new news notes notifications oauth oauth2 openapi openapi.json options password pdf photo picture ping preferences"
    " preview print profile public query ready readyz recent refresh register remove report reports reset revoke robots.txt rpc"
    " rss save schema scim search send session sessions settings signin signout signup sitemap.xml static stats status stream"
    " subscribe suggest suggestions summary swagger sync tags theme token tokens unsubscribe update upload uploads validate"
    " verify version webhook webhooks wellknown ws xlsx xml .well-known".split()
)

#: Words behind which a person, or a secret of one, is named; so do plurals.
_PERSONAL: Final = frozenset(
    "account author by client code confirm contact customer email employee find guest invite key lookup mail member name owner"
    " p patient people person phone profile q query register reset search share staff student token u unsubscribe user verify".split()
)
#: Plurals that hold no things.
_SINGULAR: Final = frozenset("access address business class css js news process progress status".split())

_WORD: Final = re.compile(
    r"v\d{1,3}(?:\.\d{1,2})?|[a-z]{2,16}(?:[A-Z][a-z]{2,15}){0,3}|(?:[A-Z][a-z]{2,15}){1,4}|[A-Z]{2,5}"
    r"|[a-z]{1,16}(?:[-_][a-z]{1,16}){1,2}"
)
#: Endings of files that everybody gets: their names tell nothing, their number is large.
_FILE: Final = re.compile(
    r".+(\.(?:css|js|mjs|map|png|jpe?g|gif|svg|webp|avif|ico|woff2?|ttf|otf|eot|html?|json|xml|csv|pdf|txt|zip|mp[34]|webm|wasm|php|aspx?|jsp))",
    re.DOTALL | re.IGNORECASE,
)


class PathShapes:
    """Gives paths their shapes. ``templates``: those of the rules, whose words are nobody's."""

    def __init__(self, templates: Iterable[str] = ()) -> None:
        words, personal = _words_of(templates)
        self._words = _ROUTES | words
        self._personal = _PERSONAL | personal
        self._known: dict[tuple[bytes, bool], tuple[str, bool, bool]] = {}
        self._siblings: dict[str, set[str]] = {}

    def shape(self, target: bytes) -> str:
        """The shape of a request target's path, such as ``/api/people/{id}/photo``; no part of its query."""
        path = target.partition(b"?")[0] if target[:1] == b"/" else split_target(target).path
        shown, personal, values = "", False, 0
        for number, part in enumerate(filter(None, path.split(b"/"))):
            if number == _SEGMENTS:
                return f"{shown}/{{rest*}}"
            text, personal, word = self._segment(part, personal)
            if not word:
                if text[:1] != ".":
                    text = self._ordinary(shown, text) if text else ""
                if text[:1] in ("", "."):
                    values += 1
                    text = f"{{id{values if values > 1 else ''}}}{text}"
            shown = f"{shown}/{text}"
        return shown or "/"

    def _segment(self, part: bytes, personal: bool) -> tuple[str, bool, bool]:
        """What is shown of a segment: nothing, its ending, or itself; whether a value is expected behind it; whether it is a word of ours."""
        if part.isdigit():
            return _NUMBER
        found = self._known.get((part, personal))
        if found is None:
            found = self._look(part.decode("ascii", "replace"), personal)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[part, personal] = found
        return found

    def _look(self, text: str, personal: bool) -> tuple[str, bool, bool]:
        low = text.lower()
        word = low in self._words
        if word or (not personal and _WORD.fullmatch(text)):
            plural = len(low) > 3 and low[-1] == "s" and low not in _SINGULAR
            return text, plural or low in self._personal, word
        file = _FILE.fullmatch(text)
        return (file[1].lower() if file else ""), False, False

    def _ordinary(self, place: str, text: str) -> str:
        """The text, or nothing where so many different ones stand at that place that they are values."""
        here = self._siblings.get(place)
        if here is None:
            if len(self._siblings) >= _PLACES:
                return ""
            here = self._siblings[place] = set()
        if text not in here:
            if len(here) >= _SIBLINGS:
                return ""
            here.add(text)
        return text


def _words_of(templates: Iterable[str]) -> tuple[set[str], set[str]]:
    """The literal segments of path templates in lower case, and those among them that a placeholder follows."""
    words: set[str] = set()
    personal: set[str] = set()
    for template in templates:
        segments = parse_template(template).segments
        words.update(one.text.lower() for one in segments if one.kind is Kind.LITERAL)
        pairs = itertools.pairwise(segments)
        personal.update(one.text.lower() for one, following in pairs if following.kind is not Kind.LITERAL)
    return words, personal


# ---------------------------------------------------------------------- kinds of values

_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,5}[A-Za-z]{2,24}(?![\w-])")
_PHONE: Final = re.compile(
    r"(?<![\w.+-])(?<!\d )(?:\+[1-9]\d{0,2}[ -]?(?:\(0?\d{1,4}\)[ -]?)?\d(?:[ -]?\d){6,11}|0\d{1,3}[-/ ]\d{2,4}(?:[ -]?\d{2,4}){1,3})(?![\w-]| \d)"
)
_CARD: Final = re.compile(
    r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d{4}){2}[ -]?\d{3,4}(?![\w.-])|(?<![\w.-])3[47]\d{2}[ -]?\d{6}[ -]?\d{5}(?![\w.-])"
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

#: A date so many years ago is suspected to be one of birth; younger ones are of orders and meetings.
_AGE: Final = 10

#: Every kind that is looked for, as logs and metrics name it.
SUSPECTED: Final = ("email", "phone", "card", "iban", "birth_date", "national_id", "name")


def suspected(text: str) -> list[str]:
    """The kinds of personal values that a text seems to hold, in the order of ``SUSPECTED``."""
    if "%" in text or ("+" in text and "=" in text):
        text = f"{text} {unquote_plus(text)}"
    year = datetime.now(UTC).year - _AGE
    found = {
        "email": "@" in text and _EMAIL.search(text) is not None,
        "phone": _PHONE.search(text) is not None,
        "card": any(luhn_holds(_digits(match[0])) for match in _CARD.finditer(text)),
        "iban": any(_iban_holds(match[0]) for match in _IBAN.finditer(text)),
        "birth_date": _BORN.search(text) is not None
        or any(int(match[1] or match[2]) <= year for match in _DATE.finditer(text)),
        "national_id": any(luhn_holds(match[1] + match[2]) for match in _NATIONAL.finditer(text)),
        "name": _NAMED.search(text) is not None,
    }
    return [kind for kind in SUSPECTED if found[kind]]


def _digits(text: str) -> str:
    return text.replace(" ", "").replace("-", "")


def _iban_holds(text: str) -> bool:
    """Whether the check digits of an account number hold (ISO 13616, ISO 7064 mod 97-10)."""
    plain = text.replace(" ", "")
    return 15 <= len(plain) <= 34 and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1

"""Lessons about an application, and the kind that a member or parameter is suspected to be of.

Recorded words may be somebody's, so names are told only of words that many interfaces have, or that
the operator says are nobody's. Pure, and without values.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from proxy.redactor.coverage import parameter_word, suspected

#: Where an application is said to listen of which nothing is known.
UNKNOWN_UPSTREAM: Final = "http://127.0.0.1:3000"
#: Characters of a value that are looked at.
_LONGEST: Final = 256
#: How a word of a path is written that might be somebody's.
UNKNOWN_PART: Final = "{part"
_NUMBER: Final = r"(?:_?(?:id|no|nr|number))"
#: Words of names by which a text is of a kind, whatever it looks like.
_KINDS_BY_NAME: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("email", r"e-?mail|mail|e?-?mail_?address"),
        ("phone", rf"tel|fax|(?:(?:tele|cell|mobile_?)?phone|mobile|cell){_NUMBER}?"),
        ("date", r"birth_?(?:date|day)|date_?of_?birth|dob|born"),
        ("iban", r"iban|bank_?account"),
        ("card", rf"(?:credit_?)?card{_NUMBER}"),
        ("national_id", rf"ssn|nin|bsn|pesel|personnummer|(?:national|personal|identity){_NUMBER}"),
        ("name", r"(?:first|last|given|family|middle|full|sur|nick|display)_?name"),
    )
)  # fmt: skip
#: Names that mean a person where something of a person stands beside them.
_BESIDE_PERSONS: Final = (
    ("name", re.compile("name")),
    ("text", re.compile(r"street|(?:street_?)?address|address_?line_?\d?|passport(?:_?number)?")),
)
_KINDS: Final = {"birth_date": "date"}  #: of ``coverage``, where rule files have another word
_PIECES: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: How a field of each kind is declared: with tokens that fit wherever a text does.
FIELD_DECLARATIONS: Final = {
    "email": "{kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone": "{kind: phone, token: opaque}",
    "date": "{kind: date, token: opaque}",
    "card": "{kind: card, token: opaque}",
    "number": "{kind: number, token: opaque}",
}

MemberPath = tuple[
    str, ...
]  #: members from the root of a body; ``[*]`` is each element of an array


@dataclass(slots=True)
class SuspectedObjects:
    """Fields in bodies of one direction of an operation, at one place."""

    fields: dict[MemberPath, Counter[str]] = field(default_factory=dict)
    has_id: bool = False


@dataclass(slots=True)
class RequestTraffic:
    """Observations of one method at one path."""

    count: int = 0
    places: dict[tuple[str, MemberPath], SuspectedObjects] = field(default_factory=dict)
    form: dict[str, Counter[str]] = field(default_factory=dict)
    query: dict[str, Counter[str]] = field(default_factory=dict)
    pages: Counter[str] = field(default_factory=Counter)  #: kinds suspected in what is no JSON
    answers: set[str] = field(default_factory=set)  #: ``html``, ``csv``: what else its answers are
    columns: list[str] = field(default_factory=list)  #: of a CSV file that it answers with
    redirects: dict[int, str] = field(default_factory=dict)  #: status -> path that it leads to
    writes: bool = False  #: whether it carries a body
    files: bool = False  #: whether it carries a form with files, which a recording may leave out

    def objects(self, direction: str) -> list[tuple[MemberPath, SuspectedObjects]]:
        """The places of one direction that hold something of a person, the fullest first."""
        places = [
            (path, objects)
            for (towards, path), objects in self.places.items()
            if towards == direction and objects.fields
        ]
        return sorted(places, key=lambda one: (-len(one[1].fields), len(one[0])))


@dataclass(slots=True)
class Lessons:
    """All that was learnt of one application."""

    origin: str
    source: str  #: what it was learnt from, in words
    words: frozenset[str] | None  #: further ones that are nobody's; ``None``: all are
    operations: dict[tuple[str, str], RequestTraffic] = field(default_factory=dict)  #: method, path
    hidden: int = 0  #: members whose name is not told

    def name_of(self, name: str) -> str | None:
        """The name of a member as it may be told."""
        if self.words is None:
            return name
        pieces = [one for one in re.split(r"[_\W]+", _PIECES.sub("_", name)) if one]
        if all(parameter_word(one, self.words) == one for one in pieces):
            return name
        self.hidden += 1
        return None


def last_name(name: str) -> str:
    """The last name in that of a nested form: ``street`` of ``user[addresses][0][street]``."""
    names = [one for one in re.split(r"[\[\]]+", name) if one and not one.isdigit() and one != "*"]
    return names[-1] if names else name


def kind_of(name: str, text: str | None, *, of_person: bool = False) -> str:
    """The kind that a member is suspected to be of; empty for none.

    ``text``: its value, ``None`` where only its name is known. ``of_person``: whether something of
    a person stands beside it.
    """
    word = _PIECES.sub("_", name).lower().strip("_")
    if text is None or text.strip():
        for kind, pattern in (*_KINDS_BY_NAME, *(_BESIDE_PERSONS if of_person else ())):
            if pattern.fullmatch(word):
                return str(kind)
    kinds = suspected(text[:_LONGEST]) if text else []
    if not kinds:
        return ""
    long = len(str(text)) > 60 or (kinds[0] == "email" and " " in str(text).strip())
    return "text" if long else str(_KINDS.get(kinds[0], kinds[0]))

"""Lessons about an application, and the kind that a member or parameter is suspected to be of.

Recorded words may be somebody's: only those that many interfaces have, or that the operator says
are nobody's, are told. Values are kept while a recording is read (``SeenValues``). Pure.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from proxy.redactor.coverage import parameter_word
from proxy.redactor.suspicions import suspected
from proxy.redactor.tools.public_words import is_code

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
    (
        "text",
        re.compile(
            r"street|(?:street_?)?address|(?:address_?)?line_?\d?|post(?:al)?_?code|zip(?:_?code)?"
            r"|notes?|passport(?:_?number)?"
        ),
    ),
)
#: Reasons why a place is for people to judge.
CODES: Final = "only codes in capitals stood there, no value of its kind: declare it if others do"
UNDESCRIBED: Final = "the document does not say what stands there: declare what is a person's"
_OPEN_BODY: Final = (
    "    # the document does not say all that the request carries: look at what callers send, and "
    "declare every member of a person under fields; the others are passed on as they are"
)
_KINDS: Final = {"birth_date": "date"}  #: of ``coverage``, where rule files have another word
_COUNTED: Final = re.compile(r"(?<![0-9])[0-9]{1,2}\Z")
_PIECES: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
FILE: Final = "name of a file"  #: a kind of its own
#: How a field of each kind is declared: with tokens that fit wherever a text does.
FIELD_DECLARATIONS: Final = {
    "email": "{kind: email, token: {shape: email, same: true}, find: [exact]}",
    "phone": "{kind: phone, token: opaque}",
    "date": "{kind: date, token: opaque}",
    "card": "{kind: card, token: opaque}",
    "number": "{kind: number, token: opaque}",
    FILE: "{kind: text, token: filename}",
}

#: Of a date that a form asks for with ``type=date``, or a description with ``format: date``.
DATE_DECLARATION: Final = "{kind: date, token: {shape: date}}"
BARE_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Members that may be a record's id, the likeliest first.
IDS: Final = ("id", "documentId", "_id", "uuid", "uid", "guid", "objectId", "publicId", "slug")
#: Characters of a member that a selector may name.
MOST_OF_MEMBER: Final = 200

#: Characters of a name in a rule file.
_NAME: Final = 50

#: Members from the root of a body; ``[*]`` is each element of an array.
MemberPath = tuple[str, ...]
#: ``request``, ``response``, ``form`` or ``query``, and the member there.
BodyMember = tuple[str, MemberPath]
_PARTS: Final = {"request": "request", "response": "answer", "form": "form", "query": "query"}
_WORDS: Final = re.compile(r"\w+")
#: Values that are kept of one recording, and characters and words of one.
_MOST_SEEN, _MOST_SIGNS, _MOST_WORDS = 20_000, 100, 12


class LeftOut(NamedTuple):
    """A gap of a proposal with its reason. Names and kinds, never a value."""

    request: str  #: method and path; empty for what concerns no single request
    part: str  #: of the request or its answer; empty for all of it
    because: str

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.request, self.part)))
        text = f"left out: {where}, because {self.because}"
        return "".join(sign if sign.isprintable() else "?" for sign in text)


class SeenValues:
    """Values that a recording has in places of a kind, to find them again in other texts."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], str] = {}
        self._lengths: dict[str, set[int]] = {}  #: by the first word: words of values

    def note(self, kind: str, text: str) -> None:
        """Remember a value, but for two signs or a common word, which are in every text."""
        words = tuple(_WORDS.findall(text.casefold())) if len(text) <= _MOST_SIGNS else ()
        if not 0 < len(words) <= _MOST_WORDS or len(self._kinds) >= _MOST_SEEN:
            return
        if len("".join(words)) < 3 or (len(words) == 1 and parameter_word(words[0]) == words[0]):
            return
        self._kinds.setdefault(words, kind)
        self._lengths.setdefault(words[0], set()).add(len(words))

    def kinds_in(self, text: str) -> list[str]:
        """The kinds of the values that stand in a text, as whole words in any letter case."""
        if not self._kinds:
            return []
        words = _WORDS.findall(text.casefold())
        kinds = {
            self._kinds.get(tuple(words[at : at + length]), "")
            for at, word in enumerate(words)
            for length in self._lengths.get(word, ())
        }
        return sorted(kinds - {""})


@dataclass(slots=True)
class SuspectedObjects:
    """Fields in bodies of one direction of an operation, at one place."""

    fields: dict[MemberPath, Counter[str]] = field(default_factory=dict)
    has_id: bool = False
    ids: Counter[str] = field(default_factory=Counter)  #: members whose values paths have

    @property
    def id(self) -> str:
        """The member that is the record's id: the one that paths have, else ``id``."""
        return max(IDS, key=lambda one: self.ids[one])


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
    heads: list[str] = field(default_factory=list)  #: of the fields that its pages show
    redirects: dict[int, str] = field(default_factory=dict)  #: status -> path that it leads to
    makes: bool = False  #: whether it leads to a record that its path does not name
    writes: bool = False  #: whether it carries a body
    files: bool = False  #: whether it carries a form with files, which a recording may leave out
    #: places with texts that repeat values of other places, by the kinds of these
    repeats: dict[BodyMember, Counter[str]] = field(default_factory=dict)
    unsuspected: set[BodyMember] = field(
        default_factory=set
    )  #: places with texts of no suspected kind
    sentences: bool = False  #: whether texts of several words are among them
    #: places of which people have to judge, with the reason
    questions: dict[BodyMember, str] = field(default_factory=dict)
    unnamed: Counter[str] = field(default_factory=Counter)  #: members whose name is not told
    cut: bool = False  #: whether a body had more than is looked at
    failed: int = 0  #: answers that were no success
    stays: bool = False  #: whether the record was shown after this delete
    dates: set[str] = field(default_factory=set)  #: names of what takes dates and nothing else

    @property
    def open_body(self) -> list[str]:
        """The comment in a rule about a request that is not described; empty where it is."""
        return [_OPEN_BODY] if self.questions.get(("request", ())) == UNDESCRIBED else []

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
    addressed: frozenset[str] = frozenset()  #: segments of all paths
    values: SeenValues = field(default_factory=SeenValues)
    left_out: list[LeftOut] = field(default_factory=list)  #: what concerns no single request
    removed: dict[str, RequestTraffic] = field(default_factory=dict)  #: path of a record -> delete

    def name_of(self, name: str) -> str | None:
        """The name of a member as it may be told."""
        if self.words is None or name.lower() in self.words:
            return name
        pieces = [one for one in re.split(r"[_\W]+", _PIECES.sub("_", name)) if one]
        # the second phone number, or the first line of an address, is nobody's name
        pieces = [_COUNTED.sub("", one) or "no" for one in pieces]
        if all(parameter_word(one, self.words) == one for one in pieces):
            return name
        return None

    def note(self, traffic: RequestTraffic, where: BodyMember, kind: str, text: str) -> None:
        """Note a text of a place: its value where it is of a kind, else what it repeats."""
        if kind and kind != "text":
            self.values.note(kind, text)
        elif again := self.values.kinds_in(text):
            traffic.repeats.setdefault(where, Counter()).update(again)
        elif not kind and text.strip():
            traffic.unsuspected.add(where)
            traffic.sentences |= len(text.split()) > 2
            if (name := where[1][-1] if where[1] else "") and kind_of(last_name(name), None):
                traffic.questions[where] = CODES


def without_own_address(lessons: Lessons, own: AbstractSet[str]) -> Lessons:
    """The lessons without the proxy as its own upstream; ``own``: its hosts with ports."""
    if urlsplit(lessons.origin).netloc in own:
        text = f"it is the proxy itself: write where the application listens for {UNKNOWN_UPSTREAM}"
        lessons.left_out.append(LeftOut("", f"the recorded address {lessons.origin}", text))
        lessons.origin = UNKNOWN_UPSTREAM
    return lessons


def why_not_passed(path: str, traffic: RequestTraffic) -> str:
    """The reason to propose no rule at all, not even that a request passes; empty for none."""
    noted = [*traffic.query.values(), *traffic.form.values(), *traffic.repeats.values()]
    for towards in ("request", "response"):
        noted += [one for _, objects in traffic.objects(towards) for one in objects.fields.values()]
    kinds = sorted({*traffic.pages, *(kind for one in noted for kind in one)})
    if kinds and UNKNOWN_PART in path:
        words = "say with --word which words of the path are nobody's"
        return f"{', '.join(kinds)} suspected; {words}"
    if kinds:
        return f"{', '.join(kinds)} suspected; a page, an export, an upload, a search, a log?"
    if traffic.questions:
        return "nothing suspected, but it has places of which nothing is known, as said below"
    if traffic.files:
        return "an upload; name its texts under request: multipart, columns of a CSV under csv"
    if traffic.writes or traffic.unnamed:
        return "nothing suspected, but texts are written or have names that are not told: whose?"
    if traffic.sentences:
        return (
            "nothing suspected, but it has sentences: about whom? If people then see tokens in it, "
            "say read and response: {restore: anywhere}"
        )
    return ""


def unread(request: str, traffic: RequestTraffic, *, ruled: bool) -> Iterator[LeftOut]:
    """Gaps of a proposal for a request, whether or not an operation is proposed.

    ``ruled``: whether an operation is.
    """
    for part, count in traffic.unnamed.items():
        text = "the name might be somebody's: --word NAME says that it is not"
        yield LeftOut(request, f"{_times(count, 'member')} of the {_PARTS[part]}", text)
    for (part, path), kinds in sorted(traffic.repeats.items()):
        remedy = (
            "a search: say query with field, via: vault or refuse"
            if part == "query"
            else "a field of its own if callers write it, restore: anywhere if the application "
            "composes it"
        )
        text = f"it repeats values of other places ({', '.join(sorted(kinds))}): {remedy}"
        yield LeftOut(request, f"{_PARTS[part]} {path_in_words(path)}", text)
    fields = {
        (direction, (*path, *member))
        for direction in ("request", "response")
        for path, objects in traffic.objects(direction)
        for member in objects.fields
    }
    fields |= {("form", (one,)) for one in traffic.form}
    for (part, path), reason in sorted(traffic.questions.items()):
        if (part, path) not in fields and path[-1:] != ("{word}",):
            yield LeftOut(request, f"{_PARTS[part]} {path_in_words(path)}", reason)
    for direction in ("request", "response"):
        for path, objects in traffic.objects(direction)[1:]:
            names = ", ".join(".".join(one) for one in objects.fields)
            text = f"one object is proposed for each operation: name {names} there under objects"
            yield LeftOut(request, f"{_PARTS[direction]} {path_in_words(path)}", text)
    if traffic.cut:
        text = "only the first 5,000 values and 12 levels of a body are looked at"
        yield LeftOut(request, "the rest of a large body", text)
    if traffic.failed:
        text = "answers that are no success are not looked at"
        yield LeftOut(request, _times(traffic.failed, "answer"), text)
    others = sorted({path_in_words(path) for _, path in traffic.unsuspected})
    if ruled and others:
        text = "nothing was suspected there: add what is a person's"
        yield LeftOut(request, ", ".join(others), text)


def selectable(member: tuple[str, ...]) -> bool:
    """Whether a selector may name the member."""
    printable = (one.isprintable() and not {*one} & {*'"\\'} for one in member)
    return all(printable) and all(member) and sum(map(len, member)) <= MOST_OF_MEMBER


def selector(path: tuple[str, ...]) -> str:
    """A path as a rule file writes it."""
    steps = "".join(
        step
        if step == "[*]"
        else f".{step}"
        if BARE_NAME.fullmatch(step)
        else f"[{json.dumps(step)}]"
        for step in path
    )
    return json.dumps(f"${steps}") if "[" in steps else f"${steps}"


def times_met(traffic: RequestTraffic) -> str:
    """Words about the number of requests."""
    return f"met {traffic.count} x" if traffic.count else "described"


def main_kind(kinds: Counter[str]) -> str:
    """The kind that was suspected most."""
    return kinds.most_common(1)[0][0]


def path_in_words(path: MemberPath) -> str:
    """A path for people: ``items[*].name``."""
    return ".".join(path).replace(".[*]", "[*]") or "the body"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def last_name(name: str) -> str:
    """The last name in that of a nested form: ``street`` of ``user[addresses][0][street]``."""
    names = [one for one in re.split(r"[\[\]]+", name) if one and not one.isdigit() and one != "*"]
    return names[-1] if names else name


def rule_name(text: str, otherwise: str) -> str:
    """A name as rule files have them: letters, digits and ``_``, a letter first."""
    word = re.sub(r"\W", "_", text, flags=re.ASCII)[:_NAME]
    return word if BARE_NAME.fullmatch(word) and word[0] != "_" else f"{otherwise}{word}"


def singular(word: str) -> str:
    """The name of one of what a collection is called."""
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    for end, one in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x")):
        if word.endswith(end):
            return word.removesuffix(end) + one
    return word.removesuffix("s")


def kind_of(name: str, text: str | None, *, of_person: bool = False) -> str:
    """The kind that a member is suspected to be of; empty for none.

    ``text``: its value, ``None`` where only its name is known. ``of_person``: whether something of
    a person stands beside it.
    """
    word = _PIECES.sub("_", name).lower().strip("_")
    if text is None or text.strip():
        for kind, pattern in (*_KINDS_BY_NAME, *(_BESIDE_PERSONS if of_person else ())):
            if pattern.fullmatch(word) and not is_code(kind, word, (text or "").strip()):
                return str(kind)
    kinds = suspected(text[:_LONGEST]) if text else []
    if not kinds:
        return ""
    long = len(str(text)) > 60 or (kinds[0] == "email" and " " in str(text).strip())
    return "text" if long else str(_KINDS.get(kinds[0], kinds[0]))


def beside_person(texts: Iterable[tuple[str, str]]) -> bool:
    """Whether named texts are of a person, even if a code stands in place of a value."""
    pairs = [(last_name(name), text) for name, text in texts]
    return any(kind_of(name, text) or kind_of(name, text.lower()) for name, text in pairs)


def body_of_rule(at: tuple[str, ...], objects: SuspectedObjects, *, looks: bool) -> str:
    """Words of the rule about the JSON that a request carries; ``looks``: one that searches."""
    if not looks:
        return f"object: {selector(at)}"
    members = [one for one in objects.fields if selectable(one)]
    places = (f"{last_name(one[-1])}: {selector((*at, *one))}" for one in members)
    return f"fields: {{{', '.join(places)}}}"

"""Words of a recording that belong to the application and to nobody: names of members in objects
with an id, and collections in paths.

A word is public only by evidence, and never if it stands in a text of the recording as well: the
name of a member in two records, a word of a path that lists or creates records and has two below
it. A user's name in a path has neither. Pure.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from proxy.redactor.coverage import PathShapes, parameter_word
from proxy.redactor.suspicions import suspected

_WORD: Final = re.compile(r"\w+")
_PIECE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")
#: A name of a member as programs write it, and a word of a path.
_MEMBER: Final = re.compile(r"[a-z_][A-Za-z0-9_-]{1,39}", re.ASCII)
_SEGMENT: Final = re.compile(r"[a-z][a-z_-]{2,30}", re.ASCII)
_RECORD_ID: Final = re.compile(r"\d+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Texts that are addresses: they repeat words of paths.
_ADDRESS: Final = re.compile(r"/|https?:")
_IDS: Final = ("id", "_id", "uuid")
#: Codes of programs: words in capitals, with an underscore or a digit where names may stand.
_STATE: Final = re.compile(r"[A-Z]{2,}(?:_[A-Z]+)*")
_CODE: Final = re.compile(r"(?=.*[A-Z])(?=.*[0-9_])[A-Z0-9]+(?:[-_./][A-Z0-9]+)*")
#: Currencies and countries that are no usual names, as ``RON``, ``NG``, ``LI`` and ``BO`` are.
_CODES: Final = frozenset(
    (
        "AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF ILS INR ISK JPY KRW MXN MYR NOK NZD PHP "
        "PLN RUB SEK SGD THB TRY TWD UAH USD ZAR AT AU BE BG BR CA CH CN CZ DE DK EE ES EU FI FR "
        "GB GR HR IE IL IS IT JP KR LT LU LV MX NL NO NZ PL PT RO RS RU SE SG SI SK TR TW UA UK US "
        "ZA"
    ).split()
)
#: Values of all bodies, and levels of one, that are looked at.
_MOST: Final = 200_000
_LEVELS: Final = 12


class RecordedRequest(NamedTuple):
    """One request of a recording; ``sent`` and ``answered``: decoded bodies, ``None`` for none."""

    method: str
    path: str
    texts: tuple[str, ...]  #: of its parameters
    sent: Any
    answered: Any
    wrappers: tuple[str, ...] = ()  #: names of a form around others: ``user`` of ``user[name]``


class PublicWords(NamedTuple):
    """Words in lower case, by where they may stand."""

    members: frozenset[str]
    paths: frozenset[str]


@dataclass(slots=True)
class _Evidence:
    texts: set[str] = field(default_factory=set)  #: words that values have
    #: names of members by the records that have them
    members: dict[str, set[str]] = field(default_factory=dict)
    budget: int = _MOST


def recorded_request(entry: tuple[Mapping[str, Any], Mapping[str, Any]]) -> RecordedRequest:
    """A request of a HAR file with its decoded bodies."""
    request, response = entry
    parts, posted = urlsplit(request["url"]), request.get("postData") or {}
    content = response.get("content") or {}
    text, answer = str(posted.get("text") or ""), str(content.get("text", ""))
    if content.get("encoding") == "base64":
        answer = decoded_text(answer)
    pairs = [(str(one["name"]), str(one.get("value", ""))) for one in posted.get("params") or ()]
    if "x-www-form-urlencoded" in str(posted.get("mimeType", "")):
        pairs = pairs or parse_qsl(text)
    texts = tuple(value for _, value in (*parse_qsl(parts.query), *pairs))
    method, taken = str(request["method"]).upper(), int(response["status"]) < 400
    sent, answered = _document(text), _document(answer) if taken else None
    if not taken:
        return RecordedRequest("", parts.path, texts, sent, None)
    form = _nested(pairs)
    wrappers = tuple(name for name, one in form.items() if isinstance(one, dict))
    return RecordedRequest(method, parts.path, texts, form or sent, answered, wrappers)


#: A file in a form with files: names of part and file, and what stands in it.
_FILE: Final = re.compile(
    r'(?is)content-disposition: *form-data; *name="([^"\r\n]*)"; *filename="([^"\r\n]+)"'
    r"[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n(.*?)\r?\n--"
)
#: Files of tables: each row is a record, whose values a rule has to name.
_TABLE: Final = re.compile(r"(?i)\.(?:csv|tsv|xlsx?|ods)\Z")


def recorded_files(posted: Mapping[str, Any]) -> list[str]:
    """The parts of a recorded form that are files and hold no records, as far as it tells."""
    said = [
        (str(one["name"]), str(one.get("fileName") or ""), "") for one in posted.get("params") or ()
    ]
    every = said if any(name for _, name, _ in said) else _FILE.findall(str(posted.get("text")))
    return [
        part
        for part, name, content in every
        if name and not _TABLE.search(name) and not suspected(content[:_BEGINNING])
    ]


#: Characters of a file that are looked at.
_BEGINNING: Final = 4096


def _nested(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The members of a form as objects: ``user[address][street]`` stands in two."""
    root: dict[str, Any] = {}
    for name, value in pairs:
        *ways, last = [one for one in re.split(r"[\[\]]+", name) if one] or [name]
        level = root
        for way in ways[:_LEVELS]:
            inner = level.get(way)
            level[way] = level = inner if isinstance(inner, dict) else {}
        level[last] = value
    return root


def _document(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def decoded_text(text: str) -> str:
    """The text of a body in base64; empty where it is none."""
    try:
        return base64.b64decode(text).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def public_words(requests: Iterable[RecordedRequest], words: Iterable[str] = ()) -> PublicWords:
    """Return the words that a recording shows to be nobody's. ``words``: others that are."""
    evidence, every = _Evidence(), list(requests)
    for one in every:
        for text in one.texts:
            _note_words(evidence, text)
        where = f"{one.method} {one.path}"
        _walk(evidence, one.sent, where, 0)
        for name in one.wrappers:
            if _MEMBER.fullmatch(name) and _is_record(one.sent[name]):
                evidence.members.setdefault(name, set()).add(where)
        _walk(evidence, one.answered, "answered", 0)
    members = {
        word
        for word, records in evidence.members.items()
        if len(records) > 1 and evidence.texts.isdisjoint(_pieces(word.casefold()))
    }
    pieces = {
        piece.lower().rstrip("0123456789")
        for name in members
        for piece in _PIECE.split(name)
        if piece
    }
    paths = _collections(every, evidence.texts, frozenset(words))
    return PublicWords(frozenset((pieces | {name.lower() for name in members}) - {""}), paths)


def _note_words(evidence: _Evidence, text: str) -> None:
    if not _ADDRESS.match(text):
        evidence.texts.update(_pieces(text.casefold()))


def _pieces(text: str) -> Iterator[str]:
    yield from _WORD.findall(text.replace("_", " "))


def _walk(evidence: _Evidence, value: Any, record: str, depth: int) -> None:
    """Note the words of texts, and the names of members of objects that are records.

    ``record``: tells the record around them from others.
    """
    evidence.budget -= 1
    if evidence.budget < 0 or depth > _LEVELS:
        return
    if isinstance(value, str):
        _note_words(evidence, value)
    elif isinstance(value, list):
        for one in value:
            _walk(evidence, one, record, depth + 1)
    elif isinstance(value, dict):
        record = next((f"id {value[name]}" for name in _IDS if name in value), record)
        for name in filter(_MEMBER.fullmatch, value if _is_record(value) else ()):
            evidence.members.setdefault(name, set()).add(record)
        for one in value.values():
            _walk(evidence, one, record, depth + 1)


def _is_record(value: Mapping[str, Any]) -> bool:
    """Whether an object has fields, and is no map by names of people or things."""
    if any(name in value for name in _IDS):
        return True
    common = sum(parameter_word(name) == name for name in value)
    return common >= 2 and 2 * common >= len(value)


def _collections(
    requests: Iterable[RecordedRequest], texts: set[str], words: frozenset[str]
) -> frozenset[str]:
    """Words of paths that name a collection: its list or creation, and several records below."""
    known_shapes = PathShapes(f"/{word}" for word in words)
    records: dict[tuple[str, ...], set[str]] = {}
    listed: set[tuple[str, ...]] = set()
    for one in requests:
        segments = tuple(part for part in urlsplit(one.path).path.split("/") if part)
        for at, part in enumerate(segments[1:], 1):
            if _RECORD_ID.fullmatch(part):
                records.setdefault(segments[:at], set()).add(part)
        if one.method == "POST" or (one.method == "GET" and _lists_records(one.answered)):
            listed.add(segments)
    public: set[str] = set()
    for way in sorted(listed & records.keys(), key=len):
        above, word = "/".join(way[:-1]), way[-1]
        ancestors = known_shapes.shape(f"/{above}".encode()) if above else ""
        hidden = "{" in ancestors and not all(
            part in public or known_shapes.shape(f"/{part}".encode()) == f"/{part}"
            for part in way[:-1]
            if not _RECORD_ID.fullmatch(part)
        )
        if (
            _SEGMENT.fullmatch(word)
            and not hidden
            and len(records[way]) > 1
            and texts.isdisjoint(_pieces(word.replace("-", " ")))
        ):
            public.add(word)
    return frozenset(public)


def is_code(kind: str, name: str, text: str) -> bool:
    """Whether a text is a code (``EUR``, ``AB-1234``) and no value of a kind.

    ``kind``: that which its name means. ``ANN`` and ``ANN LINDQVIST`` are names, and whatever is
    called a first or last one is.
    """
    if kind == "text":  # a postal code and a passport are of a person
        return "_" in text and _STATE.fullmatch(text) is not None
    if kind == "name":
        short = name in ("name", "display_name")
        return short and (text in _CODES or _CODE.fullmatch(text) is not None)
    return _STATE.fullmatch(text) is not None  # all others have digits or an @


def _lists_records(answer: Any) -> bool:
    """Whether an answer is a list of objects with ids, in an object or for itself."""
    lists = answer.values() if isinstance(answer, dict) else [answer]
    return any(
        isinstance(one, list) and any(isinstance(row, dict) and _is_record(row) for row in one)
        for one in lists
    )

"""Learns from traffic while it passes by: which members of a request and its answer are suspected
to hold values of somebody. What is kept has names that are nobody's, kinds and counts, never a
value.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from proxy.errors import Code, VaultError
from proxy.redactor.coverage import MOST_MEMBERS, WatchedMember, joined_members
from proxy.redactor.suspicions import SUSPECTED
from proxy.redactor.tools.learning import learn_answer, learn_body, nobodys_shape, note_texts
from proxy.redactor.tools.lessons import (
    CODES,
    UNKNOWN_UPSTREAM,
    LeftOut,
    Lessons,
    RequestTraffic,
    SuspectedObjects,
)
from proxy.tokenization.normalize import FIELD_KINDS

#: How a member is kept that says that an object has an id.
_ID: Final = "id"
_FORM_BODY: Final = re.compile(r"[\w.%+\[\]-]{1,200}=")
_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_CLOSING: Final = {"{": "}", "[": "]"}
#: Parts whose members have a kind.
_OF_KINDS: Final = ("form", "query", "request", "response")
#: A method and the shape of a path.
_TOKEN: Final = re.compile(r"[A-Z-]{1,20}/[!-~]{0,2000}")
_UPSTREAM: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,300}")
_ENDPOINT: Final = re.compile(r"\w[\w-]{0,62}", re.ASCII)


class WatchedPath(msgspec.Struct, frozen=True):
    """A shape of a path as it was met, and what it was learnt to hold."""

    method: str
    path: str
    count: int
    members: list[WatchedMember] = []
    kinds: list[str] = []
    endpoint: str = ""


class _CoverageFile(msgspec.Struct, frozen=True):
    """Coverage file of an instance: ``ruled`` tells it from other documents."""

    unknown: list[WatchedPath]
    ruled: list[Any]
    upstreams: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Observation:
    """One exchange: the query of its address, the beginnings of both bodies, and what its answer
    is.

    ``leads``: the shape of the path that it redirects to; empty for none.
    """

    query: str
    request: str
    answer: str
    media: str = "application/json"
    status: int = 200
    leads: str = ""


def watched_members(one: Observation) -> list[WatchedMember]:
    """Members of one exchange in which something of a person is suspected."""
    lessons, traffic = Lessons("", "", frozenset()), RequestTraffic()
    note_texts(lessons, traffic, "query", parse_qsl(one.query, keep_blank_values=True))
    if one.request.startswith("--"):
        traffic.files = True
    elif _FORM_BODY.match(one.request):
        note_texts(lessons, traffic, "form", parse_qsl(one.request, keep_blank_values=True))
    elif one.request:
        learn_body(lessons, traffic, "request", whole_json(one.request))
    if one.answer:
        content = {"text": whole_json(one.answer), "mimeType": one.media}
        learn_answer(lessons, traffic, {"content": content})
    if one.leads:
        traffic.redirects[one.status] = one.leads
    return sorted(_members(traffic))[:MOST_MEMBERS]


def _members(traffic: RequestTraffic) -> Iterator[WatchedMember]:
    for (part, owner), objects in traffic.places.items():
        if objects.has_id:
            yield WatchedMember(part, owner, (), _ID, 1)
        for member, kinds in objects.fields.items():
            for kind, count in kinds.items():
                yield WatchedMember(part, owner, member, kind, count)
    for part, texts in (("form", traffic.form), ("query", traffic.query)):
        for name, kinds in texts.items():
            for kind, count in kinds.items():
                yield WatchedMember(part, (), (name,), kind, count)
    for kind in traffic.answers:
        yield WatchedMember("answer", (), (), kind, 1)
    for name in traffic.columns:
        yield WatchedMember("column", (), (name,), "", 1)
    for name in traffic.heads:
        yield WatchedMember("head", (), (name,), "", 1)
    for status, path in traffic.redirects.items():
        yield WatchedMember("redirect", (), (path,), str(status), 1)
    whole = [("files", traffic.files), ("sentences", traffic.sentences)]
    whole.append(("codes", bool(traffic.questions)))
    yield from (WatchedMember(part, (), (), "", 1) for part, met in whole if met)


def _traffic(members: Iterable[WatchedMember]) -> RequestTraffic:
    traffic = RequestTraffic()
    texts = {"form": traffic.form, "query": traffic.query}
    names = {"column": traffic.columns, "head": traffic.heads}
    for one in members:
        if one.part in _OF_KINDS and one.member and one.kind not in FIELD_KINDS:
            continue  # written by another program
        match one.part:
            case "form" | "query" if one.member:
                texts[one.part].setdefault(one.member[0], Counter())[one.kind] += one.count
            case "files":
                traffic.files = True
            case "sentences":
                traffic.sentences = True
            case "codes":
                traffic.questions["response", ()] = CODES
            case "answer":
                traffic.answers.add(one.kind)
            case "column" | "head" if one.member:
                names[one.part].append(one.member[0])
            case "redirect" if one.member and one.kind.isdecimal():
                traffic.redirects[int(one.kind)] = nobodys_shape(one.member[0])
            case "request" | "response":
                at = one.part, one.owner
                objects = traffic.places.setdefault(at, SuspectedObjects())
                if one.member:
                    objects.fields.setdefault(one.member, Counter())[one.kind] += one.count
                objects.has_id |= not one.member
    return traffic


def learn_coverage(contents: Sequence[bytes], endpoint: str | None) -> tuple[Lessons | None, str]:
    """Learn of an endpoint from coverage files of instances, or workers; also give its name.
    Nothing is learnt where they are other files.

    Raises ``VaultError(BAD_REQUEST)`` where it is not clear which endpoint is meant, or nothing was
    met.
    """
    try:
        files = [msgspec.json.decode(content, type=_CoverageFile) for content in contents]
    except (msgspec.MsgspecError, RecursionError):
        return None, endpoint or "app"
    paths = [path for file in files for path in file.unknown]
    names = sorted({one.endpoint for one in paths if _ENDPOINT.fullmatch(one.endpoint)})
    if len(names) > 1 and endpoint not in names:
        text = f"Several endpoints were met: say --name with one of {', '.join(names)}."
        raise VaultError(Code.BAD_REQUEST, text)
    name = endpoint or min(names, default="app")
    met = min(names, default="") if len(names) < 2 else name
    addresses = (one.upstreams.get(met, "") for one in files)
    origin = next(filter(_UPSTREAM.fullmatch, addresses), UNKNOWN_UPSTREAM)
    several = [one for one in paths if len(names) < 2 or one.endpoint == name]
    return learn_watched(several, origin), name


def learn_watched(paths: Iterable[WatchedPath], origin: str = UNKNOWN_UPSTREAM) -> Lessons:
    """Learn from what instances have met of requests that no rule names; ``origin``: where their
    application listens.

    Raises ``VaultError(BAD_REQUEST)`` where there are none.
    """
    lessons = Lessons(origin, "requests that an instance has met", frozenset())
    members: dict[tuple[str, str], list[WatchedMember]] = {}
    counts = Counter[tuple[str, str]]()
    for one in paths:
        shape = nobodys_shape(one.path)
        if not shape.startswith("/") or not _TOKEN.fullmatch(one.method + shape):
            # those that are counted together, and what no instance has written
            text = "their paths are too many to tell apart, or not in the form of an instance"
            lessons.left_out.append(LeftOut("", f"{one.count} requests", text))
            continue
        key = one.method, shape
        counts[key] += one.count
        members[key] = joined_members(members.get(key, ()), one.members)
        traffic = lessons.operations[key] = _traffic(members[key])
        traffic.count = counts[key]
        traffic.pages.update({*one.kinds} & {*SUSPECTED})
    if not lessons.operations:
        text = "Nothing was met that no rule names: let requests pass the proxy first."
        raise VaultError(Code.BAD_REQUEST, text)
    return lessons


#: What restores an answer of a kind, and stands in its rule.
_RESTORING: Final = {
    "html": "restore: html, columns: {HEAD: FIELD}",
    "csv": "restore: csv, columns: {COLUMN: FIELD}, id: column ID",
}
_LEARNS: Final = "domicile rules learn"


def next_step(
    request: str, places: Collection[str], members: Iterable[WatchedMember], entities: set[str]
) -> str:
    """The next step about a path in which values are suspected: the rule of a page or an export,
    or the command that proposes one.

    ``places``: those of the values; ``entities``: of the application.
    """
    answers = [one.kind for one in members if one.part == "answer" and one.kind in _RESTORING]
    if not answers or {*places} != {"answer"} or not request.startswith("GET "):
        return _LEARNS
    entity = min(entities) if len(entities) == 1 else "ENTITY"
    words = f"read: {entity}, response: {{{_RESTORING[answers[0]]}}}"
    return f'{{match: "{request}", {words}}}'


def steps_in_words(unknown: Iterable[Mapping[str, Any]]) -> list[str]:
    """The next steps of paths that no rule names, as lines; ``unknown``: as coverage tells them."""
    steps = [one["next"] for one in unknown if "next" in one]
    rules = [f"  - {one}" for one in steps if one != _LEARNS]
    pages = "Pages and exports show tokens, which may look like values, until a rule restores them:"
    learns = f"Rules for paths in which values are suspected are proposed by: {_LEARNS}"
    return [*([pages, *rules] if rules else []), *([learns] if steps else [])]


def whole_json(text: str) -> str:
    """JSON that is cut off, without what is not whole and with what is open closed.

    Of a list the elements that are whole are left. Other texts stay as they are.
    """
    if text[:1] not in _CLOSING:
        return text
    opened: list[str] = []
    end, left = 0, ""
    for part in _JSON_PART.finditer(text):
        sign = part[0]
        if sign in _CLOSING:
            opened.append(_CLOSING[sign])
        elif sign in ("}", "]"):
            if not opened or opened.pop() != sign:
                return text
            end, left = part.end(), "".join(reversed(opened))
    return text if not opened else text[:end] + left


def joined_recordings(contents: Iterable[bytes]) -> bytes:
    """Several HAR files as one. Raises ``VaultError(BAD_REQUEST)`` where one is something else."""
    entries: list[Any] = []
    try:
        for content in contents:
            entries += msgspec.json.decode(content)["log"]["entries"]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        text = (
            "Only HAR files, or only coverage files, may be several: name one document at a time."
        )
        raise VaultError(Code.BAD_REQUEST, text) from None
    return msgspec.json.encode({"log": {"entries": entries}})

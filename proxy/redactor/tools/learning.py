"""Proposes a rule file from what is known of an application: recorded traffic (a HAR file) or an
OpenAPI document. A proposal names paths, members, kinds and counts, never a value.

Recorded words may be somebody's, so a path or member has only words that many interfaces have, or
that the operator says are nobody's. A document of an interface is taken at its word. Pure.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from proxy.errors import Code, VaultError
from proxy.redactor.coverage import PathShapes
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from proxy.redactor.suspicions import suspected
from proxy.redactor.tools.lessons import (
    FILE,
    IDS,
    UNDESCRIBED,
    UNKNOWN_PART,
    UNKNOWN_UPSTREAM,
    LeftOut,
    Lessons,
    MemberPath,
    RequestTraffic,
    SuspectedObjects,
    beside_person,
    kind_of,
    last_name,
)
from proxy.redactor.tools.page_lessons import note_page
from proxy.redactor.tools.path_roles import note_removed
from proxy.redactor.tools.public_words import (
    decoded_text,
    public_words,
    recorded_files,
    recorded_request,
)
from proxy.redactor.tools.schema_examples import (
    BY_FORMAT,
    MOST_IN_BODY,
    MOST_LEVELS,
    example,
    open_places,
    resolved,
)

#: A text of a form with files: its name, and what it is.
_PART: Final = re.compile(
    r'(?is)content-disposition: *form-data; *name="([^"\r\n]*)"\r?\n\r?\n(.*?)\r?\n--'
)
_FILE: Final = BY_FORMAT["binary"]
#: Places in a list, as nested forms name them: ``user[addresses][0][street]``.
_NUMBERED: Final = re.compile(r"\[\d*\]")
_WEB: Final = re.compile(r"https?://[\w.\[\]:-]+(?:[/?#]|\Z)", re.IGNORECASE)
_METHOD: Final = re.compile(r"[A-Za-z-]{1,20}")
#: Characters of a value that are looked at.
_LONGEST: Final = 256
#: Answers that are the same for everybody.
_PROGRAM: Final = re.compile(r"javascript|css|image|font|wasm")


def learn_har(document: Any, words: Collection[str]) -> Lessons:
    """Learn from a HAR file about the application that most of its requests went to."""
    try:
        every = [(one["request"], one["response"]) for one in document["log"]["entries"]]
        # a browser records addresses of its own, too: data:, blob:, chrome-extension:
        entries = [
            one
            for one in every
            if _WEB.match(one[0]["url"]) and _METHOD.fullmatch(one[0]["method"])
        ]
        origins = Counter(_origin(request["url"]) for request, _ in entries)
        origin = origins.most_common(1)[0][0]
        own = frozenset(word.lower() for word in words)
        own_entries = [one for one in entries if _origin(one[0]["url"]) == origin]
        public = public_words(map(recorded_request, own_entries), own)
        shapes = PathShapes(f"/{word}" for word in own | public.paths)
        own |= public.members
        lessons = Lessons(origin, f"a HAR file with {len(entries)} requests", own)
        paths = (urlsplit(one["url"]).path for one, _ in own_entries)
        addressed = {part for path in paths for part in path.split("/") if part}
        for _ in range(2):  # the second time with the values that the first has seen
            lessons = Lessons(origin, lessons.source, own, values=lessons.values)
            lessons.addressed = frozenset(addressed)
            for request, response in own_entries:
                _learn_entry(lessons, shapes, request, response)
        if foreign := len(entries) - len(own_entries):
            text = f"most requests go to {origin}: record the others for themselves"
            which = f"{foreign} of {len(entries)} requests, to other addresses"
            lessons.left_out.append(LeftOut("", which, text))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        raise VaultError(
            Code.BAD_REQUEST, "This is no HAR file with requests: log.entries is missing or broken."
        ) from None
    return lessons


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _learn_entry(
    lessons: Lessons, shapes: PathShapes, request: Mapping[str, Any], response: Mapping[str, Any]
) -> None:
    parts = urlsplit(request["url"])
    path = _shape_of(shapes, parts.path)
    traffic = lessons.operations.setdefault(
        (str(request["method"]).upper(), path), RequestTraffic()
    )
    traffic.count += 1
    note_texts(lessons, traffic, "query", parse_qsl(parts.query, keep_blank_values=True))
    posted, fields = request.get("postData") or {}, _fields(request)
    media = str(posted.get("mimeType") or fields.get("content-type", ""))
    text = str(posted.get("text") or "")
    pairs = [(one["name"], one.get("value", "")) for one in posted.get("params") or ()]
    traffic.files |= "multipart/" in media
    # browsers leave out the bodies of uploads
    traffic.writes |= bool(pairs or text) or fields.get("content-length", "0") != "0"
    if "x-www-form-urlencoded" in media:
        note_texts(lessons, traffic, "form", pairs or parse_qsl(text))
    elif not learn_body(lessons, traffic, "request", text):
        traffic.pages.update(suspected(text[: _LONGEST * 256]))
        if traffic.files:
            note_texts(lessons, traffic, "form", pairs or _PART.findall(text))
            note_texts(lessons, traffic, "form", [(one, _FILE) for one in recorded_files(posted)])
    if 200 <= int(response["status"]) < 400:
        learn_answer(lessons, traffic, response)
        method = str(request["method"]).upper()
        note_removed(lessons, (method, parts.path, path), traffic, int(response["status"]))
        if leads := _leads(response):
            following = urlsplit(leads).path
            shape = traffic.redirects[int(response["status"])] = _shape_of(shapes, following)
            last = following.rstrip("/").rpartition("/")[2]
            named = last in parts.path.split("/") or not any(map(str.isdigit, last))
            traffic.makes |= shape.endswith("{id}") and not named
    else:
        traffic.failed += 1


def _shape_of(shapes: PathShapes, path: str) -> str:
    return nobodys_shape(shapes.shape((path or "/").encode()))


def _leads(response: Mapping[str, Any]) -> str:
    """The address that an answer redirects to; empty for none."""
    if not 300 <= int(response["status"]) < 304:
        return ""
    return _fields(response).get("location") or str(response.get("redirectURL") or "")


def _fields(message: Mapping[str, Any]) -> dict[str, str]:
    """Its header fields, by their names in lower case."""
    return {str(one["name"]).lower(): str(one["value"]) for one in message.get("headers") or ()}


def learn_answer(lessons: Lessons, traffic: RequestTraffic, response: Mapping[str, Any]) -> None:
    """Learn from an answer, as a HAR file has it."""
    content = response.get("content") or {}
    text = str(content.get("text", ""))
    if content.get("encoding") == "base64":
        text = decoded_text(text)
    if learn_body(lessons, traffic, "response", text):
        return
    media = str(content.get("mimeType", ""))
    again = [] if _PROGRAM.search(media) else lessons.values.kinds_in(text[: _LONGEST * 256])
    traffic.pages.update({*suspected(text[: _LONGEST * 256]), *again})
    if text and "html" in media:
        note_page(lessons, traffic, text)
    if text and "csv" in media:
        traffic.answers.add("csv")
        names = [one.strip('" ') for one in re.split(r"[,;\t|]", text.partition("\n")[0].strip())]
        traffic.columns = [one for one in names if lessons.name_of(one)]


def note_texts(
    lessons: Lessons, traffic: RequestTraffic, part: str, texts: Sequence[tuple[str, str]]
) -> None:
    """Note the kinds of named texts: members of a ``form``, or parameters of a ``query``."""
    noted = traffic.form if part == "form" else traffic.query
    of_person = beside_person(texts)
    for name, text in sorted(texts, key=lambda one: one[1] == _FILE):
        kind = kind_of(last_name(name), text, of_person=of_person)
        if text == _FILE:  # a document does not tell whether a file alone is a table of people
            kind = FILE if noted or lessons.words is not None else ""
        visible = lessons.name_of(_NUMBERED.sub("[*]", name))
        lessons.note(traffic, (part, (visible or "{word}",)), kind, text)
        if kind and visible:
            noted.setdefault(visible, Counter())[kind] += 1
        elif kind:
            traffic.unnamed[part] += 1


def learn_body(lessons: Lessons, traffic: RequestTraffic, direction: str, text: str) -> bool:
    """Whether a body is JSON, and then what stands in it."""
    try:
        document = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return False
    budget = [MOST_IN_BODY]
    _walk(_Walk(lessons, traffic, direction, budget), document, (), None)
    return True


@dataclass(slots=True)
class _Walk:
    lessons: Lessons
    traffic: RequestTraffic
    direction: str
    budget: list[int]


def _walk(walk: _Walk, value: Any, path: MemberPath, owner: MemberPath | None) -> None:
    """Note what an object holds of a person, at the place of the object that owns it."""
    walk.budget[0] -= 1
    if walk.budget[0] < 0 or len(path) > MOST_LEVELS:
        walk.traffic.cut = True
        return
    if isinstance(value, list):
        for one in value:
            _walk(walk, one, (*path, "[*]"), owner)
        return
    if isinstance(value, str):  # of a list: other texts are noted with their object
        names = ["", *(one for one in path if one != "[*]")]
        _note_text(walk, path, value, owner, kind_of(names[-1], value))
    if isinstance(value, dict):
        _walk_object(walk, value, path, owner)


def _walk_object(
    walk: _Walk, value: Mapping[str, Any], path: MemberPath, owner: MemberPath | None
) -> None:
    texts = {name: one for name, one in value.items() if isinstance(one, str)}
    of_person = beside_person(texts.items())
    has_id = "id" in value
    if owner is None and (of_person or has_id):
        owner = path
    elif has_id and of_person:
        owner = path  # an object of its own
    if owner is not None:
        objects = walk.traffic.places.setdefault((walk.direction, owner), SuspectedObjects())
        objects.has_id |= has_id and owner == path
        if owner == path:
            addressed = walk.lessons.addressed
            objects.ids.update(one for one in IDS if str(value.get(one, "")) in addressed)
            objects.has_id |= bool(objects.ids)
    of_person |= owner is not None and owner != path
    for name, text in texts.items():
        kind = kind_of(name, text, of_person=of_person)
        _note_text(walk, (*path, walk.lessons.name_of(name) or ""), text, owner, kind)
    for name, one in value.items():
        if not isinstance(one, dict | list):
            continue
        if visible := walk.lessons.name_of(name):
            _walk(walk, one, (*path, visible), owner)
        else:
            walk.traffic.unnamed[walk.direction] += 1


def _note_text(
    walk: _Walk, path: MemberPath, text: str, owner: MemberPath | None, kind: str
) -> None:
    """Note a text by its path, the last name of which is empty if it is not told."""
    where = walk.direction, tuple(one or "{word}" for one in path)
    walk.lessons.note(walk.traffic, where, kind, text)
    if not kind:
        return
    owner = owner or ()  # a list that no object with an id has: the whole body is one
    member = path[len(owner) :]
    if not all(member):
        walk.traffic.unnamed[walk.direction] += 1
        return
    objects = walk.traffic.places.setdefault((walk.direction, owner), SuspectedObjects())
    objects.fields.setdefault(member, Counter())[kind] += 1
    walk.traffic.dates.update(member[-1:] if text == BY_FORMAT["date"] else ())


# ---------------------------------------------------------------------- a described interface

_METHODS: Final = ("post", "get", "put", "patch", "delete")
_WRITE: Final = ("post", "put", "patch")


def learn_openapi(document: Any) -> Lessons:
    """Learn from an OpenAPI document (3, or Swagger 2), by names and formats alone."""
    try:
        servers = document.get("servers") or [{"url": UNKNOWN_UPSTREAM}]
        parts = urlsplit(str(servers[0].get("url", "")))
        base = str(document.get("basePath", parts.path)).rstrip("/")
        origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else UNKNOWN_UPSTREAM
        paths = document["paths"]
        lessons = Lessons(origin, f"an OpenAPI document with {len(paths)} paths", None)
        every = [(path, method, item) for path, item in paths.items() for method in _METHODS]
        for path, method, item in (one for one in every if one[1] in one[2]):
            template = re.sub(r"\{([^{}]*)\}", _placeholder, base + path)
            traffic = lessons.operations[method.upper(), template] = RequestTraffic()
            described = _learn_operation(document, lessons, traffic, item[method])
            if not described and (method in _WRITE or "requestBody" in item[method]):
                traffic.questions["request", ()] = UNDESCRIBED  # many forget their bodies
    except (KeyError, TypeError, IndexError, AttributeError):
        raise VaultError(Code.BAD_REQUEST, "This OpenAPI document has no readable paths.") from None
    return lessons


def _placeholder(match: re.Match[str]) -> str:
    return "{" + re.sub(r"\W", "_", match[1]) + "}"


def _learn_operation(
    document: Any, lessons: Lessons, traffic: RequestTraffic, operation: Mapping[str, Any]
) -> bool:
    """Learn from an operation; whether it says that it has a body, and of which form."""
    form, body = [], False
    for one in operation.get("parameters") or ():
        parameter = resolved(document, one)
        name = str(parameter.get("name", ""))
        if parameter.get("in") == "query" and (kind := kind_of(name, None)):
            traffic.query.setdefault(name, Counter())[kind] += 1
        if parameter.get("in") == "body":
            body = True
            _learn_schema(document, lessons, traffic, ("request", parameter.get("schema") or {}))
        if parameter.get("in") == "formData":
            of_file = parameter.get("type") == "file"
            traffic.files |= of_file
            written_as = "binary" if of_file else str(parameter.get("format", ""))
            form.append((name, BY_FORMAT.get(written_as, "x")))
    note_texts(lessons, traffic, "form", form)
    content = resolved(document, operation.get("requestBody") or {}).get("content") or {}
    _learn_content(document, lessons, traffic, ("request", content))
    for status, answer in (operation.get("responses") or {}).items():
        if str(status).startswith("2"):
            said = resolved(document, answer)
            _learn_content(document, lessons, traffic, ("response", said.get("content") or {}))
            _learn_schema(document, lessons, traffic, ("response", said.get("schema")))
    return bool(body or form or content)


def _learn_content(
    document: Any, lessons: Lessons, traffic: RequestTraffic, part: tuple[str, Mapping[str, Any]]
) -> None:
    direction, content = part
    for media, described in content.items():
        schema = (described or {}).get("schema")
        value = example(document, schema, [MOST_IN_BODY])
        multipart = direction == "request" and "multipart/" in media
        traffic.files |= multipart
        if "json" in media or "*" in media:
            _walk(_Walk(lessons, traffic, direction, [MOST_IN_BODY]), value, (), None)
        elif (multipart or "x-www-form-urlencoded" in media) and isinstance(value, dict):
            every = ((name, one if isinstance(one, list) else [one]) for name, one in value.items())
            texts = [(name, str(one)) for name, several in every for one in several]
            note_texts(lessons, traffic, "form", texts)
        elif direction == "request":
            traffic.questions["request", ()] = UNDESCRIBED
        if direction == "request":
            places = open_places(document, schema, [MOST_IN_BODY])
            traffic.questions.update({("request", one): UNDESCRIBED for one in places})


def _learn_schema(
    document: Any, lessons: Lessons, traffic: RequestTraffic, part: tuple[str, Any]
) -> None:
    if part[1] is not None:
        described = {"application/json": {"schema": part[1]}}
        _learn_content(document, lessons, traffic, (part[0], described))


def nobodys_shape(shape: str) -> str:
    """The shape of a path, without words that may be somebody's."""
    return re.sub(r"\{(?:word|rest\*)(\d*)\}", lambda one: f"{UNKNOWN_PART}{one[1]}}}", shape)


def learn(content: bytes, words: Iterable[str]) -> Lessons:
    """Learn from a file of either kind. Raises ``VaultError(BAD_REQUEST)``."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        tree = read_tree(content.decode("utf-8", "replace"), "source", RuleFaults())
        document = plain_values(tree) if tree is not None else None
    if isinstance(document, dict) and "log" in document:
        return learn_har(document, frozenset(words))
    if isinstance(document, dict) and ("openapi" in document or "swagger" in document):
        return learn_openapi(document)
    raise VaultError(
        Code.BAD_REQUEST,
        "The file is neither a HAR file (log.entries) nor an OpenAPI document (openapi, swagger).",
    )


def sources(lessons: Lessons) -> Iterator[tuple[str, str, RequestTraffic]]:
    """Method, path and what is known, paths in order and collections before their members."""
    order = {method.upper(): number for number, method in enumerate(_METHODS)}
    for method, path in sorted(lessons.operations, key=lambda one: (one[1], order.get(one[0], 9))):
        yield method, path, lessons.operations[method, path]

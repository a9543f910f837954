"""Envelopes: a JSON document that carries several requests, and the one that carries their answers.

Pure functions on bytes: what each of them is, and where it stands. ``exchange.envelope`` matches
them to rules as if they came alone.
"""

import re
import unicodedata
from collections.abc import Sequence

import msgspec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value, spell
from proxy.redactor.checks import Outline
from proxy.redactor.json.tree import Located, read_json_value, write_json_value
from proxy.redactor.json.walk import walk
from proxy.redactor.message import RawHeaders, Request
from proxy.redactor.request_rules import EnvelopeRule
from proxy.redactor.restore import Edit
from proxy.redactor.select import Selection

#: Requests that one envelope may carry: each is stored for itself.
MOST_REQUESTS = 200
#: Of each of them, as a server bounds the head of a request: characters of its path, its header
#: fields, and bytes of those.
_LONGEST_PATH = 8192
_MOST_FIELDS = 100
_LONGEST_FIELDS = 65536

_ADDRESS = re.compile(r"(?:https?://[^/?#]*)?(?=/)", re.IGNORECASE)
#: What begins as an absolute address does and is none, for some library.
_NEARLY = re.compile(r"https?:|[a-z][a-z0-9+.-]*:[/\\\\]", re.IGNORECASE)
#: A method, or the name of a header field (RFC 9110 section 5.6.2).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Characters that a header must not contain.
_UNFIT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class InnerRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of an envelope, with the positions of its parts."""

    method: str
    targets: tuple[str, ...]  #: its address, in every reading; the first is its own
    added: int  #: characters of that which are not in the envelope
    removed: str  #: part before it in the envelope
    headers: RawHeaders
    body: bytes
    id: bytes | None
    path_at: tuple[int, int] | None
    body_at: tuple[int, int] | None


class InnerAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer of an envelope, with the positions of its parts."""

    status: int | None  #: ``None``: it does not say
    headers: RawHeaders
    body: bytes
    id: bytes | None
    body_at: tuple[int, int]  #: where it has none, the answer as a whole
    #: where the value of each header field stands
    fields_at: tuple[tuple[int, int], ...]
    taken: bool  #: whether it has a body at its place


class CarriedRequest(msgspec.Struct, gc=False):
    """Outcome of one request of an envelope, for metrics."""

    method: str
    target: bytes
    label: str  #: of the rule that names it; empty: none does
    body: bytes
    status: int = 0  #: of its answer; 0: unknown
    answer: bytes = b""


class EnvelopeReader:
    """Reads the envelopes of one operation; made when rules load."""

    def __init__(self, rule: EnvelopeRule, label: str, depth: int) -> None:
        self._rule = rule
        self._label = label
        self._depth = depth
        ident = rule.id or ()
        parts = {"method": rule.method, "path": rule.path, "headers": rule.headers}
        parts |= {"body": rule.body, "id": ident}
        self._parts = [name for name, path in parts.items() if path]
        leaves = [path for path in parts.values() if path]
        self._requests = Selection(rule.each, leaves, nested=True)
        self._outline = Outline(rule.each, leaves, ())
        answered = {"status": rule.status, "headers": rule.answer_headers}
        answered |= {"body": rule.answer_body, "id": ident}
        self._answered = [name for name, path in answered.items() if path]
        self._answers = Selection(rule.answers, [path for path in answered.values() if path])

    def requests(self, body: bytes) -> list[InnerRequest]:
        """The requests in an envelope. Raises ``VaultError`` where they cannot be told."""
        objects = self._requests.find(body, self._depth).objects
        if len(objects) > MOST_REQUESTS:
            raise self._too_large(f"more than {MOST_REQUESTS} requests: send fewer")
        if self._outline.strayed(body):
            raise self._refusal("something else stands where its requests should")
        return [self._request(body, one) for one in objects]

    def answers(self, body: bytes) -> list[InnerAnswer]:
        """The answers in an envelope. Raises ``VaultError`` where they cannot be told."""
        return [self._answer(body, one) for one in self._answers.find(body, self._depth).objects]

    def _request(self, body: bytes, one: Located) -> InnerRequest:
        parts = {self._parts[leaf.name]: (leaf.start, leaf.end) for leaf in one.leaves}
        method = self._text(body, parts.get("method")) or self._rule.defaults[0]
        path = self._text(body, parts.get("path"))
        path_at = parts.get("path") if path else None
        path = path or self._rule.defaults[1]
        if not method or not path:
            raise self._refusal("one of its requests names no method or no path")
        if len(path) > _LONGEST_PATH:
            raise self._too_large(f"a path of more than {_LONGEST_PATH} characters")
        if _TOKEN.fullmatch(method) is None or not _is_written_out(path):
            raise self._refusal(
                "the method or the path of one of its requests holds a space or another sign that "
                "libraries leave out: escape it"
            )
        targets, added, removed = self._targets(path)
        content = parts.get("body")
        if content is not None and body[content[0] : content[1]] == b"null":
            content = None
        headers, _ = self._fields(body, parts.get("headers"))
        raw = b"" if content is None else body[content[0] : content[1]]
        ident = _slice(body, parts.get("id"))
        return InnerRequest(method, targets, added, removed, headers, raw, ident, path_at, content)

    def _targets(self, path: str) -> tuple[tuple[str, ...], int, str]:
        """Return the possible addresses of a path.

        Also returns the number of characters added for the first, and the omitted start.
        """
        base = self._rule.base
        address = _ADDRESS.match(path)
        if address is None:
            if not base or _NEARLY.match(path) is not None:
                raise self._refusal("the path of one of its requests does not begin with a slash")
            return (base + path,), len(base), ""
        rooted = path[address.end() :]
        others = (base.rstrip("/") + rooted,) if base else ()
        return (rooted, *others), 0, address[0]

    def _answer(self, body: bytes, one: Located) -> InnerAnswer:
        parts = {self._answered[leaf.name]: (leaf.start, leaf.end) for leaf in one.leaves}
        status = _slice(body, parts.get("status")) or b""
        digits = status.strip(b'"')
        code = int(digits) if len(digits) == 3 and digits.isdigit() else None
        headers, fields_at = self._fields(body, parts.get("headers"))
        at = parts.get("body")
        taken = at is not None and body[at[0] : at[1]] != b"null"
        at = at if taken and at is not None else (one.start, one.end)
        ident = _slice(body, parts.get("id"))
        return InnerAnswer(code, headers, body[at[0] : at[1]], ident, at, fields_at, taken)

    def _fields(
        self, body: bytes, at: tuple[int, int] | None
    ) -> tuple[RawHeaders, tuple[tuple[int, int], ...]]:
        """Header fields, an object of texts, and where each value stands."""
        raw = b"null" if at is None else body[at[0] : at[1]]
        if at is None or raw == b"null":
            return (), ()
        if len(raw) > _LONGEST_FIELDS:
            raise self._too_large(f"header fields of more than {_LONGEST_FIELDS} bytes")
        try:
            named = msgspec.json.decode(raw, type=dict[str, str])
        except (msgspec.DecodeError, RecursionError):
            named = None
        if named is None or not all(map(_is_field, named.items())):
            raise self._refusal("header fields in it are no object of texts")
        if len(named) > _MOST_FIELDS:
            raise self._too_large(f"more than {_MOST_FIELDS} header fields in one of its requests")
        # names are the caller's: nothing is compiled for them, or kept
        leaves = walk(None, (), [(name,) for name in named], raw, self._depth).anchored
        if len(leaves) != len(named):
            raise self._refusal("a header field stands in it twice")
        spans = {leaf.name: (at[0] + leaf.start, at[0] + leaf.end) for leaf in leaves}
        fields = tuple((name.encode(), text.encode()) for name, text in named.items())
        return fields, tuple(spans[number] for number in range(len(named)))

    def _text(self, body: bytes, at: tuple[int, int] | None) -> str:
        value = None if at is None else read_json_value(body[at[0] : at[1]])
        if value is None:
            return ""
        if value.json:
            raise self._refusal("the method or the path of one of its requests is no text")
        return value.text

    def _too_large(self, what: str) -> VaultError:
        return VaultError(Code.TOO_LARGE, f"The request matches {self._label}, and carries {what}.")

    def _refusal(self, what: str) -> VaultError:
        return VaultError(Code.BAD_REQUEST, f"The request matches {self._label}, and {what}.")


def paired(
    requests: Sequence[InnerRequest], answers: Sequence[InnerAnswer], *, by_id: bool
) -> list[InnerAnswer | None]:
    """The answer of each request: by ids, or by order if there are as many; else none."""
    if not by_id:
        return list(answers) if len(answers) == len(requests) else [None] * len(requests)
    named: dict[bytes, list[InnerAnswer]] = {}
    for answer in answers:
        if answer.id is not None:
            named.setdefault(answer.id, []).append(answer)
    wanted = [one.id for one in requests]
    return [
        named[one][0]
        if one is not None and len(named.get(one, ())) == 1 and wanted.count(one) == 1
        else None
        for one in wanted
    ]


def _is_field(field: tuple[str, str]) -> bool:
    name, text = field
    return _TOKEN.fullmatch(name) is not None and _UNFIT.search(text) is None


def _is_written_out(path: str) -> bool:
    """Whether a path holds no white space, and no signs of control or format."""
    if path.isascii():
        return path.isprintable() and " " not in path
    return not any(unicodedata.category(sign)[0] in "CZ" for sign in path)


def envelope_in_words(rule: EnvelopeRule) -> dict[str, str]:
    """The rule as ``rules explain`` shows it."""
    words = {
        **{name: spell(getattr(rule, name)) for name in ("each", "method", "path", "headers")},
        "body": spell(rule.body),
        "id": "their order" if rule.id is None else spell(rule.id),
        "base": rule.base,
        "defaults": " ".join(filter(None, rule.defaults)),
        "answers": spell(rule.answers),
        "status": spell(rule.status),
        "answer headers": spell(rule.answer_headers),
        "answer body": spell(rule.answer_body),
    }
    return {name: text for name, text in words.items() if text}


def _slice(body: bytes, at: tuple[int, int] | None) -> bytes | None:
    return None if at is None else body[at[0] : at[1]]


def edits_of(one: InnerRequest, came: Request, sent: Request) -> list[Edit]:
    """Return the edits that turn an inner request into its redacted form."""
    edits: list[Edit] = []
    if sent.target != came.target:
        text = sent.target.decode("utf-8", "surrogatepass")
        if one.path_at is None or text[: one.added] != one.targets[0][: one.added]:
            raise VaultError(Code.BAD_REQUEST, "A value stands where its envelope has a constant.")
        path = f"{one.removed}{text[one.added :]}"
        edits.append((*one.path_at, write_json_value(Value(path))))
    if sent.body != came.body and one.body_at is not None:
        edits.append((*one.body_at, sent.body))
    return edits

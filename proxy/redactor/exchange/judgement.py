"""Answers of success that say in their body that nothing was done, and under which id a record is.

Many applications answer a refusal with 200, and tell it in the body. Where the rule does not say
itself what success is, such a change is in doubt: both versions stay until an answer shows the
record, for a body that only looks like a refusal must lose nothing either.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from proxy.errors import VaultError
from proxy.offload import SMALL, is_long, run_in_thread
from proxy.redactor.bodies.xml_bodies import read_any_answer
from proxy.redactor.exchange.settle import answer_ids, named_of
from proxy.redactor.exchange.writing import Writing
from proxy.redactor.inner_texts import is_xml
from proxy.redactor.json.text import unwrapped
from proxy.redactor.message import RawHeaders, Request, Response, header, numeric_id
from proxy.redactor.named_places import may_be_several, names_ids
from proxy.redactor.plan import body_plan
from proxy.redactor.redact import ParsedBody
from proxy.redactor.restore import EscapingKinds, surroundings
from proxy.redactor.rules import IdPlace, IdSource, Operation, Verb
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import TEXT, read_xml_document

#: Bytes of an answer that is read for this alone; a longer one counts as its status says.
MOST: Final = 65_536
#: Members of which any content is a mistake, those that are false after one, and those that hold
#: a status, in whatever letter case.
_MISTAKES = frozenset(
    ("errors", "error", "errorcode", "error_code", "errcode", "errno", "exception")
)
_NO_MISTAKES: tuple[Any, ...] = (None, False, "", "0", [], {})
_VERDICTS = frozenset(("success", "issuccess", "is_success", "succeeded", "ok"))
_CODES = frozenset(("status", "code", "statuscode", "status_code"))
_STATUSES = frozenset(("error", "errors", "fail", "failed", "failure"))  #: of JSend, and others
#: How many records a database changed, as applications pass that on; and words that say so only
#: where nothing else stands beside them, which a record would have.
_COUNTS = frozenset(
    "deletedcount deleted_count removedcount matchedcount matched_count modifiedcount "
    "modified_count updatedcount updated_count affected affectedrows affected_rows rowsaffected "
    "rows_affected rowcount row_count numaffected numremoved nmodified nremoved".split()
)
_LONE_COUNTS = frozenset(("count", "n", "changes", "deleted", "updated", "removed", "modified"))
_WITH_COUNTS = frozenset(
    "acknowledged upsertedid upsertedcount insertid lastinsertid lastinsertrowid raw ok message "
    "msg optime electionid operationtime $clustertime reason index".split()
)
#: Members that may as well be a record's own, where one of the other names shows that it is one.
_SAID = _CODES | {"result"}
_IDS = frozenset(("id", "_id", "pk", "uuid"))
#: Members that hold the whole of an answer, and how many of them stand round one another.
_WRAPPERS = frozenset(("data", "result", "results", "payload", "response", "body", "content", "d"))
_WRAPPED: Final = 2
#: All that results of a change consist of, beside the id.
_OF_A_RESULT = _COUNTS | _LONE_COUNTS | _WITH_COUNTS | _SAID | _MISTAKES | _VERDICTS
#: What JSON has that says one of these; an answer without it, as nearly all are, is not read.
HINT: Final = re.compile(
    rb'"(?:err|exception"|ok"|(?:is_?)?succe|fail|status|code"|[a-z_]*errors"|(?:[a-z_]+count'
    rb"|count|n|result|changes|(?:rows_?)?affected(?:_?rows)?|num(?:affected|removed)|nmodified"
    rb'|nremoved|deleted|updated|removed|modified)"\s*:\s*(?:0|false))',
    re.IGNORECASE,
)
#: What is answered in place of a record that was not found (``findOneAndUpdate``, ``[0]`` rows),
#: and by some after a success.
_NOTHING: Final = re.compile(rb'\s*(?:null|false|0|""|\[\s*(?:0|null|false)?\s*\])\s*')
#: Types of answers whose application has not said that they are JSON.
_UNNAMED: Final = (b"text/html", b"text/plain", b"text/javascript")
_TOP: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: Header fields of a request that choose no part of a list, as far as applications are known.
_CHOOSE_NOTHING: Final = frozenset(
    b"host origin referer accept accept-encoding accept-language accept-charset user-agent "
    b"connection upgrade-insecure-requests cache-control pragma te dnt via priority date cookie "
    b"authorization forwarded x-real-ip x-request-id x-correlation-id x-requested-with "
    b"traceparent tracestate".split()
)
_CALLER: Final = re.compile(rb"sec-|x-forwarded-|x-b3-|.*(auth|token|key|csrf|xsrf|session)")
#: Further fields of a read of one record that do not say which one.
_OF_ONE: Final = frozenset(b"content-type content-length if-none-match if-modified-since".split())

_Read = Callable[[Response, bool], Awaitable[ParsedBody | None]]


def tells_refusal(body: bytes) -> bool:
    """Whether a JSON object says at its top level, or in a member that holds the whole of an answer
    (``data``, ``result``), that a request was refused.

    That is an ``errors`` or ``error`` that is not empty, a ``success`` or ``ok`` that is false, or
    a ``status``, ``code`` or ``result`` of ``error`` or ``fail``, or a status of HTTP from 400 on,
    each in whatever letter case; or that no record was changed. What shows an id is a record: the
    status is its own, and within another member all that it says; so is a status in words beside
    members that no result has.
    """
    return any(_refusal(body))


_DEEPEST: Final = 64  #: levels of XML
_DIGITS: Final = 16  #: of a number
#: An element of SOAP and XML-RPC that tells of a failure, and the namespace of problem documents.
_FAULT: Final = re.compile(rb"<(?:[\w.-]+:)?[Ff]ault[\s/>]|urn:ietf:rfc:7807")


def _refusal(body: bytes) -> tuple[bool, bool]:
    """Whether it says that, and whether it says no more than that no record was changed."""
    if is_xml(body):
        return _refusal_in_xml(body)
    if HINT.search(body) is None:
        return False, False
    try:
        return _refusal_in(_TOP.decode(unwrapped(body) or body), 0)
    except (msgspec.DecodeError, RecursionError):
        return False, False  # no object, or none that can be read


def _refusal_in_xml(body: bytes) -> tuple[bool, bool]:
    """The same of XML: of the root, and of what stands alone in it, such as a result of SOAP."""
    if _FAULT.search(body) is not None or len(body) > MOST:
        return _FAULT.search(body) is not None, False
    try:
        inner = msgspec.json.decode(
            read_xml_document(body, _DEEPEST, DocumentKind.ELEMENTS).content
        )
    except VaultError:
        return False, False
    refused = unchanged = False
    while isinstance(inner, dict) and not refused:
        names = [name for name in inner if not name.startswith(("@", "#")) and name != "Header"]
        members = {
            name.removeprefix("@"): _as_member(one) for name, one in inner.items() if name[0] != "#"
        }
        level = _refusal_in(_TOP.decode(msgspec.json.encode(members)), 0)
        refused, unchanged = level[0], unchanged or level[1]
        inner = inner[names[0]][0] if len(names) == 1 and len(inner[names[0]]) == 1 else None
    return refused, unchanged and not refused


def _as_member(one: Any) -> Any:
    """An attribute, a text or elements of a name as the member of JSON that an application writes
    in their place.
    """
    if isinstance(one, str):
        text = one.strip()
        said = {"true": True, "false": False}
        return (
            int(text) if text.isdecimal() and len(text) < _DIGITS else said.get(text.lower(), text)
        )
    if isinstance(one, list):
        return _as_member(one[0]) if len(one) == 1 else [_as_member(each) for each in one]
    if not isinstance(one, dict):
        return one
    inner = {
        name: _as_member(each) for name, each in one.items() if not name.startswith(("@", "#"))
    }
    return inner or (_as_member(one[TEXT]) if isinstance(one[TEXT], str) else "")


def _refusal_in(members: dict[str, msgspec.Raw], depth: int) -> tuple[bool, bool]:
    """The same of an object that stands in so many others."""
    top = {name.lower(): raw for name, raw in members.items()}
    own = not _IDS.isdisjoint(top)
    if own and depth:
        return False, False
    unclear = own or (depth > 0 and bool(top.keys() - _OF_A_RESULT))
    refused = any(_is_refusal(*one) for one in top.items() if not (unclear and one[0] in _SAID))
    unchanged = not own and _counts_none(top)
    for name in _WRAPPERS & top.keys() if depth < _WRAPPED else ():
        if bytes(top[name])[:1] == b"{":
            inner = _refusal_in(_TOP.decode(top[name]), depth + 1)
            refused, unchanged = refused or inner[0], unchanged or inner[1]
    return refused, unchanged and not refused


def _counts_none(top: dict[str, msgspec.Raw]) -> bool:
    """Whether each count of changed records among these members is zero."""
    counts = _COUNTS & top.keys()
    if not top.keys() - _OF_A_RESULT:
        counts |= _LONE_COUNTS & top.keys()
    said = [msgspec.json.decode(top[name]) for name in counts]
    return bool(said) and all(one == 0 and one is not None for one in said)


#: Types of GraphQL that are results of a failure, and members that say nothing of a change.
_FAILURE: Final = re.compile(
    "error|fail|problem|denied|forbidden|not_?found|invalid|exception", re.IGNORECASE
)
_WORDS: Final = frozenset(("clientmutationid", "message", "messages", "code", "status"))


def verdict(values: Sequence[Any]) -> bool | None:
    """Whether the place of a field of GraphQL that changes tells that it did; else ``None``."""
    waiting, changed = [*values], False
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif not isinstance(value, dict):
            changed |= bool(value)
        elif _refusal(msgspec.json.encode(value))[0] or _lists_mistakes(value):
            return False
        else:
            changed |= any(bool(one) and name.lower() not in _WORDS for name, one in value.items())
    return True if changed else None


def _lists_mistakes(value: dict[str, Any]) -> bool:
    """Whether an object has mistakes (``userErrors``), or is of a type of failures."""
    kind = value.get("__typename") if _IDS.isdisjoint(value) else None
    listed = any(one and name.lower().endswith("errors") for name, one in value.items())
    return listed or (isinstance(kind, str) and _FAILURE.search(kind) is not None)


def _is_refusal(name: str, raw: msgspec.Raw) -> bool:
    """Whether a member of this name, in small letters, says with this JSON that it is a refusal."""
    if name in _MISTAKES:
        return msgspec.json.decode(raw) not in _NO_MISTAKES
    if name.endswith("errors"):  # validationErrors; a number is a record's own
        return isinstance(of := msgspec.json.decode(raw), dict | list) and bool(of)
    if name in _VERDICTS:
        return msgspec.json.decode(raw) in (False, 0, "false", "False")
    said = msgspec.json.decode(raw) if name in _CODES or name == "result" else None
    if isinstance(said, str):
        return said.lower() in _STATUSES
    return said is False or (type(said) is int and 400 <= said < 600 and name in _CODES)


def may_tell(headers: RawHeaders) -> bool:
    """Whether an answer with these fields is short enough, and JSON, to be read for that alone; or
    of a type that frameworks give by themselves, and of a known length: it may be JSON as well.
    """
    length, kind = header(headers, b"content-length"), header(headers, b"content-type")
    if length is not None and not (length.isdigit() and 0 < int(length) <= MOST):
        return False
    if kind is None or surroundings(kind) in (EscapingKinds.JSON, EscapingKinds.XML):
        return True
    return length is not None and kind.lower().startswith(_UNNAMED)


async def declines(
    writing: Writing | None, operation: Operation, answer: Response, read: _Read
) -> bool:
    """Whether an answer of success tells of a refusal, and names nothing that was done.

    A new record that it names was created; of a change of several records, those that it names
    were changed, unless it says of one that it was not. ``writing`` hears of these, and where
    nothing can be told.
    """
    if writing is None:
        return False
    long = len(answer.body) > SMALL and is_long(answer.body)
    refused, unchanged = await run_in_thread(long, _refusal, answer.body)
    create, changed = operation.verb is Verb.CREATE, operation.verb is Verb.UPDATE
    # some databases count no record either that had these values before
    writing.untold = _NOTHING.fullmatch(answer.body) is not None or (unchanged and changed)
    writes = writing.writes
    several = max(len(writes), len(writing.named)) > 1
    several = several or names_ids(operation) or may_be_several(operation)
    if several and not create and HINT.search(answer.body) is not None:
        ident = operation.response.id
        name = ident.path[-1:] if ident is not None else ()
        writing.refused = await run_in_thread(long, _refused_ids, answer.body, {*name, *_IDS})
    if not refused and (changed or not unchanged):
        return False
    if not (create or several or (not writes and operation.id is None)):
        return True
    ids = answer_ids(operation, (answer.status, answer.headers, await read(answer, long)))
    sent = writing.named if operation.verb is Verb.DELETE else [one.key or "" for one in writes]
    return not (named_of(sent, ids) if sent and not create else ids)


def _refused_ids(body: bytes, names: Collection[object]) -> set[str]:
    """The ids, members of these names, of records that an answer says were not changed."""
    try:
        waiting = [msgspec.json.decode(unwrapped(body) or body)]
    except (msgspec.DecodeError, RecursionError):
        return set()
    refused = set[str]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += [one for one in value.values() if isinstance(one, dict | list)]
            ids = [str(one) for name, one in value.items() if name in names]
            if ids and _refuses_one(value):
                refused.update(ids)
    return refused


def _refuses_one(result: dict[str, Any]) -> bool:
    """Whether the object beside an id says that its record was not changed. A status in words may
    be the record's own where it shows more of that.
    """
    top = {name.lower(): msgspec.Raw(msgspec.json.encode(one)) for name, one in result.items()}
    alone = not top.keys() - _IDS - _OF_A_RESULT
    return (alone and _counts_none({name: top[name] for name in top.keys() - _IDS})) or any(
        (alone or name not in _SAID or bytes(raw).isdigit()) and _is_refusal(name, raw)
        for name, raw in top.items()
    )


def respelled(
    operation: Operation,
    writing: Writing | None,
    ids: list[str],
    answer: Response,
    body: ParsedBody,
) -> list[str]:
    """The one id as the application writes it, for the vault, too: ``PATCH /people/01`` may be
    answered with the record ``1``. It stands where the rule says that ids are, or else at ``$.id``.
    """
    plainly = numeric_id(ids[0])
    if plainly is None or not _shows_id(operation, answer, body, plainly):
        return ids
    body.items[0].id = plainly
    if writing is not None and len(writing.writes) == 1:
        writing.renamed = writing.writes[0].key = plainly
    return [plainly]


def _shows_id(operation: Operation, answer: Response, body: ParsedBody, plainly: str) -> bool:
    """Whether the answer shows its one record under this spelling."""
    if len(body.items) != 1 or operation.verb not in (Verb.READ, Verb.UPDATE):
        return False
    if operation.response.id is not None:
        return body.items[0].id == plainly
    plan = body_plan(operation.response.body, IdPlace(IdSource.BODY, path=("id",)))
    if plan is None:
        return False
    objects = read_any_answer(plan, body.media, answer.body, operation).items
    return len(objects) == 1 and objects[0].id == plainly


def chooses_nothing(request: Request, also: frozenset[bytes] = frozenset()) -> bool:
    """Whether no header field of a request may choose what it is about; ``also``: nor these."""
    names = {name.lower() for name, _ in request.headers} - also
    return all(name in _CHOOSE_NOTHING or _CALLER.match(name) for name in names)


def asks_plainly(operation: Operation, request: Request | None) -> bool:
    """Whether who answers a request with 404 can only mean the record that its rule is about.

    To a path that it does not know any application says that, to everybody. Of several records it
    may mean any one.
    """
    if request is None or request.method != "GET" or request.body:
        return False
    path, _, query = request.target.partition(b"?")
    id_place = operation.id
    if id_place is not None and id_place.source is IdSource.QUERY:
        name, _, query = query.partition(b"=")
        if unquote_to_bytes(name).decode(errors="replace") != id_place.name:
            return False
        query = b"&" if b"&" in query or b";" in query else b""
    parts, own = path.split(b"/"), operation.template.encode().split(b"/")
    return (
        not query
        and len(parts) == len(own)
        and all(
            part == one or (b"{" in one and _is_written_once(part))
            for part, one in zip(parts, own, strict=True)
        )
        and chooses_nothing(request, _OF_ONE)
    )


def _is_written_once(part: bytes) -> bool:
    """Whether a segment of a path is spelled as every program spells it."""
    text = unquote_to_bytes(part)
    if text in (b"", b".", b"..") or any(sign in text for sign in (b"/", b"\\", b"%", b";", b"\0")):
        return False
    return quote(text, safe="!$&'()*+,=:@-._~") == part.decode("latin-1")

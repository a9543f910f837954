"""An operation made ready to run: its selectors compiled, its ids' places known.

One per operation, made on first use.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

from proxy.errors import Code, VaultError
from proxy.model.schema import Path
from proxy.redactor.checks import Emptied, Outline, Unnamed, UnnamedInMessage
from proxy.redactor.inner_texts import TextPlan
from proxy.redactor.message import Media, RawHeaders, canonical_uuid, header, media_of
from proxy.redactor.named_places import in_document, spared_paths
from proxy.redactor.path_template import leads_to
from proxy.redactor.request_rules import PassPlaces, RedirectSuccess, TextPlace
from proxy.redactor.rules import BodyPlace, IdPlace, IdSource, Operation, ResponseRule, Stream, Verb
from proxy.redactor.select import Selection
from proxy.redactor.words import Absent, DocumentKind


@dataclass(frozen=True, slots=True)
class BodyPlan:
    """Positions of protected values and ids in one direction's body."""

    selection: Selection | None  #: ``None``: no JSON is expected
    fields: tuple[str, ...]  #: field name of each leaf of the selection
    anchored: tuple[str, ...]  #: field name of each anchored leaf
    id_leaf: int  #: leaf that holds each object's id; -1: none
    id_anchored: int  #: anchored leaf that holds ids; -1: none
    #: the address that the id is a segment of; empty: it is the member itself
    id_template: str
    id_digits: int  #: most bytes of a number that is the id unchanged, less one
    form: Mapping[str, str]
    multipart: Mapping[str, str]
    file_names: Mapping[str, str]
    csv: Mapping[str, str]
    part: str
    id_member: str  #: form member that holds the id, or ``""``
    #: kinds of body in which the rule names protected values; requests of other kinds are refused
    named: frozenset[Media]
    #: the containers on the way to the places; a request with others there is refused
    outline: Outline
    #: of the selected objects, if cleared fields matter
    emptied: Emptied | None = None
    emptied_anchored: Emptied | None = None  #: the same, counted from the root
    #: plans of texts of JSON, in place of field names
    texts: Mapping[str, TextPlan] = field(default_factory=dict)
    passed: PassPlaces = field(default_factory=PassPlaces)
    kind: DocumentKind | None = None  #: how a document of XML is read
    xml: "BodyPlan | None" = None  #: the places in the JSON that it is read as


@dataclass(frozen=True, slots=True)
class OperationPlan:
    """Both directions of an operation."""

    operation: Operation
    request: BodyPlan | None
    response: BodyPlan | None
    #: for a body that the rule says nothing about; ``None`` where it names one
    unnamed: Unnamed | None
    carried: Selection | None = None  #: the addresses in a body of JSON
    #: for what a message of a WebSocket holds beside the places that the rule names
    elsewhere: UnnamedInMessage | None = None


def make_plan(operation: Operation) -> OperationPlan:
    """Compile an operation; the selectors were checked when the rules were loaded."""
    answer_id = operation.response.id if operation.response.id is not None else None
    request = body_plan(operation.request.body, operation.id, of=operation)
    if (
        request is not None
        and operation.verb is Verb.UPDATE
        and operation.request.absent is Absent.KEEP
    ):
        request = _with_emptied(request, operation.request.body)
    return OperationPlan(
        operation,
        request,
        body_plan(operation.response.body, answer_id),
        Unnamed(operation) if _names_no_body(operation) else None,
        Selection(None, (), list(operation.response.carried))
        if operation.response.carried
        else None,
        UnnamedInMessage(operation) if operation.response.stream is Stream.WEBSOCKET else None,
    )


def _names_no_body(operation: Operation) -> bool:
    rule, body = operation.request, operation.request.body
    ids_alone = body is not None and body.xml is not None and not (body.fields or body.anchored)
    named = body is not None and not ids_alone
    return not named and not (rule.search and (rule.search.form or rule.search.values))


def body_plan(
    spots: BodyPlace | None, ident: IdPlace | None, *, of: Operation | None = None
) -> BodyPlan | None:
    """The plan of one direction; ``None`` when neither a field nor an id is in the body.

    ``of``: the operation whose request it is; without, it is an answer.
    """
    if spots is not None and spots.xml is not None:
        inner = body_plan(*in_document(spots, ident, strict=of is not None), of=of)
        if inner is None:
            return None
        named = frozenset({media_of(spots.xml)})
        return replace(inner, selection=None, named=named, kind=spots.xml, xml=inner)
    in_body = ident is not None and ident.source is IdSource.BODY
    in_form = ident is not None and ident.source is IdSource.FORM
    if spots is None and not in_body and not in_form:
        return None
    fields: list[str] = list(spots.fields) if spots else []
    leaves: list[Path] = list(spots.fields.values()) if spots else []
    anchored_fields: list[str] = list(spots.anchored) if spots else []
    anchored: list[Path] = list(spots.anchored.values()) if spots else []
    texts = {f"\0{number}": one for number, one in enumerate(spots.texts if spots else ())}
    for name, one in texts.items():
        if one.source == "object":
            fields.append(name)
            leaves.append(one.path)
        elif one.source == "root":
            anchored_fields.append(name)
            anchored.append(one.path)
    id_leaf = id_anchored = -1
    if in_body and ident is not None:
        if ident.absolute or spots is None or spots.objects is None:
            id_anchored = len(anchored)
            anchored.append(ident.path)
        else:
            id_leaf = len(leaves)
            leaves.append(ident.path)
    json_expected = in_body or bool(anchored) or (spots is not None and spots.objects is not None)
    objects = spots.objects if spots else None
    strict = of is not None
    spared = spared_paths(of) if of is not None else ()
    selection = Selection(objects, leaves, anchored, nested=strict, spared=spared)
    return BodyPlan(
        selection if json_expected else None,
        tuple(fields),
        tuple(anchored_fields),
        id_leaf,
        id_anchored,
        template := ident.template if ident is not None and (in_body or in_form) else "",
        0 if template else LONGEST_NUMBER,
        {**spots.form, **_members(texts, "form")} if spots else {},
        {**spots.multipart, **_members(texts, "multipart")} if spots else {},
        spots.file_names if spots else {},
        spots.csv if spots else {},
        spots.part if spots else "",
        _member(ident),
        _named(spots, ident),
        _outline(spots),
        passed=PassPlaces() if of is None else of.request.passed,
        texts={name: TextPlan(one, strict=strict) for name, one in texts.items()},
    )


def _members(texts: Mapping[str, TextPlace], source: str) -> dict[str, str]:
    return {one.name: name for name, one in texts.items() if one.source == source}


def _with_emptied(plan: BodyPlan, spots: BodyPlace | None) -> BodyPlan:
    if spots is None:
        return plan
    if plan.xml is not None:
        spots, _ = in_document(spots, None, strict=False)
        return replace(plan, xml=_with_emptied(plan.xml, spots))
    inside = Emptied(list(spots.fields), list(spots.fields.values()))
    anchored = Emptied(list(spots.anchored), list(spots.anchored.values()))
    return replace(plan, emptied=inside or None, emptied_anchored=anchored or None)


def _outline(spots: BodyPlace | None) -> Outline:
    if spots is None:
        return Outline(None, (), ())
    inside = [one.path for one in spots.texts if one.source == "object"]
    rooted = [one.path for one in spots.texts if one.source == "root"]
    fields, anchored = spots.fields.values(), spots.anchored.values()
    return Outline(spots.objects, (*fields, *inside), (*anchored, *rooted))


def _member(ident: IdPlace | None) -> str:
    """The form member of the id. A one-step ``$.id`` names one as well: forms are flat objects."""
    if ident is None:
        return ""
    if ident.source is IdSource.BODY and len(ident.path) == 1 and isinstance(ident.path[0], str):
        return ident.path[0]
    return ident.name if ident.source is IdSource.FORM else ""


def _named(spots: BodyPlace | None, ident: IdPlace | None) -> frozenset[Media]:
    """An id alone does not make a rule know a kind of body, if it names fields in another kind."""
    sources: set[str] = set()
    if spots is None:
        json, form = ident is not None and ident.source is IdSource.BODY, bool(_member(ident))
    else:
        sources = {one.source for one in spots.texts}
        json = spots.objects is not None or bool(spots.anchored) or "root" in sources
        form = bool(spots.form) or "form" in sources
    parts = spots is not None and bool(
        spots.multipart or spots.file_names or spots.part or "multipart" in sources
    )
    csv = spots is not None and bool(spots.csv) and not parts
    kinds = {Media.JSON: json, Media.FORM: form, Media.MULTIPART: parts, Media.CSV: csv}
    return frozenset(kind for kind, named in kinds.items() if named)


# Ids inside addresses: in a header field such as ``Location``, or in a member of a body.

#: Digits that are an id without a look at them: those of 64 bits, less one.
LONGEST_NUMBER: Final = 20


def header_ids(where: IdPlace, headers: RawHeaders, path: str = "") -> list[str]:
    """Ids in a header field such as ``Location``, by the template of the rule.

    ``path``: the template of the request's, at which a relative address of an answer begins.
    """
    called, template = where.name.encode(), where.template
    base = _base(path) if template.startswith("/") else ""
    texts = [value.decode("utf-8", "replace") for name, value in headers if name.lower() == called]
    ids = [id_in_text(template, _absolute(base, text.strip())) for text in texts]
    return [ident for ident in ids if ident is not None]


def _base(template: str) -> str:
    """The start of relative addresses: the path, or its folder; empty where no rule tells it."""
    folder = template[: template.rfind("/") + 1]
    return "" if "{" in folder else folder if "{" in template else template


def _absolute(base: str, text: str) -> str:
    try:
        return urljoin(base, text) if base and text else text
    except ValueError:
        return text


def sent_header_ids(where: IdPlace, headers: RawHeaders) -> list[str]:
    """Return the id in a header field of a request.

    Raises ``VaultError`` for several fields that an application may confuse, as some read ``_`` as
    ``-``.
    """
    called = where.name.encode().replace(b"_", b"-")
    if sum([name.lower().replace(b"_", b"-") == called for name, _ in headers]) > 1:
        raise VaultError(
            Code.BAD_REQUEST,
            f"The request has several header fields {where.name}, one of which is the id: send "
            "one.",
        )
    return header_ids(where, headers)


def id_in_text(template: str, text: str) -> str | None:
    """The id that a text is, or that stands in it as an address; ``None``: another one."""
    if not template:
        return canonical_uuid(text)
    pattern, parameter = _address_pattern(template)
    try:
        address = urlsplit(text.strip())
    except ValueError:
        return None
    if not parameter:
        text = f"#{address.fragment}" if template[:1] == "#" else address.path
        match = pattern.fullmatch(text)
        return None if match is None else canonical_uuid(unquote(match[1]))
    values = [value for name, value in parse_qsl(address.query) if name == parameter]
    match = pattern.fullmatch(f"{address.path}?{''.join(values)}")
    return None if match is None or len(values) > 1 else canonical_uuid(match[1])


@lru_cache(maxsize=1024)
def _address_pattern(template: str) -> tuple[re.Pattern[str], str]:
    """The pattern of a path with an id, or of a path and the value of the parameter that has it."""
    path, _, member = template.partition("?")
    parameter, _, value = member.partition("=")
    before, _, rest = (value or path).partition("{")
    _, _, after = rest.partition("}")
    before, after = re.escape(before), re.escape(after)
    if not value:
        segments = "(.+?)" if "*}" in path else "([^/]+)"
        return re.compile(f"{before}{segments}{after}/?"), ""
    return re.compile(f"{re.escape(path.rstrip('/'))}/?[?]{before}(.+){after}"), parameter


def list_plan(plan: OperationPlan) -> BodyPlan | None:
    """The plan of answers that are lists of objects with one place a field; ``None``: others."""
    answer, operation = plan.response, plan.operation
    special = operation.response.special or operation.entity.scattered
    if operation.verb is not Verb.READ or special or answer is None:
        return None
    simple = not (answer.anchored or answer.texts or answer.emptied) and answer.id_anchored < 0
    body = operation.response.body
    # one with an id in its path is about one record, unless the rule names an array in its answer
    several = body is not None and (body.objects or (body.objects == () and operation.id is None))
    distinct = answer.fields and len({*answer.fields}) == len(answer.fields)
    return answer if answer.kind is None and simple and several and distinct else None


def writes(operation: Operation) -> bool:
    """Whether the operation changes records of the vault."""
    return operation.verb is not Verb.READ


# Outcome of a request by the status of its answer: accepted, refused, or unknown.
#
# An expired session is answered by a redirect as a saved form is, and a pop-up by a page as a form
# with mistakes is. So a rule may require a redirect's target, or a text of a page. Pure functions.

#: Statuses of gateways, behind which the application may still be at work.
GATEWAYS = frozenset({502, 503, 504})


class Outcome(enum.Enum):
    """Outcome of a request, judged by the application's answer."""

    TAKEN = enum.auto()
    REFUSED = enum.auto()
    DOUBTFUL = enum.auto()
    UNREAD = enum.auto()  #: the body tells, and it was not read (yet)


def outcome(
    rule: ResponseRule, target: bytes, status: int, headers: RawHeaders, body: bytes | None
) -> Outcome:
    """Judge the answer to a request for ``target``. ``body`` is ``None`` where it was not read."""
    if status in rule.success:
        return Outcome.REFUSED if only_tried(headers) else Outcome.TAKEN
    for condition in rule.conditions:
        if status in condition.statuses and _leads(condition, headers, target):
            if condition.text and body is None:
                return Outcome.UNREAD
            if condition.text.encode() in (body or b""):
                return Outcome.TAKEN
    return Outcome.DOUBTFUL if status >= 500 or 300 <= status < 400 else Outcome.REFUSED


def only_tried(headers: RawHeaders) -> bool:
    """Whether the application says that it tried a change without making it: Precognition of
    Laravel, which validates a form as it is filled in, and PostgREST where it rolled back.
    """
    return header(headers, b"precognition") == b"true" or (
        b"tx=rollback" in (header(headers, b"preference-applied") or b"")
    )


def _leads(condition: RedirectSuccess, headers: RawHeaders, target: bytes) -> bool:
    """Whether the only ``Location`` leads where the condition says (RFC 9110, section 10.2.2)."""
    if not condition.locations:
        return True
    if len(places := [value for name, value in headers if name.lower() == b"location"]) != 1:
        return False
    try:
        led = urlsplit(urljoin(target.decode("latin-1"), places[0].decode("latin-1").strip()))
    except ValueError:
        return False
    return any(leads_to(one, led.path, led.query) for one in condition.locations)


def has_no_content(status: int, headers: RawHeaders) -> bool:
    """Whether an accepting answer says nothing at all, and so nothing of records left out."""
    if any(header(headers, name) is not None for name in (b"location", *_SCRIPTED)):
        return False
    return status in {204, 205} or header(headers, b"content-length") == b"0"


#: Fields by which scripts in a page follow a redirect whose status is a success (htmx).
_SCRIPTED: Final = (b"hx-redirect", b"hx-location")
#: What is to be carried out (RFC 9110, section 15.3.3), or has a status in the body (RFC 4918).
UNDECIDED: Final = frozenset({202, 207})
#: Bytes of a plain text that are no sentence: ``OK``.
_WORD: Final = 2


def shows_nothing(rule: ResponseRule, status: int, headers: RawHeaders) -> bool:
    """Whether a success is a redirect, or where the rule does not say what success is, a page, a
    plain text or a problem document, or the promise to do something later.

    Applications answer a refused form in the same way: with the record, and a sentence about it.
    """
    if 300 <= status < 400:
        return True
    if not rule.presumed:
        return False
    kind = (header(headers, b"content-type") or b"").lower()
    if status in UNDECIDED or b"problem+" in kind:
        return True
    if b"html" in kind or b"json" in kind:
        return b"html" in kind
    length = header(headers, b"content-length") or b""
    sentence = kind.startswith(b"text/plain") and not (length.isdigit() and int(length) <= _WORD)
    return sentence or any(header(headers, name) is not None for name in _SCRIPTED)

"""Reading a request: which values a rule names, where they stand, whose they are.

Pure functions on bytes.
"""

from collections.abc import Callable, Mapping

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.redactor import content_coding, form
from proxy.redactor.checks import refuse_patch
from proxy.redactor.inner_texts import Write
from proxy.redactor.json import tree as json_codec
from proxy.redactor.json.text import standard, unwrapped
from proxy.redactor.json.tree import Leaf, TreeSelection
from proxy.redactor.message import Media, RawHeaders, Request, canonical_uuid, classify, is_foreign
from proxy.redactor.multipart import is_csv, is_multipart
from proxy.redactor.plan import BodyPlan, OperationPlan, id_in_text, sent_header_ids
from proxy.redactor.rules import IdPlace, IdSource, Match, Operation
from proxy.redactor.words import OtherKinds

_JSON, _FORM, _OTHER, _NONE = Media.JSON, Media.FORM, Media.OTHER, Media.NONE  # found faster so


class Spot(msgspec.Struct, frozen=True, gc=False):
    """A protected place: its field, its bytes, and the value there (``None``: JSON null)."""

    field: str
    start: int
    end: int
    value: Value | None
    #: a form member without ``=``: it holds nothing, and a value needs the sign before it
    bare: bool = False
    #: compared by the application or overwritten by a later change: sent as a token, not stored
    transient: bool = False


class BodyObject(msgspec.Struct):
    """An object of a body: its protected places and, if the body tells it, its id."""

    spots: list[Spot] = []
    id: str | None = None
    #: fields without a place that hold nothing now
    emptied: dict[str, Value | None] = {}
    #: fields whose values come behind those that are stored
    appended: frozenset[str] = frozenset()


class ParsedBody(msgspec.Struct):
    """Parsed body: its objects, and ids outside of them."""

    media: Media
    items: list[BodyObject] = []
    ids: list[str] = []
    #: an object or array stands in place of an id, and its content was not examined
    hiding: bool = False
    #: how values are written inside of texts, by where each begins
    writers: dict[int, Write] = {}
    #: what is still done to the body when its values are in their places
    finish: Callable[[bytes], bytes] | None = None


def read_body(plan: BodyPlan, media: Media, body: bytes, operation: Operation) -> ParsedBody:
    """The objects and places of a JSON or form body.

    Raises ``VaultError``: UNREADABLE_BODY, MALFORMED_JSON, AMBIGUOUS_JSON or TOO_LARGE; never with
    content in its text.
    """
    limits = operation.endpoint.limits
    if media is _JSON and plan.selection is not None:
        depth = limits.json_depth
        parsed = from_found(plan, plan.selection.find(body, depth), body, depth)
        return with_texts(plan, parsed, body, depth) if plan.texts else parsed
    if media is _FORM and (plan.form or plan.id_member):
        parsed = _from_form(plan, body, limits.form_fields)
        return with_texts(plan, parsed, body, limits.json_depth) if plan.texts else parsed
    raise _other_kind(plan, operation)


def with_texts(plan: BodyPlan, parsed: ParsedBody, body: bytes, depth: int) -> ParsedBody:
    """Do the same for texts of JSON. Raises ``VaultError``."""
    for item in parsed.items:
        texts = [spot for spot in item.spots if spot.field in plan.texts]
        item.spots = [spot for spot in item.spots if spot.field not in plan.texts]
        for spot in texts:
            at = body, spot.start, spot.end
            inner = plan.texts[spot.field].values(parsed.media, spot.value, at, depth)
            item.spots += [Spot(one.field, one.start, one.end, one.value) for one in inner]
            parsed.writers.update({one.start: one.write for one in inner})
    return parsed


def read_answer_body(plan: BodyPlan, media: Media, body: bytes, operation: Operation) -> ParsedBody:
    """As ``read_body``, also where a byte order mark or ``)]}',`` stands before JSON, the call of a
    function round it, or NaN and Infinity in it, as many applications write them.

    Readers of such answers have to see values, too. Places are those of the original body.
    """
    if media is _OTHER and (called := unwrapped(body)) is not None:
        media, body = _JSON, called  # a script, by its type
    try:
        return read_body(plan, media, body, operation)
    except VaultError as error:
        if error.code not in (Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON):
            raise
        readable = standard(body)  # to a reader ``{} &&`` is a document with data behind it
        if readable is None:
            raise
    return read_body(plan, media, readable, operation)


#: Why the body of an answer is passed by unread.
UNREADABLE = (Code.UNREADABLE_BODY, Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON, Code.TOO_LARGE)


def unreadable_answer() -> VaultError:
    """The error in place of an answer that a rule does not let pass unread."""
    return VaultError(
        Code.UNREADABLE_ANSWER,
        "The application took the request, but its answer cannot be read as the JSON or form "
        "that it should be.",
    )


def check_head(plan: OperationPlan, match: Match, head: Request) -> None:
    """Raise the faults of a request that do not depend on its body, which follows later."""
    request_ids(plan.operation.id, match, head, None)
    headers = head.headers
    content_coding.refuse_unknown(content_coding.field(headers, b"content-encoding"))
    if plan.request is None:
        if plan.unnamed is not None:
            plan.unnamed.refuse_kind(headers, _SOME)
        return
    media = classify(headers, _SOME)
    if media is _OTHER:
        media = upload_kind(plan.request, headers)
    if media not in plan.request.named and not _passes(plan, media, headers, b""):
        raise _other_kind(plan.request, plan.operation)
    if media is _JSON:
        refuse_patch(plan.operation, headers, b"", understood=True)


#: Of a body of which only the existence is known.
_SOME = b"?"


def _passes(plan: OperationPlan, media: Media, headers: RawHeaders, body: bytes) -> bool:
    """Whether the rule lets a body of no kind that it names pass."""
    passing = media is _OTHER and plan.operation.request.other_kinds is OtherKinds.PASS
    return passing and is_foreign(headers, body)


def read_request(plan: OperationPlan, request: Request) -> ParsedBody | None:
    """Parse the request's body; ``None`` if it is empty or the rule names nothing in it."""
    if plan.request is None:
        if request.body and plan.unnamed is not None:
            plan.unnamed.refuse(request.headers, request.body)
        return None
    media = classify(request.headers, request.body)
    if media is _NONE:
        return None
    if media not in plan.request.named or (
        media is _FORM and request.body.lstrip()[:1] in form.OTHER_KINDS
    ):
        if _passes(plan, media, request.headers, request.body):
            return None
        raise _other_kind(plan.request, plan.operation)
    body = read_body(plan.request, media, request.body, plan.operation)
    if media is _JSON:
        items = body.items
        understood = bool(items and items[0].spots) or any(item.spots for item in items)
        refuse_patch(plan.operation, request.headers, request.body, understood=understood)
    if body.hiding:
        raise VaultError(
            Code.BAD_REQUEST,
            f"The request matches {plan.operation.label}, and an object or array stands where "
            "its id belongs.",
        )
    if media is _JSON and (pointer := plan.request.outline.strayed(request.body)):
        raise VaultError(
            Code.VALUE_UNFIT,
            f"The request matches {plan.operation.label}, but at {pointer} something else stands "
            "where its rule goes on to a protected place, such as a text in place of an array: "
            "send it as the rule has it, name that place as a field, or, in a list of commands, "
            "write the place with '..' (each: \"$..lines\").",
            (Detail(pointer, "not what the rule has there"),),
        )
    if plan.unnamed is not None:  # the body holds ids and nothing else that a rule names
        plan.unnamed.refuse(request.headers, request.body)
    if len(body.items) != 1 or len(body.items[0].spots) > MOST_VALUES or body.ids:
        refuse_many(body)
    return body


def upload_kind(plan: BodyPlan, headers: RawHeaders) -> Media:
    """The kind of a body that is neither JSON nor a form, where the rule names such a kind."""
    if Media.MULTIPART in plan.named and is_multipart(headers):
        return Media.MULTIPART
    csv = Media.CSV in plan.named and is_csv(headers)
    return Media.CSV if csv else _OTHER


#: Objects or ids, and values, that one request may carry: each of them costs a hundred times its
#: bytes.
MOST_OBJECTS = 10_000
MOST_VALUES = 100_000


def refuse_many(body: ParsedBody) -> None:
    """Raise ``VaultError`` (TOO_LARGE) for a request of too many objects or values."""
    if max(len(body.items), len(body.ids)) > MOST_OBJECTS:
        raise VaultError(
            Code.TOO_LARGE,
            f"The request carries more than {MOST_OBJECTS} objects: send it in parts.",
        )
    if sum([len(item.spots) for item in body.items]) > MOST_VALUES:
        raise VaultError(
            Code.TOO_LARGE, f"The request carries more than {MOST_VALUES} values: send it in parts."
        )


def request_ids(
    source: IdPlace | None, match: Match, request: Request, body: ParsedBody | None
) -> list[str]:
    """Ids of the request outside its objects: path, query, form member, absolute places."""
    if source is None:
        return []
    if source.source is IdSource.PATH:
        return [_path_id(match.params[source.name])]
    if source.source is IdSource.QUERY:
        return [canonical_uuid(text) for text in query_values(request.target, source.name)]
    if source.source is IdSource.HEADER:
        return sent_header_ids(source, request.headers)
    return body.ids if body else []


def _path_id(text: str) -> str:
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return canonical_uuid(text)
    raise VaultError(
        Code.BAD_REQUEST, "The id in the path is not percent-encoded UTF-8: encode it in UTF-8."
    )


def query_span(target: bytes) -> tuple[int, int]:
    """Start and end of the query in a request target; an empty span at its end without one."""
    mark = target.find(b"?")
    start = len(target) if mark < 0 else mark + 1
    end = target.find(b"#", start)
    return start, len(target) if end < 0 else end


def query_values(target: bytes, name: str) -> list[str]:
    """All values of a query parameter, decoded, in order."""
    start, end = query_span(target)
    query = target[start:end]
    return [
        form.read_form_value(query[member.start : member.end])
        for member in form.form_members(query, MOST_QUERY)
        if member.name == name
    ]


def query_members(target: bytes, names: tuple[str, ...]) -> tuple[int, list[form.Member]]:
    """The start of the query in a target, and its members from there. Raises ``VaultError`` for one
    that only some take for one of these names, here or in the path.
    """
    if b"#" in target:
        raise VaultError(
            Code.BAD_REQUEST,
            "The target of the request holds a '#', behind which only some look: escape it.",
        )
    start, end = query_span(target)
    if target.find(b";") >= 0 or target.find(b"%", 0, start) >= 0:
        form.check_path(names, target[:start])
    return start, form.form_members(target[start:end], MOST_QUERY, names)


def query_spots(target: bytes, names: Mapping[str, str]) -> list[Spot]:
    """The parameters of a target that have these names; spans count from the target's start."""
    start, members = query_members(target, tuple(names))
    spots: list[Spot] = []
    for member in members:
        field_name = form.named_field(names, member.name)
        if field_name is not None:
            begin, end = start + member.start, start + member.end
            spots.append(
                Spot(field_name, begin, end, Value(form.read_form_value(target[begin:end])))
            )
    return spots


#: A query is bounded by the size of the request head already.
MOST_QUERY = 10_000


def from_found(plan: BodyPlan, selection: TreeSelection, body: bytes, depth: int) -> ParsedBody:
    """The objects of a document of JSON by what was selected in it."""
    result = ParsedBody(_JSON)
    fields, id_leaf, emptied = plan.fields, plan.id_leaf, plan.emptied
    digits, template = plan.id_digits, plan.id_template
    text = body.decode() if body.isascii() and body.find(b"\\") < 0 else None
    selection.objects.reverse()
    # each is freed when it was read: all of them at once would take as long as to find them
    while selection.objects:
        located = selection.objects.pop()
        item = BodyObject()
        add = item.spots.append
        for leaf in located.leaves:
            name, start, end = leaf
            if name == id_leaf and end - start < digits and (number := body[start:end]).isdigit():
                item.id = number.decode()  # as nearly always
            elif name == id_leaf:
                item.id = _id(leaf, body, template)
                result.hiding |= item.id is None and _is_container(leaf, body)
            elif text is not None and text[start] == '"':  # without escapes, as nearly always
                add(Spot(fields[name], start, end, Value(text[start + 1 : end - 1])))
            else:
                value = json_codec.read_json_value(body[start:end])
                add(Spot(fields[name], start, end, value))
        if emptied is not None:
            item.emptied = emptied.among(
                {spot.field for spot in item.spots}, body[located.start : located.end], depth
            )
        result.items.append(item)
    if selection.anchored or plan.emptied_anchored is not None:
        _add_anchored(result, plan, selection, body, depth)
    return result


def _add_anchored(
    result: ParsedBody, plan: BodyPlan, selection: TreeSelection, body: bytes, depth: int
) -> None:
    """Assign ids and places that count from the root: to the only object, or to a new one."""
    item = BodyObject()
    for leaf in selection.anchored:
        if leaf.name == plan.id_anchored:
            ident = _id(leaf, body, plan.id_template)
            if ident is not None:
                result.ids.append(ident)
            result.hiding |= ident is None and _is_container(leaf, body)
        else:
            value = json_codec.read_json_value(body[leaf.start : leaf.end])
            item.spots.append(Spot(plan.anchored[leaf.name], leaf.start, leaf.end, value))
    if plan.emptied_anchored is not None:
        item.emptied = plan.emptied_anchored.among({spot.field for spot in item.spots}, body, depth)
    if len(result.items) == 1:
        (only,) = result.items
        only.spots.extend(item.spots)
        only.emptied = {**only.emptied, **item.emptied}
    elif item.spots or item.emptied:
        result.items.append(item)


def _id(leaf: Leaf, body: bytes, template: str) -> str | None:
    """An id is a string or an integer, or in a string that is an address; nothing else."""
    value = json_codec.read_json_value(body[leaf.start : leaf.end])
    if value is None or (value.json and not value.text.lstrip("-").isdecimal()) or not value.text:
        return None
    return id_in_text(template, value.text)


def _is_container(leaf: Leaf, body: bytes) -> bool:
    return body[leaf.start] in b"{["


def _from_form(plan: BodyPlan, body: bytes, limit: int) -> ParsedBody:
    item = BodyObject()
    ids: list[str] = []
    declared = (*plan.form, plan.id_member) if plan.id_member else tuple(plan.form)
    for member in form.form_members(body, limit, declared, plan.passed.form):
        name = form.named_field(plan.form, member.name, plan.passed.form)
        if name is not None:
            text = form.read_form_value(body[member.start : member.end])
            item.spots.append(Spot(name, member.start, member.end, Value(text), member.bare))
        elif plan.id_member and member.name == plan.id_member:
            text = form.read_form_value(body[member.start : member.end])
            ids.append(id_in_text(plan.id_template, text) or "")
    ids = [text for text in dict.fromkeys(ids) if text]
    item.id = ids[0] if len(ids) == 1 else None
    return ParsedBody(_FORM, [item], ids)


def _other_kind(plan: BodyPlan, operation: Operation) -> VaultError:
    types = {
        _JSON: "application/json",
        _FORM: "application/x-www-form-urlencoded",
        Media.MULTIPART: "multipart/form-data",
        Media.CSV: "text/csv",
        Media.XML: "application/xml",
        Media.VOBJECT: "text/vcard or text/calendar",
    }
    expected = " or ".join(text for kind, text in types.items() if kind in plan.named)
    return VaultError(
        Code.UNREADABLE_BODY,
        f"The rule of {operation.label} reads a Content-Type of {expected}, and this is another.",
    )

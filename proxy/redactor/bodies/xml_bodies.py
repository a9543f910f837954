"""Reading bodies of XML: which values a rule names, and where each stands.

A place is looked for in the JSON that a document is read as (``xml_documents``), so it means the
same as in a body of JSON. A value that is not in one piece is not taken for another one: in a
request it is refused, in an answer left.
"""

from functools import partial
from typing import Final, cast

import msgspec

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import PathStep
from proxy.redactor.content_lines import refold
from proxy.redactor.elements import Document
from proxy.redactor.message import Media, Request, classify
from proxy.redactor.named_places import ON_THE_WAY, deepest, inner_calls
from proxy.redactor.plan import BodyPlan, OperationPlan
from proxy.redactor.redact import (
    ParsedBody,
    Spot,
    from_found,
    read_answer_body,
    read_request,
    refuse_many,
)
from proxy.redactor.rules import Operation
from proxy.redactor.select import Selection
from proxy.redactor.words import DocumentKind
from proxy.redactor.xml_documents import TEXT, read_xml_document

#: Texts that hold nothing: none at all, and only elements.
_NOTHING = ("", "[]")


def read_xml(plan: OperationPlan, request: Request) -> ParsedBody | None:
    """As ``redact.read_request``, of an operation that names places in XML."""
    named, label = plan.request, plan.operation.label
    media = classify(request.headers, request.body)
    if named is None or media not in named.named:
        return read_request(plan, request)
    document, parsed, astray = _read(named, request.body, plan.operation)
    depth = deepest(plan.operation.endpoint.limits.json_depth)
    if plan.unnamed is not None:
        plan.unnamed.refuse_document(document.content, depth)
    if not any(one.path == ("methodName",) for one in plan.operation.when) and any(
        True for _ in inner_calls(document.content, depth)
    ):
        raise VaultError(
            Code.BAD_REQUEST,
            f"The request matches {label}, and holds several calls: send each by itself, or name "
            "system.multicall in the rule (when: {$.methodName: system.multicall}).",
        )
    pointer = named.outline.strayed(document.content)
    if astray or pointer:
        raise VaultError(
            Code.VALUE_UNFIT,
            f"The request matches {label}, and a text stands in an element where its rule goes on "
            "to a protected place, or an attribute is called as a protected element (or an element "
            "as an attribute): send it as the rule has it, or name that place as a field.",
            (Detail(pointer, "not what the rule has there"),) if pointer else (),
        )
    if parsed.hiding or (len({*parsed.ids}) > 1 and not _lists_ids(plan.operation)):
        raise VaultError(
            Code.BAD_REQUEST,
            f"The request matches {label}, and something else than one text stands where its id "
            "belongs.",
        )
    if b'"text-match"' in document.content:
        _check_matches(parsed, document, plan)
    for spot in (spot for item in parsed.items for spot in item.spots):
        if spot.value is not None and spot.start not in document.pieces:
            raise VaultError(
                Code.VALUE_UNFIT,
                f"The request matches {label}, and the element of {spot.field} holds other "
                "elements, comments or instructions, or is encoded: send its text alone.",
                (Detail(spot.field, "holds more than a text"),),
            )
    refuse_many(_placed(parsed, document, media))
    return parsed


#: What a search of WebDAV looks for (RFC 6352 section 10.5.4, RFC 4791 section 9.7.5).
_MATCHES: Final = Selection(None, (), [(PathStep.DEEP, "text-match", PathStep.EACH)])


def _check_matches(parsed: ParsedBody, document: Document, plan: OperationPlan) -> None:
    """Raise ``VaultError`` (SEARCH_REFUSED) for a text that is looked for, unless the rule names
    it, and the whole value has to equal it.
    """
    depth = deepest(plan.operation.endpoint.limits.json_depth)
    named = {spot.start for item in parsed.items for spot in item.spots}
    for leaf in _MATCHES.find(document.content, depth).anchored:
        match = msgspec.json.decode(document.content[leaf.start : leaf.end])
        if not isinstance(match, dict) or not match.get(TEXT):
            continue
        exact = match.get("@match-type") == "equals"
        if not exact or named.isdisjoint(range(leaf.start, leaf.end)):
            raise VaultError(
                Code.SEARCH_REFUSED,
                f"The request matches {plan.operation.label} and looks for a text (text-match), "
                "which the application, that has tokens, cannot find: look for a whole value "
                '(match-type="equals") of a field that the rule names there.',
            )


def read_any_answer(plan: BodyPlan, media: Media, body: bytes, operation: Operation) -> ParsedBody:
    """As ``redact.read_answer_body``, also of XML."""
    if plan.xml is None or media not in plan.named:
        return read_answer_body(plan, media, body, operation)
    document, parsed, _ = _read(plan, body, operation)
    return _placed(parsed, document, media)


def _read(plan: BodyPlan, body: bytes, operation: Operation) -> tuple[Document, ParsedBody, bool]:
    """A document as JSON, its objects by where they stand in that, and whether a text stands in an
    element that should hold elements.
    """
    inner, levels = cast("BodyPlan", plan.xml), operation.endpoint.limits.json_depth
    document = read_xml_document(body, levels, cast("DocumentKind", plan.kind))
    content, depth = document.content, deepest(levels)
    try:
        selection = cast("Selection", inner.selection).find(content, depth)
    except VaultError as error:
        what = "card or calendar" if plan.kind is DocumentKind.VOBJECT else "XML"
        raise VaultError(
            error.code,
            f"The {what} is ambiguous: an element or attribute is called nearly as one that the "
            "rule names, or is an attribute twice. Send distinct names; if the application has "
            "both, name the other one in the rule, too.",
            error.details,
        ) from error
    number = len(selection.objects)
    ids = [
        {content[one.start : one.end] for one in located.leaves if one.name == inner.id_leaf}
        for located in selection.objects
    ]
    parsed = from_found(inner, selection, content, depth)
    for item, different in zip(parsed.items, ids, strict=False):
        if len(different) > 1 and not _lists_ids(operation):  # an application takes either
            item.id, parsed.hiding = None, True
    ways = list[Spot]()
    for item in parsed.items:
        ways += (spot for spot in item.spots if spot.field.startswith(ON_THE_WAY))
        item.spots = [spot for spot in item.spots if not spot.field.startswith(ON_THE_WAY)]
    if len(parsed.items) > number and not (parsed.items[-1].spots or parsed.items[-1].emptied):
        parsed.items.pop()  # it held nothing but texts on the way
    texts = [spot.value.text for spot in ways if spot.value is not None]
    return document, parsed, any(text not in _NOTHING for text in texts)


def _lists_ids(operation: Operation) -> bool:
    ids = filter(None, (operation.id, operation.response.id))
    return any(isinstance(step, PathStep) for ident in ids for step in ident.path)


def _placed(parsed: ParsedBody, document: Document, media: Media) -> ParsedBody:
    """The same objects, by where they stand in the document."""
    parsed.media = media
    parsed.finish = partial(refold, xml=media is Media.XML)
    for item in parsed.items:
        spots, item.spots = item.spots, []
        for spot in spots:
            if (piece := document.pieces.get(spot.start)) is not None:
                start, end, parsed.writers[start] = piece
                item.spots.append(msgspec.structs.replace(spot, start=start, end=end))
            elif spot.value is None:
                item.emptied = {**item.emptied, spot.field: None}
    return parsed

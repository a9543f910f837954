"""Values that fail a ``check`` or do not fit their token format, by field and place.

The places are looked for only once a request is refused, so that requests in order pay nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import Final

from proxy.errors import Code, Detail, VaultError
from proxy.model.schema import Value
from proxy.model.values import step
from proxy.offload import busy, give_way
from proxy.redactor import form
from proxy.redactor.ambiguity import steps_to
from proxy.redactor.bodies.uploads import UPLOADS
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.vault_search import Misfit, unfit_values
from proxy.redactor.message import Media, Request
from proxy.redactor.redact import BodyObject, ParsedBody, Spot
from proxy.telemetry import logs
from proxy.vault.proxied import SentTokens, stand_ins

_log = logs.logger("redactor")

#: A quoted cell, or the end of a line behind which another one is empty.
_EMPTY_LINE: Final = re.compile(rb'"[^"]*"|((?>\r\n|\n|\r))(?=\r|\n)')

#: Values that are reported for one request.
_MOST: Final = 20

#: How a token format says that it has no token for a value.
_UNFIT: Final = "A value does not fit the token shape "

#: Placeholder in a place for a name that the rule does not state: it may be personal.
_ANY: Final = "*"


async def refuse_invalid(
    joined: BoundOperation, request: Request, body: ParsedBody, ids: Sequence[str]
) -> None:
    """Raise ``VaultError(VALUE_INVALID)`` for values of a write that are not what their fields
    take.

    The record's own tokens and masks that come back in the place of values stand for those.
    """
    region = joined.collection.context.region

    def fault(spot: Spot) -> str:
        check, value = joined.checks.get(spot.field), spot.value
        if check is None or value is None or spot.transient or not (value.text or value.json):
            return ""
        return check.fault(value, region)

    refused = []
    for item in body.items:
        for spot in item.spots:
            if reason := fault(spot):
                refused.append((item, spot, reason))
            if busy():  # one object may have thousands of values, and one takes milliseconds
                await give_way()
    keys = [*ids, *(item.id for item, _, _ in refused if item.id is not None)]
    sent: dict[str, list[Value]] = {}
    for _, spot, _ in refused:
        sent.setdefault(spot.field, []).append(spot.value or Value(""))
    if sent and keys:
        back = await stand_ins(joined.collection, keys, sent, joined.cover.masks)
        refused = [one for one in refused if (one[1].field, _text(one[1])) not in back]
    refused = refused[:_MOST]
    if refused:
        for field, reason in dict.fromkeys((spot.field, reason) for _, spot, reason in refused):
            _log.warning(
                "a value is not what its field takes",
                operation=joined.plan.operation.label,
                field=field,
                reason=reason,
            )
        names = ", ".join(dict.fromkeys(spot.field for _, spot, _ in refused))
        raise VaultError(
            Code.VALUE_INVALID,
            f"A value is not what its field takes ({names}), so nothing was stored or sent.",
            tuple(
                Detail(_position(joined, request, body, spot), f"{spot.field}: {reason}")
                for _, spot, reason in refused
            ),
        )


def _text(spot: Spot) -> str:
    return "" if spot.value is None else spot.value.text


def explained(
    error: VaultError, joined: BoundOperation, request: Request, body: ParsedBody | None
) -> VaultError:
    """The refusal of a request with the place of each misfit; any other error as it is."""
    if isinstance(error, SentTokens):
        tokens = _misfits(joined, request, body, partial(_sent_token, error.places))
        details = [Detail(position, f"{field}: {text}") for field, position, text in tokens]
        return VaultError(error.code, error.message, tuple(details[:_MOST]) or error.details)
    if error.code is not Code.VALUE_UNFIT or error.details:
        return error
    misfits: dict[Misfit, None] = {}
    for reason in (_refusal, partial(_own_token, error.message)):
        if not misfits:
            misfits = dict.fromkeys(islice(_misfits(joined, request, body, reason), _MOST))
    return unfit_values(joined.plan.operation, [*misfits]) if misfits else error


def _misfits(
    joined: BoundOperation,
    request: Request,
    body: ParsedBody | None,
    reason: Callable[[BoundOperation, str, Value], str],
) -> Iterator[Misfit]:
    """Each value in a body that its field's format refuses."""
    for item in body.items if body is not None else ():
        for spot in item.spots:
            if spot.value is not None and (text := reason(joined, spot.field, spot.value)):
                yield spot.field, _position(joined, request, body, spot), text


def _refusal(joined: BoundOperation, field: str, value: Value) -> str:
    """Explain why the format refuses a value; empty if it does not."""
    try:
        joined.collection.mints[field](value, 0, 0)
    except VaultError as error:
        return error.message if error.code is Code.VALUE_UNFIT else ""
    return ""


def _sent_token(
    places: AbstractSet[tuple[str, str]], _joined: BoundOperation, field: str, value: Value
) -> str:
    """Describe a value that is one of these tokens; empty for another one."""
    return "holds a token, which is no value" if (field, value.text) in places else ""


def _own_token(message: str, joined: BoundOperation, field: str, value: Value) -> str:
    """Return that message for a text that is a token of the field itself."""
    own = joined.collection.tokenizers[field].identify(value.text) is not None
    return message if own and message.startswith(_UNFIT) else ""


def _position(joined: BoundOperation, request: Request, body: ParsedBody | None, spot: Spot) -> str:
    """A JSON Pointer (RFC 6901), or the name of a form member as the rule writes it."""
    start = spot.start
    rule = joined.plan.operation.request.body
    if rule is None or body is None:
        return ""
    if body.media is Media.FORM:
        members = form.form_members(request.body, len(request.body) + 1)
        name = next((member.name for member in members if member.start == start), "")
        return next((pattern for pattern in rule.form if form.pattern_matches(pattern, name)), "")
    if body.media in UPLOADS:
        named = {**rule.multipart, **rule.file_names, **rule.csv}.items()
        row = f", row {row_of(request.body, body.items, spot)}" if body.media is Media.CSV else ""
        return "|".join(name for name, field in named if field == spot.field) + row
    if body.media in (Media.XML, Media.VOBJECT):
        places = {**rule.fields, **rule.anchored}
        inside = (rule.objects or ()) if spot.field in rule.fields else ()
        names = [one for one in (*inside, *places[spot.field]) if isinstance(one, str)]
        return "".join(map(step, names))
    paths = (rule.objects or (), *rule.fields.values(), *rule.anchored.values())
    declared = {name for path in paths for name in path if isinstance(name, str)}
    return "".join(
        step(part if isinstance(part, int) or part in declared else _ANY)
        for part in steps_to(request.body, start)
    )


def row_of(content: bytes, items: Sequence[BodyObject], spot: Spot) -> int:
    """The row of a CSV file with this place: the first line is row 1, empty ones count."""
    rows = 2 + sum(item.spots[0].start <= spot.start for item in items[1:])
    empty = _EMPTY_LINE.finditer(content, items[0].spots[0].start, spot.start)
    return rows + sum(line[1] is not None for line in empty)

"""The elements of a page that a rule names: what takes the place of small tokens in them.

A small token, such as a date, stands in a page by chance. So it is restored only in an element that
is the field's, and only as the token of the one record that the exchange is about.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.offload import SMALL, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.message import Response
from proxy.redactor.pages import named_texts, text
from proxy.redactor.restore import Edit
from proxy.vault.proxied import AnswerObject, StagedWrite, reveal_objects


class Elements(NamedTuple):
    """The values in the elements of a page, and whether anything stored is among them."""

    edits: list[Edit]
    revealed: bool = False


async def in_elements(
    joined: BoundOperation,
    answer: Response,
    writes: Sequence[StagedWrite],
    keys: Sequence[str],
    page: int | None,
) -> Elements:
    """The values of the elements that the rule names.

    ``writes``: what the request changes. ``keys``: the records that it names.

    ``page``: when the answer was asked for, where it is a page; else it is one without success.
    Raises ``VaultError(VAULT_DOWN)``.
    """
    if page is None:
        return await _sent_in_elements(joined, answer, writes)
    return await _stored_in_elements(joined, answer, keys, page)


async def _stored_in_elements(
    joined: BoundOperation, answer: Response, keys: Sequence[str], began: int
) -> Elements:
    """What is stored of the record that the request names."""
    if len(keys) != 1:
        return Elements([])
    long = len(answer.body) > SMALL
    members = joined.plan.operation.response.members
    named = await run_in_thread(long, list, named_texts(answer.body, members))
    record = AnswerObject(keys[0], tuple((one.field, one.text) for one in named))
    revealed = await reveal_objects(joined.collection, [record], began)
    view = joined.view
    values = [
        (one, value if view is None or value is None else view.visible(one.field, value))
        for one, value in zip(named, revealed.values[0], strict=True)
    ]
    fields = frozenset(one.field for one, value in values if value is not None)
    if fields:
        await joined.audit.revealed(answer.status, keys, fields, revealed.opened.keys())
    edits = [(one.start, one.end, text(value.text)) for one, value in values if value is not None]
    return Elements(edits, bool(fields))


async def _sent_in_elements(
    joined: BoundOperation, answer: Response, writes: Sequence[StagedWrite]
) -> Elements:
    """What the caller has sent in this exchange: a form with a mistake in it shows it again.

    Otherwise the caller would send the token the next time, and nobody could tell it from a value.
    """
    if len(writes) != 1:
        return Elements([])
    sent = _sent(joined, writes[0])
    members = joined.plan.operation.response.members
    named = named_texts(answer.body, members) if sent else ()
    long = len(answer.body) > SMALL
    values = [
        (one, sent.get((one.field, one.text))) for one in await run_in_thread(long, list, named)
    ]
    return Elements(
        [(one.start, one.end, text(value)) for one, value in values if value is not None]
    )


def _sent(joined: BoundOperation, write: StagedWrite) -> Mapping[tuple[str, str], str]:
    """By field and token what the caller may see of what it sent, without fields in which it sent a
    token itself.
    """
    view = joined.view
    pairs = (
        ((name, one.token), one.value if view is None else view.visible(name, one.value))
        for name, values in write.tokens.items()
        if name not in write.own
        for one in values
    )
    return {key: value.text for key, value in pairs if value is not None}

"""The forms of a page whose request names no record, as that of whoever is signed in.

A small token, such as a date, tells no record. But a form of one person has a name or an address
beside it, whose token does: where all of these in one form, or in one row of a list, are of one
record, the other elements there that the rule names are read as that record's.
"""

import re
from bisect import bisect
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import Final

from proxy.model.schema import NO_VALUE
from proxy.offload import SMALL, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.request_tokens import RequestText
from proxy.redactor.message import Request, Response
from proxy.redactor.pages import NamedText, named_texts, text
from proxy.redactor.restore import Edit
from proxy.tokenization.base import TELLS_RECORD
from proxy.tokenization.digits import NUMBER_IN_TEXT
from proxy.vault.proxied import OpenRow, reveal_anywhere

_FORM: Final = re.compile(rb"<form[\s>]", re.IGNORECASE)
_ROW: Final = re.compile(rb"<(?:tr|li|article)[\s>]", re.IGNORECASE)
#: Elements of one page that are read; a page with more is no form of a person.
_MOST = 500


async def in_forms(
    joined: BoundOperation, request: Request | None, answer: Response, began: int
) -> tuple[list[Edit], bool]:
    """The values of small tokens in forms and rows, each by the record that these are of; and
    whether there is one.

    Tokens that the caller wrote into the request tell nothing, and stay. ``began``: the time of
    the request. Raises ``VaultError``.
    """
    collection, members = joined.collection, joined.plan.operation.response.members
    page, shapes = answer.body, collection.tokenizers
    telling = {name for name in members.values() if shapes[name].resolution in TELLS_RECORD}
    if request is None or not telling:
        return [], False
    texts = await run_in_thread(len(page) > SMALL, list, named_texts(page, members))
    if len(texts) > _MOST:
        return [], False
    tokens = list(dict.fromkeys(one.text for one in texts))
    own = {text for part in RequestText(request).others(tokens) for text in part}
    texts = [one for one in texts if one.text in own]
    named = dict.fromkeys(one.text for one in texts if _tells(one, telling))
    records = (await reveal_anywhere(collection, named, telling, began)).opened.values()
    edits, fields, opened = list[Edit](), set[str](), dict[int, OpenRow]()
    for one, record in _by_record(page, texts, telling, records):
        value = record.values.get((one.field, one.text))
        if value is not None and joined.view is not None:
            value = joined.view.visible(one.field, value)
        if value is not None:
            edits.append((one.start, one.end, text(value.text)))
            opened[record.row.rid] = record
            fields |= {one.field} if value != NO_VALUE else set()
    if fields:
        visible = frozenset(fields)
        await joined.audit.revealed_anywhere(answer.status, opened, collection, visible)
    return edits, bool(fields)


def _by_record(
    page: bytes, texts: Sequence[NamedText], telling: AbstractSet[str], records: Collection[OpenRow]
) -> Iterator[tuple[NamedText, OpenRow]]:
    """Each text that tells no record, with the one that its form or row is of."""
    for form in _parts(page, texts, _FORM):
        whole = _owner(form, telling, records)
        for part in [form] if whole is not None else _parts(page, form, _ROW):
            record = whole or _owner(part, telling, records)
            if record is not None:
                yield from ((one, record) for one in part if not _tells(one, telling))


def _parts(
    page: bytes, texts: Sequence[NamedText], opening: re.Pattern[bytes]
) -> Iterator[list[NamedText]]:
    """The texts between each of these tags and the next."""
    starts = [tag.start() for tag in opening.finditer(page)]
    for _, part in groupby(texts, key=lambda one: bisect(starts, one.start)):
        yield [*part]


def _tells(one: NamedText, telling: AbstractSet[str]) -> bool:
    """Whether a text may be a token that tells its record; a number may be a short one."""
    return one.field in telling and NUMBER_IN_TEXT.fullmatch(one.text) is None


def _owner(
    texts: Sequence[NamedText], telling: AbstractSet[str], records: Collection[OpenRow]
) -> OpenRow | None:
    """The one record that all tokens among the texts are of; others say nothing."""
    spots = {(one.field, one.text) for one in texts if _tells(one, telling)}
    shares = [spots & record.values.keys() for record in records]
    tokens = set[tuple[str, str]]().union(*shares)
    whole = [one for one, own in zip(records, shares, strict=True) if own == tokens]
    return whole[0] if tokens and len(whole) == 1 else None

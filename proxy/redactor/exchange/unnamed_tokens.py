"""Tokens that people take for values, where the rule of an answer does not name them.

A sample of answers is looked at, after their values are put in: below heads, behind labels, and by
the names of members, attributes and elements. What stands there is compared with the tokens of the
records that the answer shows. Nothing is changed by that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from proxy.errors import VaultError
from proxy.offload import SMALL, run_in_thread
from proxy.redactor.exchange.bound_operation import BoundOperation
from proxy.redactor.exchange.page_columns import telling_fields, value_in
from proxy.redactor.exchange.unnamed_members import AnswerSample
from proxy.redactor.message import Response
from proxy.redactor.page_heads import headed_texts
from proxy.redactor.restore import Edit
from proxy.vault.proxied import OpenRow, reveal_anywhere

#: Bytes, and places, tokens and records, of an answer that are looked at, and texts of each field
#: that are compared in all manners of writing.
_LOOKED_AT: Final = 64 * 1024
_SPOTS: Final = 200
_SPELLED: Final = 10
#: Records of an answer in JSON, whose thread serves others, too.
_RECORDS: Final = 10
#: The end of a value within a longer text, and a date before a time.
_END: Final = re.compile(r"[,;)}\]]|\.(?:\s|\Z)|(?<=[0-9]{4}-[0-9]{2}-[0-9]{2})T")

_Texts = Mapping[str, Mapping[str, None]]  #: by field, in order


async def tell_in_page(
    joined: BoundOperation, answer: Response, began: int, edits: Sequence[Edit]
) -> None:
    """Tell of fields whose tokens a page or a text shows where its rule names another place, or
    none. ``began``: the time of the request; ``edits``: of its values.
    """
    if began < joined.answers.due:
        return
    joined.answers.taken(began)
    page = answer.body[:_LOOKED_AT]
    rest = _without(page, [(start, end) for start, end, _ in edits])
    look = joined.answers, page, rest
    headed, written = await run_in_thread(len(page) > SMALL, _standing, *look)
    hidden = joined.view.hidden if joined.view is not None else frozenset()
    texts = [
        (part, field, standing)
        for part, some in (("page", headed), ("answer", written))
        for field, standing in some.items()
        if field not in hidden
    ]
    if not texts:
        return
    collection, telling = joined.collection, telling_fields(joined)
    patterns = {collection.tokenizers[name].pattern for name in telling}
    text = page.decode("latin-1")  # a byte for each character
    tokens = islice((hit[0] for one in patterns for hit in one.finditer(text)), _SPOTS)
    try:
        records = (await reveal_anywhere(collection, tokens, telling, began)).opened.values()
    except VaultError:
        return  # the next page is looked at
    _tell(joined, texts, [*islice(records, _SPOTS)])


def tell_in_members(
    joined: BoundOperation,
    answer: bytes,
    named: Iterable[tuple[int, int]],
    records: Iterable[OpenRow | None],
    began: int,
) -> None:
    """Tell of fields whose tokens an answer shows in places that its rule does not name.

    ``named``: the stretches that it names; ``records``: those that the answer shows.
    """
    joined.answers.taken(began)
    some = answer[:_LOOKED_AT]
    rest = _without(some, named)
    hidden = joined.view.hidden if joined.view is not None else frozenset()
    texts = _written(joined.answers, rest)
    shows = [one for one in islice(records, _RECORDS) if one is not None]
    _tell(joined, [("answer", *one) for one in texts.items() if one[0] not in hidden], shows)


def _tell(
    joined: BoundOperation,
    texts: Iterable[tuple[str, str, Mapping[str, None]]],
    records: Sequence[OpenRow],
) -> None:
    for part, field, standing in texts:
        if any(_is_in(record, field, standing) for record in records):
            kind = joined.plan.operation.entity.fields[field].kind
            joined.unnamed.count(field, [kind], part)


def _standing(sample: AnswerSample, page: bytes, rest: bytes) -> tuple[_Texts, _Texts]:
    """The texts of a page under heads that its rule does not name; and those under names of fields,
    where it has no value in them.
    """
    texts = dict[str, dict[str, None]]()
    for spot in headed_texts(page, sample.heads).places[:_SPOTS] if sample.heads else ():
        texts.setdefault(spot.field, {}).update(dict.fromkeys(one.text for one in spot.runs))
    return texts, _written(sample, rest)


def _written(sample: AnswerSample, rest: bytes) -> _Texts:
    """The texts behind the names of fields: ``"birthDate": "…"``, ``data-born="…"``, ``DOB: …``."""
    texts = dict[str, dict[str, None]]()
    for hit in islice(sample.written.finditer(rest.decode("utf-8", "replace")), _SPOTS):
        for field in sample.fields_of(hit[1]):
            texts.setdefault(field, {}).update(dict.fromkeys(_readings(hit[2])))
    return texts


def _without(answer: bytes, stretches: Iterable[tuple[int, int]]) -> bytes:
    """An answer with line ends in place of these stretches, which may overlap."""
    rest = bytearray(answer)
    for start, end in stretches:
        rest[start:end] = b"\n" * len(rest[start:end])
    return bytes(rest)


def _readings(text: str) -> Iterator[str]:
    yield text.strip()
    yield _END.split(text, maxsplit=1)[0].strip()


def _is_in(record: OpenRow, field: str, texts: Mapping[str, None]) -> bool:
    """Whether one of these texts is a token of the record; a few in any manner of writing."""
    few = islice((one for one in texts if any(map(str.isdigit, one))), _SPELLED)
    return any(name == field and token in texts for name, token in record.values) or any(
        value_in(record, field, one) is not None for one in few
    )

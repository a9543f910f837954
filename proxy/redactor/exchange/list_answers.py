"""Answers that are lists: restored page by page and column by column, with no object for a value.

Objects that show their records as those are now, each text where a text stands, need no more than
that. For the others the vault is objects from all sides, as for any answer (``reveal_others``), and
an answer that is no such list, or tells anything of a change in doubt, is restored by
``RuleExchange``. Nothing has happened by then.

A front cuts such an answer itself (``front_exchange``): the owner of the vault gets ids and tokens
alone, and answers with the values.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from proxy.errors import VaultError
from proxy.model.schema import NO_VALUE, Value
from proxy.offload import LARGE, busy, give_way, run_in_thread
from proxy.redactor.exchange.request_tokens import hide_untold
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.json import tree as json_codec
from proxy.redactor.json.arrays import ListRows, RowShape
from proxy.redactor.message import Media, Response, classify
from proxy.redactor.plan import BodyPlan, id_in_text
from proxy.redactor.rules import IdSource
from proxy.vault.collection import Collection
from proxy.vault.proxied import (
    REVEAL_SLICE,
    AnswerObject,
    OpenRow,
    PageRecord,
    PageRun,
    open_page,
    reveal_others,
)

_JSON: Final = Media.JSON
#: Bytes of a page, about.
_ROOM: Final = 256 * 1024
#: Objects of an answer whose rows are read at one time, and bytes of them, about.
_LOOKED_UP: Final = 1000
_LOOKED_UP_ROOM: Final = 2 * 1024 * 1024
#: A place of an object: its piece, whether a number stands there, the field and the text.
_Spot = tuple[int, bool, str, str]
#: Stands between texts that are written together.
_BETWEEN, _WRITTEN = "\x1f", b"\\u001f"
_encode: Final = msgspec.msgpack.Encoder().encode
_runs: Final = msgspec.msgpack.Decoder(list[PageRun]).decode


class ListExchange(RuleExchange):
    """The exchange of a read that answers with a list of objects (``BoundOperation.lists``)."""

    async def _restore(self, answer: Response) -> Response:
        restored = await self._by_pages(answer)
        return restored if restored is not None else await super()._restore(answer)

    async def _by_pages(self, answer: Response) -> Response | None:
        """The answer as the caller may see it; ``None`` where it has to be looked at as a whole."""
        plan, body = self._joined.lists, answer.body
        try:
            if (
                plan is None
                or plan.selection is None
                or classify(answer.headers, body) is not _JSON
            ):
                return None
            parts = body, self._operation.endpoint.limits.json_depth
            rows = await run_in_thread(len(body) > LARGE, plan.selection.rows, *parts)
            if rows is None:
                return None
            sought = self._search.values if self._search is not None else {}
            restored = _List(self._collection, plan, self.began, sought)
            restored.hides = self._joined.notices.hides
            written = await restored.written(rows)
        except VaultError:
            return None  # its meaning is the same for any answer
        if written is None or (written[1] == 1 and self._names_one()):
            return None
        for one in restored.others:
            self._joined.notices.other_id(self._collection, *one)
        self._joined.notices.untold(self._collection, restored.untold)
        visible = await self._report(answer.status, restored.counts, restored.keys, restored.opened)
        return Response(answer.status, answer.headers, written[0]) if visible else answer

    async def _report(
        self,
        status: int,
        counts: Mapping[str, int],
        keys: Sequence[str | None],
        opened: Mapping[int, None],
    ) -> bool:
        """Count values, and have the audit log told of them; whether they may be shown."""
        self._shows, restored = bool(counts), self._joined.restored
        for name, number in counts.items():  # as ``count``, in one call less
            restored[name].value += number
        if counts:
            try:
                await self._exchange_audit.revealed(status, keys, frozenset(counts), opened)
            except VaultError as error:
                self._joined.pass_with_tokens(error)
                return False
        return True

    async def reveal_rows(self, status: int, rows: bytes) -> bytes | None:
        """The values of a list whose rows a front has sent (``front_exchange``); empty: it passes
        as it is. ``None``: it has to be restored as any, and nothing has happened.
        """
        if self._joined.lists is None or status not in self._operation.response.success:
            return None
        runs = _runs(rows)
        try:
            records = await open_page(self._collection, runs)
        except VaultError:
            return None  # its meaning is the same for any answer
        opened = [one for one in records if one is not None]
        if len(opened) < len(records) or (len(opened) == 1 and self._names_one()):
            return None
        counts, columns, at = dict[str, int](), list[list[tuple[str, ...]]](), 0
        for run in runs:
            after = at + len(run.texts)
            texts_of = [one.texts for one in opened[at:after]]
            columns.append(own := list(zip(*texts_of, strict=True)))
            for name, texts in zip(run.fields, own, strict=True):
                if restored := len(texts) - texts.count(""):
                    counts[name] = counts.get(name, 0) + restored
            at = after
        try:
            values = _encode(columns)
        except UnicodeEncodeError:
            return None
        try:
            keys, rids = [one.key for one in opened], dict.fromkeys([one.rid for one in opened])
            return values if await self._report(status, counts, keys, rids) else b""
        finally:
            self._close(status)

    def _names_one(self) -> bool:
        """Whether request or head name the record of an answer that shows only one."""
        ident = self._operation.response.id
        return bool(self._ids) or (ident is not None and ident.source is IdSource.HEADER)


class ObjectCut(NamedTuple):
    """Place of the objects of a run among the pieces of a page."""

    start: int  #: their first piece
    width: int  #: pieces of an object
    places: tuple[int, ...]  #: pieces from the beginning of an object to each of its places

    def column(self, at: int, size: int) -> slice:
        return slice(self.start + at, self.start + size * self.width, self.width)


class ListPieces:
    """A list in pieces: fixed bytes, and the content of places."""

    def __init__(self, plan: BodyPlan) -> None:
        self._plan = plan
        self.counts: dict[str, int] = {}

    async def _read(
        self, rows: ListRows, pieces: list[bytes]
    ) -> list[tuple[ObjectCut, PageRun]] | None:
        """The next objects, whose rows are read at one time; ``None`` as ``ListRows.page``."""
        runs, objects, size = list[tuple[ObjectCut, PageRun]](), 0, 0
        while not rows.ended and objects < _LOOKED_UP and size < _LOOKED_UP_ROOM:
            page = rows.page(REVEAL_SLICE, _ROOM)
            if page is None:
                return None
            at, size = len(pieces), size + sum(map(len, page[0]))
            pieces += page[0]
            for shape, many in page[1]:
                runs.append(self._run(pieces, shape, many, at))
                at += many * (2 * len(shape.leaves) + 1)
                objects += many
            if busy():
                await give_way()
        return runs

    def _run(
        self, pieces: list[bytes], shape: RowShape, size: int, start: int
    ) -> tuple[ObjectCut, PageRun]:
        """Objects of one shape that follow each other from a piece on."""
        names, ident = self._plan.fields, self._plan.id_leaf
        chosen = [index for index, leaf in enumerate(shape.leaves) if leaf != ident]
        places = tuple([2 * index + 1 for index in chosen])
        cut = ObjectCut(start, 2 * len(shape.leaves) + 1, places)
        columns = [_texts(pieces[cut.column(at, size)]) for at in places]
        ids: Sequence[str | None] = [None] * size
        if ident in shape.leaves:
            index = shape.leaves.index(ident)
            ids = self._ids(_texts(pieces[cut.column(2 * index + 1, size)]), shape.bare[index])
        return cut, PageRun(
            tuple([names[shape.leaves[index]] for index in chosen]),
            tuple([shape.bare[index] for index in chosen]),
            ids,
            list(zip(*columns, strict=True)) if columns else [()] * size,
        )

    def _ids(self, texts: list[str], bare: bool) -> Sequence[str | None]:
        """The ids that stand in these; a number that is no whole one is none."""
        template = self._plan.id_template
        if bare and "" not in texts and "".join(texts).isdecimal():
            return texts if not template else [id_in_text(template, text) for text in texts]
        if bare:
            texts = [text if text.lstrip("-").isdecimal() else "" for text in texts]
        if bare and not template:
            return [text or None for text in texts]
        return [id_in_text(template, text) if text else None for text in texts]

    def _splice(
        self, pieces: list[bytes], cut: ObjectCut, run: PageRun, columns: Sequence[Sequence[str]]
    ) -> None:
        counts = self.counts
        for number, texts in enumerate(columns):
            at, name, size = cut.places[number], run.fields[number], len(texts)
            if restored := size - texts.count(""):
                counts[name] = counts.get(name, 0) + restored
            column = cut.column(at, size)
            written = [text.encode() for text in texts] if run.bare[number] else _written(texts)
            if restored < size:
                written = [new or old for new, old in zip(written, pieces[column], strict=True)]
            pieces[column] = written


class _List(ListPieces):
    """One list on its way, and what its answer shows."""

    def __init__(
        self,
        collection: Collection,
        plan: BodyPlan,
        began: int,
        sought: Mapping[tuple[str, str], Value],
    ) -> None:
        self._plan, self.counts = plan, {}  # as of any, in one call less
        self._collection = collection
        self._began = began
        self._sought = sought  #: search values of the request, by (field, token)
        self.keys: list[str | None] = []  #: of the records with values in the answer
        self.opened: dict[int, None] = {}  #: the records that were looked at
        #: objects that are not known by their ids, one or more: with the records of their tokens
        self.others: list[tuple[AnswerObject, OpenRow | None]] = []
        self.untold: set[str] = set()  #: fields whose tokens an id would tell that is not there
        self.hides = True  #: whether these are not shown

    async def written(self, rows: ListRows) -> tuple[bytes, int] | None:
        """The body with values, and the number of its objects; ``None``: it is restored as any."""
        parts, objects = [rows.before], 0
        while not rows.ended:
            pieces = list[bytes]()
            runs = await self._read(rows, pieces)
            if runs is None or not await self._restore(pieces, runs):
                return None
            objects += sum([len(run.texts) for _, run in runs])
            parts.append(b"".join(pieces))
        parts.append(rows.after)
        return b"".join(parts), objects

    async def _restore(
        self, pieces: list[bytes], runs: Sequence[tuple[ObjectCut, PageRun]]
    ) -> bool:
        """Put values into objects that are looked up together; whether it could be done."""
        records = await open_page(self._collection, [run for _, run in runs])
        at = 0
        for cut, run in runs:
            some = records[at : at + len(run.texts)]
            rows = [one.texts if one is not None else [""] * len(run.fields) for one in some]
            try:
                self._splice(pieces, cut, run, list(zip(*rows, strict=True)))
            except UnicodeEncodeError:
                return False
            at += len(some)
            if busy():
                await give_way()
        if None in records:
            return await self._others(pieces, runs, records)
        self.keys += [one.key for one in records if one is not None]
        self.opened.update(dict.fromkeys([one.rid for one in records if one is not None]))
        return True

    async def _others(
        self,
        pieces: list[bytes],
        runs: Sequence[tuple[ObjectCut, PageRun]],
        records: Sequence[PageRecord | None],
    ) -> bool:
        """Restore the objects that do not show their record as it is; whether it could be done."""
        spots = _spots(pieces, runs, records)
        ids = [ident for _, run in runs for ident in run.ids]
        objects = [
            AnswerObject(ids[index], tuple([spot[2:] for spot in some]))
            for index, some in spots.items()
        ]
        homes = {one.rid: ident for ident, one in zip(ids, records, strict=True) if one is not None}
        rest: list[tuple[list[Value | None], OpenRow | None]] = []
        for first in range(0, len(objects), REVEAL_SLICE):
            part = objects[first : first + REVEAL_SLICE]
            revealed = await reveal_others(self._collection, part, self._began, homes)
            if revealed.may_decide:
                return False
            rest += zip(revealed.values, revealed.rows, strict=True)
            self.others.append((part[0], revealed.rows[0]))
            sought = self._sought if self.hides else None
            self.untold |= hide_untold(self._collection, part, revealed.values, sought)
            self.opened.update(dict.fromkeys(revealed.opened))
            if busy():
                await give_way()
        others = iter(zip(spots.items(), rest, strict=True))
        for record in records:
            if record is not None:
                self.opened[record.rid] = None
                self.keys.append(record.key)
                continue
            (index, some), (values, row) = next(others)
            if self._put_each(pieces, some, values):
                named = row is not None and ids[index] is None
                open_key = self._collection.sealer.open_key
                key = (row.name or open_key(row.row)) if row is not None and named else ids[index]
                self.keys.append(key)
        return True

    def _put_each(
        self, pieces: list[bytes], spots: Sequence[_Spot], values: Sequence[Value | None]
    ) -> bool:
        """Put known values into an object's places; return whether there are any."""
        restored = False
        for (at, bare, name, text), one in zip(spots, values, strict=True):
            value = one or self._sought.get((name, text))
            if value is not None:
                if value != NO_VALUE:
                    self.counts[name] = self.counts.get(name, 0) + 1
                _put(pieces, at, value, Value(text, bare))
                restored = True
        return restored


def _texts(pieces: Sequence[bytes]) -> list[str]:
    """Pieces of a body as texts; none of them holds a line break."""
    return b"\n".join(pieces).decode().split("\n")


def _written(texts: Sequence[str]) -> list[bytes]:
    """Texts as they stand between the quotes of JSON.

    ``UnicodeEncodeError`` for one that is no Unicode.
    """
    encode = json_codec.encode_text
    pieces = encode(_BETWEEN.join(texts))[1:-1].split(_WRITTEN)
    return pieces if len(pieces) == len(texts) else [encode(text)[1:-1] for text in texts]


def _spots(
    pieces: Sequence[bytes],
    runs: Sequence[tuple[ObjectCut, PageRun]],
    records: Sequence[PageRecord | None],
) -> dict[int, list[_Spot]]:
    """The places that hold anything of each object without a record."""
    spots: dict[int, list[_Spot]] = {}
    index = 0
    for cut, run in runs:
        for number in range(len(run.texts)):
            if records[index] is None:
                start = cut.start + number * cut.width
                spots[index] = [
                    (start + at, bare, name, pieces[start + at].decode())
                    for at, bare, name in zip(cut.places, run.bare, run.fields, strict=True)
                    if pieces[start + at] or pieces[start + at + 1][:1] == b'"'
                ]
            index += 1
    return spots


def _put(pieces: list[bytes], at: int, value: Value, before: Value) -> None:
    """Put a value into a place, with the quotes that it needs."""
    if value == before:
        return
    if not before.json:
        pieces[at - 1] = pieces[at - 1][:-1]
        pieces[at + 1] = pieces[at + 1][1:]
    pieces[at] = json_codec.write_json_value(value)

"""State of a table here: writers at work, replaced versions, records lists showed lately."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import takewhile
from operator import itemgetter
from sys import getsizeof
from typing import Any, Final, NamedTuple, TypeVar

from proxy.clock import Clock
from proxy.crypto.prf import either
from proxy.storage.base import SLOTS, Replicas
from proxy.storage.rows import Row
from proxy.tokenization.base import Tokenizer
from proxy.vault.locks import ENDED, RecordLocks, SharedLocks
from proxy.vault.open_columns import OpenColumns

_T = TypeVar("_T")

# Replaced versions serve earlier requests: a list may be slower than a change of one of its
# records. Such an answer shows tokens of the replaced version, which the store no longer has. So
# the sealed rows stay in memory for a while: sealed, so nothing is in the clear; bounded in bytes
# and time; and only for requests from before the change, so for all others a replaced token is a
# text without a value.

#: How long the slowest answer may take, in milliseconds, and how many bytes of bodies are kept at
#: most.
SUPERSEDED_MILLISECONDS = 120_000
BOUND = 16 * 1024 * 1024


class Retired:
    """The replaced rows of one table, by record id."""

    __slots__ = ("_bound", "_bytes", "_order", "_rows")

    def __init__(self, bound: int = BOUND) -> None:
        self._bound = bound
        self._bytes = 0
        self._rows: dict[int, deque[tuple[int, Row]]] = {}
        self._order: deque[tuple[int, int]] = deque()  #: when, and which record; oldest first

    def __len__(self) -> int:
        return len(self._order)

    def keep(self, row: Row, now: int) -> None:
        """A row is about to be replaced."""
        self._rows.setdefault(row.rid, deque()).append((now, row))
        self._order.append((now, row.rid))
        self._bytes += len(row.body)
        while self._order and (
            self._bytes > self._bound or self._order[0][0] < now - SUPERSEDED_MILLISECONDS
        ):
            self._drop(self._order.popleft()[1])

    def since(self, rid: int, began: int) -> Iterator[Row]:
        """The versions of a record that were replaced since an instant, the newest first."""
        for at, row in reversed(self._rows.get(rid, ())):
            if at < began:
                return
            yield row

    def lately(self, began: int) -> Iterable[int]:
        """The records with a version that was replaced since an instant, the latest first."""
        since = takewhile(lambda one: one[0] >= began, reversed(self._order))
        return dict.fromkeys(rid for _, rid in since)

    def join(self, rid: int, home: int) -> None:
        """The versions of a record are those of the other, which it has become a part of."""
        if rows := self._rows.pop(rid, None):
            own = self._rows.get(home, ())
            self._rows[home] = deque(sorted((*rows, *own), key=itemgetter(0)))
            self._order = deque((at, home if one == rid else one) for at, one in self._order)

    def take_in(self, row: Row, home: int, now: int) -> None:
        """A row ends, and has become a part of the other record."""
        self.keep(row, now)
        self.join(row.rid, home)

    def forget(self, rid: int) -> None:
        """Show nothing of a record as it was until now."""
        for _, row in self._rows.pop(rid, ()):
            self._bytes -= len(row.body)

    def _drop(self, rid: int) -> None:
        rows = self._rows.get(rid)
        if rows is None:  # forgotten
            return
        self._bytes -= len(rows.popleft()[1].body)
        if not rows:
            del self._rows[rid]


#: Bits of an id below its milliseconds.
TIME_SHIFT = 21


class Sequencer:
    """Time-ordered unique 63-bit ids: 42 bits of milliseconds since 2020, 21 of sequence, whose
    last ones are the owner's number where the store has several.
    """

    _EPOCH = 1_577_836_800_000

    def __init__(self, clock: Clock, replicas: Replicas | None = None) -> None:
        self._clock = clock
        self._step, slot = (1, 0) if replicas is None else (SLOTS, replicas.slot)
        self._last = self._slot = slot

    def __call__(self) -> int:
        """The next id, larger than every one before it."""
        now = (self._clock() - self._EPOCH) << TIME_SHIFT
        self._last = max(self._last + self._step, now | self._slot)
        return self._last

    def at(self, now: int) -> int:
        """The same, where the clock was read already."""
        timed = (now - self._EPOCH) << TIME_SHIFT
        self._last = max(self._last + self._step, timed | self._slot)
        return self._last

    def several(self, count: int, now: int) -> range:
        """Return the next ``count`` ids in sequence, likewise."""
        first, step = self.at(now), self._step
        self._last += (count - 1) * step
        return range(first, first + count * step, step)

    @classmethod
    def issued_at(cls, number: int) -> int:
        """When an id was given, in milliseconds since the epoch."""
        return (number >> TIME_SHIFT) + cls._EPOCH


#: Most staged changes that are remembered as reported (further ones are reported again), records
#: without an id whose pages are remembered, records changed in doubt, and ids of deleted ones.
_MOST_REPORTED, _MOST_DISPLAYED, _MOST_UNSURE, _MOST_ENDED = 10_000, 10_000, 200, 10_000


class _Together:
    """Ids in use, live by this process and as last seen by others."""

    __slots__ = ("_others", "_own")

    def __init__(self, own: AbstractSet[int], others: AbstractSet[int]) -> None:
        self._own, self._others = own, others

    def __contains__(self, ident: object) -> bool:
        return ident in self._own or ident in self._others


@dataclass(slots=True)
class TableState:
    """State of a table in this process, beyond the store."""

    table: str = ""
    replicas: Replicas | None = None  #: the other replicas
    locks: RecordLocks = field(default_factory=RecordLocks)
    columns: OpenColumns = field(default_factory=OpenColumns)  #: what bodies of the table bind
    #: record and staging ids of exchanges under way here
    in_flight: set[int] = field(default_factory=set)
    begun: dict[int, str] = field(default_factory=dict)  #: of these, new ones and their ids
    at_work: Container[int] = field(init=False)  #: of all replicas, as ``look`` found it last
    #: names of records deleted, unknown to the vault, while others were being made, and when
    gone: dict[bytes, int] = field(default_factory=dict)
    #: names given while others were under way, that may be the same: record, its salt, and when
    named: dict[bytes, tuple[int, bytes, int]] = field(default_factory=dict)
    #: schemas of entities whose records stand among those of the table's, with their tokens
    hosted: dict[str, Mapping[str, Tokenizer]] = field(default_factory=dict)
    #: hashes of ids deleted lately, and when: answers asked for before prove nothing of these
    ended: dict[bytes, int] = field(default_factory=dict)
    #: hashes of ids of which deletes are under way that the vault does not know, and how many
    ending: Counter[bytes] = field(default_factory=Counter)
    ending_elsewhere: AbstractSet[bytes] = frozenset()  #: the same of others, as ``hear`` found it
    #: what it found, so that a commit sees what has come since (``changes.Underway``)
    heard: tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[int, ...]] = (), (), ()
    #: versions that answers under way may still show
    retired: Retired = field(default_factory=Retired)
    #: staged changes that were reported: no answer can decide them
    reported: set[int] = field(default_factory=set)
    #: records of which an update may have been refused: searches look at earlier versions, too
    unsure: dict[int, None] = field(default_factory=dict)
    #: records without an id that a page about one has shown in full, by the hash of the id that it
    #: was asked for by: other pages of that may show a part
    displayed: dict[bytes, int] = field(default_factory=dict)
    #: whether deletes may be staged, so that a list of all records may decide about some
    deletes: bool = True
    #: fields whose index entries are still being added to records (``proxied.filling``)
    filling: AbstractSet[str] = frozenset()

    def __post_init__(self) -> None:
        self.at_work = self.in_flight
        if self.replicas is not None:
            self.locks = SharedLocks(self.replicas, self.table)
            self.replicas.works(self.table, self.in_flight)

    async def look(self) -> None:
        """Learn the other owners' work; call it after reading the data to judge."""
        if self.replicas is not None:
            others = await self.replicas.at_work(self.table)
            self.at_work = _Together(self.in_flight, others)

    async def hear(self, keys: Iterable[bytes]) -> None:
        """Learn the announcements on these names from others in flight (``gone``, ``named``)."""
        if self.replicas is None or not isinstance(self.locks, SharedLocks):
            return
        names = list(either(keys))
        deletes = dict(zip(self.locks.deletes(names), names, strict=True))
        rows = await self.replicas.overtaken(self.table, names, list(deletes))
        self.ending_elsewhere = {deletes[name] for name, rid, _, _ in rows if rid == 0}
        ended = [(key, salt, at) for key, rid, salt, at in rows if rid is None]
        for key, _, at in ended:  # both hashes of a delete have one instant
            self.end(key, max(self.ended.get(key, -1), Sequencer.issued_at(at)))
        self.gone = {key: at for key, salt, at in ended if salt != ENDED}
        free = (name for name, key in deletes.items() if key not in self.ending_elsewhere)
        self.heard = tuple(names), tuple(free), tuple(at for _, _, at in ended)
        self.named = {}
        for key, rid, salt, at in sorted(rows, key=itemgetter(3)):
            if rid and self.named.get(key, (0,))[0] <= rid:
                self.named[key] = rid, salt, at

    def stamp(self, number: int) -> int:
        """An instant for other owners, as a sequence number late enough for their clocks."""
        return number if self.replicas is None else number + (self.replicas.margin << TIME_SHIFT)

    def before(self, instant: int, now: int) -> int:
        """An instant that was before that one by the clock of any replica; 0 where the clock was
        set back since, for nobody knows then what was before. Within a millisecond nobody knows.
        """
        if instant > now:
            return 0
        return instant - 1 - (0 if self.replicas is None else self.replicas.margin)

    def end(self, key: bytes, now: int) -> None:
        """The application has deleted the record with this id, or may have."""
        self.ended.pop(key, None)
        self.named.pop(key, None)
        self.ended[key] = now
        if len(self.ended) > _MOST_ENDED:
            del self.ended[next(iter(self.ended))]

    def doubt(self, rid: int) -> None:
        """An update of this record is answered in a way that a refusal may be."""
        self.unsure.pop(rid, None)
        self.unsure[rid] = None
        if len(self.unsure) > _MOST_UNSURE:
            del self.unsure[next(iter(self.unsure))]

    def display(self, key: bytes, rid: int) -> None:
        """A page about this id has shown this record, which has none, in full."""
        self.displayed.pop(key, None)
        self.displayed[key] = rid
        if len(self.displayed) > _MOST_DISPLAYED:
            del self.displayed[next(iter(self.displayed))]

    def report(self, sid: int) -> bool:
        """Whether a staged change was not reported yet; from now on it is."""
        if sid in self.reported:
            return False
        if len(self.reported) >= _MOST_REPORTED:
            self.reported.clear()
        self.reported.add(sid)
        return True


# Records that lists have shown lately, opened. Users look at the same lists again and again. What a
# row's sealed bytes open to depends on them and on the keys alone, so it need not be opened again
# while both are the same. The row is read each time all the same, and its opening is used only if
# every byte of it is as before, and asked for in the same places: it cannot be outdated, whoever
# writes to the store.
#
# These are clear values that stay in memory for a while: bounded in bytes, for a minute after they
# were last shown, not beyond the end of their record in this process, and never under other keys.

#: Seconds after which what was not shown again is forgotten: not before, and after twice as many at
#: the latest.
LASTING: Final = 30.0
#: Bytes of one record, beside those of its body, its tokens and its values.
_OVERHEAD: Final = 1200


class PageRecord(NamedTuple):
    """The record that an object of a page shows, as that is now."""

    rid: int
    key: str
    texts: list[str]  #: the value of each place; empty where nothing stands there


#: A row; how it is shown: the fields of the places and whether a number stands in each, or what
#: renders the record; the id of the object and what stands in its places; then the record, and its
#: bytes.
Opening = tuple[Row, object, str | None, tuple[str, ...], Any, int]
_Openings = dict[int, Opening]


class OpenedRecords:
    """Opened records of one environment, in at most ``room`` bytes; 0: none.

    They belong to whoever has them remembered (``owner``): one set of rules, one schema.
    """

    __slots__ = ("_bytes", "_edition", "_old", "_room", "_timer", "_young")

    def __init__(self, room: int) -> None:
        self._room = room // 2  #: of each half
        self._young: dict[object, _Openings] = {}  #: shown since the last turn
        self._old: dict[object, _Openings] = {}  #: before it
        self._bytes = 0  #: of the young ones
        self._edition: object = None  #: of the keys
        self._timer: asyncio.TimerHandle | None = None

    def openings(self, owner: object, edition: object) -> tuple[_Openings, _Openings]:
        """The records of an owner by id, under that edition's keys: shown lately, and before."""
        if edition is not self._edition:
            self.clear()
            self._edition = edition
        return self._young.get(owner, {}), self._old.get(owner, {})

    def remember(self, owner: object, edition: object, openings: Iterable[Opening]) -> None:
        """Have them known from now on; they were opened, or shown again, under these keys."""
        if not self._room or edition is not self._edition:
            return
        young = self._young.setdefault(owner, {})
        for opening in openings:
            rid, size = opening[0].rid, opening[5]
            if size > self._room:
                continue
            if self._bytes + size > self._room:
                self._turn()
                young = self._young.setdefault(owner, {})
            before = young.get(rid)
            self._bytes += size - (before[5] if before is not None else 0)
            young[rid] = opening
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LASTING, self._later)

    def forget(self, rids: Sequence[int]) -> None:
        """Forget records that have ended, or changed."""
        for half in (self._young, self._old):
            for openings in half.values():
                gone = [openings.pop(rid)[5] for rid in rids if rid in openings]
                self._bytes -= sum(gone) if half is self._young else 0

    def clear(self) -> None:
        """Forget them all."""
        self._young, self._old, self._bytes = {}, {}, 0

    def _turn(self) -> None:
        self._old, self._young, self._bytes = self._young, {}, 0

    def _later(self) -> None:
        self._turn()
        again = self._timer is not None and self._old
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LASTING, self._later) if again else None


def opening_of(
    row: Row, how: tuple[object, str | None, tuple[str, ...]], record: object, size: int
) -> Opening:
    """Return what is remembered of a record shown so; ``size``: its bytes, about."""
    form, ident, tokens = how
    size += _OVERHEAD + len(row.body) + sum(map(getsizeof, tokens))
    return row, form, ident, tokens, record, size


#: Keys and tokens of lists whose records are remembered, and the longest of them.
_RECALLED: Final = 8192
_LONGEST: Final = 128


def recalled(
    earlier: dict[str | None, _T],
    texts: Sequence[str | None],
    work: Callable[[list[str]], Sequence[_T | None]],
) -> list[_T | None]:
    """Return what ``work`` gives for each text, as far as that is not known from before.

    ``earlier``: what is known, a fact about each text for as long as it is there.
    """
    results = list(map(earlier.get, texts))
    if None not in results:
        return results
    pairs = zip(texts, results, strict=True)
    missing = list({text: None for text, one in pairs if one is None and text is not None})
    fresh = dict[str | None, _T | None](zip(missing, work(missing), strict=True))
    if len(earlier) + len(fresh) > _RECALLED:
        earlier.clear()
    earlier.update(
        {
            text: one
            for text, one in fresh.items()
            if one is not None and text is not None and len(text) <= _LONGEST
        }
    )
    pairs = zip(texts, results, strict=True)
    return [fresh.get(text) if one is None else one for text, one in pairs]

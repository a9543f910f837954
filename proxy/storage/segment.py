"""Many changes of one table as few statements: grouped by statement where the order cannot be seen.

A segment collects changes; an engine then runs each statement once for all of them, in a fixed
order of kinds. That gives the same result as one after the other as long as no two changes that
touch each other come in the reverse of that order. ``adding`` refuses such a change; the caller then
runs the segment and begins a new one. What two changes can have in common: a row, a record key, a
token hash, a past version, a file, a reply. Where a segment is too careful (a hash that one change
frees and the next one takes), it reports a conflict that is none; the caller decides every conflict
again, one change at a time.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from proxy.storage.changes import (
    ANY_ROW,
    Accept,
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Detach,
    ForgetReplies,
    Insert,
    MarkInDoubt,
    Reindex,
    Release,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    Reroot,
    SealedPart,
    StageRow,
    Unstage,
    UpdateFile,
)
from proxy.storage.statements import TableStatements

# The order in which a segment runs. Plain integers: members of an enumeration compare ten times
# slower.
(
    _INSERT, _STAGE, _RELEASE, _BIND, _INSCRIBE, _REPLACE, _DOUBT, _UNSTAGE, _REINDEX, _FILE,
    _REPLY, _RECAST, _REMOVE,
) = range(13)  # fmt: skip


class PreconditionFailed(Exception):
    """A precondition of a change in the segment does not hold; ``hashes`` that are taken."""

    def __init__(self, hashes: frozenset[bytes] = frozenset()) -> None:
        super().__init__("a precondition does not hold")
        self.hashes = hashes

    def conflict(self, change: Change) -> Conflict:
        """The conflict of a change, with the taken ones of its hashes in its order."""
        unique = change.unique if isinstance(change, Insert | StageRow) else ()
        return Conflict(change, tuple(one for one in dict.fromkeys(unique) if one in self.hashes))


_Sql = TypeVar("_Sql", bound=TableStatements[Any])


class Segment(Generic[_Sql]):
    """Changes of one table that run together; ``alone``: one of them, to name its conflict."""

    #: Whether a statement may touch a row once only: it runs over all its changes at once, and not
    #: one after the other.
    once: ClassVar[bool] = False

    __slots__ = (
        "_accepts",
        "_adds",
        "_alone",
        "_binds",
        "_claims",
        "_cleared",
        "_doubts",
        "_drops",
        "_files",
        "_forgets",
        "_indexed",
        "_inscribes",
        "_inserts",
        "_kinds",
        "_recasts",
        "_releases",
        "_removes",
        "_replaces",
        "_replies",
        "_reroots",
        "_shares",
        "_sql",
        "_stages",
        "_unstages",
    )  # fmt: skip

    def __init__(self, sql: _Sql, *, alone: bool = False) -> None:
        self._sql = sql
        self._alone = alone
        self._kinds: dict[int | bytes, int] = {}  # last kind by record id and by record key
        self._indexed: set[bytes] = set()  # hashes that a Reindex adds
        self._inserts: list[tuple[Any, ...]] = []
        self._stages: list[tuple[Any, ...]] = []
        self._shares: list[tuple[bytes, int]] = []
        self._claims: list[tuple[bytes, int]] = []
        self._releases: list[tuple[Any, ...]] = []
        self._accepts: list[tuple[Any, ...]] = []
        self._binds: list[tuple[Any, ...]] = []
        self._inscribes: list[tuple[Any, ...]] = []
        self._replaces: list[tuple[Any, ...]] = []
        self._doubts: list[tuple[Any, ...]] = []
        self._unstages: list[tuple[int, int]] = []
        self._drops: list[tuple[bytes, int]] = []
        self._adds: list[tuple[bytes, int]] = []
        self._files: list[Attach | UpdateFile | Detach] = []
        self._cleared: list[tuple[int]] = []
        self._replies: list[Remember] = []
        self._recasts: list[ReplaceCiphertext] = []
        self._reroots: list[Reroot] = []
        self._removes: list[tuple[int]] = []
        self._forgets: list[tuple[int]] = []  # of them, those whose past goes too

    def _comes_late(self, mark: int | bytes, kind: int) -> bool:
        """Whether something of a later kind waits that touches the same row or key (``once``: or of
        the same kind); if not, remember this one.
        """
        last = self._kinds.get(mark, _INSERT)
        if last > kind or (self.once and last == kind):
            return True
        self._kinds[mark] = kind
        return False

    def _index(self, rid: int, shared: tuple[bytes, ...], unique: tuple[bytes, ...]) -> None:
        for token in unique if len(unique) == 1 else dict.fromkeys(unique):
            self._claims.append((token, rid))
        for token in shared:
            if token not in unique:
                self._shares.append((token, rid))

    def _insert(self, change: Insert) -> bool:
        row, shared, unique = change
        rid, key = row[0], row[1]
        last_kinds = self._kinds
        if last_kinds and (rid in last_kinds or (key is not None and key in last_kinds)):
            return False
        if unique and not self._indexed.isdisjoint(unique):
            return False
        self._inserts.append(self._sql.stored(row))
        if len(unique) == 1 and shared == unique:  # as nearly always
            self._claims.append((unique[0], rid))
        elif shared or unique:
            self._index(rid, shared, unique)
        return True

    def _stage(self, change: StageRow) -> bool:
        (sid, rid, kind, at, doubt, answered, body), shared, unique = change
        kinds = self._kinds
        if not self._indexed.isdisjoint(unique) or (rid in kinds and self._comes_late(rid, _STAGE)):
            return False
        kinds[rid] = _STAGE
        self._stages.append((sid, rid, int(kind), at, doubt, int(answered), body))
        if shared or unique:
            self._index(rid, shared, unique)
        return True

    def _release(self, change: Release) -> bool:
        key, rid, at, holder, key_sealed = change
        # Whose key it takes is not known here, and all of them write or read when that row was
        # updated.
        if self._replaces or self._accepts or self._recasts or self._comes_late(key, _RELEASE):
            return False
        self._releases.append((at, key, rid, holder, key_sealed))
        return True

    def _accept(self, change: Accept) -> bool:
        rid, at, key_sealed = change
        # It tells PENDING rows from others, and a Release may make one of any row.
        if self._releases or self._comes_late(rid, _BIND):
            return False
        self._accepts.append((at, key_sealed, rid))
        return True

    def _bind(self, change: Bind) -> bool:
        rid, key, key_sealed, at = change
        kinds = self._kinds
        if rid in kinds and self._comes_late(rid, _BIND):
            return False
        kinds[rid] = kinds[key] = _BIND
        self._binds.append((key, key_sealed, at, rid))
        return True

    def _replace(self, change: Replace) -> bool:
        row, expected = change
        kinds, rid = self._kinds, row[0]
        if rid in kinds and self._comes_late(rid, _REPLACE):
            return False
        kinds[rid] = _REPLACE
        self._replaces.append((*row[4:10], *self._sql.cells.stored(row.cells), rid, expected))
        return True

    def _doubt(self, change: MarkInDoubt) -> bool:
        rid, sid, at, answered = change
        if self._comes_late(rid, _DOUBT):
            return False
        self._doubts.append((at, int(answered), sid, rid))
        return True

    def _unstage(self, change: Unstage) -> bool:
        rid, sid = change
        kinds = self._kinds
        last = kinds.get(rid, _INSERT)  # as ``_comes_late``, without a call
        if last > _UNSTAGE or (self.once and last == _UNSTAGE):
            return False
        kinds[rid] = _UNSTAGE
        self._unstages.append((sid, rid))
        return True

    def _reindex(self, change: Reindex) -> bool:
        rid, add, drop = change
        # two of the same row may add and drop the same hash
        if self._kinds.get(rid, _INSERT) >= _REINDEX:
            return False
        self._kinds[rid] = _REINDEX
        self._indexed.update(add)
        self._adds.extend((token, rid) for token in add)
        self._drops.extend((token, rid) for token in drop)
        return True

    def _inscribe(self, change: AddVersion) -> bool:
        if self._comes_late(change.past.rid, _INSCRIBE):
            return False
        self._inscribes.append(change.past)
        return True

    def _file(self, change: Attach | UpdateFile | Detach) -> bool:
        rids = [change.rid if isinstance(change, Detach) else change.file.rid]
        if isinstance(change, UpdateFile):
            rids.append(change.holder)
        if any(self._kinds.get(rid, _INSERT) > _FILE for rid in (*rids, ANY_ROW)):
            return False
        self._kinds.update(dict.fromkeys(rids, _FILE))
        self._files.append(change)
        return True

    def _clear(self, change: ForgetReplies) -> bool:
        (rid,) = change
        if any(self._kinds.get(row_id, _INSERT) >= _FILE for row_id in (rid, ANY_ROW)):
            return False
        self._kinds[rid] = _FILE
        self._cleared.append((rid,))
        return True

    def _remember(self, change: Remember) -> bool:
        rids = change.rids
        if any(self._kinds.get(rid, _INSERT) > _REPLY for rid in rids) or (
            ANY_ROW in rids and self._removes
        ):
            return False
        self._kinds.update(dict.fromkeys(rids, _REPLY))
        self._replies.append(change)
        return True

    def _reroot(self, change: Reroot) -> bool:
        # last of all: where anything has changed, it has no effect
        self._reroots.append(change)
        return True

    def _recast_part(self, change: ReplaceCiphertext) -> bool:
        first = change.part in (SealedPart.ROW, SealedPart.PAST)
        rid = change.row[0 if first else 1]
        if self._comes_late(rid, _RECAST):
            return False
        self._recasts.append(change)
        return True

    def _remove_row(self, change: Remove) -> bool:
        rid, keep_past = change
        # else it is gone, and its past is not needed
        if self._kinds.get(rid) != _REMOVE:
            self._kinds[rid] = _REMOVE
            self._removes.append((rid,))
            if not keep_past:
                self._forgets.append((rid,))
        return True

    def replies(self) -> list[tuple[Any, ...]]:
        """The parameters of the replies that are kept, with the instants at which they are."""
        return [(*change.reply, change.now) for change in self._replies]

    def links(self) -> list[tuple[Any, ...]]:
        """The rows that these replies show."""
        return [
            (rid, change.reply.key, change.files) for change in self._replies for rid in change.rids
        ]

    def recasts(self, part: SealedPart) -> list[tuple[Any, ...]]:
        """The parameters of the parts that are sealed anew."""
        return [(*after, *key, *before) for of, key, before, after in self._recasts if of is part]

    def rerooted(self) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """The statements that put hashes in place of others, each with its rows of parameters."""
        sql = self._sql
        for rid, row, entries, past, files in self._reroots:
            if row is not None:
                before, after = map(sql.hashed, row)
                yield sql.reroot_row, [(*after, rid, *before)]
            if entries:
                yield sql.reroot_tokens, [(new, old, rid) for old, new in entries]
            if past is not None:
                yield sql.reroot_past, [past]
            for was, file in files:
                part = (file.name, file.sealed, file.file_id, rid, was.name, was.sealed)
                yield sql.reroot_file, [part]

    #: By kind what takes a change in, or answers ``False`` when the segment has to run first.
    adding: ClassVar[dict[type[Any], Callable[["Segment[Any]", Any], bool]]] = {
        Insert: _insert,
        Release: _release,
        Accept: _accept,
        Bind: _bind,
        StageRow: _stage,
        Replace: _replace,
        Unstage: _unstage,
        MarkInDoubt: _doubt,
        Reindex: _reindex,
        Remove: _remove_row,
        AddVersion: _inscribe,
        Attach: _file,
        UpdateFile: _file,
        Detach: _file,
        ForgetReplies: _clear,
        Remember: _remember,
        ReplaceCiphertext: _recast_part,
        Reroot: _reroot,
    }


def row_left_by(change: Attach | UpdateFile | Detach) -> int | None:
    """The row that a file leaves."""
    if isinstance(change, Detach):
        return change.rid
    return (
        change.holder
        if isinstance(change, UpdateFile) and change.holder != change.file.rid
        else None
    )


def amended(change: UpdateFile) -> tuple[Any, ...]:
    """The parameters of the change of a file."""
    file, holder, was = change
    return (*file[1:5], *file[6:], file.file_id, holder, was)

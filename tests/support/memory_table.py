"""A table of the reference engine, and the effect of each change on it.

Every value in its dictionaries is immutable, so that a copy of them is a snapshot; a commit works
on a copy.
"""

from collections.abc import Sequence
from functools import singledispatchmethod

from proxy.errors import Code, VaultError
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
from proxy.storage.rows import (
    Cells,
    ColumnValue,
    File,
    Past,
    Row,
    RowState,
    Staged,
    StoredReply,
    TableLayout,
)


class Table:
    """Rows and their parts.

    ``doomed`` are the objects that changes have released since the copy was made.
    """

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.types = {column.name: column.type for column in layout.columns}
        self.rows: dict[int, Row] = {}
        self.cells: dict[int, dict[str, ColumnValue]] = {}
        self.staged: dict[int, Staged] = {}
        self.tokens: dict[bytes, frozenset[int]] = {}
        self.past: dict[tuple[int, int], Past] = {}
        self.files: dict[bytes, File] = {}
        self.replies: dict[bytes, StoredReply] = {}
        self.shows: dict[
            bytes, tuple[tuple[int, ...], bool]
        ] = {}  # by reply: the rows that it shows, and whether files
        self.doomed: list[str] = []

    def copy(self) -> "Table":
        """Return a copy of the table."""
        other = Table(self.layout)
        other.types = self.types
        other.rows, other.cells = dict(self.rows), dict(self.cells)
        other.staged, other.tokens = dict(self.staged), dict(self.tokens)
        other.past, other.files, other.replies = (
            dict(self.past),
            dict(self.files),
            dict(self.replies),
        )
        other.shows = dict(self.shows)
        return other

    def relay(self, layout: TableLayout) -> None:
        """Adopt another layout; unnamed columns keep their values."""
        for column in layout.columns:
            if self.types.setdefault(column.name, column.type) is not column.type:
                raise VaultError(
                    Code.BAD_STORE,
                    f"Column {column.name} of the vault's table {layout.table} holds another "
                    f"type than {column.type}.",
                )
        self.layout = layout

    def row(self, rid: int) -> Row:
        """The row as the port defines it: cells in layout order, staged changes counted."""
        columns = self.layout.columns
        cells = Cells(columns).read(tuple(self.cells[rid].get(column.name) for column in columns))
        waiting = sum(staged.rid == rid for staged in self.staged.values())
        return self.rows[rid]._replace(cells=cells, staged=waiting)

    def put(self, row: Row) -> None:
        """Write the row over whatever is there."""
        names = [column.name for column in self.layout.columns]
        stored = Cells(self.layout.columns).stored(row.cells)
        self.rows[row.rid] = row._replace(cells=(), staged=0)
        self.cells[row.rid] = dict(zip(names, stored, strict=True))

    def index(
        self, rid: int, shared: tuple[bytes, ...], unique: tuple[bytes, ...], change: Change
    ) -> None:
        """Add token index entries; ``Conflict`` when one that must be new is not."""
        taken = tuple(token for token in dict.fromkeys(unique) if token in self.tokens)
        if taken:
            raise Conflict(change, taken)
        for token in (*shared, *unique):
            self.tokens[token] = self.tokens.get(token, frozenset()) | {rid}

    def unindex(self, rid: int, tokens: Sequence[bytes]) -> None:
        """Take token index entries of a row away."""
        for token in tokens:
            left = self.tokens.get(token, frozenset()) - {rid}
            if left:
                self.tokens[token] = left
            else:
                self.tokens.pop(token, None)

    def holder(self, key: bytes) -> int | None:
        """The row that has the key."""
        return next((rid for rid, row in self.rows.items() if row.key == key), None)

    def files_of(self, rid: int) -> list[File]:
        """The files of a row, oldest first."""
        return sorted(
            (file for file in self.files.values() if file.rid == rid),
            key=lambda file: (file.created_at, file.file_id),
        )

    @singledispatchmethod
    def apply(self, change: Change) -> None:
        """Make the change; ``Conflict`` when its precondition does not hold."""
        raise TypeError(f"{type(change).__name__} is not a change")

    @apply.register
    def _(self, change: Insert) -> None:
        row = change.row
        if row.rid in self.rows or (row.key is not None and self.holder(row.key) is not None):
            raise Conflict(change)
        self.put(row)
        self.index(row.rid, change.hashes, change.unique, change)

    @apply.register
    def _(self, change: Release) -> None:
        rid = self.holder(change.key)
        if rid is not None and rid != change.rid and change.holder in (None, rid):
            self.rows[rid] = self.rows[rid]._replace(
                key=None, key_sealed=change.key_sealed, state=RowState.PENDING, updated_at=change.at
            )

    @apply.register
    def _(self, change: Accept) -> None:
        row = self.rows.get(change.rid)
        if row is not None and row.state is RowState.PENDING:
            sealed = row.key_sealed if change.key_sealed is None else change.key_sealed
            self.rows[change.rid] = row._replace(
                state=RowState.LIVE, updated_at=change.at, key_sealed=sealed
            )

    @apply.register
    def _(self, change: Bind) -> None:
        row = self.rows.get(change.rid)
        if row is None or row.key not in {None, change.key}:
            raise Conflict(change)
        if self.holder(change.key) not in {None, change.rid}:
            raise Conflict(change)
        self.rows[change.rid] = row._replace(
            key=change.key, key_sealed=change.key_sealed, state=RowState.LIVE, updated_at=change.at
        )

    @apply.register
    def _(self, change: Replace) -> None:
        before = self.rows.get(change.row.rid)
        if before is None or before.version != change.expected:
            raise Conflict(change)
        self.put(
            change.row._replace(key=before.key, key_sealed=before.key_sealed, state=before.state)
        )

    @apply.register
    def _(self, change: StageRow) -> None:
        if change.staged.rid not in self.rows or change.staged.sid in self.staged:
            raise Conflict(change)
        self.staged[change.staged.sid] = change.staged
        self.index(change.staged.rid, change.hashes, change.unique, change)

    @apply.register
    def _(self, change: Unstage) -> None:
        if self._is_staged(change.rid, change.sid):
            del self.staged[change.sid]

    @apply.register
    def _(self, change: MarkInDoubt) -> None:
        if self._is_staged(change.rid, change.sid):
            staged = self.staged[change.sid]
            self.staged[change.sid] = staged._replace(doubt=change.at, answered=change.answered)

    @apply.register
    def _(self, change: Reindex) -> None:
        if change.rid in self.rows:
            self.unindex(change.rid, change.drop)
            self.index(change.rid, change.add, (), change)

    @apply.register
    def _(self, change: Remove) -> None:
        if self.rows.pop(change.rid, None) is None:
            return
        del self.cells[change.rid]
        self.staged = {
            sid: staged for sid, staged in self.staged.items() if staged.rid != change.rid
        }
        self.unindex(change.rid, list(self.tokens))
        if not change.keep_past:
            self.past = {at: past for at, past in self.past.items() if past.rid != change.rid}
        for file in self.files_of(change.rid):
            self.doomed.append(self.files.pop(file.file_id).object)
        self._blank(change.rid)

    @apply.register
    def _(self, change: AddVersion) -> None:
        past = change.past
        if (past.rid, past.version) in self.past:
            raise Conflict(change)
        self.past[past.rid, past.version] = past

    @apply.register
    def _(self, change: Attach) -> None:
        file = change.file
        if file.rid not in self.rows or file.file_id in self.files or self._named(file):
            raise Conflict(change)
        self.files[file.file_id] = file

    @apply.register
    def _(self, change: UpdateFile) -> None:
        file = change.file
        before = self.files.get(file.file_id)
        if (
            before is None
            or before.rid != change.holder
            or file.rid not in self.rows
            or self._named(file)
        ):
            raise Conflict(change)
        if change.was not in {None, before.object}:
            raise Conflict(change)
        self.files[file.file_id] = file._replace(created_at=before.created_at)
        if before.object != file.object:
            self.doomed.append(before.object)
        if change.holder != file.rid:
            self._blank(change.holder, of_files=True)

    @apply.register
    def _(self, change: Detach) -> None:
        file = self.files.get(change.file_id)
        if file is None or file.rid != change.rid:
            raise Conflict(change)
        self.doomed.append(self.files.pop(change.file_id).object)
        self._blank(change.rid, of_files=True)

    @apply.register
    def _(self, change: ForgetReplies) -> None:
        if change.rid in self.rows:
            self._blank(change.rid)

    @apply.register
    def _(self, change: Remember) -> None:
        before = self.replies.get(change.reply.key)
        if before is not None and before.expires_at > change.now:
            raise Conflict(change)
        gone = any(rid != ANY_ROW and rid not in self.rows for rid in change.rids)
        self.replies[change.reply.key] = change.reply._replace(sealed=b"") if gone else change.reply
        self.shows[change.reply.key] = (change.rids, change.files)

    @apply.register
    def _(self, change: ReplaceCiphertext) -> None:
        if change.part is SealedPart.ROW:
            self._recast_row(change)
        elif change.part is SealedPart.PAST:
            self._recast_past(change)
        elif change.part is SealedPart.STAGED:
            self._recast_staged(change)
        else:
            self._recast_file(change)

    @apply.register
    def _(self, change: Reroot) -> None:
        if change.row is not None:
            self._reroot_row(change, *change.row)
        for before, after in change.entries:
            if change.rid in self.tokens.get(before, ()):
                self.unindex(change.rid, (before,))
                self.index(change.rid, (after,), (), change)
        if change.past is not None:
            for at, past in self.past.items():
                if past.key == change.past[0]:
                    self.past[at] = past._replace(key=change.past[1])
        for was, file in change.files:
            if self.files.get(file.file_id) == was:
                self.files[file.file_id] = file

    def _reroot_row(self, change: Reroot, before: Row, after: Row) -> None:
        if change.rid not in self.rows:
            return
        row = self.row(change.rid)
        if (row.body, row.key, row.cells) != (before.body, before.key, before.cells):
            return
        if after.key is not None and self.holder(after.key) not in {None, change.rid}:
            raise Conflict(change)
        self.put(row._replace(key=after.key, cells=after.cells, body=after.body))

    def _recast_row(self, change: ReplaceCiphertext) -> None:
        for rid, row in self.rows.items():
            if (rid,) == change.row and (row.body, row.key_sealed) == change.before:
                self.rows[rid] = row._replace(
                    body=change.after[0] or b"", key_sealed=change.after[1]
                )

    def _recast_past(self, change: ReplaceCiphertext) -> None:
        for at, past in self.past.items():
            if at == change.row and (past.body,) == change.before:
                self.past[at] = past._replace(body=change.after[0] or b"")

    def _recast_staged(self, change: ReplaceCiphertext) -> None:
        for sid, staged in self.staged.items():
            if (sid, staged.rid) == change.row and (staged.body,) == change.before:
                self.staged[sid] = staged._replace(body=change.after[0] or b"")

    def _recast_file(self, change: ReplaceCiphertext) -> None:
        for file_id, file in self.files.items():
            if (file_id, file.rid) == change.row and (file.sealed,) == change.before:
                self.files[file_id] = file._replace(sealed=change.after[0] or b"")

    def _blank(self, rid: int, *, of_files: bool = False) -> None:
        """Take away the sealed bytes of the replies that show the row."""
        for key, (rids, files) in self.shows.items():
            if (rid in rids or ANY_ROW in rids) and (files or not of_files) and key in self.replies:
                self.replies[key] = self.replies[key]._replace(sealed=b"")

    def _is_staged(self, rid: int, sid: int) -> bool:
        return sid in self.staged and self.staged[sid].rid == rid

    def _named(self, file: File) -> bool:
        """Whether another file of the row has that name."""
        return any(
            other.name == file.name and other.file_id != file.file_id
            for other in self.files.values()
            if other.rid == file.rid
        )

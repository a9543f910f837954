"""The storage port: sealed rows in, sealed rows out.

An engine is treated as untrusted: nothing that reaches it tells a personal value, save columns that
a schema declares ``indexed``. It knows tables, rows and versions; not fields' meaning, keys or
HTTP.

``RawTables`` has the tables as they are stored, for copies from one engine to another.

Every write goes through ``commit``: one call is one atomic, durable transaction. Engines group many
calls into one disk flush. Reads see everything whose ``commit`` has returned (read-your-writes
within the process).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from proxy.storage.changes import Change, CommitWaiter
from proxy.storage.notes import Agreement, NoteRoot, NoteWrite
from proxy.storage.query import AggregateGroup, Grouping, RowPage, Select
from proxy.storage.rows import File, Past, Row, Staged, StoredReply, TableLayout

#: A row of a part, in the order of its columns; texts are ``str`` and truth values 0 and 1.
RawRow = tuple[Any, ...]


class TablePart(NamedTuple):
    """A table of a schema; columns of the layout come behind those of ``rows``."""

    letter: str  #: what its name begins with
    key: int  #: how many of its columns, from the first on, tell its rows apart
    columns: tuple[str, ...]


_ROW = (
    "rid", "key", "key_sealed", "state", "version", "created_at", "updated_at", "expires_at",
    "salt", "body",
)  # fmt: skip
_FILE = ("file_id", "rid", "name", "object", "size", "created_at", "updated_at", "sealed")

TABLE_PARTS: Final = {
    "records": TablePart("r", 1, _ROW),
    "staged": TablePart("s", 1, ("sid", "rid", "kind", "at", "doubt", "answered", "body")),
    "tokens": TablePart("t", 2, ("hash", "rid")),
    "versions": TablePart("h", 2, ("rid", "version", "key", "at", "salt", "body")),
    "attachments": TablePart("f", 1, _FILE),
    "replies": TablePart("i", 1, ("key", "expires_at", "digest", "sealed")),
    "links": TablePart("l", 3, ("rid", "reply", "files")),
}


def columns_of(layout: TableLayout, part: TablePart) -> list[str]:
    """The columns of a part, as all engines call them."""
    own = [f"x_{column.name}" for column in layout.columns] if part.letter == "r" else []
    return [*part.columns, *own]


class RawTables(Protocol):
    """The tables of an open store, row by row as they are stored."""

    async def layouts(self) -> list[TableLayout]:
        """Every table with all of its columns, by name."""

    async def page(
        self, layout: TableLayout, part: TablePart, after: RawRow | None, limit: int
    ) -> list[RawRow]:
        """Rows with a larger key than ``after``, ascending; at most ``limit``."""

    async def replace(
        self, layout: TableLayout, part: TablePart, gone: Sequence[RawRow], rows: Sequence[RawRow]
    ) -> None:
        """Remove the rows with these keys and add others, in one durable transaction."""

    async def tallies(self) -> dict[str, bytes]:
        """The sealed sums over rows, by table; empty where none are kept."""

    async def put_tallies(self, tallies: Mapping[str, bytes]) -> None:
        """Store sealed sums of the rows as they are."""


#: Asked before a commit is accepted; raises ``Conflict`` for one that must not be.
CommitGuard = Callable[[Sequence[Change]], None]


class RowTally(Protocol):
    """Sums up the rows of a table with a key that the store does not have."""

    def digest(self, rid: int, body: bytes, key_sealed: bytes) -> int:
        """Return what a row adds to the sum, of the last 16 bytes of each."""

    def added(self, rows: Iterable[Sequence[Any]], body: int) -> int:
        """Return what all of these add: id, key, statement, …, and the body in that column."""

    def mover(self, moved: dict[str, int]) -> Callable[..., None]:
        """Return a function of a row's id and of the ends of its body and its statement, before or
        after a change or both, that adds this to the sum under the name of the table.
        """

    def seal(self, counter: int, total: int) -> bytes:
        """The sum as it is stored, with the number of its writes."""

    def open(self, sealed: bytes) -> tuple[int, int] | None:
        """Counter and sum; ``None`` where this did not seal them."""


class Replicas(Protocol):
    """The other replicas that may have several (replicas)."""

    slot: int  #: a number that no other replica has, below ``SLOTS``

    @property
    def margin(self) -> int:
        """Milliseconds by which the clocks of two replicas may differ."""

    async def lock(self, names: Sequence[bytes], *, wait: bool = True) -> bool:
        """Have these names to oneself, all or none: true once it has. Raises ``VAULT_DOWN``."""

    def unlock(self, names: Sequence[bytes]) -> None:
        """Let others have them; soon, and whatever happens."""

    def works(self, table: str, ids: AbstractSet[int]) -> None:
        """Announce that this replica works on the live set ``ids``.

        Others need not wait for anything else it announced (``changes.Underway``).
        """

    async def at_work(self, table: str) -> set[int]:
        """The rows and staged changes of a table that others work on."""

    async def overtaken(
        self, table: str, keys: Sequence[bytes], locks: Sequence[bytes] = ()
    ) -> list[tuple[bytes, int | None, bytes, int]]:
        """Return what was announced of these names (``changes.Underway``), and which of ``locks``
        others have: each with row 0.
        """

    async def settled(self) -> None:
        """Wait until all commits that have begun anywhere are durable or undone."""

    def leads(self) -> bool:
        """Whether maintenance that one replica does for all is this one's."""

    async def alone(self) -> int | None:
        """Owners that have come so far, this one too; ``None`` while another one is there."""

    async def agree(self, agreement: Agreement) -> None:
        """Say that this one keeps to it, and all it has accepted before is durable or undone."""

    async def disagreeing(self, agreement: Agreement) -> list[str]:
        """Return all replicas that have not agreed, this one too, as operators know them."""

    async def heard(self, counter: int) -> None:
        """Say that everything counts here that notes said when their root had that counter."""

    async def same_time(self) -> None:
        """Raise ``VaultError(BAD_SETTINGS)`` where the clock here is not that of the others."""

    async def ready(self) -> None:
        """Say that this replica has started: the next one may."""

    async def changed(self) -> None:
        """Wait until another replica has written a note, or for a second."""


#: Largest number of replicas.
SLOTS = 64


class AtOnce(Protocol):
    """Actions of an embedded engine that make nobody wait."""

    def begin_commit(self, table: str, changes: Sequence[Change], waiter: CommitWaiter) -> bool:
        """``Store.commit`` of few small changes that tells ``waiter``; ``False``: use that."""

    def row_by_key(self, table: str, key: bytes) -> Row | None:
        """``Store.by_keys`` of one key, which raises as that; ``None`` also for a long body."""

    def frequent(self, table: str, query: Select) -> RowPage | None:
        """``Store.select`` of a small question, which raises as that, for rows without files;
        ``None``: call that.
        """

    def has_files(self, table: str) -> bool:
        """Whether rows of the table may have files."""


class Store(Protocol):
    """An open database. Raises ``VaultError``; ``VAULT_DOWN`` for faults that may pass."""

    guard: CommitGuard | None
    root: NoteRoot | None  #: over the notes; ``None``: they are not compared

    @property
    def at_once(self) -> AtOnce | None:
        """``None``: it has to be waited for."""

    @property
    def replicas(self) -> Replicas | None:
        """``None``: there are no other replicas."""

    async def close(self) -> None:
        """Finish accepted work, then close. Idempotent."""

    async def ensure(self, layout: TableLayout) -> None:
        """Create the table of the layout, or add the columns it lacks. Online and idempotent."""

    def commit(self, table: str, changes: Sequence[Change]) -> Awaitable[None]:
        """Apply all changes in order, or none; durable when it returns.

        Raises ``Conflict`` when a precondition fails, ``VaultError(VAULT_DOWN)`` when the store
        cannot write.
        """

    async def keep_tally(self, table: str, tally: RowTally, *, first: bool) -> int | None:
        """Keep the sum of the table's rows with each commit from now on; how often it was written.

        ``None`` where none is stored that ``tally`` has sealed. The ``first`` is made of the rows
        as they are.
        """

    async def check_tally(self, table: str) -> int | None:
        """Return the number of writes of the sum; ``None`` if the rows differ. Reads all rows.

        Looks at all of them.
        """

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        """The rows with these ids; absent ones are left out."""

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """The rows with these key hashes, of any state; absent ones are left out."""

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Record ids by token hash, ascending (at most 32 each, where equal tokens may be)."""

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        """The staged changes of these rows, oldest first; rows without any are left out."""

    async def unsettled(
        self, table: str, before: int, limit: int
    ) -> tuple[list[Row], list[Staged]]:
        """PENDING rows last updated, and staged changes made, before that instant: oldest first, at
        most ``limit`` of each.
        """

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        """Ids of rows whose ``expires_at`` is at or before ``now``, at most ``limit``."""

    async def count(self, table: str) -> tuple[int, int, int]:
        """(rows, of them PENDING, staged changes), marks of erased records left out; may be a
        cheap, slightly old answer.
        """

    async def select(self, table: str, query: Select) -> RowPage:
        """The live rows that match, in order. May take long, without blocking the event loop."""

    async def aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        """Exact figures over groups of live rows.

        May take long, without blocking the event loop.
        """

    async def scan(self, table: str, after: int, limit: int) -> list[Row]:
        """Rows of any state with a larger id than ``after``, ascending; at most ``limit``."""

    async def past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        """Past versions under a key, newest first (by ``at``, then version); and how many there are
        in all.

        ``room`` limits the bytes of all bodies together, but at least one is returned.
        """

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        """Past versions of all rows behind that pair of row id and version; at most ``limit``."""

    async def files(self, table: str, rids: Sequence[int]) -> dict[int, tuple[File, ...]]:
        """The files of these rows, oldest first (``created_at``, then id), by row with any."""

    async def file_scan(self, table: str, after: bytes, limit: int) -> list[File]:
        """Files with a larger id than ``after``, ascending; at most ``limit``."""

    async def reply(self, table: str, key: bytes, now: int) -> StoredReply | None:
        """Return the answer stored under that key, unless it has expired."""

    async def reply_scan(self, table: str, after: bytes, limit: int) -> list[StoredReply]:
        """Replies with a larger key than ``after``, ascending, expired or not.

        At most ``limit``.
        """

    async def prune(self, table: str, before: int, now: int, limit: int) -> int:
        """Remove past versions made before ``before`` and replies expired at ``now``, at most
        ``limit`` of each; how many in all.
        """

    async def doomed(self, limit: int) -> list[str]:
        """Objects that no row names any more and that are still to be removed, oldest first."""

    async def absolve(self, objects: Sequence[str]) -> None:
        """Forget doomed objects that have been removed."""

    async def drop(self, table: str) -> None:
        """Remove a table with everything in it; the objects of its files are doomed.

        Gone already: no effect.
        """

    # ``notes.RootedNotes`` makes these of ``read_notes`` and ``write_notes``.

    async def note(self, name: str) -> bytes | None:
        """A named note of the store itself (wrapped keyset, schema registry), or ``None``.

        Raises ``VaultError(CANNOT_OPEN)`` for one that is not as it was written last.
        """

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        """Write a note durably if it still is ``expected`` (``None``: absent); else
        ``VaultError(CONFLICT)``. Raises as ``note``.
        """

    async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
        """Write several, all or none; as ``put_note``."""

    async def notes(self, ending: str) -> list[str]:
        """The names of all notes that end with that text, in order."""

    async def drop_notes(self, ending: str, kind: type[NoteWrite] = NoteWrite) -> None:
        """Remove all notes whose names end with that text, at once and durably; or no effect."""

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        """The notes of these names, or all, at one instant; compared with nothing."""

    async def refresh(self) -> Mapping[str, bytes]:
        """The digests of all notes by name, as last written by any replica."""

    async def check_notes(self) -> set[str]:
        """The names of all notes that are not as they were written last."""


class OpenStore(Store, Protocol):
    """A store as an engine opens it: one that can be copied as it is stored."""

    async def write_notes(self, writes: Sequence[NoteWrite]) -> None:
        """Write notes as they are, the root left as it is; raises as ``put_note``."""

    def raw(self) -> RawTables:
        """The tables, row by row. Raises ``VaultError(BAD_SETTINGS)`` where nothing is stored."""


# Reports of an engine's writer, as plain callables: engines do not know the program's metrics.


def _ignore(*_values: object) -> None:
    """Nobody listens."""


def _nothing() -> int:
    return 0


class Hooks:
    """Given to an engine when it opens; one object per store.

    ``on_batch(size, seconds)`` is called on the event loop for each durable group of commits: how
    many commits it held, and the seconds from handing over the oldest of them until all were
    durable. ``waiting()`` tells how many commits wait for the writer at this moment; the engine
    sets it. ``taken_over()`` is called when another process has the store, and this one nothing to
    do any more. ``on_question(server)`` tells of each question that a ``standby`` could be asked
    whether that one answered or the ``primary``.
    """

    __slots__ = ("on_batch", "on_question", "taken_over", "waiting")

    def __init__(self, on_batch: Callable[[int, float], None] = _ignore) -> None:
        self.on_batch = on_batch
        self.waiting: Callable[[], int] = _nothing
        self.taken_over: Callable[[], object] = _nothing
        self.on_question: Callable[[str], object] = _ignore


class Engine(NamedTuple):
    """A storage engine: operations on a location before its store is open.

    All but ``open`` wait for file or server where they are called: of use before anybody is served.
    Each raises ``VaultError``.
    """

    open: Callable[[str, Hooks], Awaitable[OpenStore]]
    exists: Callable[[str], bool]  #: whether there is a store
    refuse_new: Callable[[str], None]  #: raises what making one there would raise; makes nothing
    peek: Callable[[str], dict[str, bytes]]  #: the notes, whoever owns the store
    #: a read-only snapshot of the vault, whoever owns it; given a folder for it
    snapshot: Callable[[str, Path], AbstractAsyncContextManager[OpenStore]]
    whole: bool = False  #: whether a place is the whole address, its scheme included
    #: seconds for which a start waits for a store that cannot be reached
    patience: Callable[[str], float] = lambda _location: 0.0

"""The changes of a commit, each with its precondition, and its effect if that fails."""

import enum
from typing import NamedTuple, Protocol

from proxy.storage.rows import File, Past, Row, Staged, StoredReply


class Insert(NamedTuple):
    """Insert a row. ``hashes``: into the token index; ``unique`` must be new (``Conflict``)."""

    row: Row
    hashes: tuple[bytes, ...] = ()
    unique: tuple[bytes, ...] = ()


class Release(NamedTuple):
    """Take the key away from whichever row but ``rid`` holds it: that row becomes PENDING.

    No row: no effect. With a ``holder`` only where that one has it.
    """

    key: bytes
    rid: int
    at: int
    holder: int | None = None
    key_sealed: bytes | None = None  #: the row's next value in place of its sealed key


class Accept(NamedTuple):
    """Make a PENDING row LIVE without a key: its name will be told later. Else no effect."""

    rid: int
    at: int
    key_sealed: bytes | None = None  #: the row's next value there; ``None``: unchanged


class Bind(NamedTuple):
    """Give a row without a key its key and make it LIVE.

    ``Conflict`` when the row is gone, has another key, or the key is taken.
    """

    rid: int
    key: bytes
    key_sealed: bytes
    at: int


class Replace(NamedTuple):
    """Overwrite version, times, salt, body and cells of the row ``row.rid``; key and state stay as
    they are.

    ``Conflict`` when the stored version is not ``expected``.
    """

    row: Row
    expected: int


class StageRow(NamedTuple):
    """Add a staged change to its row.

    ``Conflict`` when the row is gone, or a ``unique`` hash is not new.
    """

    staged: Staged
    hashes: tuple[bytes, ...] = ()
    unique: tuple[bytes, ...] = ()


class Unstage(NamedTuple):
    """Remove a staged change; no effect when it is gone."""

    rid: int
    sid: int


class MarkInDoubt(NamedTuple):
    """Mark a staged change as doubtful since ``at``; no effect when it is gone."""

    rid: int
    sid: int
    at: int
    answered: bool


class Reindex(NamedTuple):
    """Set the token index entries of a row: remove ``drop``, add ``add``."""

    rid: int
    add: tuple[bytes, ...] = ()
    drop: tuple[bytes, ...] = ()


class Remove(NamedTuple):
    """Remove a row with all its parts.

    These are staged changes, token index entries, past versions, files, and the sealed bytes of
    replies.

    Gone already: no effect. The objects of its files are doomed: no row names them any more, and
    the cleanup removes them.
    """

    rid: int
    keep_past: bool = False  #: past versions stay, until ``prune`` finds them too old


class AddVersion(NamedTuple):
    """Add a past version.

    ``Conflict`` when the row has that version among its past ones already.
    """

    past: Past


class Attach(NamedTuple):
    """Give a row a file. ``Conflict``: the row is gone, or the file id or name in it is taken."""

    file: File


class UpdateFile(NamedTuple):
    """Overwrite everything of a file but ``file_id`` and ``created_at``; another ``rid`` moves it
    there, another ``object`` dooms the one before.

    ``Conflict`` if ``holder`` has no such file (any more), the new row is gone, the name is taken
    there, or ``was`` is given and the file has another object by now: a change that keeps the
    content gives it, since a re-encryption may have replaced the object.
    """

    file: File
    holder: int  #: the row that has it now
    was: str | None = None  #: the object that it has now; ``None``: whichever


class Detach(NamedTuple):
    """Take a file from a row; its object is doomed. ``Conflict`` when the row has no such file."""

    rid: int
    file_id: bytes


class Remember(NamedTuple):
    """Keep an answer. ``Conflict`` when there is one under its key that has not expired at ``now``.

    ``rids`` are the rows whose data it shows (``ANY_ROW``: unknown). The first of them that is
    removed takes its sealed bytes along; the existence of the answer stays known. ``files``: it
    shows files, and goes with any file of these rows as well.
    """

    reply: StoredReply
    now: int
    rids: tuple[int, ...] = ()
    files: bool = False


class ForgetReplies(NamedTuple):
    """Take the sealed bytes from answers that show a row, as it lost a value; they still count."""

    rid: int


#: In ``Remember.rids``: the answer may show data of any row of the table.
ANY_ROW = -1


class SealedPart(enum.IntEnum):
    """Location of sealed bytes, the key of that location, and their number."""

    ROW = 0  #: (rid): body and key_sealed of a row
    STAGED = 1  #: (sid, rid): the body of a staged change
    PAST = 2  #: (rid, version): the body of a past version
    FILE = 3  #: (file_id, rid): metadata of a file


class ReplaceCiphertext(NamedTuple):
    """Put sealed bytes in place of others that say the same.

    No effect when those others are not there (any more).

    Nothing else changes: no version, no time, no index. So no writer has to wait.
    """

    part: SealedPart
    row: tuple[int | bytes, ...]
    before: tuple[bytes | None, ...]
    after: tuple[bytes | None, ...]


class Reroot(NamedTuple):
    """Put hashes under another root in place of those under the one before.

    No effect on parts that have changed: on the row unless body, key and hashes are the same, and
    on each entry of the token index, past key and name of a file separately. Nothing else changes.
    ``Conflict`` if another row has the key.
    """

    rid: int
    row: tuple[Row, Row] | None = None  #: as it was, and with another key, cells or body
    entries: tuple[tuple[bytes, bytes], ...] = ()  #: of the row in the token index
    past: tuple[bytes, bytes] | None = None  #: keys of past versions, whichever row's
    files: tuple[tuple[File, File], ...] = ()  #: as they were, and with other names


class Underway(NamedTuple):
    """Tell other replicas what this one works on; nothing where it has no others.

    ``Conflict`` when one of ``begun`` is being worked on already, or another replica tells of
    deletes beyond those of ``heard``.
    """

    begun: tuple[int, ...] = ()  #: rows and staged changes that exchanges under way will settle
    ended: tuple[int, ...] = ()  #: those that are settled
    #: key, the row that got it (``None``: it was deleted), the salt of the row, when; kept while
    #: others are under way
    names: tuple[tuple[bytes, int | None, bytes, int], ...] = ()
    #: keys, locks that tell of deletes of them and nobody had, and when others told of deletes
    heard: tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[int, ...]] = ((), (), ())


Change = (
    Insert | Release | Accept | Bind | Replace | StageRow | Unstage | MarkInDoubt | Reindex | Remove
    | AddVersion | Attach | UpdateFile | Detach | ForgetReplies | Remember | ReplaceCiphertext
    | Reroot | Underway
)  # fmt: skip


class Conflict(Exception):
    """A change's precondition does not hold; nothing of its transaction is stored.

    ``change`` says which one.
    """

    def __init__(self, change: Change, hashes: tuple[bytes, ...] = ()) -> None:
        super().__init__(type(change).__name__)
        self.change = change
        self.hashes = hashes  #: the ``unique`` hashes that were taken, where that was the reason


class CommitWaiter(Protocol):
    """Receiver of the outcome of a commit: a future, or an exchange that then goes on."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, result: None, /) -> None:
        """The commit is durable. Must not raise."""

    def set_exception(self, error: Exception, /) -> None:
        """It is not; as ``Store.commit`` raises. Must not raise."""

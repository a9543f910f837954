"""What stands beside the rows: past versions (``h_<table>``), files (``f_``), replies (``i_``), and objects let go (``doomed``).

Most tables of most vaults never have any of it. So nothing of it costs a statement before the first of its kind was
written (``Used``): removing a row looks for past versions and files only where there have been some.
"""
# ruff: noqa: S608 - names have passed names.check_names; every value is a parameter

from sqlite3 import Connection
from typing import Any

from proxy.storage.changes import Amend, Attach, Detach
from proxy.storage.rows import File, Past, Reply

#: Columns of each table, in the order of ``Past``, ``File`` and ``Reply``.
PAST = "rid, version, key, at, salt, body"
FILE = "file_id, rid, name, object, size, created_at, updated_at, sealed"
REPLY = "key, expires_at, digest, sealed"

DOOMED = "SELECT object FROM doomed ORDER BY id LIMIT ?"
ABSOLVE = "DELETE FROM doomed WHERE object = ?"


class Used:
    """Whether a table may have past versions, and files. It is told before they are written, and never taken back."""

    __slots__ = ("files", "past")

    def __init__(self, *, past: bool = True, files: bool = True) -> None:
        self.past = past
        self.files = files


class Beside:
    """The statements on what stands beside the rows of one table."""

    def __init__(self, table: str) -> None:
        rows, past, files, replies = (f"{prefix}_{table}" for prefix in "rhfi")
        there = f"EXISTS (SELECT 1 FROM {rows} WHERE rid = ?1)"
        self.inscribe = f"INSERT INTO {past} ({PAST}) VALUES (?, ?, ?, ?, ?, ?)"
        self.forget = f"DELETE FROM {past} WHERE rid = ?1 AND {there}"
        self.attach = (
            f"INSERT INTO {files} ({FILE}) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8"
            f" WHERE EXISTS (SELECT 1 FROM {rows} WHERE rid = ?2)"
        )
        self.amend = (
            f"UPDATE {files} SET rid = ?1, name = ?2, object = ?3, size = ?4, updated_at = ?5, sealed = ?6"
            f" WHERE file_id = ?7 AND rid = ?8 AND object = coalesce(?9, object) AND {there}"
        )
        self.detach = f"DELETE FROM {files} WHERE file_id = ? AND rid = ?"
        doom = f"INSERT OR IGNORE INTO doomed (object) SELECT object FROM {files}"
        self.doom_other = f"{doom} WHERE file_id = ? AND rid = ? AND object <> ?"
        self.doom_one = f"{doom} WHERE file_id = ? AND rid = ?"
        self.doom_of_row = f"{doom} WHERE rid = ? ORDER BY created_at, file_id"
        self.remove_files = f"DELETE FROM {files} WHERE rid = ?"
        self.remember = (
            f"INSERT INTO {replies} ({REPLY}) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET expires_at = excluded.expires_at, digest = excluded.digest, sealed = excluded.sealed"
            " WHERE expires_at <= ?"
        )
        self.past = f"SELECT {PAST} FROM {past} WHERE key = ? ORDER BY at DESC, version DESC, rid DESC LIMIT ? OFFSET ?"
        self.past_scan = f"SELECT {PAST} FROM {past} WHERE (rid, version) > (?, ?) ORDER BY rid, version LIMIT ?"
        self.pasts = f"SELECT count(*) FROM {past} WHERE key = ?"
        self.files_head = f"SELECT {FILE} FROM {files} WHERE rid IN"
        self.file_scan = f"SELECT {FILE} FROM {files} WHERE file_id > ? ORDER BY file_id LIMIT ?"
        self.reply = f"SELECT {REPLY} FROM {replies} WHERE key = ? AND expires_at > ?"
        self.reply_scan = f"SELECT {REPLY} FROM {replies} WHERE key > ? ORDER BY key LIMIT ?"
        #: By ``Part``: the new bytes, the place, the bytes that have to be there.
        self.recast = (
            f"UPDATE {rows} SET body = ?, key_sealed = ? WHERE rid = ? AND body = ? AND key_sealed IS ?",
            f"UPDATE s_{table} SET body = ? WHERE sid = ? AND rid = ? AND body = ?",
            f"UPDATE {past} SET body = ? WHERE rid = ? AND version = ? AND body = ?",
            f"UPDATE {files} SET sealed = ? WHERE file_id = ? AND rid = ? AND sealed = ?",
        )
        self.prune_past = (
            f"DELETE FROM {past} WHERE rowid IN"
            f" (SELECT rowid FROM {past} WHERE at < ? ORDER BY at, rid, version LIMIT ?)"
        )
        self.prune_replies = (
            f"DELETE FROM {replies} WHERE rowid IN"
            f" (SELECT rowid FROM {replies} WHERE expires_at <= ? ORDER BY expires_at, key LIMIT ?)"
        )
        self.has_past = f"SELECT EXISTS (SELECT 1 FROM {past})"
        self.has_files = f"SELECT EXISTS (SELECT 1 FROM {files})"

    def used(self, connection: Connection) -> Used:
        """What the table has at this moment."""
        (past,), (files,) = (connection.execute(text).fetchone() for text in (self.has_past, self.has_files))
        return Used(past=bool(past), files=bool(files))

    def prune(self, connection: Connection, before: int, now: int, limit: int) -> int:
        """What ``Store.prune`` does, inside the caller's transaction."""
        past = connection.execute(self.prune_past, (before, limit)).rowcount
        return past + connection.execute(self.prune_replies, (now, limit)).rowcount

    def file(self, connection: Connection, change: Attach | Amend | Detach) -> bool:
        """Make one change to files; ``False`` when its precondition does not hold."""
        if isinstance(change, Attach):
            return connection.execute(self.attach, change.file).rowcount == 1
        if isinstance(change, Detach):
            place = (change.file_id, change.rid)
            connection.execute(self.doom_one, place)
            return connection.execute(self.detach, place).rowcount == 1
        file, holder, was = change
        connection.execute(self.doom_other, (file.file_id, holder, file.object))
        return connection.execute(self.amend, (*file[1:5], *file[6:], file.file_id, holder, was)).rowcount == 1


def read_past(raw: tuple[Any, ...]) -> Past:
    """A past version from what ``past`` selects."""
    return Past(*raw)


def read_file(raw: tuple[Any, ...]) -> File:
    """A file from what ``files_head`` and ``file_scan`` select."""
    return File(*raw)


def read_reply(raw: tuple[Any, ...]) -> Reply:
    """A reply from what ``reply`` selects."""
    return Reply(*raw)


def create(table: str) -> list[str]:
    """The statements that make the three tables beside a schema's rows."""
    past = (
        f"CREATE TABLE h_{table} (rid INTEGER NOT NULL, version INTEGER NOT NULL, key BLOB NOT NULL,"
        " at INTEGER NOT NULL, salt BLOB NOT NULL, body BLOB NOT NULL)"
    )
    files = (
        f"CREATE TABLE f_{table} (file_id BLOB NOT NULL, rid INTEGER NOT NULL, name BLOB NOT NULL, object TEXT NOT NULL,"
        " size INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, sealed BLOB NOT NULL)"
    )
    replies = (
        f"CREATE TABLE i_{table} (key BLOB NOT NULL, expires_at INTEGER NOT NULL, digest BLOB NOT NULL,"
        " sealed BLOB NOT NULL)"
    )
    return [
        past,
        f"CREATE UNIQUE INDEX hr_{table} ON h_{table} (rid, version)",
        f"CREATE INDEX hk_{table} ON h_{table} (key, at, version, rid)",
        f"CREATE INDEX ha_{table} ON h_{table} (at, rid, version)",
        files,
        f"CREATE UNIQUE INDEX fi_{table} ON f_{table} (file_id)",
        f"CREATE UNIQUE INDEX fr_{table} ON f_{table} (rid, name)",
        replies,
        f"CREATE UNIQUE INDEX ii_{table} ON i_{table} (key)",
        f"CREATE INDEX iy_{table} ON i_{table} (expires_at, key)",
    ]

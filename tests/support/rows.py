"""Sealed rows, hashes and layouts for tests of the storage port: short, and never alike by
accident.
"""

from proxy.storage.changes import AddVersion, Insert
from proxy.storage.rows import (
    Column,
    ColumnType,
    ColumnValue,
    Past,
    Row,
    RowState,
    Staged,
    StagedKind,
    TableLayout,
)

TABLE = "r1_test"
COLUMNS = (
    Column("email", ColumnType.HASH), Column("city", ColumnType.TEXT),
    Column("visits", ColumnType.INTEGER), Column("balance", ColumnType.DECIMAL),
)  # fmt: skip
LAYOUT = TableLayout(TABLE, COLUMNS)
EMPTY: tuple[ColumnValue, ...] = (None, None, None, None)


def h(name: object) -> bytes:
    """A 16-byte hash that a test can name."""
    return str(name).encode().ljust(16, b".")


def row(
    rid: int, *, at: int = 1_000, cells: tuple[ColumnValue, ...] = EMPTY, body: bytes = b""
) -> Row:
    """A PENDING row, as the proxy writes it before it forwards."""
    return Row(
        rid,
        None,
        None,
        RowState.PENDING,
        1,
        at,
        at,
        None,
        h(f"salt{rid}"),
        body or b"body%d" % rid,
        cells,
    )


def live(rid: int, key: object, *, at: int = 1_000) -> Row:
    """A LIVE row under that key."""
    return row(rid, at=at)._replace(key=h(key), key_sealed=b"sealed " + h(key), state=RowState.LIVE)


def insert(rid: int, *, hashes: tuple[bytes, ...] = (), unique: tuple[bytes, ...] = ()) -> Insert:
    """The insert of a PENDING row."""
    return Insert(row(rid), hashes, unique)


def outlived(row: Row) -> AddVersion:
    """What keeps the present version of a row that has a key, before another takes its place."""
    assert row.key is not None
    return AddVersion(Past(row.rid, row.version, row.key, row.updated_at, row.salt, row.body))


def staged(sid: int, rid: int, *, at: int = 1_000, kind: StagedKind = StagedKind.UPDATE) -> Staged:
    """A staged change in flight."""
    return Staged(
        sid, rid, kind, at, None, False, b"" if kind is StagedKind.DELETE else b"staged%d" % sid
    )

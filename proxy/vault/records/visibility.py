"""Row policies: which records there are for a caller, and proof that a found row is one of them.

Engines get the policies' conditions with those of a request, and answer by columns that are not
authenticated: a writer of the database needs no key to change them. So every returned row is
opened, and the conditions are evaluated again on its sealed values. A row with false columns is
left out and reported as tampered with. New versions, past versions and records found by key are
checked by the same conditions.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from proxy.errors import CannotOpen, Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import AnyOf, Equals, InJson, Like, Test
from proxy.model.record import Fields, Record
from proxy.model.rights import denied
from proxy.model.schema import FieldType, Storage
from proxy.storage.query import MATCH_ALL, All, Holds, ValidatedQuery, Where, fold, holds
from proxy.storage.rows import ColumnType, ColumnValue, Row, Staged, scaled
from proxy.tokenization.normalize import folded, plain_text
from proxy.vault.part_index import texts_of_field
from proxy.vault.records.columns import leaf
from proxy.vault.records.query import field_name, text_in_column, where_of
from proxy.vault.records.repository import Records

#: Reads a column by its name, as engines store it.
CellOf = Callable[[str], ColumnValue]
#: Whether tests hold for a record: its sealed fields and its columns.
Check = Callable[[Fields, CellOf], bool]


def permitted_rows(records: Records) -> Where:
    """The condition for every record that is there for the caller."""
    return _all(records, records.rights.rows)


def visible(records: Records) -> Where:
    """Return the condition of all records visible to the caller, even if fewer may be changed."""
    return _all(records, records.rights.visible)


def _all(records: Records, tests: Sequence[Test]) -> Where:
    return All(tuple([where_of(records, test) for test in tests])) if tests else MATCH_ALL


async def all_visible(records: Records, keys: Iterable[str]) -> bool:
    """Whether the caller finds each of the records now: by its policies and the filter endpoint.

    The endpoint is always asked first: its failure must not reveal records. Raises ``VaultError``
    as ``AclDecisions.allowed``.
    """
    wanted = frozenset(keys)
    allowed = wanted if records.gate is None else await records.gate.allowed(Act.READ, wanted)
    rows = await records.by_key(wanted)
    within = await RowPolicyCheck(records).considering(rows.values())
    return allowed == wanted == rows.keys() and all(map(within.holds_row, rows.values()))


async def outside_in_doubt(records: Records, rows: Iterable[Row]) -> frozenset[int]:
    """The ids of those rows whose versions in doubt are not all there for the caller.

    An update whose answer may have been a refusal (a redirect) is live until an answer shows the
    record: it must make nothing visible that the version before is not. Nor must one that changes
    at this moment. Without row policies: none.
    """
    before = {row.rid: row for row in rows if row.staged} if records.rights.rows else None
    if not before:
        return frozenset()
    verified, now = Verified(records, records.rights.rows), dict(before)
    staged = await records.collection.staged_beside(now)
    outside = {rid for rid, row in before.items() if now[rid] != row}
    for rid in staged.keys() - outside:
        live = records.open(before[rid])
        versions = [version_in_doubt(records, one, before[rid].salt, live) for one in staged[rid]]
        if not all(one is None or verified.holds(one) for one in versions):
            outside.add(rid)
    return frozenset(outside)


async def undoubted(records: Records, rows: Iterable[Row], opened: list[Record]) -> list[Record]:
    """The records of those rows that are there whichever version the application has."""
    outside = await outside_in_doubt(records, rows)
    return [one for one in opened if one.rid not in outside] if outside else opened


def version_in_doubt(records: Records, staged: Staged, salt: bytes, live: Record) -> Record | None:
    """A record as a version in doubt has it; ``None`` for a delete, and for one that does not open,
    which is reported.
    """
    try:
        body = records.collection.sealer.open_staged(staged, salt)
    except CannotOpen:
        records.tampered()
        return None
    if body is None:
        return None
    fields, eras = records.contents(body, live.key)
    return replace(live, fields=fields, eras=eras)


class Verified:
    """Evaluates tests again on opened records; compiled once for each question."""

    def __init__(self, records: Records, tests: Sequence[Test]) -> None:
        self._records = records
        self._check: Check | None = compiled_query(records, tests) if tests else None

    def holds(self, record: Record) -> bool:
        """Whether the tests hold for the sealed values.

        ``False`` where an engine found it is a case of tampering: ``only`` reports it.
        """
        return self._check is None or self._check(
            record.fields, sealed_cells(self._records, record)
        )

    def only(self, records: Sequence[Record]) -> list[Record]:
        """Return the records for which the tests really hold; report the others."""
        if self._check is None:
            return list(records)
        genuine = list(filter(self.holds, records))
        if len(genuine) < len(records):
            self._records.tampered(len(records) - len(genuine))
        return genuine


class RowPolicyCheck(Verified):
    """The row policies of a caller, for single records; made once for each request."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, records.rights.rows)
        self._outside: frozenset[int] = frozenset()
        layout = records.collection.layout
        self._places = {column.name: at for at, column in enumerate(layout.columns)}
        self._decimals = {
            column.name for column in layout.columns if column.type is ColumnType.DECIMAL
        }

    async def considering(self, rows: Iterable[Row]) -> "RowPolicyCheck":
        """The same with regard to versions in doubt of these rows (``outside_in_doubt``)."""
        self._outside = await outside_in_doubt(self._records, rows)
        return self

    def open(self, row: Row) -> Record | None:
        """The record of a row that was found by its key; ``None`` where it is not there for the
        caller.

        A row that does not open, or was tampered with, is not there under row policies, and an
        error otherwise (``VaultError(CANNOT_OPEN)``, ``Tampered``).
        """
        try:
            record = self._records.open(row)
        except VaultError as error:
            if error.code is not Code.CANNOT_OPEN or self._check is None:
                raise
            return None
        if self._check is None:
            return record
        really = self.holds(record)
        if self._check(record.fields, self._columns(row)) is not really:
            self._records.tampered()
            return None
        return record if really and row.rid not in self._outside else None

    def holds_row(self, row: Row) -> bool:
        """Whether a stored row is there; without row policies it is not opened for that."""
        return self._check is None or self.open(row) is not None

    def written(self, row: Row, fields: Fields) -> bool:
        """Whether a row that is about to be stored will be there."""
        return self._check is None or self._check(fields, self._columns(row))

    def refuse(self, row: Row, fields: Fields, at: str) -> None:
        """Raise ``VaultError(ACCESS_DENIED)`` for a row that its writer could not see.

        ``at``: its position in the request.
        """
        if not self.written(row, fields):
            raise denied(
                (
                    Detail(
                        at, "The record would not be one of those that this client may work with."
                    ),
                )
            )

    def _columns(self, row: Row) -> CellOf:
        """Return a function that reads the row's columns as engines store them."""

        def cell_of(column: str) -> ColumnValue:
            if column.startswith("@"):
                fixed: ColumnValue = getattr(row, column[1:])
                return fixed
            at = self._places[column]
            cell = row.cells[at] if at < len(row.cells) else None
            return scaled(cell) if column in self._decimals else cell

        return cell_of


def compiled_query(records: Records, tests: Sequence[Test]) -> Check:
    """The tests as a function of opened records, made once; equal to what engines answer."""
    query = records.validated
    checks = [_compiled(records, query, test) for test in tests]
    if len(checks) == 1:
        return checks[0]
    return lambda fields, cell_of: all(check(fields, cell_of) for check in checks)


def sealed_cells(records: Records, record: Record) -> CellOf:
    """Return a function that computes the columns of a record from its sealed values."""

    def cell_of(column: str) -> ColumnValue:
        if column == "@key":
            return None if record.key is None else records.collection.key_hash(record.key)
        if column.startswith("@"):
            fixed: ColumnValue = getattr(record, column[1:])
            return fixed
        name = records.field_in[column]
        value = record.fields.get(name)
        if isinstance(value, list):
            value = value[0] if value else None
        if value is None:
            return None
        cell = records.cell(name, value)
        field = records.schema.field(name)
        return (
            scaled(cell)
            if field.type is FieldType.DECIMAL and field.storage is Storage.INDEXED
            else cell
        )

    return cell_of


def _compiled(records: Records, query: ValidatedQuery, test: Test) -> Check:
    if isinstance(test, Like):
        return _compiled_like(records, query, test)
    if isinstance(test, InJson):
        return _compiled_json(test)
    if isinstance(test, AnyOf):
        parts = [compiled_query(records, tests) for tests in test.alternatives]
        return lambda fields, cell_of: any(part(fields, cell_of) for part in parts)
    if isinstance(test, Equals) and (wanted := _hash_wanted(records, test)) is not None:
        return lambda _fields, cell_of: cell_of(wanted[0]) == wanted[1]
    where = query.where(where_of(records, test))
    return lambda _fields, cell_of: holds(where, cell_of, _never)


def _hash_wanted(records: Records, test: Equals) -> tuple[str, ColumnValue] | None:
    """The column and hash that a test for one value of a hashed field asks for; else ``None``."""
    if test.negated or len(test.values) != 1 or test.field not in records.hashed:
        return None
    (value,) = test.values
    if value is None:
        return None
    return records.column(test.field), records.cell(test.field, value)


def _compiled_like(records: Records, query: ValidatedQuery, like: Like) -> Check:
    text = folded(like.text)
    hashed = [
        field_name(records, name) for name in like.fields if not text_in_column(records, name)
    ]
    conditions = [
        query.where(Holds(records.column(name), fold(plain_text(like.text))))
        for name in like.fields
        if text_in_column(records, name)
    ]

    def check(fields: Fields, cell_of: CellOf) -> bool:
        matches = any(holds(where, cell_of, _never) for where in conditions) or any(
            text in folded(value) for name in hashed for value in texts_of_field(fields.get(name))
        )
        return matches is not like.negated

    return check


def _compiled_json(test: InJson) -> Check:
    alone = None if test.contains else leaf((), test.values[0], inside=False)
    wanted = {leaf((), value, inside=True) for value in test.values}

    def check(fields: Fields, _cell_of: CellOf) -> bool:
        there, is_there = _standing(fields.get(test.field), test.path)
        if not is_there:
            return False
        if isinstance(there, list):
            return wanted <= {
                leaf((), item, inside=True) for item in there if not isinstance(item, dict | list)
            }
        return (
            alone is not None
            and not isinstance(there, dict)
            and leaf((), there, inside=False) == alone
        )

    return check


def _standing(document: Any, path: Sequence[str | int]) -> tuple[Any, bool]:
    """Return the value at a path of a JSON document, and whether there is one."""
    at = document
    for step in path:
        if isinstance(at, dict):
            exists = isinstance(step, str) and step in at
        else:
            exists = isinstance(at, list) and isinstance(step, int) and step < len(at)
        if not exists:
            return None, False
        at = at[step]
    return at, True


def _never(_token: bytes) -> bool:
    """The token index is not read: the fields have the same facts."""
    return False

"""Row policies: which records there are for a caller, and proof that a found row is one of them.

Engines are asked with the policies' conditions beside those of a request, and answer by columns
that are not authenticated: whoever writes the database needs no key to change them. So every row
that comes back is opened, and the conditions are evaluated again on what was sealed in it. A row
whose columns say otherwise is left out and reported as tampered with. What is about to be stored,
what was stored once, and what was found by its key are checked by the same conditions.
"""

from collections.abc import Iterable, Sequence

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import Test
from proxy.model.record import Fields, Record
from proxy.model.rights import denied
from proxy.storage.query import MATCH_ALL, All, Where
from proxy.storage.rows import ColumnType, ColumnValue, Row, scaled
from proxy.vault.records.query import CellOf, Check, compiled_query, sealed_cells, where_of
from proxy.vault.records.repository import Records
from proxy.vault.seal import Tampered


def inside(records: Records) -> Where:
    """The condition for every record that is there for the caller."""
    return _all(records, records.rights.rows)


def visible(records: Records) -> Where:
    """The condition for every record that the caller sees, also where it may do what it is about to
    do with fewer of them.
    """
    return _all(records, records.rights.visible)


def _all(records: Records, tests: Sequence[Test]) -> Where:
    return All(tuple([where_of(records, test) for test in tests])) if tests else MATCH_ALL


async def all_there(records: Records, keys: Iterable[str]) -> bool:
    """Whether the caller finds each of the records now: by the rows of its policies and by what the
    filter endpoint says.

    The endpoint is asked first, whatever there is: its failure must not tell. Raises ``VaultError``
    as ``Gate.allowed``.
    """
    wanted = frozenset(keys)
    allowed = wanted if records.gate is None else await records.gate.allowed(Act.READ, wanted)
    rows = await records.by_key(wanted)
    return allowed == wanted == rows.keys() and all(map(Within(records).holds_row, rows.values()))


class Verified:
    """Evaluates tests again on opened records; compiled once for each question."""

    def __init__(self, records: Records, tests: Sequence[Test]) -> None:
        self._records = records
        self._check: Check | None = compiled_query(records, tests) if tests else None

    def holds(self, record: Record) -> bool:
        """Whether the tests hold for what is sealed.

        ``False`` where an engine found it is a case of tampering: ``only`` reports it.
        """
        return self._check is None or self._check(
            record.fields, sealed_cells(self._records, record)
        )

    def only(self, found: Sequence[Record]) -> list[Record]:
        """Those of the records, found by their columns, for which the tests really hold; others are
        reported.
        """
        kept = list(filter(self.holds, found))
        if len(kept) < len(found):
            self._records.tampered(len(found) - len(kept))
        return kept


class Within(Verified):
    """The row policies of a caller, for single records; made once for each request."""

    def __init__(self, records: Records) -> None:
        super().__init__(records, records.rights.rows)
        layout = records.collection.layout
        self._places = {column.name: place for place, column in enumerate(layout.columns)}
        self._decimals = {
            column.name for column in layout.columns if column.type is ColumnType.DECIMAL
        }

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
            if not isinstance(error, Tampered):
                self._records.collection.observe("unopenable")
            return None
        if self._check is None:
            return record
        really = self.holds(record)
        if self._check(record.fields, self._columns(row)) is not really:
            self._records.tampered()
            return None
        return record if really else None

    def holds_row(self, row: Row) -> bool:
        """Whether a stored row is there; without row policies it is not opened for that."""
        return self._check is None or self.open(row) is not None

    def written(self, row: Row, fields: Fields) -> bool:
        """Whether a row that is about to be stored will be there."""
        return self._check is None or self._check(fields, self._columns(row))

    def refuse(self, row: Row, fields: Fields, at: str) -> None:
        """Raise ``VaultError(ACCESS_DENIED)`` for a row that would not be there for who writes it;
        ``at``: where it was sent.
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
        """What the columns of the row hold, as engines keep it."""

        def cell_of(column: str) -> ColumnValue:
            if column.startswith("@"):
                fixed: ColumnValue = getattr(row, column[1:])
                return fixed
            place = self._places[column]
            cell = row.cells[place] if place < len(row.cells) else None
            return scaled(cell) if column in self._decimals else cell

        return cell_of

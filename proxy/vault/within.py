"""Which records there are for a caller: those for which the rows of its access policies hold.

Engines are asked with these conditions beside those of a request, and answer for what is stored. What is about to be stored,
what was stored once, and what was found by its key are looked at here, by the very conditions.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act
from proxy.model.query import Test
from proxy.model.record import Fields, Record
from proxy.model.rights import denied
from proxy.storage.asked import Asked
from proxy.storage.cells import scaled
from proxy.storage.holding import holds
from proxy.storage.query import ALWAYS, All, Where
from proxy.storage.rows import Cell, ColumnType, Row, State
from proxy.vault.asking import where_of
from proxy.vault.records import Records


def inside(records: Records) -> Where:
    """The condition for every record that is there for the caller."""
    return _all(records, records.rights.rows)


def visible(records: Records) -> Where:
    """The condition for every record that the caller sees, also where it may do what it is about to do with fewer of them."""
    return _all(records, records.rights.visible)


def _all(records: Records, tests: Sequence[Test]) -> Where:
    return All(tuple([where_of(records, test) for test in tests])) if tests else ALWAYS


async def all_there(records: Records, keys: Iterable[str]) -> bool:
    """Whether the caller finds each of the records now: by the rows of its policies and by what the filter endpoint says.

    The endpoint is asked first, whatever there is: its failure must not tell. Raises ``VaultError`` as ``Gate.allowed``.
    """
    wanted = frozenset(keys)
    allowed = wanted if records.gate is None else await records.gate.allowed(Act.READ, wanted)
    rows = await records.collection.by_key(wanted)
    return allowed == wanted == rows.keys() and all(map(Within(records).holds, rows.values()))


class Within:
    """Looks at single records; made once for each request."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._where: Where | None = None
        if records.rights.rows:
            layout = records.collection.layout
            self._where = Asked(layout).where(inside(records))
            self._places = {column.name: place for place, column in enumerate(layout.columns)}
            self._decimals = {column.name for column in layout.columns if column.type is ColumnType.DECIMAL}

    def holds(self, row: Row) -> bool:
        """Whether a stored row is there; one that has to be opened for that, and does not open, is not."""
        return self._where is None or self._holds(self._where, row, lambda: self._records.open(row).fields)

    def written(self, row: Row, fields: Fields) -> bool:
        """Whether a row that is about to be stored will be there."""
        return self._where is None or self._holds(self._where, row, lambda: fields)

    def was(self, record: Record, digest: bytes) -> bool:
        """Whether a past version, under the hash of its key, would be there if it were the present one."""
        if self._where is None:
            return True
        fields = {name: value[0] if isinstance(value, list) else value for name, value in record.fields.items()}
        cells = Records.cells(self._records, fields)
        instants = (record.created_at, record.updated_at, record.expires_at)
        row = Row(record.rid, digest, None, State.LIVE, record.version, *instants, b"", b"", cells)
        return self._holds(self._where, row, lambda: fields)

    def refuse(self, row: Row, fields: Fields, at: str) -> None:
        """Raise ``VaultError(ACCESS_DENIED)`` for a row that would not be there for who writes it; ``at``: where it was sent."""
        if not self.written(row, fields):
            raise denied((Detail(at, "The record would not be one of those that this client may work with."),))

    def _holds(self, where: Where, row: Row, fields: Callable[[], Fields]) -> bool:
        hashes: set[bytes] | None = None

        def indexed(token: bytes) -> bool:
            nonlocal hashes
            if hashes is None:
                hashes = Records.hashes(self._records, fields())
            return token in hashes

        try:
            return holds(where, lambda column: self._cell(row, column), indexed)
        except VaultError as error:
            if error.code is not Code.CANNOT_OPEN:
                raise
            return False

    def _cell(self, row: Row, column: str) -> Cell:
        if column.startswith("@"):
            fixed: Cell = getattr(row, column[1:])
            return fixed
        place = self._places[column]
        cell = row.cells[place] if place < len(row.cells) else None
        return scaled(cell) if column in self._decimals else cell

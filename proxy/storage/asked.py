"""Questions checked against a layout, with their values as they are kept: what every engine does before it answers.

A column that nobody has, a value of another type than its column's, a sum of texts: mistakes of this program, told as
``VaultError(INTERNAL)`` without the value. What a caller may get wrong is refused long before (``model.filters``).
"""

from proxy.errors import Code, VaultError
from proxy.storage.cells import scaled
from proxy.storage.query import All, Any, Compared, Func, Grouping, Holds, Indexed, Is, Order, Select, Where
from proxy.storage.rows import Cell, ColumnType, Layout

#: The columns that every table has, as questions name them.
FIXED = {
    "@rid": ColumnType.INTEGER,
    "@key": ColumnType.HASH,
    "@version": ColumnType.INTEGER,
    "@created_at": ColumnType.INTEGER,
    "@updated_at": ColumnType.INTEGER,
    "@expires_at": ColumnType.INTEGER,
}
_NUMBERS = (ColumnType.INTEGER, ColumnType.DECIMAL)
_BEYOND = 2**63  #: whole numbers have 64 bits, one of them for the sign


class Asked:
    """What can be asked of one layout."""

    __slots__ = ("_types",)

    def __init__(self, layout: Layout) -> None:
        self._types = {**FIXED, **{column.name: column.type for column in layout.columns}}

    def where(self, where: Where) -> Where:
        """The same condition: decimals as ten-thousandths, comparisons with nothing as what never holds."""
        if isinstance(where, Is):
            kept = tuple([None if value is None else self._kept(where.column, value) for value in where.values])
            self._type(where.column)
            return where._replace(values=kept)
        if isinstance(where, Compared):
            if where.value is None:
                return Any(())
            return where._replace(value=self._kept(where.column, where.value))
        if isinstance(where, Holds):
            if self._type(where.column) is not ColumnType.TEXT:
                raise VaultError(Code.INTERNAL, f"The column {where.column} of the store holds no text to look into.")
            return where
        if isinstance(where, Indexed):
            return where
        return type(where)(tuple([self.where(part) for part in where.parts]))

    def order(self, order: tuple[Order, ...]) -> None:
        """Refuse an order by columns that are not there."""
        for key in order:
            self._type(key.column)

    def select(self, query: Select) -> Select:
        """The same question, its condition and the place where a page ended as they are kept."""
        self.order(query.order)
        after = query.after
        if after is not None:
            kept = [
                None if cell is None else self._kept(key.column, cell)
                for key, cell in zip(query.order, after, strict=False)
            ]
            after = (*kept, self._kept("@rid", after[-1]))
        return query._replace(where=self.where(query.where), after=after)

    def grouping(self, query: Grouping) -> None:
        """Refuse keys and figures of columns that are not there or hold no numbers."""
        for column in query.keys:
            self._type(column)
        for metric in query.metrics:
            if metric.column is None:
                if metric.func is not Func.COUNT:
                    raise VaultError(Code.INTERNAL, f"The figure {metric.func} of the store needs a column.")
            elif self._type(metric.column) not in _NUMBERS and metric.func is not Func.COUNT:
                raise VaultError(Code.INTERNAL, f"The column {metric.column} of the store holds no numbers.")

    def _type(self, column: str) -> ColumnType:
        kind = self._types.get(column)
        if kind is None:
            raise VaultError(Code.INTERNAL, f"The store was asked for a column {column!r} that the layout lacks.")
        return kind

    def _kept(self, column: str, value: Cell) -> Cell:
        kind = self._type(column)
        if kind is ColumnType.DECIMAL:
            return scaled(value)
        fits = {
            ColumnType.HASH: isinstance(value, bytes),
            ColumnType.TEXT: isinstance(value, str),
            ColumnType.INTEGER: isinstance(value, int) and -_BEYOND <= value < _BEYOND,
        }
        if not fits[kind]:
            raise VaultError(Code.INTERNAL, f"The store was asked for a value that its column {column} cannot hold.")
        return value


def parts_of(where: Where) -> tuple[Where, ...]:
    """What has to hold all together."""
    if isinstance(where, All) or (isinstance(where, Any) and len(where.parts) == 1):
        return tuple(inner for part in where.parts for inner in parts_of(part))
    return (where,)

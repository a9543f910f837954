"""Decimals beside the sealed body, exact: a whole number of ten-thousandths.

The interface allows decimals of 16 digits, 4 of them after the point, "never through binary floating point". As a
whole number of ten-thousandths each fits 64 bits, sorts and adds up exactly in every engine, and costs an index
entry of 8 bytes. A caller writes ``"12.50"`` or ``12``; it reads the shortest spelling, ``"12.5"`` or ``"12"``.
"""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from proxy.errors import Code, VaultError
from proxy.storage.rows import Cell, Column, ColumnType

#: Digits after the point; the digits before it follow from the 16 that the interface allows.
PLACES = 4
_SCALE = 10**PLACES
_LARGEST = 10**16


def scaled(cell: Cell) -> int | None:
    """A decimal as ten-thousandths; ``VaultError(INTERNAL)`` when it is none or does not fit, without its value."""
    if cell is None:
        return None
    try:
        exact = Decimal(str(cell)) * _SCALE
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise _unfit() from error
    if whole != exact or abs(whole) >= _LARGEST:
        raise _unfit()
    return whole


def spelled(stored: Cell) -> str | None:
    """The shortest spelling of so many ten-thousandths."""
    if stored is None:
        return None
    whole, rest = divmod(abs(int(stored)), _SCALE)
    sign = "-" if int(stored) < 0 else ""
    fraction = f".{rest:0{PLACES}d}".rstrip("0") if rest else ""
    return f"{sign}{whole}{fraction}"


def spelled_exactly(value: Decimal | int) -> str:
    """The one spelling of a decimal that fits: what ``spelled`` answers for what is stored of it."""
    return str(spelled(scaled(str(value))))


class Cells:
    """The cells of one list of columns on their way in and out."""

    __slots__ = ("_decimals", "_width")

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._width = len(columns)
        self._decimals = [index for index, column in enumerate(columns) if column.type is ColumnType.DECIMAL]

    def stored(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        """As they are kept; ``VaultError(INTERNAL)`` when they are more than the columns.

        Fewer are those of the first columns: a layout grew while somebody made a row for what it was before.
        """
        if len(cells) != self._width:
            if len(cells) > self._width:
                text = f"A row has {len(cells)} cells where its layout has {self._width} columns."
                raise VaultError(Code.INTERNAL, text)
            cells = (*cells, *[None] * (self._width - len(cells)))
        return self._changed(cells, scaled)

    def read(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        """As the caller gets them."""
        return self._changed(cells, spelled)

    def _changed(self, cells: tuple[Cell, ...], change: Callable[[Cell], Cell]) -> tuple[Cell, ...]:
        """With each decimal changed; most rows have values in few columns, and many in no decimal."""
        found = [index for index in self._decimals if cells[index] is not None]
        if not found:
            return cells
        changed = list(cells)
        for index in found:
            changed[index] = change(cells[index])
        return tuple(changed)


def _unfit() -> VaultError:
    return VaultError(
        Code.INTERNAL,
        f"A cell of a decimal column is not a decimal of at most 16 digits with {PLACES} of them after the point: "
        "the caller has to refuse such a value before it is stored.",
    )

"""Conditions as SQL: the text, and the values in the order of its marks. Rows go by the name ``r``.

Every condition is true or false, or null where it is false: nothing negates the whole of one. One
that is ``free`` leaves the choice of a way to others: SQLite has no statistics to choose by, so
``plan`` does.
"""
# ruff: noqa: S608 - names have passed query.check_names and ValidatedQuery; every value is a parameter

import json
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any as Anything

from proxy.storage.query import All, Any, Compared, Holds, Indexed, Is, Order, Where, fold
from proxy.storage.rows import ColumnValue

#: A condition: text and values.
SqlCondition = tuple[str, list[Anything]]

#: Lists that are longer travel as one value, so that a statement never has more marks than SQLite
#: takes.
_MARKS = 200
#: Longer patterns are compared by Python (SQLite has a limit).
_PATTERN = 1000


def add_functions(connection: Connection) -> Connection:
    """Give a connection the functions that conditions use."""
    connection.create_function("folded_holds", 2, _folded_holds, deterministic=True)
    connection.create_function("from_hex", 1, bytes.fromhex, deterministic=True)
    return connection


def name_of(column: str) -> str:
    """The name of a column in SQL."""
    return f"r.{column[1:]}" if column.startswith("@") else f"r.x_{column}"


def condition(where: Where, table: str, *, free: bool = False) -> SqlCondition:
    """``where`` with values as they are kept (``ValidatedQuery.where``).

    ``free``: no index is to be used for it.
    """
    if isinstance(where, All | Any):
        word = "AND" if isinstance(where, All) else "OR"
        return join_conditions([condition(part, table, free=free) for part in where.parts], word)
    if isinstance(where, Indexed):
        return _indexed(where, table)
    name = f"+{name_of(where.column)}" if free else name_of(where.column)
    if isinstance(where, Is):
        return _is(where, name)
    if isinstance(where, Compared):
        return f"{name} {where.how} ?", [where.value]
    return _holds(where, name)


def looked_at(now: int) -> SqlCondition:
    """Rows that may be shown at that instant, told from the rows themselves."""
    return "+r.state = 0 AND (+r.expires_at IS NULL OR +r.expires_at > ?)", [now]


def behind(
    order: Sequence[Order], after: Sequence[ColumnValue], rid: str = "r.rid"
) -> SqlCondition:
    """Rows behind the place where a page ended, in that order; missing values come first."""
    text, values = f"{rid} > ?", [after[-1]]
    for key, last in reversed(list(zip(order, after, strict=False))):
        # ids are unique: later keys of the order decide nothing
        if key.column == "@rid":
            text, values = f"{rid} {'<' if key.descending else '>'} ?", [last]
            continue
        name = f"+{name_of(key.column)}"
        if last is None:
            text = (
                f"({name} IS NULL AND {text})"
                if key.descending
                else f"({name} IS NOT NULL OR {text})"
            )
            continue
        further = f"{name} < ? OR {name} IS NULL" if key.descending else f"{name} > ?"
        text, values = f"({further} OR ({name} = ? AND {text}))", [last, last, *values]
    return text, values


def bounds(order: Sequence[Order], after: Sequence[ColumnValue]) -> list[SqlCondition]:
    """The conditions that reach these rows by an index of the first column."""
    if not order or order[0].column == "@rid":
        return [("1", [])]
    name, last = name_of(order[0].column), after[0]
    if not order[0].descending:
        return [("1", [])] if last is None else [(f"{name} >= ?", [last])]
    nothing: SqlCondition = (f"{name} IS NULL", [])
    return [nothing] if last is None else [(f"{name} <= ?", [last]), nothing]


def join_conditions(parts: Sequence[SqlCondition], word: str) -> SqlCondition:
    """All of them (``AND``) or one (``OR``); a balanced tree, as SQLite bounds the depth."""
    if not parts:
        return ("1" if word == "AND" else "0"), []
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    (left, first), (right, second) = (
        join_conditions(parts[:half], word),
        join_conditions(parts[half:], word),
    )
    return f"({left} {word} {right})", [*first, *second]


def _is(where: Is, name: str) -> SqlCondition:
    values = [value for value in dict.fromkeys(where.values) if value is not None]
    nothing = len(values) < len(set(where.values))
    word = "NOT IN" if where.negated else "IN"
    listed, parameters = _list(values)
    text = f"{name} {word} ({listed})"
    if where.negated is not nothing:
        return f"({name} IS NULL OR {text})", parameters
    return (f"({name} IS NOT NULL AND {text})" if nothing else text), parameters


def _list(values: Sequence[ColumnValue]) -> SqlCondition:
    if len(values) <= _MARKS:
        return ", ".join("?" * len(values)), list(values)
    if isinstance(values[0], bytes):
        hashes = [bytes(v).hex() for v in values]  # type: ignore[arg-type]  # a hash column
        return "SELECT from_hex(value) FROM json_each(?)", [json.dumps(hashes)]
    if isinstance(values[0], str):
        spelled = json.dumps([str(value).encode().hex() for value in values])
        return "SELECT CAST(from_hex(value) AS TEXT) FROM json_each(?)", [spelled]
    return "SELECT value FROM json_each(?)", [json.dumps(values)]


def _holds(where: Holds, name: str) -> SqlCondition:
    """ASCII text is compared by SQLite's ``LIKE``, which folds it; text with a NUL is not."""
    text = where.text
    test, parameters = "folded_holds(<name>, ?)", [text]
    if text.isascii() and text == text.lower() and "\0" not in text and len(text) <= _PATTERN:
        pattern = "%" + text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        test = f"CASE WHEN {_ASCII} THEN <name> LIKE ? ESCAPE '\\' ELSE folded_holds(<name>, ?) END"
        parameters = [pattern, text]
    elif text.isascii():
        pass
    else:
        test = f"CASE WHEN {_ASCII} THEN 0 ELSE folded_holds(<name>, ?) END"
    test = test.replace("<name>", name)
    return (f"NOT ifnull({test}, 0)" if where.negated else test), list(parameters)


_ASCII = "length(CAST(<name> AS BLOB)) = length(<name>)"


def _indexed(where: Indexed, table: str) -> SqlCondition:
    one = f"EXISTS (SELECT 1 FROM t_{table} AS t WHERE t.hash = ? AND t.rid = r.rid)"
    text, parameters = join_conditions(
        [(one, [token]) for token in dict.fromkeys(where.hashes)], "AND"
    )
    return (f"NOT ({text})" if where.negated else text), parameters


def _folded_holds(text: str | None, wanted: str) -> bool | None:
    return None if text is None else wanted in fold(text)

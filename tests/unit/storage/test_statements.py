"""Statements that are written once: each engine's text takes the same parameters in the same order."""

import re

from proxy.storage.postgres.statements import TableSql
from proxy.storage.sqlite.statements import Statements
from proxy.storage.statements import FILE, STAGED
from tests.support.rows import LAYOUT, TABLE
from tests.support.table import table

SQLITE, POSTGRES = Statements(LAYOUT), TableSql(LAYOUT)


@table(
    ("name", "count"),
    [
        ("release", 5), ("accept", 3), ("bind", 4), ("stage", 7), ("doubt", 4), ("unstage", 2),
        ("drop_token", 2), ("add_existing", 2), ("inscribe", 6), ("attach", 8), ("amend", 9),
        ("reroot_row", 7), ("reroot_past", 2), ("reroot_file", 6), ("past", 3), ("past_scan", 3),
        ("scan", 2), ("pending", 2), ("waiting", 2), ("expired", 2), ("reply", 2), ("count", 0),
    ],
)  # fmt: skip
def test_a_statement_has_the_same_parameters_in_both(name: str, count: int) -> None:
    embedded, served = getattr(SQLITE, name), getattr(POSTGRES, name)
    numbers = {int(one) for one in re.findall(r"\?(\d+)", embedded)}
    assert (numbers or {*range(1, embedded.count("?") + 1)}) == {*range(1, count + 1)}
    assert {int(one) for one in re.findall(r"\$(\d+)", served)} == {*range(1, count + 1)}


def test_a_change_is_run_for_a_row_of_parameters_or_for_arrays_of_them() -> None:
    what = ("s", "doubt = :at", "s.sid = :sid", ("at", "sid"))
    assert SQLITE.change(*what) == f"UPDATE s_{TABLE} AS s SET doubt = ?1 WHERE s.sid = ?2"
    assert POSTGRES.change(*what) == (
        f"UPDATE s_{TABLE} AS s SET doubt = n.at FROM unnest($1::bigint[], $2::bigint[])"
        " AS n(at, sid) WHERE s.sid = n.sid"
    )


@table(("letter", "names"), [("s", STAGED), ("f", FILE)])
def test_what_belongs_to_a_row_is_put_there_only_where_the_row_is(
    letter: str, names: tuple[str, ...]
) -> None:
    embedded, served = (sql.put(letter, names, there=True) for sql in (SQLITE, POSTGRES))
    assert f"EXISTS (SELECT 1 FROM r_{TABLE} WHERE rid = ?2)" in embedded
    assert served.endswith(f"JOIN r_{TABLE} AS r ON r.rid = n.rid FOR KEY SHARE OF r")


def test_columns_that_the_layout_drops_are_cleared() -> None:
    for sql in (Statements(LAYOUT, ["x_old"]), TableSql(LAYOUT, ["x_old"])):
        assert "x_old = NULL" in sql.replace

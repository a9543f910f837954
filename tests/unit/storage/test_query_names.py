import pytest

from proxy.errors import Code, VaultError
from proxy.storage.query import changed_meanwhile, check_names, closed, unknown
from proxy.storage.rows import Column, ColumnType, TableLayout
from tests.support.table import table


def test_good_names_pass() -> None:
    check_names(
        TableLayout("a" * 48, (Column("rid", ColumnType.TEXT), Column("c_1", ColumnType.HASH)))
    )


@table("name", ["", "A", "_a", "a-b", "a\n", "x" * 49])
def test_other_names_never_reach_a_statement(name: str) -> None:
    for layout in (TableLayout(name, ()), TableLayout("a", (Column(name, ColumnType.TEXT),))):
        with pytest.raises(VaultError):
            check_names(layout)


def test_errors_say_what_to_do() -> None:
    assert unknown("r1").code is Code.INTERNAL
    assert closed().code is Code.VAULT_DOWN
    assert (changed_meanwhile("keys").code, "keys" in changed_meanwhile("keys").message) == (
        Code.CONFLICT,
        True,
    )

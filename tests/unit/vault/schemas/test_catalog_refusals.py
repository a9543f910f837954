"""Why a schema cannot be changed."""

from collections.abc import Callable

from proxy.errors import Code, VaultError
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import (
    built_in,
    built_in_name,
    busy_schema,
    occupied,
    of_file,
    of_rules,
)
from tests.support.table import table


@table(
    ("made", "code"),
    [
        (of_rules, Code.SCHEMA_OF_RULES),
        (of_file, Code.CONFLICT),
        (built_in, Code.CONFLICT),
        (built_in_name, Code.INVALID_SCHEMA),
        (busy_schema, Code.SCHEMA_BUSY),
    ],
)
def test_each_names_the_schema(made: Callable[[str], VaultError], code: Code) -> None:
    error = made("records")
    assert error.code is code
    assert "'records'" in error.message


def test_a_name_that_was_free_before_says_what_to_do() -> None:
    error = occupied("records", Origin.FILE)
    assert error.code is Code.INVALID_SCHEMA
    assert "declared by file" in error.message
    assert "domicile export" in error.message
    assert [detail.source for detail in error.details] == ["records"]

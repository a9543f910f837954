"""What a transaction of the embedded engine moves, and what one does that is given up; the rest is
in ``tests/conformance/test_storage_tallies.py``.
"""

import pytest

from proxy.storage.sqlite.tallies import Tallies, WriterConnection
from proxy.vault.row_tallies import TableTally
from tests.support.groups import connect
from tests.support.rows import TABLE

TALLY = TableTally(bytes(32), TABLE)


@pytest.fixture
def connection() -> WriterConnection:
    made = connect()
    Tallies().install(made)
    return made


def test_a_transaction_that_is_given_up_moves_nothing(connection):
    tallies = connection.tallies
    assert tallies.begin(connection, TABLE, TALLY, first=True) == 0
    connection.execute("BEGIN")
    row = (1, None, None, 0, 1, 0, 0, None, b"s", b"body")
    connection.execute(f"INSERT INTO r_{TABLE} VALUES (?{', ?' * 9}{', NULL' * 4})", row)
    tallies.add(TABLE, [row])
    added = tallies.moved()
    connection.execute(f"UPDATE r_{TABLE} SET body = x'01'")
    assert {} != added != tallies.moved()
    tallies.write(connection, {})
    connection.execute("ROLLBACK")
    tallies.roll_back()
    assert tallies.moved() == {}
    assert tallies.check(TABLE)(connection) == 0
    connection.close()

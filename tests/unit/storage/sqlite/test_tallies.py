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
    connection.execute(
        f"INSERT INTO r_{TABLE} (rid, state, version, created_at, updated_at, salt, body)"
        " VALUES (1, 0, 1, 0, 0, x'00', x'01')"
    )
    before = tallies.moved()
    assert before != {}
    tallies.write(connection)
    connection.execute("ROLLBACK")
    tallies.roll_back()
    assert tallies.moved() == {}
    assert tallies.check(TABLE)(connection) == 0
    connection.close()

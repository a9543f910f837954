"""The format of the schema in the database, step by step: numbered, append-only, never edited once
released.

Instances that start together migrate one after the other, under an advisory lock. A step adds and
never removes, so that an older program keeps working until it is replaced. A schema that only newer
programs can read (``least``) is refused.
"""

from typing import Any, Final

from proxy.errors import Code, VaultError
from proxy.storage.postgres.tallies import MOVES_FUNCTION

_LOCK: Final = 0x444E

#: By step: its statements.
SCHEMA_STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        'CREATE TABLE notes (name text COLLATE "C" PRIMARY KEY, content bytea NOT NULL)',
        'CREATE TABLE tables (name text COLLATE "C" PRIMARY KEY)',
        (
            'CREATE TABLE columns (name text COLLATE "C", place text COLLATE "C",'
            " type text NOT NULL, PRIMARY KEY (name, place))"
        ),
        (
            'CREATE TABLE counts (name text COLLATE "C", writer bigint, rows bigint NOT NULL,'
            " PRIMARY KEY (name, writer))"
        ),
        "CREATE TABLE writers (id bigint PRIMARY KEY, done bigint NOT NULL) WITH (fillfactor = 50)",
        (
            "CREATE TABLE doomed (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            ' object text COLLATE "C" NOT NULL UNIQUE)'
        ),
    ),
    ("ALTER TABLE tables ADD COLUMN tally bytea", MOVES_FUNCTION),
    (
        "ALTER TABLE writers ADD COLUMN slot int UNIQUE",
        "ALTER TABLE writers ADD COLUMN host text",
        "ALTER TABLE writers ADD COLUMN solo timestamptz",
        "ALTER TABLE writers ADD COLUMN heard bigint",
        "ALTER TABLE writers ADD COLUMN seen timestamptz NOT NULL DEFAULT now()",
        "CREATE TABLE locks (name bytea PRIMARY KEY, writer bigint NOT NULL)",
        'CREATE TABLE flight (id bigint PRIMARY KEY, name text COLLATE "C", writer bigint)',
        "CREATE INDEX ON flight (name)",
        (
            'CREATE TABLE overtaken (name text COLLATE "C", key bytea, rid bigint, salt bytea,'
            " at bigint)"
        ),
        "CREATE INDEX ON overtaken (name, key)",
    ),
    ("ALTER TABLE writers ADD COLUMN server timestamptz",),
    ("CREATE SEQUENCE joined",),
    (
        "ALTER TABLE writers ADD COLUMN label text",
        (
            'CREATE TABLE agreed (writer bigint, job text COLLATE "C", proposal bigint NOT NULL,'
            " PRIMARY KEY (writer, job))"
        ),
    ),
    (
        "CREATE INDEX ON overtaken (at) WHERE rid IS NULL",
        "CREATE INDEX ON overtaken (at) WHERE rid IS NOT NULL",
    ),
)

#: The format that this program writes, and the oldest program that can read it.
SCHEMA_FORMAT: Final = len(SCHEMA_STEPS)
OLDEST_READER: Final = 1


async def migrate(connection: Any, schema: str) -> None:
    """Bring the schema to this program's format; each step is one transaction.

    Raises ``VaultError(BAD_STORE)`` for one that a newer program has made unreadable.
    """
    if await _format(connection) == SCHEMA_FORMAT:
        return
    key = f"{_LOCK}, hashtext('{schema}')"
    await connection.execute(f"SELECT pg_advisory_lock({key})")
    try:
        ask = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
        if await connection.fetchval(ask, schema) is None:  # creating one needs a separate right
            await connection.execute(f'CREATE SCHEMA "{schema}"')
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS format (number int NOT NULL, least int NOT NULL)"
        )
        for number in range(await _format(connection) + 1, SCHEMA_FORMAT + 1):
            await _step(connection, number)
    finally:
        await connection.execute(f"SELECT pg_advisory_unlock({key})")


async def _step(connection: Any, number: int) -> None:
    async with connection.transaction():
        for statement in SCHEMA_STEPS[number - 1]:
            await connection.execute(statement)
        await connection.execute("DELETE FROM format")
        await connection.execute("INSERT INTO format VALUES ($1, $2)", number, OLDEST_READER)


async def _format(connection: Any) -> int:
    """The format that the schema has; 0 where there is none."""
    if await connection.fetchval("SELECT to_regclass('format')") is None:
        return 0
    row = await connection.fetchrow("SELECT number, least FROM format")
    if row is None:
        return 0
    if row[1] > SCHEMA_FORMAT:
        raise VaultError(
            Code.BAD_STORE,
            f"The vault's database has format {row[0]} of a newer version of this program, which "
            f"reads up to format {SCHEMA_FORMAT}: start the newer version, or restore a backup.",
        )
    return int(row[0])

"""The peer of measure 19: a bare aiohttp handler over one plain SQLite table, which knows no key, no
client, no policy and no log, and keeps each create on disk before it answers.

    python bench/table_app.py PORT DATABASE
"""

import sqlite3
import sys
from typing import Final

import msgspec
from aiohttp import web

_FIELDS: Final = ("id", "email", "name", "city", "age", "note")
_JSON: Final = "application/json"
_INSERT: Final = "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?)"


class Table:
    """The paths of the vault's interface that the measure asks for."""

    def __init__(self, database: str) -> None:
        self._database = sqlite3.connect(database, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE customer (id TEXT PRIMARY KEY, email TEXT, name TEXT, city TEXT, "
            "age INTEGER, note TEXT) STRICT"
        )
        self._database.execute("CREATE INDEX by_email ON customer (email)")

    async def create(self, request: web.Request) -> web.Response:
        sent = msgspec.json.decode(await request.read())
        self._database.execute(_INSERT, [sent[name] for name in _FIELDS])
        return _answer(sent, 201)

    async def create_many(self, request: web.Request) -> web.Response:
        sent = msgspec.json.decode(await request.read())
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany(_INSERT, [[one[name] for name in _FIELDS] for one in sent])
        return _answer(sent, 201)

    async def read(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        row = self._database.execute("SELECT * FROM customer WHERE id = ?", (key,)).fetchone()
        return _answer(_record(row))

    async def find(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read())
        email = asked["filter"].get("email")
        where, values = (" WHERE email = ?", (email,)) if email else ("", ())
        limit = asked["options"]["limit"]
        rows = self._database.execute(
            f"SELECT * FROM customer{where} ORDER BY rowid LIMIT {limit:d}", values
        ).fetchall()
        return _answer({"data": [_record(row) for row in rows], "meta": {"count": len(rows)}})


def _record(row: tuple[object, ...]) -> dict[str, object]:
    return dict(zip(_FIELDS, row, strict=True))


def _answer(content: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type=_JSON)


def main(port: int, database: str) -> None:
    """Serve until the process ends."""
    table = Table(database)
    app = web.Application(client_max_size=2**26)
    app.add_routes(
        [
            web.post("/api/models/customer", table.create),
            web.post("/api/models/customer/batch", table.create_many),
            web.post("/api/models/customer/find", table.find),
            web.get("/api/models/customer/{key}", table.read),
        ]
    )
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

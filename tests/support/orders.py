"""A small application of orders, each with a customer and couriers, on SQLite: a process of its own.

``python -m tests.support.orders PORT FILE``. Orders have strong entity tags, and an update of an
older state is refused. Each order holds its own copy of the people in it.
"""

import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 7

#: For the proxy before it.
RULES = """version: 1
endpoint: {{name: shop, upstream: "http://127.0.0.1:{port}"}}
on_error: {{vault_down: {{read: 503}}}}
entities:
  customer: {{fields: {{name: {{kind: name}}, email: {{kind: email}}}}}}
  courier:  {{fields: {{name: {{kind: name}}, phone: {{kind: phone, token: opaque}}}}}}
operations:
  - match: GET /orders
    objects:
      - {{read: customer, response: {{each: "$.items[*].customer", id: $.id}}}}
      - {{read: courier,  response: {{each: "$.items[*].couriers[*]", id: $.id}}}}
  - match: "GET /orders/{{order}}"
    objects:
      - {{read: customer, response: {{object: $.customer, id: $.id}}}}
      - {{read: courier,  response: {{each: "$.couriers[*]", id: $.id}}}}
  - match: "PATCH /orders/{{order}}"
    objects:
      - {{update: customer, id: $.customer.id, request: {{object: $.customer}}, response: {{object: $.customer}}}}
      - {{update: courier,  id: $.id, request: {{each: "$.couriers[*]"}}, response: {{each: "$.couriers[*]", id: $.id}}}}
"""


def order(number: int) -> dict[str, Any]:
    """An order as the application has it at first; customers have several."""
    customer = number % 11
    couriers = [
        {"id": one, "name": f"Bob Flumper{one}", "phone": f"+46 70 918 {one:06}"}
        for one in range(number, number + number % 3)
    ]
    return {
        "customer": {
            "id": customer, "name": f"Ann Wexlomere{customer}", "email": f"a{customer}@wexlo.example",
        },
        "total": 10.50 + number, "couriers": couriers, "note": "by the door",
    }  # fmt: skip


def seed(file: str, count: int) -> None:
    """Make the database with so many orders."""
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, version INTEGER, content TEXT)")
        rows = [(number, json.dumps(order(number))) for number in range(1, count + 1)]
        base.executemany("INSERT INTO orders VALUES (?, 1, ?)", rows)


def stored(file: str) -> dict[int, dict[str, Any]]:
    """The orders as the database has them."""
    with sqlite3.connect(file) as base:
        return {
            number: json.loads(text)
            for number, text in base.execute("SELECT id, content FROM orders")
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    file = ""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        ident = parts.path.removeprefix("/orders").strip("/")
        with sqlite3.connect(self.file, timeout=30) as base:
            if ident:
                self._one(base, ident)
                return
            after = int(parse_qs(parts.query).get("after", ["0"])[0])
            rows = base.execute(
                "SELECT id, content FROM orders WHERE id > ? ORDER BY id LIMIT ?", (after, PAGE)
            ).fetchall()
        following = f"/orders?after={rows[-1][0]}" if len(rows) == PAGE else None
        items = [{"id": number, **json.loads(text)} for number, text in rows]
        self._say(200, {"items": items, "next": following})

    def do_PATCH(self) -> None:
        ident = urlsplit(self.path).path.removeprefix("/orders/")
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with sqlite3.connect(self.file, timeout=30, isolation_level=None) as base:
            base.execute("BEGIN IMMEDIATE")
            row = base.execute(
                "SELECT version, content FROM orders WHERE id = ?", (ident,)
            ).fetchone()
            wanted = self.headers.get("If-Match")
            if row is None or (wanted and wanted != f'"{row[0]}"'):
                self._say(404 if row is None else 412, {})
                return
            content = json.dumps({**json.loads(row[1]), **sent})
            base.execute(
                "UPDATE orders SET version = version + 1, content = ? WHERE id = ?",
                (content, ident),
            )
            base.execute("COMMIT")
            self._one(base, ident)

    def _one(self, base: sqlite3.Connection, ident: str) -> None:
        row = base.execute("SELECT version, content FROM orders WHERE id = ?", (ident,)).fetchone()
        if row is None:
            self._say(404, {})
        else:
            self._say(200, {"id": int(ident), **json.loads(row[1])}, f'"{row[0]}"')

    def _say(self, status: int, content: Any, tag: str = "") -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    _Handler.file = sys.argv[2]
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()

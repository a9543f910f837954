"""An instance as a command sees it over HTTP: token, schema, batches, pages.

Whoever tests decides what goes wrong.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIELDS = {"id": {"type": "primary_key"}, "age": {"type": "integer"}, "name": {"type": "string"}}


@dataclass
class FakeVault:
    """What the instance holds, and what it was asked."""

    url: str = ""
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    replies: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: int = 0
    expired: set[str] = field(default_factory=set)  #: tokens that count no more
    busy: int = 0  #: answers 503 so many times
    lost: int = 0  #: does what it is asked and then gives no answer, so many times
    page: int = 2

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(path)
        self.asked.append(f"{method} {parts.path}")
        if self.busy:
            self.busy -= 1
            return 503, {"code": "vault_down", "detail": "busy", "errors": []}
        if parts.path == "/oauth2/token":
            if not headers["Authorization"].startswith("Basic Y2xpZW50OnNlY3JldA"):
                return 401, {"error": "invalid_client"}
            if b"scope=default" not in body:
                return 400, {"error": "invalid_scope"}
            self.tokens += 1
            return 200, {"access_token": f"t{self.tokens}"}
        token = headers["Authorization"].removeprefix("Bearer ")
        if token in self.expired or token != f"t{self.tokens}":
            return 401, {"code": "unauthorized", "detail": "no", "errors": []}
        if parts.path == "/api/schemas/contact":
            return 200, {"fields": FIELDS}
        if parts.path == "/api/models/contact/export":
            return self._exported(parse_qs(parts.query))
        if not parts.path.startswith("/api/models/contact/batch"):
            return 400, {
                "code": "unknown_schema",
                "detail": "There is no such schema.",
                "errors": [],
            }
        key = headers["Idempotency-Key"]
        if key not in self.replies:
            told = self._stored(json.loads(body), update=parts.path.endswith("update"))
            if told[0] >= 300:
                return told
            self.replies[key] = told
        return self.replies[key]

    def _stored(self, batch: list[dict[str, Any]], *, update: bool) -> tuple[int, Any]:
        faults = [
            (f"/{n}/age", "Has to be a whole number.")
            for n, one in enumerate(batch)
            if one.get("age") == -1
        ]
        if faults:
            return 400, _problem("invalid_record", faults)
        taken = [
            (f"/{n}/id", "The key is used.")
            for n, one in enumerate(batch)
            if one["id"] in self.records
        ]
        if taken and not update:
            return 409, _problem("record_exists", taken)
        self.records.update(
            {one["id"]: {**self.records.get(one["id"], {}), **one} for one in batch}
        )
        return 201, batch

    def _exported(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        start = int(query.get("next", ["0"])[0])
        page = list(self.records.values())[start : start + self.page]
        more = {"next": str(start + self.page)} if start + self.page < len(self.records) else {}
        return 200, {
            "data": [{**one, "attachments": [], "created_at": "x"} for one in page],
            "meta": more,
        }


def _problem(code: str, faults: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "code": code,
        "detail": "no",
        "errors": [{"source": source, "detail": text} for source, text in faults],
    }


@contextmanager
def fake_vault() -> Iterator[FakeVault]:
    """Serve until the block ends."""
    vault = FakeVault()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = vault.answer(self.command, self.path, self.headers, body)
            if vault.lost and status == 201:
                vault.lost -= 1
                self.close_connection = True
                return
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_DELETE = do_GET = do_POST = handle_one  # noqa: N815 - names of the base class

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    vault.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield vault
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""An application that holds people in the clear, and a proxy before it that swaps: as small as the
walk of ``domicile adopt`` needs them, and with whatever may go wrong on the way.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

RULES = """version: 1
endpoint: {{name: crm, upstream: "{url}"}}
entities:
  contact:
    fields:
      name:  {{kind: name}}
      email: {{kind: email}}
operations:
  - {{match: GET /people, read: contact, response: {{each: "$.items[*]", id: $.id}}}}
  - {{match: "GET /people/{{id}}", read: contact}}
  - {{match: "PATCH /people/{{id}}", update: contact}}
{more}"""

FIELDS = ("name", "email")


@dataclass
class Adopted:
    """People by id, as the application holds them, and its manners."""

    records: dict[str, dict[str, Any]]
    page: int = 2
    tags: bool = True
    heeds: bool = True  #: an update on the condition of another tag is refused
    busy: int = 0  #: updates at the same time
    most_busy: int = 0  #: and at most
    versions: dict[str, int] = field(default_factory=dict)
    refuse: dict[str, int] = field(default_factory=dict)  #: updates by id: status
    failures: list[int] = field(default_factory=list)  #: statuses of the next answers; 0: none
    #: called with the side and the id just before an update acts
    before: Callable[[str], None] = lambda _: None
    unfindable: set[str] = field(default_factory=set)  #: ids that are listed and answer 404
    ignores: bool = False  #: updates are accepted and change nothing
    turned: bool = False  #: the process behind the proxy writes members in the other order
    forgets: str = ""  #: a member that an update drops
    narrow: int = 99  #: characters that its columns take; it says nothing of the rest
    secret: str = ""  #: what ``Authorization`` has to say
    requests: list[str] = field(default_factory=list)  #: side, method and target of each
    url: str = ""
    proxy: str = ""

    def rules(self, folder: Path, more: str = "") -> None:
        """Settings and rules for these addresses."""
        (folder / "rules.yaml").write_text(RULES.format(url=self.url, more=more))
        (folder / "domicile.yaml").write_text("rules: rules.yaml\n")

    def change(self, ident: str, **members: Any) -> None:
        """Somebody changes a record."""
        self.records[ident].update(members)
        self.versions[ident] = self.versions.get(ident, 0) + 1

    def writes(self, side: str) -> int:
        """How many updates a side has got."""
        return sum(one.startswith(f"{side} PATCH") for one in self.requests)

    def answer(self, side: str, handler: BaseHTTPRequestHandler) -> tuple[int, Any, dict[str, str]]:
        """Status, content and header fields of the answer to one request."""
        parts = urlsplit(handler.path)
        ident = parts.path.removeprefix("/people").strip("/")
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if self.secret and handler.headers.get("Authorization") != self.secret:
            return 401, {}, {}
        if not ident:
            return self._list(side, parse_qs(parts.query))
        if ident not in self.records or ident in self.unfindable:
            return 404, {}, {}
        if handler.command == "PATCH":
            self.busy += 1
            self.most_busy = max(self.busy, self.most_busy)
            self.before(ident)
            self.busy -= 1
            if ident not in self.records:
                return 404, {}, {}
            if self.refuse.get(ident):
                return self.refuse[ident], {}, {}
            wanted = handler.headers.get("If-Match")
            if self.heeds and wanted not in (None, self._tag(ident)):
                return 412, {}, {}
            self._update(side, ident, json.loads(body))
        fields = {"ETag": self._tag(ident)} if self.tags else {}
        return 200, self._seen(side, ident), fields

    def _seen(self, side: str, ident: str) -> dict[str, Any]:
        record = seen(side, self.records[ident])
        return dict(reversed(record.items())) if self.turned and side == "proxy" else record

    def _update(self, side: str, ident: str, members: dict[str, Any]) -> None:
        if self.ignores:
            return
        if side == "proxy":
            members = {
                name: f"t-{value}" if name in FIELDS and value else value
                for name, value in members.items()
            }
        cut = {name: one[: self.narrow] for name, one in members.items() if name in FIELDS and one}
        self.change(ident, **{**members, **cut})
        self.records[ident].pop(self.forgets, None)

    def _list(self, side: str, query: dict[str, list[str]]) -> tuple[int, Any, dict[str, str]]:
        start = int(query.get("start", ["0"])[0])
        people = sorted(self.records)
        items = [self._seen(side, one) for one in people[start : start + self.page]]
        more = f"/people?start={start + self.page}" if start + self.page < len(people) else None
        return 200, {"items": items, "next": more}, {}

    def _tag(self, ident: str) -> str:
        return f'"{self.versions.get(ident, 0)}"'


def seen(side: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record as one side shows it."""
    if side == "application":
        return record
    return {
        name: value.removeprefix("t-") if name in FIELDS and value else value
        for name, value in record.items()
    }


@contextlib.contextmanager
def adopted(count: int) -> Iterator[Adopted]:
    """So many people, ``p0`` and on; both sides listen for the length of the block."""
    people = {
        f"p{n}": {"id": f"p{n}", "name": f"Ann {n}", "email": f"a{n}@b.example", "n": n}
        for n in range(count)
    }
    office = Adopted(people)
    with contextlib.ExitStack() as stack:
        office.url = stack.enter_context(_served(office, "application"))
        office.proxy = stack.enter_context(_served(office, "proxy"))
        yield office


@contextlib.contextmanager
def _served(office: Adopted, side: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            office.requests.append(f"{side} {self.command} {self.path}")
            status, content, fields = office.answer(side, self)
            if office.failures:
                status = office.failures.pop(0)
            if not status:
                self.close_connection = True
                return
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET  # noqa: N815 - the name that the server looks for

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

"""The lines of both listeners, byte for byte with their chain, are those of `audit_lines.jsonl`.

Clock, chain key and the ids of files and clients are fixed. The file changes only together with
what users are told of the log.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import FormData

from proxy.audit.files import log_segments
from proxy.audit.services import Refusals, Sink
from proxy.storage.base import Store
from proxy.storage.changes import Replace
from tests.support.api import Interface, interface
from tests.support.audit import Remembered, auditing, opened, verified
from tests.support.clock import ManualClock
from tests.support.examples import CONTACT, FILE, KEPT, RECORDS
from tests.support.exchanges import desk

EXPECTED: Final = Path(__file__).with_name("audit_lines.jsonl")

M, R = "/api/models/contact", "/api/records"

SWAPPED: Final[dict[Any, Any]] = {"Lund": "Malmö", "Malmö": "Lund"}

REHASH: Final = {
    "dtk": "k3yA" * 24,
    "keys": ["p-1"],
    "rules": {"key1": {"strategy": "masking", "strategyOptions": {"type": "alphanumeric"}}},
}

#: (who, method, path, JSON): `{file}` is the file that was uploaded last.
REQUESTS: Final[Sequence[tuple[str, str, str, Any]]] = (
    *[("writer", "POST", M, record) for record in RECORDS],
    ("writer", "POST", M, RECORDS[0]),  # refused: it is there
    ("writer", "POST", f"{M}/batch", [{"id": "c-8", "city": "Lund"}, {"id": "c-9", "age": 3}]),
    ("writer", "GET", f"{M}/c-1", None),
    ("writer", "GET", f"{M}/c-0", None),
    ("writer", "PUT", f"{M}/c-8", {"id": "c-8", "city": "Malmö", "name": "Eva"}),
    ("writer", "PATCH", f"{M}/c-8", {"age": 9}),
    ("writer", "POST", f"{M}/batch/update", [{"id": "c-1", "age": 42}]),
    ("writer", "POST", f"{M}/find", {}),
    ("writer", "POST", f"{M}/find", {"filter": {"city": "Nowhere"}}),
    ("writer", "POST", f"{M}/aggregate", {"metrics": {"n": {"func": "count"}}, "group_by": {"keys": ["city"]}}),
    ("writer", "GET", f"{M}/export", None),
    ("writer", "GET", f"{M}/c-8/history", None),
    ("writer", "POST", f"{M}/clone", {"filter": {"id": "c-8"}, "update_with": {"id": "c-7"}}),
    ("writer", "FILE", f"{M}/c-1/files", None),
    ("writer", "GET", f"{M}/c-1", None),
    ("writer", "GET", f"{M}/c-1/files/{{file}}", None),
    ("writer", "PATCH", f"{M}/c-1/files/{{file}}", {"filename": "other.txt"}),
    ("writer", "POST", f"{M}/c-1/files/move/c-2", {"attachment_ids": ["{file}"]}),
    ("writer", "DELETE", f"{M}/c-2/files/{{file}}", None),
    ("writer", "POST", f"{M}/c-9/migrate/c-8", None),
    ("under:narrow", "POST", f"{M}/find", {}),
    ("under:narrow", "GET", f"{M}/c-1", None),
    ("under:narrow", "POST", M, {"id": "c-4"}),
    ("nobody", "GET", f"{M}/c-1", None),
    ("writer", "GET", "/api/clients", None),
    ("chief", "GET", "/api/clients", None),
    ("chief", "POST", "/api/clients", {"name": "crm", "environment_id": "default"}),
    ("chief", "GET", "/api/policies/narrow", None),
    ("chief", "PUT", f"{M}/c-3/bait", None),
    ("writer", "GET", f"{M}/c-3", None),
    ("chief", "DELETE", f"{M}/c-3/bait", None),
    ("again", "DELETE", f"{M}/c-2", None),
    ("again", "DELETE", f"{M}/c-2", None),
    ("writer", "POST", f"{M}/batch/delete", {"filter": {"record_key": ["c-1", "c-8"]}}),
    *[("writer", "POST", R, record) for record in KEPT],
    ("writer", "POST", f"{R}/find", {"country": "se", "filter": {}}),
    ("writer", "POST", f"{R}/aggregate", {"country": "se", "metrics": {"n": {"func": "count"}}}),
    ("writer", "POST", f"{R}/rehash", REHASH),
    ("writer", "POST", "/sf/find-ids", {"schema": "contact", "filter": {"city": "Lund"}}),
    ("writer", "GET", "/v2/storage/records/se/r-1", None),
    ("writer", "DELETE", f"{R}/se/r-1", None),
    ("tamper", "", "", None),
    ("writer", "GET", f"{M}/c-3", None),
    ("under:narrow", "GET", f"{M}/c-3", None),
    ("under:narrow", "GET", f"{M}/c-7", None),
    ("under:narrow", "POST", f"{M}/find", {}),
    ("writer", "POST", f"{M}/find", {}),
)  # fmt: skip


class FixedIds:
    """A log that is given lines with the ids that were drawn at random taken out."""

    def __init__(self, log: Sink) -> None:
        self._log = log
        self.flushes = log.flushes

    @property
    def fault(self) -> str | None:
        return self._log.fault

    def ready(self) -> None:
        self._log.ready()

    def put(self, *bodies: bytes) -> None:
        self._log.put(*map(_fixed, bodies))

    def put_or_queue(self, *bodies: bytes) -> None:
        self._log.put_or_queue(*map(_fixed, bodies))

    async def flushed(self) -> None:
        await self._log.flushed()


def _fixed(body: bytes) -> bytes:
    named = re.sub(rb'"files":\["[^"]*"\]', b'"files":["F"]', body)
    return re.sub(rb'("operation":"create_client".*"subject":)"[^"]*"', rb'\1"C"', named)


async def _upload(here: Interface, path: str) -> str:
    name, content = FILE
    form = FormData()
    form.add_field("file", content, filename=name, content_type="text/plain")
    answer = await here.client("POST", path, data=form, headers={"x-filename": name})
    return str(answer.json["file_id"])


async def _tamper(store: Store, here: Interface) -> None:
    """Swap the city columns of two contacts, as somebody with the database could."""
    collection = here.catalog.records("contact").collection
    rows = await collection.by_key(["c-3", "c-7"])
    for row in rows.values():
        cells = tuple(SWAPPED.get(cell, cell) for cell in row.cells)
        await store.commit(collection.table, [Replace(row._replace(cells=cells), row.version)])


async def _interface(sink: Sink, folder: Path) -> None:
    async with interface(folder) as here:
        here.services.audit = auditing(sink)
        here.services.audit.refusals = Refusals(sink, lambda: 0.0)
        await here.declare("contact", CONTACT)
        fields = {"name": {"valueType": "masked", "mask": {"last": 2}}}
        rows = {"filter": {"city": "Lund"}}
        await here.policy("narrow", "contact", "read", fields=fields, rows=rows)
        file = ""
        for who, method, path, content in REQUESTS:
            if who == "tamper":
                await _tamper(here.store, here)
            elif method == "FILE":
                file = await _upload(here, path)
            else:
                headers = {"Idempotency-Key": "k"} if who == "again" else {"x-env-id": "default"}
                sent = None if content is None else _with(content, file)
                by = who.replace("again", "writer")
                await here.client(method, path.format(file=file), by, json=sent, headers=headers)
        here.services.audit.refusals.flush()


def _with(content: Any, file: str) -> Any:
    if isinstance(content, dict) and "attachment_ids" in content:
        return {"attachment_ids": [file]}
    return content


async def _proxied(sink: Sink) -> None:
    one = await desk()
    person = {"name": "Astrid Lind", "email": "astrid@example.com"}
    stored = await one.create(person)
    await one.shown(stored)
    await (await one.send("GET /p?email=astrid@example.com")).seen(200, [stored])
    call = await one.send("PATCH /p/1", {"name": "Astrid Ek"})
    await call.answer(200, {**stored, **call.json, "id": 1})
    await (await one.send("POST /p", person)).answer(422, {"error": "no"})
    await (await one.send("PATCH /p/1", {"name": "Bo"})).answer(404)
    await (await one.send("GET /p/1")).answer(422, {"error": stored["email"]})
    lost = await one.send("PATCH /p/1", {"name": "Carin"})
    await lost.exchange.failed(sent=True)
    await (await one.send("DELETE /p/1")).answer(204)
    sink.put(*one.audit.raw)


async def test_lines_of_both_listeners_are_the_expected_bytes(tmp_path):
    memory = Remembered()
    folder = tmp_path / "audit"
    log = await opened(folder, memory, ManualClock())
    await _interface(FixedIds(log), tmp_path)
    await _proxied(log)
    await log.close()
    assert (await verified(folder, memory)).faults == []
    written = b"".join(path.read_bytes() for path in log_segments(folder))
    assert written.splitlines() == EXPECTED.read_bytes().splitlines()

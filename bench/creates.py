"""Measure 10 for whole records: through the vault's own code, and over HTTP, against the bare
engine with the same batches.

The peer inserts the same sealed rows and index entries in transactions of the same sizes: what is
left between the two is the price of reading and checking records, of hashing and sealing them, and
over HTTP of the protocol.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import uvloop

from bench.ours import settings_file
from bench.processes import ROOT, free_port, started
from bench.rounds import Failed
from proxy.clock import system_clock
from proxy.crypto.keyset import Keyset
from proxy.model.record import RecordDraft
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage import open_store
from proxy.storage.base import Hooks
from proxy.storage.changes import Insert
from proxy.storage.rows import Column, TableLayout
from proxy.vault.collection import TableSpec
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.repository import Records
from proxy.vault.schema_store import column_type
from proxy.vault.vault import VaultOptions, new_vault

_LENGTH = re.compile(rb"(?i)content-length: (\d+)")


class Case(NamedTuple):
    """How the records come."""

    title: str
    #: whether parts of names and addresses can be searched for, each part an index entry
    parts: bool
    batch: int
    writers: int


CASES = (
    Case("64 writers of single records", False, 1, 64),
    Case("8 writers of batches of 100", False, 100, 8),
    Case("8 writers of batches of 100, searchable in parts", True, 100, 8),
)
OVER_HTTP = (
    Case("over HTTP, 8 connections, batches of 100", False, 100, 8),
    Case("over HTTP, 8 connections, batches of 100, searchable in parts", True, 100, 8),
)


class Made(NamedTuple):
    """What came of one run: speed, cost, and what the peer has to repeat."""

    rate: float  #: records/s
    cost: float  #: processor microseconds a record
    sizes: list[int]  #: records of each transaction
    inserts: list[Insert]
    layout: TableLayout


def schema(case: Case) -> Schema:
    """Six fields of a person: one hashed, two plain, two that nobody can ask for."""
    return Schema(
        "customer",
        (
            Field("id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED),
            Field("email", FieldType.STRING, Storage.INDEXED_HASHED, partial_match=case.parts),
            Field("name", FieldType.STRING, Storage.INDEXED_HASHED, partial_match=case.parts),
            Field("city", FieldType.STRING, Storage.INDEXED),
            Field("age", FieldType.INTEGER, Storage.INDEXED),
            Field("note", FieldType.STRING, Storage.ENCRYPTED),
        ),
    )


def values(number: int) -> dict[str, Any]:
    """One record of some 350 bytes."""
    return {
        "id": f"c{number:08d}",
        "email": f"person{number}@example.com",
        "name": f"Person {number} Example",
        "city": "Stockholm",
        "age": number % 90,
        "note": "n" * 200,
    }


def taken(folder: Path, case: Case, count: int) -> Made:
    """One run of a case. Over HTTP its cost is another process's and not told (0); the peer then
    commits batch by batch.
    """
    if case in CASES:
        return uvloop.run(through_create(folder / "ours.db", case, count))
    rate = 0.0
    with interface(folder) as place:
        place.put_schema(case)
        rate = uvloop.run(over_http(place, case, count))
    like = uvloop.run(through_create(folder / "like.db", case, count))
    return like._replace(rate=rate, cost=0, sizes=[case.batch] * (count // case.batch))


async def through_create(path: Path, case: Case, count: int) -> Made:
    """Durable creates by so many coroutines on one event loop."""
    commits: list[int] = []
    store = await open_store(f"sqlite:///{path}", Hooks(lambda size, _: commits.append(size)))
    options = VaultOptions("bench", "SE", 10**9)
    vault = new_vault(Keyset.create("bench"), store, system_clock, lambda *_: None, options)
    records = Records(await vault.collection(TableSpec(schema(case), {}, None, addressed=False)))
    drafts = [RecordDraft(f"c{number:08d}", values(number)) for number in range(count)]
    left = iter([drafts[start : start + case.batch] for start in range(0, count, case.batch)])

    async def write() -> None:
        for batch in left:
            await store_records(records, batch, "bench", no_changes)

    commits.clear()
    start, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(write() for _ in range(case.writers)))
    took, used = time.perf_counter() - start, time.process_time() - used
    await store.close()
    sizes = [size * case.batch for size in commits]
    return Made(
        count / took, used / count * 1e6, sizes, _inserts(records, drafts), _layout(records)
    )


def _inserts(records: Records, drafts: Iterable[RecordDraft]) -> list[Insert]:
    sequence = records.collection.context.sequence
    return [
        Insert(
            records.new_row(draft.key or "", draft.fields, sequence(), "bench", None),
            tuple(records.hashes(draft.fields)),
        )
        for draft in drafts
    ]


def _layout(records: Records) -> TableLayout:
    fields = zip(records.schema.column_fields, records.collection.columns, strict=True)
    return TableLayout(
        records.collection.table, tuple(Column(name, column_type(field)) for field, name in fields)
    )


class Interface(NamedTuple):
    """An instance whose interface listens on that port, a token for it, and the id of its process."""

    port: int
    token: str
    pid: int

    def put_schema(self, case: Case) -> None:
        """Declare the schema of the case."""
        body = {"fields": {field.name: _definition(field) for field in schema(case).fields}}
        _call(f"{self.url}/api/schemas/customer", json.dumps(body).encode(), self.token, "PUT")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _definition(field: Field) -> dict[str, Any]:
    if field.type is FieldType.PRIMARY_KEY:
        return {"type": "primary_key"}
    parts = {"partial_match": True} if field.partial_match else {}
    return {"type": field.type.value, "storage": field.storage.value, **parts}


@contextmanager
def interface(folder: Path, more: str = "") -> Iterator[Interface]:
    """Domicile as an operator runs it, with its first client; ``more`` are further lines of its
    settings.
    """
    port = free_port()
    lasting = "auth:\n  token_lifetime: 3600\n"  # a run takes longer than a token usually lives
    settings = settings_file(folder, free_port(), vault=port, more=more + lasting)
    command = [sys.executable, "-m", "proxy"]
    made = subprocess.run(
        [*command, "init", "--json", "--config", str(settings)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    client = json.loads(made.stdout)
    with started(
        "domicile", [*command, "serve", "--config", str(settings)], port, folder
    ) as running:
        form = {name: client[name] for name in ("client_id", "client_secret")}
        sent = urlencode({"grant_type": "client_credentials", **form}).encode()
        told = json.loads(_call(f"http://127.0.0.1:{port}/oauth2/token", sent, "", "POST"))
        yield Interface(port, told["access_token"], running.pid)


def _call(url: str, body: bytes, token: str, method: str) -> bytes:
    kind = "application/json" if token else "application/x-www-form-urlencoded"
    headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
    # an address of ours
    with urlopen(Request(url, body, headers, method=method), timeout=60) as answer:
        content: bytes = answer.read()
        return content


async def over_http(place: Interface, case: Case, count: int) -> float:
    """Records/s of so many connections that post batch after batch; an answer other than 201 is a
    failure.
    """
    batches = [
        json.dumps([values(number) for number in range(start, start + case.batch)]).encode()
        for start in range(0, count, case.batch)
    ]
    left = iter(
        [
            "POST /api/models/customer/batch HTTP/1.1\r\nHost: "
            f"127.0.0.1:{place.port}\r\nAuthorization: Bearer {place.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(batch)}\r\n\r\n".encode()
            + batch
            for batch in batches
        ]
    )

    async def post() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port, limit=2**22)
        for sent in left:
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise Failed(f"A batch was answered {head[:12].decode()}.")
            length = _LENGTH.search(head)
            await reader.readexactly(int(length[1]) if length else 0)
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(post() for _ in range(case.writers)))
    return count / (time.perf_counter() - start)

"""Clients that work over the vault's own interface while it is killed, with records of either
family or with attachments, and what each of them must find afterwards.

Every client has keys of its own and knows what they hold. A call that got no answer was carried out
as a whole or not at all: one look at all of its keys tells which. Half of the calls with records
have an ``Idempotency-Key``; such a call is sent once more, and must then be answered as if nothing
had happened.
"""

import asyncio
import hashlib
import io
import json
import random
from collections import Counter
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp

from proxy.model.schema import KEYS, RANGE_KEYS, SERVICE_KEYS
from tests.support.lives import Installation

SCHEMA = {
    "fields": {
        "id": {"type": "primary_key"},
        "name": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
        "email": {"type": "string", "storage": "indexed_hashed"},
        "age": {"type": "integer", "storage": "indexed"},
        "note": {"type": "string", "storage": "encrypted"},
    }
}
#: What of the values must never be found in a file.
MARKERS = ("Quibblethwaite", "Wexlomere", "yxmarker")
FILE_MARKER = b"Quibblethwaite"
WORKERS = 4
_KEYS = 5
CONTACTS = "/api/models/contact"

#: What keys hold; a key that is absent has no record.
State = dict[str, int]


def body(key: str, value: int) -> dict[str, Any]:
    """The record that was written under a number."""
    return {
        "id": key,
        "name": f"Zorbina Quibblethwaite {value}",
        "email": f"z{value}@wexlomere.example",
        "age": value,
        "note": f"yxmarker {value}",
    }


class Request(NamedTuple):
    """One call, the status that it has to get, and what its keys hold when it was carried out."""

    name: str
    method: str
    path: str
    json: Any
    status: int
    after: State
    key: str | None  #: its ``Idempotency-Key``


@dataclass
class Worker:
    """One client. ``unknown`` is a call whose answer never came."""

    number: int
    state: State = field(default_factory=dict)
    unknown: Request | None = None
    calls: int = 0

    @property
    def keys(self) -> list[str]:
        return [f"w{self.number}-{index}" for index in range(_KEYS)]

    def next(self) -> Request:
        """The next call, drawn at random."""
        self.calls += 1
        value = self.calls * WORKERS + self.number
        keys = random.sample(self.keys, 3)
        verb = random.choice(
            (
                self._create,
                self._create_many,
                self._update,
                self._delete,
                self._clone,
                self._migrate,
            )
        )
        method, path, sent, status, after = verb(keys, value)
        once = f"{self.number}-{self.calls}" if random.random() < 0.5 else None
        return Request(
            verb.__name__, method, path, sent, status, self.state if status >= 400 else after, once
        )

    def _create(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        free = keys[0] not in self.state
        return (
            "POST",
            CONTACTS,
            body(keys[0], value),
            201 if free else 409,
            {**self.state, keys[0]: value},
        )

    def _create_many(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        free = self.state.keys().isdisjoint(keys)
        sent = [body(key, value) for key in keys]
        return (
            "POST",
            CONTACTS + "/batch",
            sent,
            201 if free else 409,
            {**self.state, **dict.fromkeys(keys, value)},
        )

    def _update(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        changed = dict.fromkeys(self.state.keys() & set(keys), value)
        return (
            "POST",
            CONTACTS + "/batch/update",
            [body(key, value) for key in keys],
            201,
            {**self.state, **changed},
        )

    def _delete(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        left = {key: value for key, value in self.state.items() if key not in keys}
        sent = {"filter": {"record_key": keys}}
        return "POST", CONTACTS + "/batch/delete", sent, 204 if left != self.state else 404, left

    def _clone(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        status = 403 if source not in self.state else 409 if target in self.state else 201
        sent = {"filter": {"record_key": source}, "update_with": body(target, value)}
        return "POST", CONTACTS + "/clone", sent, status, {**self.state, target: value}

    def _migrate(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        if source not in self.state or target not in self.state:
            return "POST", f"{CONTACTS}/{source}/migrate/{target}", None, 404, self.state
        left = {key: value for key, value in self.state.items() if key != source}
        return (
            "POST",
            f"{CONTACTS}/{source}/migrate/{target}",
            None,
            204,
            {**left, target: self.state[source]},
        )


async def answered(
    caller: aiohttp.ClientSession, method: str, url: str, **options: Any
) -> tuple[int, Any]:
    """Status and content of the answer; (0, None) where none came."""
    try:
        async with caller.request(method, url, **options) as answer:
            raw = await answer.read()
            return answer.status, json.loads(raw) if raw else None
    except (aiohttp.ClientError, OSError):
        return 0, None


@dataclass
class RecordCrowd:
    """The clients, and the installation they work with."""

    caller: aiohttp.ClientSession
    installation: Installation
    workers: list[Worker] = field(
        default_factory=lambda: [Worker(number) for number in range(WORKERS)]
    )
    counts: Counter[str] = field(default_factory=Counter)
    credentials: Mapping[str, str] = field(default_factory=dict)
    _token: str = ""

    async def prepare(self) -> None:
        """The first client of the vault and, in a first life, the schema."""
        assert await self.installation.run("init", "--json") == 0
        self.credentials = json.loads(self.installation.output)
        await self.arrive()
        status, _ = await self.ask("PUT", "/api/schemas/contact", SCHEMA)
        assert status in {200, 201}
        await self.installation.kill()

    async def arrive(self, **plan: Any) -> None:
        """Start the instance and get a token from it."""
        assert await self.installation.start(**plan), self.installation.log.decode()
        own = {name: self.credentials[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", **own}
        async with self.caller.post(self.installation.vault + "/oauth2/token", data=form) as answer:
            told = await answer.json()
            assert answer.status == 200, (told, self.installation.log[-2000:])
            self._token = told["access_token"]

    async def ask(
        self, method: str, path: str, sent: Any, once: str | None = None
    ) -> tuple[int, Any]:
        """Status and content of the answer; (0, None) where none came."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if once is not None:
            headers["Idempotency-Key"] = once
        url = self.installation.vault + path
        return await answered(self.caller, method, url, json=sent, headers=headers)

    async def visit(self, worker: Worker) -> None:
        """Call after call, until an answer does not come."""
        while True:
            request = worker.next()
            status, content = await self.ask(
                request.method, request.path, request.json, request.key
            )
            self.counts[f"{request.name} {status or 'killed'}"] += 1
            if not status:
                worker.unknown = request
                return
            assert status == request.status, (request, content)
            worker.state = request.after

    async def judge(self) -> None:
        """Every key holds what its client knows of it; what got no answer happened as a whole or
        not at all.
        """
        found = await self.found()
        for worker in self.workers:
            held = {key: value for key, value in found.items() if key in worker.keys}
            request, worker.unknown = worker.unknown, None
            if request is None:
                assert held == worker.state
                continue
            assert held in (worker.state, request.after), (request, worker.state, held)
            self.counts["carried out unheard" if held == request.after else "not carried out"] += 1
            worker.state = held
            if request.key is not None:
                await self._repeat(worker, request, carried_out=held == request.after)

    async def _repeat(self, worker: Worker, request: Request, *, carried_out: bool) -> None:
        status, content = await self.ask(request.method, request.path, request.json, request.key)
        assert status == request.status, (request, carried_out, content)
        self.counts["repeated"] += 1
        worker.state = request.after
        if status == 201 and request.name != "_update":
            shown = content if isinstance(content, list) else [content]
            assert all(worker.state[key] == value for key, value in map(self.value_of, shown))

    def value_of(self, record: dict[str, Any]) -> tuple[str, int]:
        """Key and number of a record."""
        return record["id"], record["age"]

    async def found(self) -> State:
        """What the vault holds, each record whole, and each of them with a history that begins with
        it.
        """
        status, content = await self.ask(
            "POST", CONTACTS + "/find", {"filter": {}, "options": {"limit": 1000}}
        )
        assert status == 200, content
        held: State = {}
        for record in content["data"]:
            key, value = record["id"], record["age"]
            assert {name: record[name] for name in SCHEMA["fields"]} == body(key, value)
            held[key] = value
        assert content["meta"]["total"] == len(held) == len(content["data"])
        for key in random.sample(sorted(held), min(3, len(held))):
            status, content = await self.ask("GET", f"{CONTACTS}/{key}/history", None)
            assert status == 200, content
            assert content["data"][0]["record"]["age"] == held[key]
            assert len({entry["version"] for entry in content["data"]}) == len(content["data"])
        return held


# The same with records of the record-based family: creates overwrite, and no field is of two bodies.

_KEPT_PATH = "/api/records"
_HERE = {"country": "se"}


def kept_body(key: str, value: int) -> dict[str, Any]:
    """The record that was written under a number, which every field of it says."""
    return {
        "record_key": key,
        **dict.fromkeys(("body", "profile_key", *KEYS, *SERVICE_KEYS), f"Quibblethwaite {value}"),
        **dict.fromkeys(RANGE_KEYS, value),
    }


class KeptWorker(Worker):
    """One client."""

    def _create(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        return (
            "POST",
            _KEPT_PATH,
            {**_HERE, **kept_body(keys[0], value)},
            201,
            {**self.state, keys[0]: value},
        )

    def _create_many(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        sent = {**_HERE, "records": [kept_body(key, value) for key in keys]}
        return (
            "POST",
            _KEPT_PATH + "/batch",
            sent,
            201,
            {**self.state, **dict.fromkeys(keys, value)},
        )

    def _update(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        changed = dict.fromkeys(self.state.keys() & set(keys), value)
        sent = {**_HERE, "records": [kept_body(key, value) for key in keys]}
        return "POST", _KEPT_PATH + "/batch/update", sent, 200, {**self.state, **changed}

    def _delete(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        left = {key: value for key, value in self.state.items() if key not in keys}
        sent = {"filter": {"record_key": keys}}
        return "POST", _KEPT_PATH + "/batch/delete", sent, 204 if left != self.state else 400, left

    def _clone(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        status = 403 if source not in self.state else 409 if target in self.state else 201
        sent = {"filter": {"key": source}, "update_with": kept_body(target, value)}
        return "POST", _KEPT_PATH + "/clone", sent, status, {**self.state, target: value}

    def _migrate(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        """The end of one of them alone."""
        status = 204 if keys[0] in self.state else 404
        left = {key: value for key, value in self.state.items() if key != keys[0]}
        return "DELETE", f"{_KEPT_PATH}/se/{keys[0]}", None, status, left


@dataclass
class KeptCrowd(RecordCrowd):
    """The clients, and the installation they work with."""

    workers: list[Worker] = field(
        default_factory=lambda: [KeptWorker(number) for number in range(WORKERS)]
    )

    def value_of(self, record: dict[str, Any]) -> tuple[str, int]:
        """Key and number of a record, once it is seen that it is whole."""
        key, value = record["record_key"], record["range_key1"]
        assert {name: record[name] for name in kept_body(key, value)} == kept_body(key, value)
        return key, value

    async def found(self) -> State:
        """What the vault holds, each record whole, and each of them with a history of whole ones."""
        status, content = await self.ask(
            "POST", _KEPT_PATH + "/find", {**_HERE, "options": {"limit": 1000}}
        )
        assert status == 200, content
        held = dict(map(self.value_of, content["data"]))
        assert content["meta"]["total"] == len(held) == len(content["data"])
        for key in random.sample(sorted(held), min(3, len(held))):
            status, content = await self.ask("GET", f"{_KEPT_PATH}/se/{key}/history", None)
            assert status == 200, content
            newest, *_ = [self.value_of(entry["record"]) for entry in content["data"]]
            assert newest == (key, held[key])
            assert len({entry["version"] for entry in content["data"]}) == len(content["data"])
        return held


# Clients that work with attachments. Every file that a record shows can be downloaded, and is what
# was uploaded.

_NAMES = tuple(f"quibblethwaite {number}.pdf" for number in range(4))

#: Name of a file -> its hash, by key of its record; a key that is absent has no record.
Files = dict[str, dict[str, str]]


@dataclass
class FileWorker:
    """One client. ``unknown`` is what its records hold if the call was carried out whose answer
    never came.
    """

    keys: tuple[str, str]
    state: Files = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)  #: of files, by key and name
    unknown: Files | None = None


class FileCrowd(RecordCrowd):
    """The clients, and the installation they work with."""

    def __init__(self, caller: aiohttp.ClientSession, installation: Any, workers: int = 3) -> None:
        super().__init__(caller, installation)
        self.people = [FileWorker((f"p{number}", f"q{number}")) for number in range(workers)]

    async def work(self, worker: FileWorker) -> None:
        """Call after call, until an answer does not come."""
        while True:
            key = random.choice(worker.keys)
            if key not in worker.state:
                after: Files = {**worker.state, key: {}}
                told = await self._called(
                    "create", worker, after, self.ask("POST", CONTACTS, {"id": key})
                )
            elif (drawn := random.random()) < 0.5:
                told = await self._upload(worker, key)
            elif drawn < 0.65:
                told = await self._move(worker, key)
            elif drawn < 0.85:
                told = await self._delete(worker, key)
            else:
                after = {other: files for other, files in worker.state.items() if other != key}
                told = await self._called(
                    "end", worker, after, self.ask("DELETE", f"{CONTACTS}/{key}", None)
                )
            if not told:
                return

    async def _called(
        self, name: str, worker: FileWorker, after: Files, call: Any, expected: bool = True
    ) -> bool:
        """Await a call; whether it was answered.

        ``expected``: it has to be carried out, or else refused.
        """
        status, content = await call
        self.counts[f"{name} {status or 'killed'}"] += 1
        if not status:
            worker.unknown = after
            return False
        assert (status < 300) == expected, (name, status, content)
        if status < 300:
            worker.state = after
            if name == "upload":
                self._learn(worker, content)
        return True

    def _learn(self, worker: FileWorker, content: dict[str, Any]) -> None:
        key = content["download_link"].split("/")[4]
        worker.ids[key, content["filename"]] = content["file_id"]

    async def _upload(self, worker: FileWorker, key: str) -> bool:
        name, method = random.choice(_NAMES), random.choice(("POST", "PUT"))
        size = random.choice((0, 10, 65_536, 200_000, 1_500_000))
        content = (FILE_MARKER + random.randbytes(16)) * (size // 30)
        files = {**worker.state[key], name: hashlib.sha256(content).hexdigest()}
        fits = method == "PUT" or name not in worker.state[key]
        sent = self.send(method, key, name, content)
        return await self._called("upload", worker, {**worker.state, key: files}, sent, fits)

    async def _move(self, worker: FileWorker, key: str) -> bool:
        other = next(one for one in worker.keys if one != key)
        if other not in worker.state or not worker.state[key]:
            return True
        name = random.choice(list(worker.state[key]))
        files = dict(worker.state[key])
        target = {**worker.state[other], name: files.pop(name)}
        sent = self.ask(
            "POST",
            f"{CONTACTS}/{key}/files/move/{other}",
            {"attachment_ids": [worker.ids[key, name]]},
        )
        fits = name not in worker.state[other]
        told = await self._called(
            "move", worker, {**worker.state, key: files, other: target}, sent, fits
        )
        if told and fits:
            worker.ids[other, name] = worker.ids.pop((key, name))
        return told

    async def _delete(self, worker: FileWorker, key: str) -> bool:
        if not worker.state[key]:
            return True
        name = random.choice(list(worker.state[key]))
        files = {other: digest for other, digest in worker.state[key].items() if other != name}
        sent = self.ask("DELETE", f"{CONTACTS}/{key}/files/{worker.ids[key, name]}", None)
        return await self._called("delete", worker, {**worker.state, key: files}, sent)

    async def send(
        self, method: str, key: str, name: str, content: bytes | AsyncIterable[bytes]
    ) -> tuple[int, Any]:
        """Upload a file to a record; status and content of the answer, (0, None) for none."""
        form = aiohttp.FormData(quote_fields=False)
        whole = io.BytesIO(content) if isinstance(content, bytes) else content
        form.add_field("file", whole, filename="x", content_type="text/plain")
        headers = {
            "Authorization": f"Bearer {self._token}",
            "x-filename": name.replace(" ", "%20"),
        }
        url = f"{self.installation.vault}{CONTACTS}/{key}/files"
        return await answered(self.caller, method, url, data=form, headers=headers)

    async def look(self) -> None:
        """Every record has the files that its client knows of, each of them whole."""
        status, content = await self.ask(
            "POST", CONTACTS + "/find", {"filter": {}, "options": {"limit": 1000}}
        )
        assert status == 200, content
        assert "unreadable" not in content["meta"]
        shown = {record["id"]: record["attachments"] for record in content["data"]}
        for worker in self.people:
            held = {
                key: {file["filename"]: file["hash"] for file in shown[key]}
                for key in worker.keys
                if key in shown
            }
            assert held in (worker.state, worker.unknown), (worker, held)
            if worker.unknown is not None and worker.unknown != worker.state:
                self.counts[
                    "carried out unheard" if held == worker.unknown else "not carried out"
                ] += 1
            worker.state, worker.unknown = held, None
            worker.ids = {
                (key, file["filename"]): file["file_id"] for key in held for file in shown[key]
            }
        await asyncio.gather(*(self._check(file) for files in shown.values() for file in files))

    async def _check(self, file: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with self.caller.get(
            self.installation.vault + file["download_link"], headers=headers
        ) as answer:
            content = await answer.read()
        assert answer.status == 200
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["hash"])

"""Clients that write records over the vault's own interface while it is killed, and what each of
them must find afterwards.

Every client has keys of its own and knows what they hold. A call that got no answer was carried out
as a whole or not at all: one look at all of its keys tells which. Half of the calls have an
``Idempotency-Key``; such a call is sent once more, and must then be answered as if nothing had
happened.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
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
WORKERS = 4
_KEYS = 5
_PATH = "/api/models/contact"

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
            _PATH,
            body(keys[0], value),
            201 if free else 409,
            {**self.state, keys[0]: value},
        )

    def _create_many(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        free = self.state.keys().isdisjoint(keys)
        sent = [body(key, value) for key in keys]
        return (
            "POST",
            _PATH + "/batch",
            sent,
            201 if free else 409,
            {**self.state, **dict.fromkeys(keys, value)},
        )

    def _update(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        changed = dict.fromkeys(self.state.keys() & set(keys), value)
        return (
            "POST",
            _PATH + "/batch/update",
            [body(key, value) for key in keys],
            201,
            {**self.state, **changed},
        )

    def _delete(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        left = {key: value for key, value in self.state.items() if key not in keys}
        sent = {"filter": {"record_key": keys}}
        return "POST", _PATH + "/batch/delete", sent, 204 if left != self.state else 404, left

    def _clone(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        status = 403 if source not in self.state else 409 if target in self.state else 201
        sent = {"filter": {"record_key": source}, "update_with": body(target, value)}
        return "POST", _PATH + "/clone", sent, status, {**self.state, target: value}

    def _migrate(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        if source not in self.state or target not in self.state:
            return "POST", f"{_PATH}/{source}/migrate/{target}", None, 404, self.state
        left = {key: value for key, value in self.state.items() if key != source}
        return (
            "POST",
            f"{_PATH}/{source}/migrate/{target}",
            None,
            204,
            {**left, target: self.state[source]},
        )


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
        try:
            async with self.caller.request(
                method, self.installation.vault + path, json=sent, headers=headers
            ) as answer:
                raw = await answer.read()
                return answer.status, json.loads(raw) if raw else None
        except (aiohttp.ClientError, OSError):
            return 0, None

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
            "POST", _PATH + "/find", {"filter": {}, "options": {"limit": 1000}}
        )
        assert status == 200, content
        held: State = {}
        for record in content["data"]:
            key, value = record["id"], record["age"]
            assert {name: record[name] for name in SCHEMA["fields"]} == body(key, value)
            held[key] = value
        assert content["meta"]["total"] == len(held) == len(content["data"])
        for key in random.sample(sorted(held), min(3, len(held))):
            status, content = await self.ask("GET", f"{_PATH}/{key}/history", None)
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

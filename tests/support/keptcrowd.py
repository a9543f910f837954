"""The clients of ``recordcrowd`` with records of the record-based family: creates overwrite, and no
field is of two bodies.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from proxy.model.schema import KEYS, RANGE_KEYS, SERVICE_KEYS
from tests.support.recordcrowd import WORKERS, RecordCrowd, State, Worker

_PATH = "/api/records"
_HERE = {"country": "se"}


def body(key: str, value: int) -> dict[str, Any]:
    """The record that was written under a number, which every field of it says."""
    return {
        "record_key": key,
        **dict.fromkeys(("body", "profile_key", *KEYS, *SERVICE_KEYS), f"Quibblethwaite {value}"),
        **dict.fromkeys(RANGE_KEYS, value),
    }


class KeptWorker(Worker):
    """One client."""

    def _create(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        return "POST", _PATH, {**_HERE, **body(keys[0], value)}, 201, {**self.state, keys[0]: value}

    def _create_many(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        sent = {**_HERE, "records": [body(key, value) for key in keys]}
        return "POST", _PATH + "/batch", sent, 201, {**self.state, **dict.fromkeys(keys, value)}

    def _update(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        changed = dict.fromkeys(self.state.keys() & set(keys), value)
        sent = {**_HERE, "records": [body(key, value) for key in keys]}
        return "POST", _PATH + "/batch/update", sent, 200, {**self.state, **changed}

    def _delete(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        left = {key: value for key, value in self.state.items() if key not in keys}
        sent = {"filter": {"record_key": keys}}
        return "POST", _PATH + "/batch/delete", sent, 204 if left != self.state else 400, left

    def _clone(self, keys: list[str], value: int) -> tuple[str, str, Any, int, State]:
        source, target = keys[:2]
        status = 403 if source not in self.state else 409 if target in self.state else 201
        sent = {"filter": {"key": source}, "update_with": body(target, value)}
        return "POST", _PATH + "/clone", sent, status, {**self.state, target: value}

    def _migrate(self, keys: list[str], _value: int) -> tuple[str, str, Any, int, State]:
        """The end of one of them alone."""
        status = 204 if keys[0] in self.state else 404
        left = {key: value for key, value in self.state.items() if key != keys[0]}
        return "DELETE", f"{_PATH}/se/{keys[0]}", None, status, left


@dataclass
class KeptCrowd(RecordCrowd):
    """The clients, and the installation they work with."""

    workers: list[Worker] = field(
        default_factory=lambda: [KeptWorker(number) for number in range(WORKERS)]
    )

    def value_of(self, record: dict[str, Any]) -> tuple[str, int]:
        """Key and number of a record, once it is seen that it is whole."""
        key, value = record["record_key"], record["range_key1"]
        assert {name: record[name] for name in body(key, value)} == body(key, value)
        return key, value

    async def found(self) -> State:
        """What the vault holds, each record whole, and each of them with a history of whole ones."""
        status, content = await self.ask(
            "POST", _PATH + "/find", {**_HERE, "options": {"limit": 1000}}
        )
        assert status == 200, content
        held = dict(map(self.value_of, content["data"]))
        assert content["meta"]["total"] == len(held) == len(content["data"])
        for key in random.sample(sorted(held), min(3, len(held))):
            status, content = await self.ask("GET", f"{_PATH}/se/{key}/history", None)
            assert status == 200, content
            newest, *_ = [self.value_of(entry["record"]) for entry in content["data"]]
            assert newest == (key, held[key])
            assert len({entry["version"] for entry in content["data"]}) == len(content["data"])
        return held

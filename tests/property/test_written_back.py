"""The law of records that are written back: what a client did not change stays as it is stored,
also where it sees a mask.

A client under a policy finds a record, changes one field that it sees, and sends the whole back, in
each way that the interface has. Whoever sees everything then finds that field changed and every
other one as it was; and what the client is shown stays the same.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.api import Interface, interface
from tests.support.effort import examples

M = "/api/models/thing"
R = "/api/records"
P = "/v2/storage/records/se"
POP = {"x-env-id": "default", "X-Encrypted-Storage": "true"}
FIELDS: dict[str, dict[str, Any]] = {
    "plain": {"type": "string", "storage": "indexed"},
    "parts": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
    "sealed": {"type": "string", "storage": "encrypted"},
    "age": {"type": "integer", "storage": "indexed"},
    "sum": {"type": "decimal", "storage": "indexed"},
    "born": {"type": "date", "storage": "indexed"},
    "seen": {"type": "datetime", "storage": "indexed"},
    "wakes": {"type": "time", "storage": "indexed"},
    "active": {"type": "boolean", "storage": "indexed"},
    "extra": {"type": "json", "storage": "indexed_hashed"},
}
TEXTS = ("plain", "parts", "sealed")
KEPT = ("body", "precommit_body", "profile_key", "key1", "key25", "service_key1")
REDACTED = {"valueType": "redacted", "format": "[a-z0-9]{9}~"}
MASKS: tuple[dict[str, Any], ...] = (
    {"last": 2}, {"first": 1, "last": 1}, {}, {"first": 3, "char": "x"}, {"last": 4, "char": "•"},
)  # fmt: skip

_SIGHTS = st.sampled_from(
    (
        "clear", REDACTED, REDACTED, *[{"valueType": "masked", "mask": mask} for mask in MASKS],
        "hidden",
    ),
)  # fmt: skip
_TEXT = st.one_of(
    st.sampled_from(
        (
            "bjorn@example.com", "+46 70 123 45 67", "***@*.se", "**", "x", "xxxx", "", " ",
            '{"a": [1]}',
        ),
    ),
    st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20),
)  # fmt: skip
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "integer": st.integers(-(2**63), 2**63 - 1),
    "decimal": st.integers(-(10**9), 10**9).map(lambda number: number / 4),
    "date": st.dates().map(str),
    "datetime": st.sampled_from(("2024-02-29T23:59:59.999Z", "1970-01-01T00:00:00.000Z")),
    "time": st.sampled_from(("00:00:00", "23:59:59")),
    "boolean": st.booleans(),
    "json": st.dictionaries(
        st.sampled_from("ab*"),
        st.one_of(_TEXT, st.integers(-9, 9), st.lists(st.booleans())),
        max_size=2,
    ),
}


def _values(fields: dict[str, dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {name: st.none() | _VALUES[field["type"]] for name, field in fields.items()}
    )


async def _whole(here: Interface, path: str, body: Any, headers: Any = None) -> dict[str, Any]:
    """What somebody who sees everything finds."""
    said = await here.client("POST", path + "/find", "chief", json=body, headers=headers or {})
    (record,) = said.json["data"]
    return {name: value for name, value in record.items() if name not in _OF_THE_SERVICE}


#: What a write changes by itself.
_OF_THE_SERVICE = ("updated_at", "version")


async def _hold(folder: Path, engine: str, case: "Case") -> None:
    async with interface(folder, engine, on_existing="update") as here:
        await here.declare("thing", {"fields": {"id": {"type": "primary_key"}, **FIELDS}})
        await here.policy("some", case.schema, "read", "write", fields=case.sights)
        made = await here.client("POST", case.path, "chief", json=case.record)
        assert made.status == 201, made.json
        asked = {**case.beside, "filter": {"record_key": "a"}}
        before = await _whole(here, case.path, asked)
        for way in case.ways:
            here.clock.advance(1000)
            (shown,) = (
                await here.client("POST", case.path + "/find", "under:some", json=asked)
            ).json["data"]
            change = {} if case.changed is None else {case.changed: case.value}
            method, path, body = way(shown | change)
            said = await here.client(
                method, path, "under:some", json=body, headers=POP if path.startswith(P) else {}
            )
            assert said.status in (200, 201), said.json
            assert await _whole(here, case.path, asked) == before | change
            (again,) = (
                await here.client("POST", case.path + "/find", "under:some", json=asked)
            ).json["data"]
            hidden = {"updated_at", "version", case.changed}
            assert {name: value for name, value in again.items() if name not in hidden} == {
                name: value for name, value in shown.items() if name not in hidden
            }


class Case:
    """What is stored, how the client sees it, and what it changes."""

    def __init__(self, draw: st.DrawFn, family: str) -> None:
        model = family == "model"
        texts = TEXTS if model else KEPT
        fields = FIELDS if model else {name: {"type": "string"} for name in KEPT}
        self.schema, self.path, self.ways = (
            ("thing", M, MODEL_WAYS) if model else ("records", R, RECORD_WAYS)
        )
        self.beside = {} if model else {"country": "se"}
        self.sights = {name: draw(_SIGHTS) for name in texts}
        key = "id" if model else "record_key"
        self.record = {key: "a", **self.beside, **draw(_values(fields))}
        clear = [name for name in fields if self.sights.get(name, "clear") == "clear"]
        self.changed = draw(st.sampled_from(clear)) if clear else None
        self.value = None if self.changed is None else draw(_VALUES[fields[self.changed]["type"]])


MODEL_WAYS: tuple[Any, ...] = (
    lambda record: ("POST", M, record),
    lambda record: ("POST", M + "/batch", [record]),
    lambda record: ("POST", "/api/v2/models/thing", record),
    lambda record: ("PUT", M + "/a", record),
    lambda record: ("PATCH", M + "/a", record),
    lambda record: ("POST", M + "/batch/update", [record]),
    lambda record: ("POST", M + "/batch/update", {"search_key": "id", "records": [record]}),
)
RECORD_WAYS: tuple[Any, ...] = (
    lambda record: ("POST", R, record),
    lambda record: ("POST", R + "/batch", {"country": "se", "records": [record]}),
    lambda record: ("POST", R + "/batch/update", {"country": "se", "records": [record]}),
    lambda record: ("POST", P, _of_pop(record)),
    lambda record: ("POST", P + "/batchWrite", {"records": [_of_pop(record)]}),
)


def _of_pop(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "country"}


@pytest.mark.parametrize("family", ["model", "records"])
@pytest.mark.parametrize(("engine", "count"), [("memory", 20), ("sqlite", 4)])
def test_what_is_read_and_written_back_stays_as_it_is_stored(
    engine: str, count: int, family: str
) -> None:
    @settings(examples(count), suppress_health_check=list(HealthCheck))
    @given(st.composite(Case)(family))
    def holds(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_hold(Path(folder), engine, case))

    holds()

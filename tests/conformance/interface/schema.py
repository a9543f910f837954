"""What the cases ask: a schema with every type in every storage class, and records that tell the
forms of a filter apart.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.api import Interface, interface

#: Bytes of a body; less than what is usual, so that it is passed quickly.
BODY = 65_536

TYPES = ("string", "integer", "decimal", "boolean", "datetime", "date", "time", "json")
STORAGES = {"plain": "indexed", "hashed": "indexed_hashed", "sealed": "encrypted"}

#: ``string_plain``, ``string_hashed`` … ``json_sealed``; ``string_parts`` is hashed, with partial
#: match.
DEFINITION: dict[str, Any] = {
    "fields": {
        "id": {"type": "primary_key"},
        **{f"{kind}_{short}": {"type": kind, "storage": storage} for kind in TYPES for short, storage in STORAGES.items()},
        "string_parts": {"type": "string", "storage": "indexed_hashed", "partial_match": True},
        "string_long": {"type": "string", "storage": "encrypted", "max_length": 1000},
    },
}  # fmt: skip


def spread(record: dict[str, Any]) -> dict[str, Any]:
    """A record by type: each value in all three storage classes; strings with partial match as
    well.
    """
    fields: dict[str, Any] = {"id": record["id"]}
    for kind, value in record.items():
        if kind in TYPES:
            fields.update((f"{kind}_{short}", value) for short in STORAGES)
        if kind == "string":
            fields["string_parts"] = value
    return fields


_PEOPLE: tuple[dict[str, Any], ...] = (
    {
        "id": "a", "string": "Åsa Holm", "integer": 1, "decimal": 1.5, "boolean": True,
        "datetime": "2020-01-01T00:00:00.000Z", "date": "2020-01-01", "time": "01:02:03",
        "json": {"city": "Lund", "n": 1, "tags": ["x", "y"], "deep": {"list": [{"k": True}]}, "none": None},
    },
    {
        "id": "b", "string": "Bo Ek", "integer": 2, "decimal": 2.25, "boolean": False,
        "datetime": "2021-06-15T12:30:00.500Z", "date": "2021-06-15", "time": "12:30:00",
        "json": {"city": "Visby", "n": 2, "tags": ["y"], "deep": {"list": [{"k": False}]}},
    },
    {
        "id": "c", "string": "bo ek", "integer": -3, "decimal": -0.0001, "boolean": True,
        "datetime": "1969-12-31T23:59:59.999Z", "date": "1969-12-31", "time": "23:59:59",
        "json": {"city": "Lund", "n": 1.5, "tags": [], "1": "one"},
    },
    {
        "id": "d", "string": None, "integer": None, "decimal": None, "boolean": None,
        "datetime": None, "date": None, "time": None, "json": None,
    },
    {"id": "e"},
)  # fmt: skip

#: In the order in which they are made, a second apart. ``e`` has nothing but its key.
RECORDS = tuple(spread(record) for record in _PEOPLE)


@asynccontextmanager
async def asked(folder: Path, engine: str) -> AsyncIterator[Interface]:
    """A vault with these records in the schema ``thing``."""
    async with interface(folder, engine, body_limit=BODY) as here:
        await here.declare("thing", DEFINITION)
        for record in RECORDS:
            here.clock.advance(1000)
            answer = await here.client("POST", "/api/models/thing", json=record)
            assert answer.status == 201, answer.body
        yield here

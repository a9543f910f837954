"""What the cases of the record-based family ask: records that tell the forms of its filters apart,
and how their keys are kept.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy.model.schema import DECIMAL_KEYS, KEYS, RANGE_KEYS, SERVICE_KEYS, RecordKeys
from tests.conformance.interface.schema import BODY
from tests.support.api import Interface, interface

R = "/api/records"

#: ``key1`` and ``key25`` are plain, ``key2`` and the profile are hashed with partial match, the
#: others hashed without.
HOW = RecordKeys(frozenset(("key1", "key25")), frozenset(("key2", "profile_key", "record_key")))

#: Fields by what they take.
TEXTS = ("profile_key", "parent_key", *SERVICE_KEYS, *KEYS)
BODIES = ("body", "precommit_body")
INTEGERS = RANGE_KEYS
DECIMALS = DECIMAL_KEYS

#: Every name of an answer.
NAMES = {
    "record_key", "key", "range_key", "version", "created_at", "updated_at", "expires_at", "country", "attachments",
    *TEXTS, *BODIES, *INTEGERS, *DECIMALS,
}  # fmt: skip


def full(key: str, text: str, number: int, decimal: float) -> dict[str, Any]:
    """A record with a value in every field."""
    return {
        "country": "se",
        "record_key": key,
        **dict.fromkeys((*TEXTS, *BODIES), text),
        **dict.fromkeys(INTEGERS, number),
        **dict.fromkeys(DECIMALS, decimal),
    }


#: In the order in which they are made, a second apart. ``ddd`` has nulls, ``eee`` nothing but its
#: key; ``ccc`` states a version.
RECORDS: tuple[dict[str, Any], ...] = (
    full("aaa", "Åsa Holm", 1, 1.5),
    full("bbb", "Bo Ek", 2, 2.25),
    {**full("ccc", "bo ek", -3, -0.0001), "version": 9, "expires_at": "2030-01-01T00:00:00.000Z"},
    {
        "country": "se",
        "record_key": "ddd",
        **dict.fromkeys((*TEXTS, *BODIES, *INTEGERS, *DECIMALS)),
    },
    {"country": "se", "key": "eee"},
)


@asynccontextmanager
async def kept_records(folder: Path, engine: str) -> AsyncIterator[Interface]:
    """A vault with these records."""
    async with interface(folder, engine, body_limit=BODY, keys=HOW) as here:
        for record in RECORDS:
            here.clock.advance(1000)
            answer = await here.client("POST", R, json=record)
            assert answer.status == 201, answer.body
        yield here

"""After any sequence of definitions, with records written meanwhile and processes that end, a
schema is what its last definition says.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.filter_reader import read_find
from proxy.model.record import DEFAULTS, RecordDraft
from proxy.model.schema import FieldType, Schema
from proxy.storage.rows import Row
from proxy.vault import job
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.delete import delete_many
from proxy.vault.records.find import find_page
from proxy.vault.records.update import change_records
from proxy.vault.schema_store import Origin
from tests.support.catalogs import Shelf, make_shelf, schema
from tests.support.effort import examples

STORAGES = st.sampled_from(["indexed", "indexed_hashed", "encrypted"])
TEXTS = st.one_of(
    st.builds(lambda storage: {"type": "string", "storage": storage}, STORAGES),
    st.sampled_from(
        [
            {"type": "string", "partial_match": True},
            {"type": "string", "storage": "indexed", "partial_match": True},
        ]
    ),
)
NUMBERS = st.builds(lambda kind, storage: {"type": kind, "storage": storage}, st.sampled_from(["integer", "decimal"]), STORAGES)  # fmt: skip
DOCUMENTS = st.builds(lambda storage: {"type": "json", "storage": storage}, STORAGES)


@st.composite
def definitions(draw: st.DrawFn) -> Schema:
    fields = {"x": draw(st.one_of(TEXTS, NUMBERS))}
    if draw(st.booleans()):
        fields["y"] = draw(TEXTS)
    if draw(st.booleans()):
        fields["j"] = draw(DOCUMENTS)
    return schema(**fields)


class AclDecisions:
    """Lets batches of migrations pass one by one, so that records are written and found between
    them.
    """

    def __init__(self) -> None:
        self._left = asyncio.Semaphore(0)
        self._batch = job.Pass._batch

    def turn(self, batches: int) -> None:
        for _ in range(batches):
            self._left.release()

    async def batch(self, one: job.Pass, rows: Sequence[Row], visit: job.RowVisitor) -> None:
        await self._left.acquire()
        await self._batch(one, rows, visit)

    async def settle(self, shelf: Shelf) -> None:
        """Let everything pass."""
        self.turn(1000)
        await shelf.catalog.settled("contact")
        self._left = asyncio.Semaphore(0)


KEYS = st.sampled_from("abcde")
WRITES = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), KEYS, st.integers(100, 104), st.sets(st.sampled_from("xyj"), min_size=1)
        ),
        st.tuples(st.just("delete"), KEYS),
    ),
    max_size=4,
)
TURNS = st.integers(0, 3).map(lambda batches: [("turn", batches)])
ENDS = st.sampled_from([[], [], [("restart",)]])
#: A definition, and what happens on the way to it.
ROUND = st.tuples(
    WRITES, definitions().map(lambda wanted: [("define", wanted)]), TURNS, WRITES,
    st.just([("ask",)]), ENDS, TURNS, WRITES, st.just([("ask",)]),
)  # fmt: skip
STEPS = st.lists(ROUND, min_size=1, max_size=4).map(
    lambda rounds: [step for parts in rounds for part in parts for step in part]
)


def value(kind: FieldType, number: int) -> Any:
    """The number as a value that can be converted into one of every other type of these
    definitions.
    """
    if kind is FieldType.JSON:
        return {"n": number, "of": [str(number)]}
    made = {FieldType.INTEGER: number, FieldType.DECIMAL: Decimal(number)}
    return made.get(kind, str(number))


async def put(shelf: Shelf, key: str, number: int, names: set[str]) -> None:
    with shelf.catalog.using():
        records = shelf.catalog.records("contact")
        fields = {
            field.name: value(field.type, number) if field.name in names else None
            for field in records.schema.fields
            if field.name != "id"
        }
        if not await change_records(
            records, [RecordDraft(key, {"id": key, **fields})], "test", no_changes
        ):
            await store_records(
                records, [RecordDraft(key, {"id": key, **fields})], "test", no_changes
            )


async def delete(shelf: Shelf, key: str) -> None:
    with shelf.catalog.using(), suppress(VaultError):  # it may not be there
        await delete_many(shelf.catalog.records("contact"), [key], "test", no_changes)


async def define(shelf: Shelf, gate: AclDecisions, wanted: Schema) -> None:
    if shelf.catalog.declared("contact").change is not None:
        await gate.settle(shelf)
    await shelf.catalog.apply(wanted, Origin.API)


async def lived(gate: AclDecisions, steps: list[tuple[Any, ...]]) -> Shelf:
    """A store that has gone through all of this."""
    shelf = await make_shelf()
    await shelf.apply(x={"type": "string"})
    for name, *rest in steps:
        shelf.bench.clock.advance(1)
        if name == "define":
            await define(shelf, gate, rest[0])
        elif name == "put":
            await put(shelf, *rest)
        elif name == "delete":
            await delete(shelf, rest[0])
        elif name == "restart":
            await shelf.catalog.close()
            shelf = await make_shelf(shelf)
        elif name == "ask":
            await agrees(shelf)
        else:
            gate.turn(rest[0])
            for _ in range(20):
                await asyncio.sleep(0)
    await gate.settle(shelf)
    assert shelf.reported == []
    return shelf


async def made(shelf: Shelf) -> Shelf:
    """A store that was made with the last definition, and holds the same records, in the order of
    their age.
    """
    fresh = await make_shelf()
    await fresh.catalog.apply(shelf.catalog.declared("contact").schema, Origin.API)
    for key, fields in (await shelf.values()).items():
        await fresh.add(key, **fields)
    return fresh


def questions(definition: Schema) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = [{}]
    for field in definition.fields:
        if field.name == "id":
            continue
        if field.type is FieldType.JSON:
            asked += [{"filter": {field.name: {"$.n": number}}} for number in range(99, 106)]
            asked += [
                {"filter": {field.name: {"$.of": [str(number)]}}} for number in range(99, 106)
            ]
            continue
        asked += [{"filter": {field.name: value(field.type, number)}} for number in range(99, 106)]
        asked += [{"filter": {field.name: None}}, {"filter": {field.name: {"$gt": 101}}}]
        asked += [{"filter": {field.name: {"$like": part}}} for part in ("102", "10", "03")]
        asked += [{"options": {"sort": [{field.name: "desc"}]}}]
    return [*asked, {"filter": {"search_keys": "101"}}]


async def answer(shelf: Shelf, question: dict[str, Any]) -> list[Any] | Code:
    with shelf.catalog.using():
        records = shelf.catalog.records("contact")
        try:
            found = await find_page(records, read_find(records.schema, question, DEFAULTS))
        except VaultError as error:
            return error.code
        return [(record.key, record.fields) for record in found.records]


async def agrees(shelf: Shelf) -> Shelf:
    """Answers are those of the definition in force, also in the middle of a migration; what is
    compared with.
    """
    while True:
        definition = shelf.catalog.declared("contact").schema
        types = {field.name: type(value(field.type, 1)) for field in definition.fields}
        held = list((await shelf.values()).values())
        fresh = await made(shelf)
        answers = [
            (question, await answer(shelf, question), await answer(fresh, question))
            for question in questions(definition)
        ]
        # else a migration has taken its turn meanwhile
        if shelf.catalog.declared("contact").schema == definition:
            break
    assert all(
        item is None or type(item) is types[name]
        for fields in held
        for name, item in fields.items()
    )
    assert [found for found in answers if found[1] != found[2]] == []
    return fresh


async def compare(steps: list[tuple[Any, ...]]) -> None:
    gate = AclDecisions()

    async def batch(one: job.Pass, rows: Sequence[Row], visit: job.RowVisitor) -> None:
        await gate.batch(one, rows, visit)

    with patch.object(job.Pass, "_batch", batch):
        shelf = await lived(gate, steps)
    wanted = [step[1] for step in steps if step[0] == "define"]
    definition = shelf.catalog.declared("contact").schema
    if wanted:
        assert [(field.name, field.type, field.storage) for field in definition.fields] == [
            (field.name, field.type, field.storage) for field in wanted[-1].fields
        ]
    fresh = await agrees(shelf)
    assert [sum(cell is not None for cell in row.cells) for row in await shelf.rows()] == [
        sum(cell is not None for cell in row.cells) for row in await fresh.rows()
    ]


@examples(40)
@given(STEPS)
def test_what_a_schema_has_been_cannot_be_told_from_its_answers(
    steps: list[tuple[Any, ...]],
) -> None:
    with patch.object(job, "_BATCH", 2), patch.object(job, "_NOTED", 1):
        asyncio.run(compare(steps))

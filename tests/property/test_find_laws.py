"""For generated schemas, records and requests both engines answer the same, order included, and as
the specification says.
"""

import asyncio
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.model.filter_reader import read_aggregate, read_find
from proxy.model.record import DEFAULTS
from proxy.model.record_reader import read_draft
from proxy.model.schema import Field, FieldType, Schema, Storage
from proxy.storage import open_store
from proxy.storage.base import Store
from proxy.vault.collection import TableSpec
from proxy.vault.records.aggregate import AggregateRow, aggregate_groups
from proxy.vault.records.commit import no_changes
from proxy.vault.records.find import FoundPage, PageAsker, find_page, page_of
from proxy.vault.records.update import change_records
from tests.support.contacts import Contacts, make_contacts
from tests.support.effort import examples
from tests.support.memory import MemoryStore
from tests.support.oracle import Oracle, Plain

D = Decimal
#: Few values of each type, so that they meet; among them what folds, composes, overflows and is
#: spelled in two ways.
TEXTS = [
    "", "a", "abc", "ABC ", "abcd", "xabcdy", "bcdabc", "abcabd", "Straße", "STRASSE", "caf\u00e9", "cafe\u0301 abc", "\u0130stanbul",
    "\ufb01nance", "\u0390xy z", "\u03ca\u0301XY", "\u01c4abc", "a%b_c", "\\abc'",
]  # fmt: skip
PARTS = [
    "abc", "ABCD", "bcda", "strasse", "ſſe", "fe\u0301 a", "stan", "\u0130stan", "fin", "fina",
    "\u0390xy", "\u01c6ab", "a%b", "%b_c", "a", "_", "\\ab",
]  # fmt: skip
POOLS: dict[FieldType, list[Any]] = {
    FieldType.STRING: TEXTS,
    FieldType.INTEGER: [0, 1, -1, 2, D("2.0"), 7, 2**63 - 1, -(2**63)],
    FieldType.DECIMAL: [0, 1, D("1.5"), D("1.50"), D("-0.0001"), D("999999999999.9999"), D("-3")],
    FieldType.BOOLEAN: [True, False],
    FieldType.DATETIME: ["1999-12-31T23:59:59.999Z", "2024-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"],
    FieldType.DATE: ["2024-02-29", "1980-01-01"],
    FieldType.TIME: ["00:00:00", "23:59:59"],
    FieldType.JSON: [
        {}, {"a": 1}, {"a": D("1.0"), "c": None}, {"a": True}, {"a": [1, "x", None]}, {"a": {"b": "caf\u00e9"}}, {"a": "1"},
        {"a": [{"b": 1}, [1], 2], "c": [1]}, {"a": ["cafe\u0301", 2, 2]}, {"a.b": 1},
    ],
}  # fmt: skip
PATHS = ["$.a", "$.a.b", "$.a[0]", "$.a[0].b", "$.c", "$.a[1]"]
SCALARS = [1, D("1.00"), True, None, "x", "1", "cafe\u0301", 2]
KEYS = [f"Key{n}abc" for n in range(9)]
NUMBERS = (FieldType.INTEGER, FieldType.DECIMAL)
CLASSES = [Storage.INDEXED, Storage.INDEXED_HASHED, Storage.ENCRYPTED]
_names = itertools.count()


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    fields = [
        Field(
            "id", FieldType.PRIMARY_KEY, Storage.INDEXED_HASHED, partial_match=draw(st.booleans())
        )
    ]
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from([FieldType.STRING, FieldType.STRING, *POOLS]))
        partial = kind is FieldType.STRING and draw(st.booleans())
        fields.append(
            Field(f"f{number}", kind, draw(st.sampled_from(CLASSES)), partial_match=partial)
        )
    return Schema(f"s{next(_names)}", tuple(fields))


@st.composite
def values(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    found = {}
    for field in schema.fields[1:]:
        if draw(st.integers(0, 3)):
            found[field.name] = draw(st.sampled_from([None, *POOLS[field.type]]))
    return found


def pool(field: Field) -> st.SearchStrategy[Any]:
    given_ = KEYS if field.type is FieldType.PRIMARY_KEY else POOLS[field.type]
    one = st.sampled_from([None, *given_])
    return st.one_of(one, one, st.lists(one, min_size=1, max_size=3))


@st.composite
def asked(draw: st.DrawFn, field: Field) -> Any:
    """What may be asked of a field; not all of it always is."""
    if field.type is FieldType.JSON:
        scalar = st.sampled_from(SCALARS)
        wanted = st.one_of(scalar, scalar, st.lists(scalar, min_size=1, max_size=2))
        return draw(st.dictionaries(st.sampled_from(PATHS), wanted, min_size=1, max_size=2))
    if field.type in NUMBERS and field.storage is Storage.INDEXED and draw(st.booleans()):
        number = st.sampled_from(POOLS[field.type])
        low, high = st.sampled_from(["$gt", "$gte"]), st.sampled_from(["$lt", "$lte"])
        return draw(st.one_of(*(st.dictionaries(op, number, min_size=1, max_size=1) for op in (low, high)),
                              st.fixed_dictionaries({draw(low): number, draw(high): number})))  # fmt: skip
    if field.type in (FieldType.STRING, FieldType.PRIMARY_KEY):
        part = st.sampled_from(PARTS)
        forms: list[st.SearchStrategy[Any]] = [
            pool(field),
            st.fixed_dictionaries({"$not": pool(field)}),
        ]
        if field.partial_match or (
            field.type is FieldType.STRING and field.storage is Storage.INDEXED
        ):
            forms += [
                st.fixed_dictionaries({"$like": part}),
                st.fixed_dictionaries({"$like": part, "$not": pool(field)}),
                st.fixed_dictionaries({"$not": st.fixed_dictionaries({"$like": part})}),
            ]
        return draw(st.one_of(*forms))
    return draw(pool(field))


@st.composite
def filters(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    open_fields = [field for field in schema.fields if field.storage is not Storage.ENCRYPTED]
    chosen = draw(
        st.lists(st.sampled_from(open_fields), max_size=2, unique_by=lambda field: field.name)
    )
    where = {field.name: draw(asked(field)) for field in chosen}
    texts = [
        field for field in open_fields if field.type in (FieldType.STRING, FieldType.PRIMARY_KEY)
    ]
    which = draw(st.integers(0, 7))
    if which == 0:
        alternative = st.sampled_from(texts).flatmap(
            lambda field: st.fixed_dictionaries({field.name: asked(field)})
        )
        where["$or"] = draw(st.lists(alternative, min_size=2, max_size=3))
    elif which == 1:
        where = {field.name: where[field.name] for field in chosen if field not in texts}
        where["search_keys"] = draw(st.sampled_from(PARTS))
    elif which == 2:
        where["version"] = draw(st.sampled_from([1, [1, 2], {"$not": 1}, {"$gt": 1}]))
    elif which == 3 and "id" in where:
        where["record_key"] = where.pop("id")
    return where


@st.composite
def finds(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    names = [
        f.name
        for f in schema.fields
        if f.type in (FieldType.STRING, FieldType.INTEGER) and f.storage is Storage.INDEXED
    ]
    names += ["created_at", "updated_at", "expires_at"]
    sort = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    options = {
        "limit": draw(st.sampled_from([1, 3, 100])),
        "offset": draw(st.sampled_from([0, 0, 1, 5])),
        "sort": [{name: draw(st.sampled_from(["asc", "desc"]))} for name in sort],
    }
    return {"filter": draw(filters(schema)), "options": options}


@st.composite
def aggregations(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    numbers = [f.name for f in schema.fields if f.type in NUMBERS and f.storage is Storage.INDEXED]
    metrics = {"n": {"func": "count"}}
    for name in numbers:
        metrics |= {
            f"{func} {name}": {"func": func, "key": name} for func in ("SUM", "min", "max", "Avg")
        }
    keys = [
        f.name
        for f in schema.fields
        if f.type is not FieldType.JSON and f.storage is not Storage.ENCRYPTED
    ]
    request: dict[str, Any] = {"metrics": metrics, "filter": draw(filters(schema))}
    chosen = draw(st.lists(st.sampled_from([*keys, "record_key"]), max_size=3, unique=True))
    if chosen and not {"id", "record_key"} <= set(chosen):
        request["group_by"] = {"keys": chosen, "limit": draw(st.sampled_from([1, 2, 100]))}
    return request


class Side:
    """One engine with the records of one example."""

    def __init__(self, store: Store, keyset: Keyset) -> None:
        self.store, self.keyset = store, keyset
        self.contacts: Contacts

    async def fill(
        self, schema: Schema, sent: list[dict[str, Any]], changes: list[tuple[int, dict[str, Any]]]
    ) -> list[Plain]:
        """Create the records and then change some of them; every third expires soon."""
        recipe = TableSpec(schema, {}, None, addressed=False)
        self.contacts = contacts = await make_contacts(self.store, self.keyset, recipe=recipe)
        records, clock, plain = contacts.records, contacts.clock, []
        for number, fields in enumerate(sent):
            clock.advance(number % 2)
            expires = clock() + 50 if number % 3 == 1 else None
            wire = {"id": KEYS[number], **fields}
            draft = read_draft(schema, wire, partial=False, limits=DEFAULTS)
            (made,) = await contacts.add(type(draft)(draft.key, draft.fields, expires))
            plain.append(Plain(KEYS[number], wire, 1, made.created_at, made.updated_at, expires))
        for number, fields in changes:
            clock.advance(1)
            one = plain[number % len(plain)]
            draft = read_draft(schema, {"id": one.key, **fields}, partial=True, limits=DEFAULTS)
            (made,) = await change_records(records, [draft], "me", no_changes)
            one.fields = {**one.fields, **fields}
            one.version, one.updated_at = made.version, made.updated_at
        # so that some of those that expire have, and some have not
        clock.advance(40 + len(sent) // 2)
        return plain

    async def find(self, request: dict[str, Any]) -> FoundPage[Any]:
        return await find_page(
            self.contacts.records, read_find(self.contacts.records.schema, request, DEFAULTS)
        )

    async def walk(self, request: dict[str, Any]) -> list[str | None]:
        """The keys of all records, page by page."""
        records = self.contacts.records
        query = read_find(
            records.schema, {**request, "options": {**request["options"], "offset": 0}}, DEFAULTS
        )
        keys: list[str | None] = []
        while True:
            found = await page_of(
                records, query, DEFAULTS, PageAsker(lambda record: record.key, "me")
            )
            keys += found.records
            if found.next is None:
                return keys
            query = msgspec.structs.replace(query, next=found.next)

    async def aggregate(self, request: dict[str, Any]) -> list[AggregateRow]:
        records = self.contacts.records
        page = await aggregate_groups(
            records, read_aggregate(records.schema, request, DEFAULTS), "me"
        )
        groups = list(page.groups)
        while page.next is not None:
            page = await aggregate_groups(records, page.next, "me")
            groups += page.groups
        return groups


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Side, Side]]:
    with asyncio.Runner() as runner:
        keyset = Keyset.create("test")
        sqlite = runner.run(open_store(f"sqlite:///{tmp_path_factory.mktemp('laws')}/v.db"))
        yield runner, Side(MemoryStore(), keyset), Side(sqlite, keyset)
        runner.run(sqlite.close())


def readable(read: Any, schema: Schema, request: dict[str, Any]) -> bool:
    """Whether the request is one; what is none is for other tests."""
    try:
        read(schema, request, DEFAULTS)
    except VaultError:
        return False
    return True


@settings(examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_both_engines_answer_as_the_specification_says(sides, data):
    runner, memory, sqlite = sides
    schema = data.draw(schemas())
    sent = data.draw(st.lists(values(schema), min_size=1, max_size=len(KEYS)))
    changes = data.draw(st.lists(st.tuples(st.integers(0, 8), values(schema)), max_size=3))
    plain = runner.run(memory.fill(schema, sent, changes))
    assert runner.run(sqlite.fill(schema, sent, changes)) == plain
    oracle = Oracle(schema, plain, memory.contacts.clock())
    searches = [
        one
        for one in data.draw(st.lists(finds(schema), max_size=6))
        if readable(read_find, schema, one)
    ]
    sums = [
        one
        for one in data.draw(st.lists(aggregations(schema), max_size=3))
        if readable(read_aggregate, schema, one)
    ]
    assume(searches or sums)
    for request in searches:
        found, other = runner.run(memory.find(request)), runner.run(sqlite.find(request))
        assert [(r.key, r.fields, r.version) for r in found.records] == [
            (r.key, r.fields, r.version) for r in other.records
        ]
        assert ([r.key for r in found.records], found.total) == oracle.find(request), request
        assert other.total == found.total
        whole, _ = oracle.find(
            {**request, "options": {**request["options"], "offset": 0, "limit": 100}}
        )
        assert runner.run(memory.walk(request)) == runner.run(sqlite.walk(request)) == whole, (
            request
        )
    for request in sums:
        groups = runner.run(memory.aggregate(request))
        assert groups == runner.run(sqlite.aggregate(request))
        told = [(group.keys, group.metrics) for group in groups]
        expected = oracle.aggregate(request)
        assert len(told) == len(expected)
        assert all(one in expected for one in told), request

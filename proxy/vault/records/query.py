"""Compiler of a caller's query for an engine: cells, hashes and candidates.

An engine sees no text of a hashed field, only index entries that several parts share. A searched
text has its entries in each text that contains it, but the reverse is not certain: so the rows with
all of them are opened and checked, and the engine is queried for the matching ids.

Conditions without opening narrow the others. The rows are read in the order of their ids, a page at
a time, with turns of the event loop between; more rows than the limits allow are refused before the
first is opened.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from proxy.errors import Code, Detail, VaultError
from proxy.model.query import (
    CREATED_AT,
    EXPIRES_AT,
    KEY,
    UPDATED_AT,
    VERSION_FIELD,
    AnyOf,
    Compares,
    Equals,
    InJson,
    Like,
    Op,
    Test,
)
from proxy.model.record import DEFAULTS, Record, RecordLimits
from proxy.model.schema import Storage
from proxy.offload import busy, give_way, strides
from proxy.storage.query import (
    All,
    Any,
    Compare,
    Compared,
    Holds,
    Indexed,
    Is,
    Order,
    Select,
    Where,
    fold,
)
from proxy.storage.rows import Row
from proxy.tokenization.normalize import folded, plain_text
from proxy.vault.body import TokenizedFields
from proxy.vault.part_index import SIZE, texts_of_field
from proxy.vault.records.opening import open_records, open_together
from proxy.vault.records.repository import Records

#: Rows that are read together, and looked into between two turns of the event loop.
CANDIDATE_PAGE = 4096
LOOKED_AT = 64

#: The built-in columns of every record.
BUILT_IN_COLUMNS = {
    VERSION_FIELD: "@version",
    CREATED_AT: "@created_at",
    UPDATED_AT: "@updated_at",
    EXPIRES_AT: "@expires_at",
}

_NO_MATCHES: "Final[Mapping[Like, PartialMatch]]" = {}
_COMPARES = {Op.GT: Compare.GT, Op.GTE: Compare.GTE, Op.LT: Compare.LT, Op.LTE: Compare.LTE}


class PartialMatch(NamedTuple):
    """A partial match answered by opening rows: which have the text in a field."""

    fields: tuple[str, ...]
    text: str  #: folded
    rids: frozenset[int]

    def within(self, values: TokenizedFields) -> bool:
        """Whether the text occurs in these values."""
        return any(
            self.text in folded(value.text)
            for name in self.fields
            for value in values.get(name, ())
        )

    def holds(self, record: Record) -> bool:
        """Whether the text occurs in the record."""
        return any(
            self.text in folded(value)
            for name in self.fields
            for value in texts_of_field(record.fields.get(name))
        )


class CompiledQuery(NamedTuple):
    """A query for an engine, and the examined records."""

    where: Where
    looks: tuple[PartialMatch, ...] = ()

    def stands(self, record: Record) -> bool:
        """Whether the examined content of the record is still current."""
        return not self.looks or all(
            look.holds(record) == (record.rid in look.rids) for look in self.looks
        )


async def compile_query(
    records: Records, tests: Sequence[Test], limits: RecordLimits = DEFAULTS
) -> CompiledQuery:
    """Return the query of these tests, all of which have to hold.

    Raises ``VaultError``: ``TOO_BROAD`` when a partial match would open too many rows;
    ``INVALID_FILTER`` when a text has too few characters left in its normal form.
    """
    likes = [like for like in _likes(tests) if _sealed_fields(records, like)] if tests else []
    if not likes:
        return CompiledQuery(All(tuple([where_of(records, test) for test in tests])))
    narrow = All(
        tuple(
            where_of(records, test)
            for test in tests
            if not any(map(likes.__contains__, _likes((test,))))
        )
    )
    looks: dict[Like, PartialMatch] = {}
    # for all partial matches together: a filter of many must not open that many times as much
    left = limits.candidates
    for like in dict.fromkeys(likes):
        looked = await _partial_match(records, like, narrow, left)
        if looked is None:
            raise _too_broad(limits)
        looks[like], candidates = looked
        left -= candidates
    return CompiledQuery(
        All(tuple(where_of(records, test, looks) for test in tests)), tuple(looks.values())
    )


# ---------------------------------------------------------------------- conditions


def _likes(tests: Sequence[Test]) -> list[Like]:
    """Every partial match there is among the tests."""
    likes = [test for test in tests if isinstance(test, Like)]
    for test in tests:
        if isinstance(test, AnyOf):
            likes += [like for tests_ in test.alternatives for like in _likes(tests_)]
    return likes


def where_of(
    records: Records, test: Test, looks: Mapping[Like, PartialMatch] = _NO_MATCHES
) -> Where:
    """The condition of a test; ``looks``: what was found by opening rows."""
    if isinstance(test, Equals):
        return _equals(records, test)
    if isinstance(test, Compares):
        how = _COMPARES[test.op]
        if test.field in BUILT_IN_COLUMNS:
            return Compared(BUILT_IN_COLUMNS[test.field], how, test.value)
        return Compared(records.column(test.field), how, records.cell(test.field, test.value))
    if isinstance(test, Like):
        return _like(records, test, looks.get(test))
    if isinstance(test, InJson):
        return _in_json(records, test)
    return Any(
        tuple(
            All(tuple(where_of(records, part, looks) for part in parts))
            for parts in test.alternatives
        )
    )


def _equals(records: Records, test: Equals) -> Where:
    if test.field == KEY:
        hash_of = records.collection.key_hash
        return Is(
            "@key",
            tuple(None if value is None else hash_of(value) for value in test.values),
            test.negated,
        )
    if test.field in BUILT_IN_COLUMNS:
        return Is(BUILT_IN_COLUMNS[test.field], test.values, test.negated)
    cell = records.cell
    cells = tuple([None if value is None else cell(test.field, value) for value in test.values])
    return Is(records.column(test.field), cells, test.negated)


def _in_json(records: Records, test: InJson) -> Where:
    def hash_of(value: object, inside: bool) -> bytes:
        return records.leaf_hash(test.field, test.path, value, inside=inside)

    if test.contains:
        return Indexed(tuple(dict.fromkeys(hash_of(value, True) for value in test.values)))
    (value,) = test.values
    return Any((Indexed((hash_of(value, False),)), Indexed((hash_of(value, True),))))


# ---------------------------------------------------------------------- parts of texts


def text_in_column(records: Records, name: str) -> bool:
    """Whether the text of the field is stored in a column."""
    return name != KEY and records.schema.field(name).storage is Storage.INDEXED


def _sealed_fields(records: Records, like: Like) -> list[str]:
    """The fields whose rows have to be opened to know."""
    text = folded(like.text)
    hashed = [name for name in like.fields if not text_in_column(records, name)]
    if hashed and len(text) < SIZE:
        reason = (
            f"Fewer than {SIZE} characters are left of a text in its normal form (Unicode NFKC, "
            "case folded)."
        )
        raise VaultError(
            Code.INVALID_FILTER,
            "The filter cannot be asked of this schema.",
            (Detail("/filter", reason),),
        )
    return hashed


def _like(records: Records, like: Like, look: PartialMatch | None) -> Where:
    # As engines fold the column: letter by letter, with no composition afterwards.
    text = fold(plain_text(like.text))
    parts: list[Where] = [
        Holds(records.column(name), text, like.negated)
        for name in like.fields
        if text_in_column(records, name)
    ]
    if look is not None:
        parts.append(Is("@rid", tuple(look.rids), like.negated))
    return All(tuple(parts)) if like.negated else Any(tuple(parts))


def field_name(records: Records, name: str) -> str:
    """The name of the field: that of the primary key for the record key."""
    return records.primary.name if name == KEY and records.primary is not None else name


def _candidates(
    records: Records, look: PartialMatch, text: str, narrow: Where, bounds: tuple[int, int]
) -> Select:
    """Return the query for rows that may contain the text in a hashed field, after one of them.

    ``bounds``: the one before, and how many there may be in all.
    """
    after, most = bounds
    has_parts = Any(
        tuple(
            Indexed(tuple(entries))
            for name in look.fields
            for entries in records.part_entries(name, text)
        )
    )
    where = All((narrow, has_parts, Compared("@rid", Compare.GT, after)))
    select = Select(where, records.collection.clock(), (Order("@rid"),), CANDIDATE_PAGE)
    return select._replace(counted=not after, most=most)


async def _partial_match(
    records: Records, like: Like, narrow: Where, most: int
) -> tuple[PartialMatch, int] | None:
    """Open every row that may contain the text; return the matches and the number opened.

    ``None``: there are more than ``most``.
    """
    look = PartialMatch(
        tuple(field_name(records, name) for name in _sealed_fields(records, like)),
        folded(like.text),
        frozenset(),
    )
    collection, holding, last, candidates = records.collection, list[int](), 0, 0
    while True:
        page = await collection.store.select(
            collection.table, _candidates(records, look, like.text, narrow, (last, most))
        )
        if not last:
            candidates = page.total
        if candidates > most:
            return None
        holding += await _holding(records, look, page.rows)
        if len(page.rows) < CANDIDATE_PAGE:
            return look._replace(rids=frozenset(holding)), candidates
        last = page.rows[-1].rid


async def _holding(records: Records, look: PartialMatch, rows: Sequence[Row]) -> list[int]:
    """The ids of those rows that have the text. Their keys are looked at when found by id."""
    rids: list[int] = []
    for some in strides(rows, LOOKED_AT):
        contents = open_together(records, some, named=False)
        alone: list[Row] = []
        for row, content in zip(some, contents, strict=True):
            if content is None:
                alone.append(row)
            elif look.within(content[0]):
                rids.append(row.rid)
        rids += [one.rid for one in await open_records(records, alone) if look.holds(one)]
        if busy():
            await give_way()
    return rids


def _too_broad(limits: RecordLimits) -> VaultError:
    return VaultError(
        Code.TOO_BROAD,
        f"The text that is searched for is in more than {limits.candidates} records that would "
        "have to be opened; search for a longer one, or add other conditions.",
    )


# Cursors of pages: the end of a page, sealed, so that it reveals nothing and cannot be made or
# changed. A cursor is bound to its client, its rights, the schema with its definition, and the
# query if the request repeats it: it serves no other client or purpose.


def open_cursor(records: Records, cursor: str, context: bytes, refusal: tuple[Code, str]) -> bytes:
    """The place of a cursor.

    Raises ``VaultError`` as ``refusal`` says: with that code, at that place of the request.
    """
    try:
        return records.cursors.open(cursor, context)
    except VaultError:
        code, at = refusal
        raise VaultError(
            code,
            "The cursor cannot be used: it was changed, belongs to another client, schema or "
            "question, or the schema or the "
            "rights of the client have changed since; ask the question anew.",
            (Detail(at, "Is no cursor of this client for this question."),),
        ) from None


def cursor_context(records: Records, client: str, question: bytes = b"") -> bytes:
    """The context of cursors for this client, its rights, this schema, and the question."""
    mark = records.rights.mark.encode()
    return b"%b\x00%b%b%b" % (client.encode(), records.definition, mark, question)

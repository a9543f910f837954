"""The records of one schema under its keys: rows, tokens and look-ups."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from proxy.clock import Clock
from proxy.crypto.keyset import Keyset
from proxy.crypto.prf import HashRoots
from proxy.errors import CannotOpen
from proxy.model.schema import Field, Schema, Storage, Value
from proxy.offload import SMALL, STRIDE, busy, give_way, in_thread, strides
from proxy.storage.base import Store
from proxy.storage.rows import ERASED_AT, ColumnValue, Row, RowState, Staged
from proxy.tokenization.base import Resolution, Shape, Tokenizer
from proxy.tokenization.normalize import normalizer
from proxy.vault.body import NO_VALUES, TOKEN_OF, RecordBody, TokenizedFields
from proxy.vault.earlier_tokens import EarlierTokens, TokenizedField, findable, speller, token_form
from proxy.vault.earlier_values import RECORD_ID, keeping
from proxy.vault.next_version import FieldMint, Mint
from proxy.vault.part_index import CollectedParts
from proxy.vault.schema_store import Placed
from proxy.vault.seal import RecordSealer, Sealer, Tampered
from proxy.vault.table_state import OpenedRecords, Sequencer, TableState, recalled

#: Keys per request to the store, and rows opened between two turns of the event loop.
LOOKED_UP = 500
_OPENED = 64
_INDEXED, _PENDING = Storage.INDEXED, RowState.PENDING  # looked up slower in enumerations
LONG = 64 * 1024  #: bytes of a sealed body from which on it is opened on another thread

ObserveVault = Callable[[str, str, int], None]  #: (event, schema, how many)
FieldHasher = Callable[[bytes], bytes]


class TableSpec(NamedTuple):
    """Storage of an entity of a rule file."""

    schema: Schema
    shapes: Mapping[str, Shape]
    expires: int | None  #: milliseconds of life after creation or update
    #: every answer carries the record's id, so that tokens too small to be unique can resolve
    addressed: bool
    keeps: bool = False  #: values of earlier versions stay under their tokens (``versions: keep``)


class HistoryPolicy(NamedTuple):
    """Retention of past versions, and whether they outlive the record."""

    keep: int = 30 * 86_400_000  #: milliseconds; 0: no past versions are kept at all
    keep_deleted: bool = False


class VaultContext(NamedTuple):
    """Services shared by the collections of one vault."""

    environment: str
    keyset: Keyset
    store: Store
    clock: Clock
    sequence: Sequencer
    region: str
    observe: ObserveVault
    history: HistoryPolicy = HistoryPolicy()
    opened: OpenedRecords = OpenedRecords(0)  #: that lists have shown lately; it keeps none
    collections: Mapping[str, "Collection"] = MappingProxyType({})  #: in use, by schema


class Collection:
    """The records of one schema."""

    def __init__(
        self, recipe: TableSpec, placed: Placed, context: VaultContext, state: TableState
    ) -> None:
        self.schema, self.name = recipe.schema, recipe.schema.name
        self.layout, self.table = placed.layout, placed.layout.table
        self.columns = placed.columns  #: of the fields kept outside the body, in their order
        #: The field of each cell of a row; ``None`` for a column of another version of the schema.
        fields = dict(zip(placed.columns, recipe.schema.column_fields, strict=True))
        self.slots: tuple[Field | None, ...] = tuple(
            fields.get(column.name) for column in placed.layout.columns
        )
        self.context, self.state = context, state
        self.store, self.clock, self.opened = context.store, context.clock, context.opened
        self.expires, self.keeps = recipe.expires, recipe.keeps
        keyset = context.keyset
        self.sealer = Sealer(keyset.aead(), context.environment, self.name, state.columns)
        self._hash_key, self._roots = keyset.hasher("key", self.name), keyset.live_hash_roots
        self._hashed = "", self._hash_key(b""), self._roots[0]  #: of the last key
        #: of lists
        self._hashes: tuple[dict[str | None, bytes], HashRoots] = {}, self._roots[0]
        self._carried: dict[str, dict[str | None, int]] = {name: {} for name in recipe.shapes}
        self.hash_name = keyset.hasher("file", self.name)  #: finds a file name within its record
        self.shapes = recipe.shapes
        self.declared = frozenset(recipe.shapes)  #: the names of all fields
        self._prepare_tokens(recipe, keyset, context.region)
        self._mark_key = keyset.hasher("mark", self.name)
        self.parts = CollectedParts(keyset.hasher, recipe.schema)
        #: fields that the rules in force do not store for searches, or store otherwise
        self.outdated: frozenset[str] = frozenset()
        hashers = {
            of.name: None if of.storage is _INDEXED else keyset.hasher("field", self.name, of.name)
            for of in filter(None, self.slots)
        }
        self.indexing = [
            of and (of.name, normalizer(of.kind, context.region), hashers[of.name])
            for of in self.slots
        ]

    def _prepare_tokens(self, recipe: TableSpec, keyset: Keyset, region: str) -> None:
        """Make what mints and finds the tokens of each field."""
        keys = {name: keyset.field_keys(self.name, name) for name in recipe.shapes}
        kinds = {name: self.schema.field(name).kind for name in recipe.shapes}
        self.tokenizers: dict[str, Tokenizer] = {
            name: shape.bind(keys[name], kinds[name], region)
            for name, shape in recipe.shapes.items()
        }
        self.token_form = token_form(self.tokenizers, recipe.shapes)
        #: Knows tokens in another spelling, of these fields alone; how values of a field compare.
        spelling = speller(self.tokenizers, kinds, region)
        self.respelled, self.respells, self.compared = spelling
        self._token_hashers: dict[str, FieldHasher] = {
            name: keyset.hasher("token", self.name, name) for name in (RECORD_ID, *recipe.shapes)
        }
        self.indexed = [
            (name, tokenizer.indexed, self._token_hashers[name], tokenizer.same)
            for name, tokenizer in self.tokenizers.items()
            if tokenizer.resolution is Resolution.INDEXED
        ]
        #: Fields whose values all have the same token, or may have.
        self.single = frozenset(
            name for name, shape in recipe.shapes.items() if shape.capacity() == 1
        )
        #: Fields whose tokens are drawn and yet too few to be unique: for each, how many there are.
        self.small = {
            name: recipe.shapes[name].capacity()
            for name, tokenizer in self.tokenizers.items()
            if tokenizer.resolution is Resolution.BY_RECORD and not tokenizer.same
        }
        #: Fields of which different values may share one token, which does not identify a value.
        self.alike = sorted(
            self.single | {name for name, tokenizer in self.tokenizers.items() if tokenizer.same}
        )
        #: Same-value tokens under older roots, which their values keep.
        hash_of = self._token_hashers
        self.earlier = EarlierTokens(
            {
                name: TokenizedField(shape, keys[name], kinds[name], region, hash_of[name])
                for name, shape in recipe.shapes.items()
                if shape.same
            }
        )
        #: What mints the tokens of each field, prepared: (value, record id, value number).
        self.mints: dict[str, FieldMint] = {
            name: findable(name, tokenizer)
            if tokenizer.resolution is Resolution.INDEXED and not recipe.addressed
            else tokenizer.mint
            for name, tokenizer in self.tokenizers.items()
        }
        self.certain = frozenset(() if recipe.addressed else [name for name, *_ in self.indexed])
        self._steady_mints = {name: self.earlier.mint(name, of) for name, of in self.mints.items()}

    def fill(self, rows: int) -> dict[str, float]:
        """By field with unique tokens: the share of them in use with so many records."""
        return {
            name: rows / shape.capacity()
            for name, shape in self.shapes.items()
            if shape.resolution is Resolution.INDEXED and not shape.same
        }

    def observe(self, event: str, count: int = 1) -> None:
        self.context.observe(event, self.name, count)

    def key_hash(self, key: str) -> bytes:
        """The keyed hash by which a record key is found; of one key it is often asked for twice."""
        roots = self._roots[0]
        if key != self._hashed[0] or roots is not self._hashed[2]:
            self._hashed = key, self._hash_key(key.encode()), roots
        return self._hashed[1]

    def key_hashes(self, keys: Sequence[str | None]) -> list[bytes | None]:
        """``key_hash`` of the records of a list, which are asked for again and again."""
        if (roots := self._roots[0]) is not self._hashes[1]:
            self._hashes = {}, roots
        hash_key = self._hash_key
        return recalled(
            self._hashes[0], keys, lambda some: [hash_key(key.encode()) for key in some]
        )

    def carried(self, name: str, tokens: Sequence[str]) -> list[int | None]:
        """The records that the tokens of a list carry in a field, likewise."""
        return recalled(self._carried[name], tokens, self.tokenizers[name].carried)

    def token_hash(self, name: str, token: str) -> bytes:
        """The keyed hash of a token of the field, under the field's own key."""
        return self._token_hashers[name](token.encode())

    def mint(self, rid: int) -> Mint:
        """The minting function for one record."""
        return lambda name, value, number: self.mints[name](value, rid, number)

    def same_token(self, name: str, value: Value) -> Value:
        """The same-value token of a field; for parameters that search by it."""
        mint: FieldMint = self.tokenizers[name].mint
        if self.context.keyset.older_tokens:
            mint = self.earlier.mint(name, mint)
        return mint(value, 0, 0)

    async def recall(self, fields: Iterable[tuple[str, Iterable[Value]]]) -> None:
        """Look which values have earlier tokens; before new ones."""
        self.mints = self._steady_mints
        places = [(name, value) for name, values in fields for value in values]
        await self.earlier.recall(places, partial(self.store.by_tokens, self.table))

    async def index_entries(
        self, contents: TokenizedFields, before: TokenizedFields = NO_VALUES
    ) -> tuple[set[bytes], set[bytes]]:
        """Return (all token hashes to index besides those of ``before``, the unique ones)."""
        hashes: set[bytes] = set()
        unique: set[bytes] = set()
        for name, is_indexed, hash_of, same in self.indexed:
            values, stored = contents.get(name, ()), before.get(name, ())
            stored_tokens = set(map(TOKEN_OF, stored))
            for number, value in enumerate(values, 1):
                if value.token not in stored_tokens and is_indexed(
                    Value(value.token, value.token_json)
                ):
                    digest = hash_of(value.token.encode())
                    (hashes if same else unique).add(digest)
                if number % STRIDE == 0 and busy():
                    await give_way()
        hashes |= unique
        return hashes, unique

    def identify(self, name: str, token: str) -> int | None:
        """The record id that a token of any field's shape carries; ``None``: it carries none."""
        own = self.tokenizers.get(name)
        carried = own.identify(token) if own is not None else None
        if carried is not None:
            return carried[0]
        for tokenizer in self.tokenizers.values():
            sealed = tokenizer is not own and tokenizer.resolution is Resolution.SEALED
            if sealed and tokenizer.resembles(token) and (pair := tokenizer.identify(token)):
                return pair[0]
        return None

    def mark(self, rid: int, content: RecordBody) -> bytes:
        """A keyed hash of the values that tokens do not tell apart: all where one was corrected."""
        values = [  # by record and version: two marks never tell that a value was guessed
            (name, rid, content.following, [value.text for value in content.values[name]])
            for name in (sorted(content.values) if content.at else self.alike)
            if content.values.get(name)
        ]
        return self._mark_key(msgspec.json.encode(values))[:8].hex().encode() if values else b""

    # ------------------------------------------------------------------ rows

    def new_row(
        self, content: RecordBody, rid: int, salt: bytes, sealer: RecordSealer | None = None
    ) -> Row:
        """A pending row for a new record; it gets its key when the application tells it."""
        now = self.clock()
        expires, cells = None if self.expires is None else now + self.expires, self.cells(content)
        sealer = sealer or self.sealer.record(rid, salt)
        body = sealer.body(content, 1, self.state.columns.bind(now, now, expires, cells))
        statement = sealer.unbound(_PENDING, now)
        return Row(rid, None, statement, _PENDING, 1, now, now, expires, salt, body, cells, 0)

    def next_row(self, row: Row, content: RecordBody, sealer: RecordSealer | None = None) -> Row:
        """The row with its next version."""
        now = self.clock()
        if self.keeps:
            content = keeping(self, content, [self.sealer.open(row)])
        self.state.retired.keep(row, now)
        self.opened.forget((row.rid,))
        rid, salt, version, created = row.rid, row.salt, row.version + 1, row.created_at
        expires = None if self.expires is None else now + self.expires
        expires = content.end(row.expires_at, expires) if content.deleted else expires
        binding = self.state.columns.bind(created, now, expires, cells := self.cells(content))
        sealer = sealer or self.sealer.record(rid, salt)
        body = sealer.body(content, version, binding)
        return Row(*row[:4], version, created, now, expires, salt, body, cells, row.staged)

    def same_row(self, row: Row, content: RecordBody) -> Row:
        """The row with the same values sealed anew: its version and times stay."""
        return self.sealer.with_body(row, content)

    def past(self, rid: int, began: int, live: RecordBody | None = None) -> Iterator[RecordBody]:
        """The versions of a record that were replaced since an instant, the newest first; beside
        other replicas, which may have taken values away, without fields that ``live`` lacks.
        """
        for row in self.state.retired.since(rid, began):
            if self.sealer.knows(row.body):  # else its key has gone, meanwhile
                yield self.sealer.open(row).within(live if self.state.replicas else None)

    def alive(self, row: Row) -> bool:
        """Whether the row has not expired and is no mark (``erasure``): neither is answered."""
        try:
            end = row.expires_at
            return end is None or (end > self.clock() and row.updated_at < ERASED_AT)
        except TypeError:  # a foreign program wrote a text there: the row does not open
            return True

    async def by_key(
        self,
        keys: Iterable[str],
        report: Callable[[], object] | None = None,
        bodies: dict[int, RecordBody] | None = None,
    ) -> dict[str, Row]:
        """The unexpired rows bound to these record keys.

        A row under a key that is not its own is left out; ``report`` is called for it. ``bodies``
        gets those of rows that are short and have nothing staged.
        """
        hashes = {self.key_hash(key): key for key in keys}
        rows_by_key, digests = dict[str, Row](), list(hashes)
        for some in strides(digests, LOOKED_UP) if len(digests) > LOOKED_UP else (digests,):
            rows = await self.store.by_keys(self.table, some)
            for number, (digest, row) in enumerate(rows.items(), 1):
                if row.expires_at is not None and not self.alive(row):
                    pass
                elif self._is_key_of(hashes[digest], row, bodies):
                    rows_by_key[hashes[digest]] = row
                else:
                    (report or partial(self.observe, "tampered"))()
                if number % _OPENED == 0 and busy():
                    await give_way()
        return rows_by_key

    def _is_key_of(self, key: str, row: Row, bodies: dict[int, RecordBody] | None) -> bool:
        """Whether the key sealed with a row is the one that the row was found by.

        A row without one is a record of the interface, whose key is in its body.
        """
        if row.key_sealed is None and not self.shapes:
            return True
        try:
            if bodies is not None and not row.staged and len(row.body) <= SMALL:
                bodies[row.rid], sealed = self.sealer.open_with_key(row)
                return sealed == key
            return self.sealer.open_key(row) == key
        except CannotOpen as error:
            # find out which of the two does not open
            own = bodies is not None and self._is_key_of(key, row, None)
            if own and isinstance(error, Tampered):
                self.observe("tampered")
                raise
            return own

    async def staged_beside(self, rows: dict[int, Row]) -> dict[int, tuple[Staged, ...]]:
        """Return the staged changes of these rows; bring ``rows`` itself up to date if needed.

        Row and staged changes are two reads, and an answer that settles between them moves a
        version from one to the other: it would be seen in neither. So rows are read again until
        nothing moved. A row that went away meanwhile stays as it was read.
        """
        staged_by_rid: dict[int, tuple[Staged, ...]] = {}
        waiting = [rid for rid, row in rows.items() if row.staged]
        while waiting:
            moved: list[int] = []
            for some in strides(waiting, LOOKED_UP):
                staged_by_rid.update(await self.store.staged(self.table, some))
                again = await self.store.rows(self.table, some)
                moved += [rid for rid, row in again.items() if row != rows[rid]]
                rows.update(again)
                if busy():
                    await give_way()
            for rid in moved:
                staged_by_rid.pop(rid, None)
            waiting = [rid for rid in moved if rows[rid].staged]
        return staged_by_rid

    async def versions(self, row: Row) -> list[RecordBody]:
        """The live version and every staged one."""
        rows = {row.rid: row}
        staged = (await self.staged_beside(rows)).get(row.rid, ())
        live = rows[row.rid]
        if len(live.body) <= LONG:
            return self._opened(live, staged)
        return await in_thread(self._opened, live, staged)

    def _opened(self, row: Row, staged: Sequence[Staged]) -> list[RecordBody]:
        opened = [self.sealer.open_staged(change, row.salt) for change in staged]
        return [self.sealer.open(row), *[one for one in opened if one is not None]]

    def cells(self, content: RecordBody) -> tuple[ColumnValue, ...]:
        """Return the columns of a version, stored outside its body."""
        cells: list[ColumnValue] = []
        for column in self.indexing:
            values = content.values.get(column[0]) if column else None
            if not column or not values:
                cells.append(None)
                continue
            normal = column[1](values[0].text)
            cells.append(normal if column[2] is None else column[2](normal.encode()))
        return tuple(cells)

"""The end of a row: whether it may go (``may_end``), and the mark that takes its place.

The store is not trusted, so no column counts before a comparison with the sealed body. A row is
removed with everything under its number. If parts of another record were put there, that is an
alarm. Parts that do not open cannot be attributed. They may go all the same, since a damaged record
has to end like any other, but not with parts of another record: then the two rows were exchanged.

A mark is of the tokens of a record, each of which stands for no value any more.
The application shows the tokens of a record that has ended in the vault for as long as it likes,
and that of a date or a number looks like a value. So a mark takes the place of the record, in the
same commit: a row of a number, a salt and so a key of its own, with the tokens and the record's id,
sealed, and nothing of the values. It is pending for ever (``ERASED_AT``): no question, count or
settlement meets it, and all maintenance of rows does. Only the token index leads to it, by the
tokens and by the id. It tells only of what nothing else tells, so it never hides a value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxy.crypto.prf import either
from proxy.errors import CannotOpen
from proxy.model.schema import Value, is_collected
from proxy.offload import busy, give_way, run_in_thread
from proxy.storage.changes import Change, Insert
from proxy.storage.rows import ERASED_AT, File, Past, Row, RowState, Staged
from proxy.tokenization.base import Resolution, Tokenizer
from proxy.tokenization.digits import digits_of
from proxy.vault.body import RecordBody, TokenizedFields, TokenizedValue
from proxy.vault.collection import LONG, Collection
from proxy.vault.earlier_values import RECORD_ID, erased, stored_values
from proxy.vault.seal import Tampered

#: A field and a token of it.
FieldToken = tuple[str, str]

#: For how long a mark stays: ten years, in milliseconds.
_LASTS: Final = 3_653 * 86_400_000
#: Marks that the index names for one token: others with the token, and so the value, come first.
_SHARING: Final = 4


class _Mark(NamedTuple):
    row: Row
    hashes: Sequence[bytes]


async def leave_marks(
    collection: Collection, rows: Iterable[Row], *, over: bool = False
) -> list[Change]:
    """The changes that leave a mark of each of these records, which end in the same commit.

    None of one that does not open, or has no token. ``over``: their time is, or that of a create
    which no answer has shown. Such records are many, so only those with a token that people take
    for a value leave a mark; what expires does so for as long again as it was there.
    """
    marks: list[_Mark] = []
    for row in rows:
        mark = await _mark(collection, row, over=over)
        marks += [] if mark is None else [mark]
        if busy():
            await give_way()
    if not marks:
        return []
    digests = list({digest for mark in marks for digest in mark.hashes})
    hits = await collection.store.by_tokens(collection.table, digests)
    sharing = Counter({digest: len(rids) - 1 for digest, rids in hits.items()})
    changes: list[Change] = []
    for mark in marks:
        entries = [digest for digest in mark.hashes if sharing[digest] < _SHARING]
        sharing.update(entries)
        changes.append(Insert(mark.row, tuple(entries)))
    return changes


async def _mark(collection: Collection, row: Row, *, over: bool) -> _Mark | None:
    if row.updated_at >= ERASED_AT:
        return None
    try:
        _, key = collection.sealer.open_with_key(row)
        versions = await collection.versions(row)
    except CannotOpen:
        return None
    owner, ident = _owner(collection, key)
    tokens: dict[str, dict[str, TokenizedValue]] = {}
    for version in versions:
        for name, values in stored_values(version).items():
            own = {one.token: one for one in values if one.token != one.text}
            tokens.setdefault(name, {}).update(own)
    left = {name: erased(of.values()) for name, of in tokens.items() if of}
    if not left or owner is None:
        return None
    tokenizers = collection.state.hosted.get(owner, collection.tokenizers)
    if over and not _mistakable(tokenizers, left):
        return None
    if ident is not None:
        left[RECORD_ID] = erased((TokenizedValue(0, "", True, ident, False),))
    hasher, hashes = collection.context.keyset.hasher, list[bytes]()
    for name, values in left.items():
        hash_of, tokenizer = hasher("token", owner, name), tokenizers.get(name)
        hashes += [
            hash_of(one.token.encode())
            for one in values
            if name == RECORD_ID or (tokenizer is not None and _tells(tokenizer, one.stands_for))
        ]
    if not hashes:  # nothing would lead to it
        return None
    lasts = _LASTS
    if over and row.expires_at is not None:
        lasts = min(lasts, row.expires_at - row.created_at)
    return _Mark(_row(collection, RecordBody(earlier=left), lasts), hashes)


def _mistakable(tokenizers: Mapping[str, Tokenizer], fields: TokenizedFields) -> bool:
    """Whether people take a token of these for a value: it is a number, or too small for a word."""
    return any(
        digits_of(one.token)
        or ((of := tokenizers.get(name)) is not None and of.resolution is Resolution.BY_RECORD)
        for name, values in fields.items()
        for one in values
    )


def without_values(
    collection: Collection, content: RecordBody, ended: Iterable[RecordBody]
) -> RecordBody:
    """A version with marks of the tokens that ended ones alone have, and people take for values."""
    earlier, own = dict(content.earlier), content.value_tokens()
    for version in ended:
        for name, values in version.values.items():
            left = tuple([one for one in values if (name, one.token) not in own])
            if left and _mistakable(collection.tokenizers, {name: left}):
                own.update((name, one.token) for one in left)
                earlier[name] = erased((*earlier.get(name, ()), *left))
    return replace(content, earlier=earlier)


def _tells(tokenizer: Tokenizer, token: Value) -> bool:
    """Whether a token is too large to be another's by chance."""
    return tokenizer.resolution is Resolution.SEALED or (
        tokenizer.resolution is Resolution.INDEXED and tokenizer.indexed(token)
    )


def _owner(collection: Collection, key: str | None) -> tuple[str | None, str | None]:
    """The schema by whose name tokens are hashed, and the application's id of the record."""
    if collection.shapes:
        return collection.name, key
    if key is None:
        return None, None
    if not is_collected(key):
        return collection.name, key
    entity, _, ident = key.partition(":")[2].partition("/")
    return f"{collection.name}/{entity}", ident


def _row(collection: Collection, content: RecordBody, lasts: int) -> Row:
    rid, salt = collection.context.sequence(), collection.sealer.new_salt()
    now, cells = collection.clock(), collection.cells(content)
    end, sealer = now + lasts, collection.sealer.record(rid, salt)
    body = sealer.body(content, 1, collection.state.columns.bind(now, ERASED_AT, end, cells))
    statement = sealer.unbound(RowState.PENDING, ERASED_AT)
    state = RowState.PENDING
    return Row(rid, None, statement, state, 1, now, ERASED_AT, end, salt, body, cells)


async def with_expired(
    collection: Collection,
    of_ids: Mapping[str | None, bytes],
    hits: Mapping[bytes, tuple[int, ...]],
) -> dict[bytes, tuple[int, ...]]:
    """The records of hashes (``hits``) of ids, with those that have expired and are still there."""
    digests = {collection.key_hash(ident): at for ident, at in of_ids.items() if ident is not None}
    rows = await collection.store.by_keys(collection.table, list(digests)) if digests else {}
    expired = [(digests[key], row.rid) for key, row in rows.items() if not collection.alive(row)]
    return {digest: (*hits.get(digest, ()), rid) for digest, rid in expired}


async def tokens_of_marks(
    collection: Collection, rids: Sequence[int]
) -> dict[int, frozenset[FieldToken]]:
    """The tokens of those of these rows that are marks, or that have expired and will be ones."""
    rows = await collection.store.rows(collection.table, rids) if rids else {}
    tokens: dict[int, frozenset[FieldToken]] = {}
    for rid, row in rows.items():
        is_mark, ended = row.updated_at >= ERASED_AT, (row.expires_at or 0) <= collection.clock()
        if is_mark is ended:
            continue
        long = len(row.body) > LONG
        try:
            content, key = await run_in_thread(long, collection.sealer.open_with_key, row)
            versions = [content] if is_mark else await collection.versions(row)
        except CannotOpen:
            collection.observe("unopenable")
            continue
        pairs = [pair for version in versions for pair in stored_values(version).items()]
        own = {(name, one.token) for name, values in pairs for one in values}
        ident = None if is_mark else _owner(collection, key)[1]
        tokens[rid] = frozenset(own if ident is None else {*own, (RECORD_ID, ident)})
        if busy():
            await give_way()
    return tokens


#: Past versions that are looked at in one go.
_PAGE: Final = 500


async def may_end(collection: Collection, row: Row) -> bool:
    """Whether a row may be removed by its columns; report one that may not, or does not open.

    Parts of another record under its number are reported, too.
    """
    opens = genuine = True
    try:
        collection.sealer.open_with_key(row)
    except CannotOpen as error:
        opens, genuine = False, not isinstance(error, Tampered)
    if genuine and await hosts_others(collection, row):
        collection.observe("tampered")
        return opens
    if not opens:
        collection.observe("unopenable" if genuine else "tampered")
    return genuine


async def hosts_others(collection: Collection, row: Row) -> bool:
    """Whether past versions, files or staged changes of a row are not provably its own."""
    store, table = collection.store, collection.table
    parts: list[File | Staged] = list((await store.files(table, [row.rid])).get(row.rid, ()))
    if row.staged:
        parts += (await store.staged(table, [row.rid])).get(row.rid, ())
    if not all(_is_of(collection, row, part) for part in parts):
        return True
    after = (row.rid, 0)
    while page := await store.past_scan(table, after, _PAGE):
        own = [past for past in page if past.rid == row.rid]
        if not all(_is_of(collection, row, past) for past in own):
            return True
        if len(own) < len(page):
            break
        if busy():
            await give_way()
        after = (row.rid, page[-1].version)
    return False


def _is_of(collection: Collection, row: Row, part: File | Past | Staged) -> bool:
    try:
        if isinstance(part, File):
            collection.sealer.open_file(part, row.salt)
            return True
        if isinstance(part, Staged):
            collection.sealer.open_staged(part, row.salt)
            return True
        fields = collection.sealer.open(part).fields
    except CannotOpen:
        return False
    if part.salt == row.salt:  # also one that another record had before it was taken into this one
        return True
    primary = collection.schema.primary
    key = None if primary is None else fields.get(primary.name)
    digests = (part.key,) if key is None else either((collection.key_hash(key),))
    return row.key in digests


def is_genuine_change(collection: Collection, change: Staged, salt: bytes) -> bool:
    """Whether a staged change of the row with that salt is unaltered; else it is reported."""
    try:
        collection.sealer.open_staged(change, salt)
    except CannotOpen:
        collection.observe("tampered")
        return False
    return True

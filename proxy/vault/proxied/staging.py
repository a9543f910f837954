"""Two-step writes: values are durable in the vault before the application sees a token.

Each function below is one durable transaction of a proxied exchange. The order of an exchange is:
stage, forward, then one of settle (accepted), drop (refused) or doubt (unknown). A process that
dies between two steps leaves a staged state from which either answer of the application can still
be reached.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.offload import busy, give_way, run_in_thread
from proxy.storage.changes import (
    Change,
    Conflict,
    Insert,
    MarkInDoubt,
    Remove,
    StageRow,
    Underway,
    Unstage,
)
from proxy.storage.rows import Row, Staged, StagedKind
from proxy.vault.body import RecordBody, TokenizedValue, next_generation, tokens_of
from proxy.vault.collection import Collection
from proxy.vault.earlier_values import confuses, distinct, stored_values, unerased_values
from proxy.vault.next_version import (
    Drafted,
    ProxiedDraft,
    adopt,
    apart_from,
    draft_new,
    draft_next,
)
from proxy.vault.proxied.anywhere import records_meant, refuse_tokens, sent_tokens, with_values
from proxy.vault.proxied.binding import BIND_STRIDE, StagedWrite, finish, forget_staged
from proxy.vault.proxied.promotion import Update, forgotten, promotion, unchanged_in_doubt

#: How often a colliding random token, or a record that changed meanwhile, is tried again.
_TRIES = 8
# Members of an enumeration are looked up several times slower in it.
_UPDATE, _DELETE = StagedKind.UPDATE, StagedKind.DELETE


async def stage_creates(
    collection: Collection,
    drafts: Sequence[ProxiedDraft],
    keys: Sequence[str | None],
    attempt: bytes = b"",
) -> list[StagedWrite]:
    """Keep the values of new records, not yet bound; ``attempt``: finds one that is sent again."""
    for _ in range(_TRIES):
        writes: list[StagedWrite] = []
        for draft, key in zip(drafts, keys, strict=True):
            writes.append(await _new(collection, draft, key))
            if len(writes) % BIND_STRIDE == 0 and busy():
                await give_way()
        if len(writes) > 1 and collection.small:
            await _tell_apart(collection, writes, drafts)
        writes[0].attempt = attempt if len(writes) == 1 else b""
        if await _stage(collection, writes):
            return writes
    raise _full(collection)


async def stage_updates(
    collection: Collection, targets: Sequence[tuple[str, ProxiedDraft]]
) -> list[StagedWrite]:
    """Stage the next version of each record, whose locks the caller holds.

    A key that the vault does not know is that of the nameless record whose token was sent, or
    becomes a new record.
    """
    for _ in range(_TRIES):
        bodies: dict[int, RecordBody] = {}
        rows = await collection.by_key([key for key, _ in targets], bodies=bodies)
        if tokens := sent_tokens(collection, targets, rows):
            rows |= await records_meant(collection, tokens, rows)
        writes: list[StagedWrite] = []
        for key, draft in targets:
            row = rows.get(key)
            live = bodies.get(row.rid) if row is not None else None
            writes.append(await _next(collection, row, (key, draft), live))
            if len(writes) % BIND_STRIDE == 0 and busy():
                await give_way()
        if await _stage(collection, writes):
            return writes
    raise _full(collection)


async def stage_unchanged(collection: Collection, keys: Sequence[str]) -> list[StagedWrite]:
    """Stage an update without a value: it takes the mark of a delete away from records it knows."""
    rows = await collection.by_key(keys, bodies={})
    return await stage_updates(collection, [(key, ProxiedDraft({})) for key in rows])


async def stage_shared(
    collection: Collection, keys: Sequence[str], draft: ProxiedDraft
) -> list[StagedWrite]:
    """Stage one draft for many records with equal tokens: the application is sent one body."""
    for _ in range(_TRIES):
        rows = await collection.by_key(keys)
        if tokens := sent_tokens(collection, [(key, draft) for key in keys], rows):
            await records_meant(collection, tokens, rows)  # refuses: it cannot mean all of them
        first = await _next(collection, rows.get(keys[0]), (keys[0], draft), shared=len(keys) > 1)
        writes = [first]
        for key in keys[1:]:
            writes.append(await _follow(collection, rows.get(key), key, draft, first))
            if busy():
                await give_way()
        if await _stage(collection, writes, shared=len(keys) > 1):
            return writes
    raise _full(collection)


async def stage_deletes(
    collection: Collection, keys: Sequence[str], keep: int | None = None
) -> list[StagedWrite]:
    """Mark records as about to be deleted; keys the vault does not know have nothing to stage.

    ``keep``: the application only marks them, and their values stay for that many milliseconds; 0:
    until another delete.
    """
    rows = await collection.by_key(keys, bodies={})
    sequence = collection.context.sequence
    writes = [
        StagedWrite(row.rid, None, {}, row, sid=sequence(), key=key, salt=row.salt, keep=keep)
        for key, row in rows.items()
    ]
    if writes and not await _stage(collection, writes):
        raise VaultError(
            Code.CONFLICT, "The record changed while it was being deleted; send the request again."
        )
    collection.state.deletes = collection.state.deletes or bool(writes)
    return writes


async def promote(
    collection: Collection, write: StagedWrite, tokens_shown: Mapping[str, tuple[str, ...]]
) -> None:
    """The application took an update: its version becomes the live one.

    ``tokens_shown`` are the token texts that the answer carries, by field: a field that is answered
    with its old tokens beside new ones was not taken (read-only there), and keeps its old value.
    Where old and new value have the same token, the answer as a whole counts: it was taken.
    """
    if write.sid is None or write.content is None or write.live is None:
        return
    versions = write.live, write.content
    update = Update(write.rid, write.sid, *versions, write.tokens.keys(), write.both)
    row = write.row if write.row is not None and not write.row.staged else None
    for _ in range(_TRIES):
        changes, write.promoted = await promotion(collection, update, tokens_shown, row)
        try:
            await finish(collection, [write], changes)
        except Conflict:
            row = None  # as it is by now
            continue
        collection.observe("settled")
        return
    raise VaultError(Code.CONFLICT, "The record kept changing while an update was being settled.")


async def drop_staged(collection: Collection, writes: Sequence[StagedWrite]) -> None:
    """The application refused: nothing of the request stays."""
    changes: list[Change] = []
    for item in writes:
        if item.row is None:
            changes.append(Remove(item.rid))
        elif item.sid is not None:
            changes.append(Unstage(item.rid, item.sid))
            changes.extend(await forgotten(collection, item, item.row, item.sid))
            if busy():
                await give_way()
    await finish(collection, writes, changes)
    collection.observe("dropped", len(writes))


async def doubt(collection: Collection, writes: Sequence[StagedWrite], *, answered: bool) -> None:
    """The outcome is unknown: both versions stay, either token resolves."""
    now = collection.clock()
    changes: list[Change] = []
    for item in writes:
        if item.row is not None and item.sid is not None:
            changes.append(MarkInDoubt(item.rid, item.sid, now, answered))
        elif item.row is not None and item.tokens and not answered:
            changes.append(unchanged_in_doubt(collection, item))
    await finish(collection, writes, changes)
    collection.observe("in_doubt", len(writes))


async def _new(collection: Collection, draft: ProxiedDraft, key: str | None) -> StagedWrite:
    rid = collection.context.sequence()
    if collection.context.keyset.older_tokens:
        await collection.recall(draft.fields.items())
    drafted = await draft_new(draft, collection.mints, rid)
    return _held_new(collection, rid, drafted, key)


async def _tell_apart(
    collection: Collection, writes: list[StagedWrite], drafts: Sequence[ProxiedDraft]
) -> None:
    """Draw again where two new records of one request got the same small token: the answer may show
    nothing else of them. Only where the shape has room, so that this ends soon.
    """
    roomy = [name for name, capacity in collection.small.items() if capacity >= 10 * len(writes)]
    taken: set[tuple[str, str]] = set()
    for index, draft in enumerate(drafts):
        for _ in range(_TRIES):
            tokens = {
                (name, value.token)
                for name in roomy
                for value in writes[index].tokens.get(name, ())
            }
            if taken.isdisjoint(tokens):
                taken |= tokens
                break
            writes[index] = await _new(collection, draft, writes[index].key)
        if busy():
            await give_way()


def _held_new(collection: Collection, rid: int, drafted: Drafted, key: str | None) -> StagedWrite:
    salt = collection.sealer.new_salt()
    sealer = collection.sealer.record(rid, salt)
    return StagedWrite(
        rid, drafted.content, drafted.tokens, None, key=key, salt=salt, sealer=sealer
    )


async def _next(
    collection: Collection,
    row: Row | None,
    target: tuple[str, ProxiedDraft],
    live: RecordBody | None = None,  # the only version of the row, where it was opened already
    *,
    shared: bool = False,  # by several records: the tokens carry none of them, which may end first
) -> StagedWrite:
    key, draft = target
    if row is None:
        write = await _new(collection, draft, key)
        # its create may be in doubt: what this change clears must not come back with that
        cleared = {name for name, values in draft.fields.items() if not values}
        cleared.update(filter(draft.erases, collection.declared))
        if cleared and (new := write.content) is not None:
            write.content = RecordBody(dict.fromkeys(cleared, ()) | new.values, new.following)
        return write
    versions = [live] if live is not None else await collection.versions(row)
    if collection.context.keyset.older_tokens:
        await collection.recall(draft.fields.items())
    mint = collection.mint(collection.context.sequence() if shared else row.rid)
    earlier = [RecordBody(left)] if (left := unerased_values(versions[0])) else []
    draft = with_values(collection, draft, [*versions, *earlier])
    if collection.keeps:
        mint = distinct(versions, mint, collection.compared)
    elif len(versions) > 1:
        mint = apart_from(versions[1:], mint)
    start = live.following if live is not None else next_generation(versions)
    base = _with_doubtful(versions, draft, start) if draft.appended else versions[0]
    drafted = await draft_next(draft, base, start, mint)
    return _staged_write(collection, row, key, versions[0], drafted)


def _with_doubtful(versions: Sequence[RecordBody], draft: ProxiedDraft, start: int) -> RecordBody:
    """The live version with what doubtful ones appended: the application may hold all of it."""
    values: dict[str, tuple[TokenizedValue, ...]] = {}
    for name in draft.appended:
        live = versions[0].values.get(name, ())
        tokens = {one.token for one in live}
        others = {one.token: one for body in versions[1:] for one in body.values.get(name, ())}
        values[name] = (*live, *(one for token, one in others.items() if token not in tokens))
    return adopt(versions[0], values, start) if len(versions) > 1 else versions[0]


async def _follow(
    collection: Collection, row: Row | None, key: str, draft: ProxiedDraft, first: StagedWrite
) -> StagedWrite:
    """Stage a record that takes the tokens of the first one in place of its own."""
    versions = await collection.versions(row) if row is not None else []
    start = next_generation(versions)
    base = versions[0] if versions else RecordBody({})
    taken: dict[str, tuple[TokenizedValue, ...]] = {}
    for name, values in first.tokens.items():
        if name in first.own and tokens_of(base.values.get(name, ())) == tokens_of(values):
            # a token that is alike in many records came back: each keeps its own value
            taken[name] = base.values[name]
            continue
        taken[name] = tuple(
            TokenizedValue(number, value.text, value.json, value.token, value.token_json)
            for number, value in enumerate(values, start)
        )
        start += len(values)
    if draft.absent_erased:
        base = RecordBody(
            {name: value for name, value in base.values.items() if not draft.erases(name)},
            base.following,
        )
    drafted = Drafted(adopt(base, taken, start), taken, first.own)
    if row is None:
        return _held_new(collection, collection.context.sequence(), drafted, key)
    return _staged_write(collection, row, key, versions[0], drafted)


def _staged_write(
    collection: Collection, row: Row, key: str, live: RecordBody, drafted: Drafted
) -> StagedWrite:
    # Beside a version in doubt even what equals the live one has to be settled: an answer may
    # promote that version meanwhile.
    lasting = collection.expires is not None or live.deleted
    untold = not collection.single.isdisjoint(drafted.tokens)  # it is noted (``written``)
    moves = drafted.content is not live or lasting or row.staged or untold
    sid = collection.context.sequence() if moves else None
    content = drafted.content
    if collection.single and sid is not None:
        written = live.written | dict.fromkeys(drafted.tokens, sid)
        content = replace(content, written=written)
    version, back = (content, drafted.tokens), (drafted.own, drafted.masked)
    return StagedWrite(row.rid, *version, row, live, sid, key, *back, row.salt)


async def _stage(
    collection: Collection, writes: Sequence[StagedWrite], *, shared: bool = False
) -> bool:
    """Write the staged state; ``False`` when a token collides or a row is gone."""
    await refuse_tokens(collection, writes)
    if collection.keeps and any(
        confuses(one.live, one.content, collection.compared) for one in writes
    ):
        return False
    changes: list[Change] = []
    for count, item in enumerate(writes, 1):
        if item.row is None or item.sid is not None or item.content is None:  # it says something
            changes.append(await _staging_change(collection, item, shared=shared))
        if count % BIND_STRIDE == 0 and busy():
            await give_way()
    flight, begun = collection.state.in_flight, []
    for item in writes:
        if item.row is None or item.row.key is None:
            if item.row is not None and item.rid in flight:
                return False  # a nameless record that another update means, too
            begun.append(item.rid)
    begun += [item.sid for item in writes if item.sid is not None]
    flight.update(begun)
    named = {one.rid: one.key for one in writes if one.row is None and one.key is not None}
    collection.state.begun.update(named)
    staged = len(changes)
    if begun and collection.state.replicas is not None:
        changes.append(Underway(begun=tuple(begun)))
    try:
        if changes:
            await collection.store.commit(collection.table, changes)
    except BaseException as error:
        forget_staged(collection, writes)
        if isinstance(error, Conflict):
            return False
        raise
    collection.observe("staged", staged)
    return True


async def _staging_change(collection: Collection, item: StagedWrite, *, shared: bool) -> Change:
    hashes, unique = set[bytes](), set[bytes]()
    if item.content is not None:
        if collection.parts.names:
            collection.parts.check(item.content)
        before = stored_values(item.live)  # a token that comes back has its entry
        hashes, unique = await collection.index_entries(item.tokens, before)
        if shared:
            hashes = {
                collection.token_hash(name, one.token)
                for name, values in item.tokens.items()
                for one in values
            }
            unique = set()
        if item.row is None:
            hashes |= {item.attempt} if item.attempt else set()
            row = collection.new_row(item.content, item.rid, item.salt, item.sealer)
            if collection.parts.names:
                look = collection.parts.hashes
                hashes |= await run_in_thread(item.content.many, look, item.content)
            return Insert(row, tuple(hashes), tuple(unique))
    kind = _DELETE if item.content is None else _UPDATE
    staged = Staged(item.sid or 0, item.rid, kind, collection.clock(), None, False, b"")
    sealer = collection.sealer.record(item.rid, item.salt)
    return StageRow(sealer.staged(staged, item.content, item.keep), tuple(hashes), tuple(unique))


def _full(collection: Collection) -> VaultError:
    collection.observe("shape_full")
    return VaultError(
        Code.SHAPE_FULL,
        f"No free token was found for schema {collection.name!r}: a token shape is nearly full. "
        "Give the field a larger shape in the rule file.",
    )

"""New tokens for the values of records, for applications that store them (specification, "Rehash").

The tokens of a rehash are stored in the sealed body of the record, and large ones are found through
the token index: the newest ones, and earlier ones until they may be forgotten. So ``resolve`` tells
an application with an old token the record, the field, and the newest token. Each token belongs to
the value that it was made of, and ends when that changes.

The record itself does not change: its fields, version and times stay, and so do the tokens that the
proxy has given to an application, which are another thing: the vault itself puts values in their
place.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from proxy.audit.events import EventKind
from proxy.crypto.prf import Prf
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model import ALIASES
from proxy.model.policy import Act
from proxy.model.query import KEY, Equals
from proxy.model.record import Fields, Record, Rehashed, RehashTokens
from proxy.model.schema import BODY, PROFILE_KEY, Value
from proxy.model.values import step
from proxy.storage.changes import Change, Reindex, Replace
from proxy.storage.query import All, Is, Order, Select
from proxy.storage.rows import Row
from proxy.tokenization import Rehasher, Strategy
from proxy.vault.maintenance.rehash_rules import RehashRules, fields_by_rule, selected, value_at
from proxy.vault.records.commit import COMMIT_TRIES, attempt, locked, overtaken
from proxy.vault.records.query import compile_query
from proxy.vault.records.repository import Records
from proxy.vault.records.visibility import RowPolicyCheck, Verified, permitted_rows, undoubted

#: Tokens of one value that are found besides the newest.
MOST_OLD = 16

#: Changes that a rehash commits together with its own, given its result.
RehashExtraChanges = Callable[[Sequence["RehashedRecord"]], Sequence[Change]]


class RehashedRecord(NamedTuple):
    """Result of a rehash of one record."""

    record: Record
    #: the new values by names of rules; ``None``: the record has no value there
    fields: dict[str, Any]


class Resolved(NamedTuple):
    """Value that a token stands for."""

    token: str
    record: Record
    name: str  #: the name of the rule that it was made by
    newest: str  #: the newest token of the same value


class Rehash:
    """Rules with the keys of a schema; makes the tokens of its records.

    ``job``: the run that they are made in.
    """

    def __init__(self, records: Records, rules: RehashRules, dtk: str, job: str = "") -> None:
        self._records = records
        self._rules = rules
        self._dtk = dtk
        self._job = job
        self._makers: dict[str, Rehasher] = {}
        self._digests: dict[str, Prf] = {}

    @property
    def fields(self) -> list[str]:
        """The fields of records that the rules name."""
        names = {field.name for field in self._records.schema.fields}
        return sorted(
            {own if (own := ALIASES.get(name, name)) in names else BODY for name in self._rules}
        )

    def tokens(self, record: Record) -> tuple[RehashTokens, dict[str, Any]]:
        """Return the record's tokens after the rehash, and the new values by names of rules.

        Raises ``VaultError``: ``VALUE_UNFIT`` with a detail for each field whose value its strategy
        does not take; ``UNPROCESSABLE`` where old tokens have to be forgotten first.
        """
        tokens = dict(record.tokens or {})
        fields: dict[str, Any] = {}
        faults: list[Detail] = []
        for name, chosen, value in selected(self._rules, self._records.schema, record.fields):
            fields[name] = None
            if value is None:
                tokens.pop(name, None)
                continue
            try:
                tokens[name] = token = self._mint(name, chosen, value, tokens.get(name))
            except coded(Code.VALUE_UNFIT) as error:
                faults.append(Detail("/rules" + step(name), error.message))
                continue
            fields[name] = fields_by_rule(Value(token.token, token.json))
        if faults:
            raise VaultError(
                Code.VALUE_UNFIT, "A value does not fit the strategy of its field.", tuple(faults)
            )
        return tokens, fields

    def takes(self, record: Record) -> bool:
        """Whether the record gets tokens; those of proxied records are the proxy's."""
        return not self._records.collects(record.key)

    def changes(self, row: Row, before: Record, tokens: RehashTokens) -> list[Change]:
        """Return the changes that give a row these tokens, and leave its version as it is."""
        if tokens == (before.tokens or {}):
            return []
        records = self._records
        sealer = records.collection.sealer
        content = msgspec.structs.replace(sealer.open(row), tokens=tokens or None)
        old, new = records.token_hashes(before.tokens or {}), records.token_hashes(tokens)
        changes: list[Change] = [Replace(sealer.with_body(row, content), row.version)]
        if old != new:
            drop = old - new - records.hashes(before.fields)
            changes.append(Reindex(row.rid, tuple(new - old), tuple(drop)))
        return changes

    def _mint(self, name: str, chosen: Strategy, value: Value, before: Rehashed | None) -> Rehashed:
        digest = self._digest(name, value)
        if before is not None and before.of != digest:
            before = None
        if before is not None and self._job and before.job == self._job:
            return before  # this run has been here
        maker = self._makers.get(name)
        if maker is None:
            context = self._records.collection.context
            keys = context.keyset.rehash_keys(self._dtk, self._records.name, name)
            maker = self._makers[name] = chosen.bind(keys, context.region)
        new = maker(value)
        return Rehashed(
            bytes(digest),
            new.text,
            new.json,
            maker.findable(new),
            self._job,
            _old(before, new.text),
        )

    def _digest(self, name: str, value: Value) -> bytes:
        keyed = self._digests.get(name)
        if keyed is None:
            keyed = self._digests[name] = _digests(self._records, name)
        return _digest(keyed, value)


def _digests(records: Records, name: str) -> Prf:
    """Return the hash that tells the values of one rule apart without storing them."""
    return records.collection.context.keyset.hasher("rehashed value", records.name, name)


def _digest(keyed: Prf, value: Value) -> bytes:
    return keyed(b"%d%b" % (value.json, value.text.encode("utf-8", "surrogatepass")))


def _old(before: Rehashed | None, new: str) -> tuple[str, ...]:
    """Return the tokens that stay besides the new one."""
    if before is None:
        return ()
    old = [text for text in before.old if text != new]
    if before.indexed and before.token != new:
        old.append(before.token)
    if len(old) > MOST_OLD:
        raise VaultError(
            Code.UNPROCESSABLE,
            f"A value has {MOST_OLD} old tokens that are still found: forget those that nobody "
            "holds any more first.",
        )
    return tuple(old)


async def resolve_rehashed(records: Records, tokens: Sequence[str]) -> list[Resolved]:
    """Resolve tokens in their order; a token of equal values resolves to several.

    Raises ``VaultError(CANNOT_OPEN)``.
    """
    collection = records.collection
    hashes = {records.rehashed(token.encode("utf-8", "surrogatepass")): token for token in tokens}
    hits = await collection.store.by_tokens(collection.table, list(hashes))
    rids = tuple({rid for resolved in hits.values() for rid in resolved})
    where = All((permitted_rows(records), Is("@rid", rids)))
    page = await collection.store.select(
        collection.table, Select(where, collection.clock(), counted=False)
    )
    there = Verified(records, records.rights.rows).only([records.open(row) for row in page.rows])
    permitted = await records.permitted(await undoubted(records, page.rows, there))
    opened = {record.rid: record for record in permitted}
    resolved: list[Resolved] = []
    for digest, token in hashes.items():
        for rid in hits.get(digest, ()):
            if rid in opened:
                resolved.extend(_resolved(records, opened[rid], token))
    fields = (KEY, PROFILE_KEY) if resolved else ()
    records.note(EventKind.REVEAL, [one.record.key for one in resolved], fields)
    return resolved


def newest_tokens(
    records: Records, record: Record, wanted: Callable[[str], bool]
) -> dict[str, Any]:
    """The newest tokens of a record's present values, of the ``wanted`` rules, by name."""
    return {
        name: fields_by_rule(Value(token.token, token.json))
        for name, token in (record.tokens or {}).items()
        if wanted(name) and _stands(records, record, name, token)
    }


def digest_of(records: Records, name: str, fields: Fields) -> bytes | None:
    """Return the digest of the value that a rule of this name selects, if the record has one."""
    value = value_at(records.schema, fields, name)
    return None if value is None else _digest(_digests(records, name), value)


def _stands(records: Records, record: Record, name: str, rehashed: Rehashed) -> bool:
    """Whether the value that tokens were made of still is the record's."""
    return digest_of(records, name, record.fields) == rehashed.of


def _resolved(records: Records, record: Record, token: str) -> Iterator[Resolved]:
    """The values of the record that the token stands for."""
    for name, rehashed in (record.tokens or {}).items():
        if not rehashed.indexed or (token != rehashed.token and token not in rehashed.old):
            continue
        if _stands(records, record, name, rehashed):
            yield Resolved(token, record, name, rehashed.token)


async def rehash_profiles(
    records: Records, plan: Rehash, keys: Sequence[str], most: int, closing: RehashExtraChanges
) -> list[RehashedRecord]:
    """Make new tokens for the records that have one of these profile keys, all or none; the older
    records first.

    Raises ``VaultError``: ``UNPROCESSABLE`` for more than ``most`` records; ``CANNOT_OPEN``;
    ``CONFLICT``; as ``Rehash.tokens``.
    """
    for _ in range(COMMIT_TRIES):
        wanted = await _matching(records, keys, most)
        wanted = await _permitted(records, wanted)
        async with locked(records, [row.key for row in wanted if row.key is not None]):
            rows = await _again(records, keys, wanted)
            rehashed, more = _all(plan, rows)
            if await attempt(records, [*more, *closing(rehashed)]):
                records.collection.observe("rehashed", len(rehashed))
                _note_rehashed(records, [one.record.key for one in rehashed], plan.fields)
                return rehashed
    raise overtaken(records)


def _note_rehashed(records: Records, keys: Sequence[str | None], fields: Sequence[str]) -> None:
    """New tokens were committed, and are about to be shown: some strategies tell the value."""
    records.note(EventKind.WRITE, keys, fields)
    if keys:
        records.note(EventKind.REVEAL, keys, (KEY, PROFILE_KEY, *fields))


def _all(
    plan: Rehash, rows: Iterable[tuple[Row, Record]]
) -> tuple[list[RehashedRecord], list[Change]]:
    rehashed: list[RehashedRecord] = []
    more: list[Change] = []
    for row, record in rows:
        if not plan.takes(record):
            continue
        tokens, fields = plan.tokens(record)
        rehashed.append(RehashedRecord(record, fields))
        more.extend(plan.changes(row, record, tokens))
    return rehashed, more


async def _permitted(records: Records, wanted: list[Row]) -> list[Row]:
    """Return the rows that the filter endpoint lets the caller read.

    Raise unless all of them may be changed.
    """
    if records.gate is None:
        return wanted
    readable = await records.readable(wanted)
    await records.permit(Act.WRITE, readable.values())
    return [row for row in wanted if row.rid in readable]


async def _matching(records: Records, keys: Sequence[str], most: int) -> list[Row]:
    collection = records.collection
    query = await compile_query(records, (Equals(PROFILE_KEY, tuple(keys)), *records.rights.rows))
    select = Select(
        query.where, collection.clock(), (Order("@rid"),), limit=most + 1, counted=False
    )
    rows = (await collection.store.select(collection.table, select)).rows
    if len(rows) > most:
        raise VaultError(
            Code.UNPROCESSABLE,
            f"More than {most:,} records have these profile keys: name fewer, or rehash all "
            "records by `domicile rehash`.",
        )
    return rows


async def _again(
    records: Records, keys: Sequence[str], wanted: Sequence[Row]
) -> list[tuple[Row, Record]]:
    """Return the rows under their locks, opened, without those that are gone or match no more."""
    collection = records.collection
    rows = await collection.store.rows(collection.table, [row.rid for row in wanted])
    within, matches = (
        RowPolicyCheck(records),
        Verified(records, (Equals(PROFILE_KEY, tuple(keys)),)),
    )
    current: list[tuple[Row, Record]] = []
    for before in wanted:
        now = rows.get(before.rid)
        if now is None or not collection.alive(now):
            continue
        if records.stored(now, PROFILE_KEY) != records.stored(before, PROFILE_KEY):
            continue
        record = within.open(now)
        if record is not None and matches.only((record,)):
            current.append((now, record))
    return current

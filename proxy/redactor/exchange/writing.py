"""The write side of an exchange: changes are staged, and settled by the answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Concatenate, ParamSpec

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.offload import FEW, discard, each
from proxy.redactor.exchange.bound_operation import BoundOperation, hidden, stored_before
from proxy.redactor.message import RawHeaders, Timing, header
from proxy.redactor.redact import BodyObject, Spot
from proxy.redactor.rules import Verb
from proxy.redactor.words import Absent, Empty, Nulls, OwnMask, OwnToken
from proxy.storage.changes import Conflict
from proxy.vault.body import TokenizedValue
from proxy.vault.collection import Collection
from proxy.vault.proxied import (
    ProxiedDraft,
    Revealed,
    StagedWrite,
    deleted,
    deleted_unknown,
    end_unknown,
    ended_unknown,
    forget_staged,
    merge_duplicates,
    refuse_changed,
    stage_behind,
    staging,
    undecided,
)
from proxy.vault.vault import Vault

_P = ParamSpec("_P")
_Fields = dict[str, tuple[Value, ...]]
_CREATE, _UPDATE = Verb.CREATE, Verb.UPDATE  # looked up several times slower in it
_DIGITS = ("0", "1")  #: tokens of the shapes ``zero`` and ``one`` that are as likely values


class Writing:
    """Staged writes of one exchange. ``close`` must be called in any case; it is idempotent."""

    def __init__(self, joined: BoundOperation, vault: Vault, timing: Timing) -> None:
        self._operation, self._timing = joined.plan.operation, timing
        self.collection, self.notices = joined.collection, joined.notices
        self._vault, self._view, self._cover = vault, joined.view, joined.cover
        self.locks: tuple[bytes, ...] = ()
        self.writes: list[StagedWrite] = []
        #: how the application names the one record, where the request spelled it otherwise
        self.renamed: str | None = None
        self._shared = self._ended = self.untold = False
        self.headers: RawHeaders = ()  #: of the request
        self.named: Sequence[str] = ()  #: the ids of a delete
        self._unknown: Sequence[bytes] = ()  #: of these, those that the vault did not know
        self.refused = set[str]()  #: ids of which the answer says that they were not changed

    async def stage(
        self, items: Sequence[BodyObject], ids: Sequence[str], marks: Sequence[bytes] = ()
    ) -> None:
        """Make the request's changes durable; its one record must have one of ``marks``. Raises
        ``VaultError``; nothing is stored then.
        """
        started = perf_counter()
        try:
            if self._operation.verb is _CREATE:
                lone = len(items) == 1
                drafts = [self._draft(items[0])] if lone else await each(self._draft, items)
                keys = [None] * len(drafts)
                again, label = header(self.headers, b"idempotency-key"), self._operation.label
                attempt = merge_duplicates.attempt_of(self.collection, label, again)
                self.writes = await staging.stage_creates(self.collection, drafts, keys, attempt)
            elif self._operation.verb is _UPDATE:
                await self._stage_updates(items, ids)
            else:
                await self._stage_deletes(ids or [item.id for item in items if item.id is not None])
            if marks and self._operation.verb is not _CREATE:
                refuse_changed(self.collection, self.writes, marks)
            self._timing.stage = perf_counter() - started
        except BaseException:
            try:
                if self.writes:
                    await self.settle(staging.drop_staged, self.writes)
            finally:
                self.close()
            raise

    async def _stage_updates(self, items: Sequence[BodyObject], ids: Sequence[str]) -> None:
        collection = self.collection
        lone = len(items) == 1
        drafts = [self._draft(items[0])] if lone else await each(self._draft, items)
        keys = list(ids) if lone and len(ids) == 1 else self._keys(items, ids)
        await self._lock(keys)
        if self._vault.late:
            await self._vault.catch_up()
        self._shared = len(drafts) == 1 and len(keys) > 1
        if not items:
            self.writes = await staging.stage_unchanged(collection, keys)
        elif self._shared:
            self.writes = await staging.stage_shared(collection, keys, drafts[0])
        else:
            targets = list(zip(keys, drafts, strict=True))
            self.writes = await staging.stage_updates(collection, targets)
        for one in self.writes:
            if one.own or one.masked:
                self._refuse_own_tokens()
                break

    async def _stage_deletes(self, ids: Sequence[str]) -> None:
        await self._lock(ids)
        if self._vault.late:
            await self._vault.catch_up()
        self.named, collection, keep = ids, self.collection, self._operation.keep
        self.writes = await staging.stage_deletes(collection, ids, keep)
        if unknown := list({*ids}.difference([one.key for one in self.writes])):
            self._unknown = end_unknown(collection, unknown)
            self.writes += await stage_behind(collection, unknown, keep)

    def tokens(self, index: int, item: BodyObject) -> list[Value | None]:
        """Return the token of each place of the ``index``-th object; ``None``: leave the place."""
        write = self.writes[0] if self._shared else self.writes[index]
        taken = stored_before(item, write.tokens) if item.appended else {}
        tokens: list[Value | None] = []
        for spot in item.spots:
            name, value = spot.field, spot.value
            if spot.transient:
                tokens.append(self._passing_token(write, name, value))
                continue
            at = taken.get(name, 0)
            if value is not None and (value.text or value.json):
                stored = write.tokens[name][at]
                token: Value | None = Value(stored.token, stored.token_json)
            else:
                token = self._kept_token(write, spot, at)
            if token is not None:
                taken[name] = at + 1
            tokens.append(token)
        return tokens

    def all_tokens(self, items: Sequence[BodyObject]) -> list[list[Value | None]]:
        """The same of all objects."""
        return [self.tokens(index, item) for index, item in enumerate(items)]

    def certain(self, revealed: Revealed) -> set[str] | None:
        """The fields of which this exchange knows more than the vault.

        ``None``: all, for none of its records is in doubt or was changed by another answer, which
        may have shown that it is two. ``revealed``: what the answer shows; records without a key
        may be these.
        """
        rows = [one.row for one in (*revealed.rows, *self.writes) if one and one.row]
        moved = ((one.row, one.sid is not None) for one in self.writes if one.row)
        own = {row.rid: row.version + by for row, by in moved}
        later = any(row.version > own.get(row.rid, row.version) for row in rows)
        if not (revealed.loose or later or any(row.staged for row in rows)):
            return None
        return {name for write in self.writes for name in write.tokens}

    async def settle(
        self,
        change: Callable[Concatenate[Collection, _P], Awaitable[None]],
        *arguments: _P.args,
        **named: _P.kwargs,
    ) -> None:
        """Settle by ``change`` now; if the store is down, retry at every maintenance.

        The application has acted already.
        """
        started, before = perf_counter(), self._timing.settle
        try:
            await change(self.collection, *arguments, **named)
        except (VaultError, Conflict) as error:
            if getattr(error, "code", None) is not Code.VAULT_DOWN:
                forget_staged(self.collection, self.writes)  # an answer that shows it decides
                raise
            self.collection.observe("late")
            again = partial(change, self.collection, *arguments, **named)
            self._vault.later(again, self._keep_locks())
        finally:
            self._timing.settle = before + perf_counter() - started  # of those within as well

    def _keep_locks(self) -> Callable[[], None] | None:
        """Return the later release of the locks, as other owners know no deferred settlements."""
        if self.collection.state.replicas is None:
            return None
        locks, self.locks = self.locks, ()
        return partial(self.collection.state.locks.release, locks)

    async def remove(self) -> None:
        """The application deleted the records, or marked them."""
        await self._overtake(self.named, self.writes)
        if done := [one for one in self.writes if not one.unnamed]:
            await self.settle(deleted, done)

    async def remove_named(self, ids: Sequence[str]) -> None:
        """The application deleted records that its answer alone names, or gives their ids."""

        async def remove(collection: Collection) -> None:
            writes = await staging.stage_deletes(collection, ids, self._operation.keep)
            await deleted(collection, writes)
            await self._overtake(ids, writes)

        if not self.locks:
            await self._lock(ids)
        await self.settle(remove)

    async def rename(self, write: StagedWrite, key: str) -> None:
        """The application names the record otherwise. Nothing, while another request changes it."""
        digest = self.collection.key_hash(key)
        if not await self.collection.state.locks.attempt(digest):
            return
        try:
            await merge_duplicates.rename(self.collection, write.rid, key)
        except VaultError as error:
            if error.code is not Code.VAULT_DOWN:
                raise
            self.collection.observe("late")  # the values are kept, under both names
        finally:
            self.collection.state.locks.release((digest,))

    async def doubt(self, writes: Sequence[StagedWrite], *, answered: bool) -> None:
        """Mark these records as of unknown outcome."""
        self.notices.undecided(undecided(self.collection, writes))
        await self.settle(staging.doubt, writes, answered=answered)

    def close(self) -> None:
        """Let the next writer of these records go on."""
        ended_unknown(self.collection, self._unknown)
        self._ended, locks, self.locks, self._unknown = True, self.locks, (), ()
        if locks:
            self.collection.state.locks.release(locks)
        if len(self.writes) > FEW:
            discard(self.writes)

    async def _overtake(self, ids: Sequence[str], writes: Sequence[StagedWrite]) -> None:
        if unknown := list(set(ids) - {one.key for one in writes}):
            await self.settle(deleted_unknown, unknown, self._operation.keep)

    async def _lock(self, keys: Sequence[str], names: Sequence[bytes] = ()) -> None:
        locks, hash_of = self.collection.state.locks, self.collection.key_hash
        names = names or ([hash_of(keys[0])] if len(keys) == 1 else await each(hash_of, keys))
        names = locks.deleting(names) if self._operation.verb is Verb.DELETE else names
        if len(names) == 1 and locks.take(names[0]):
            self.locks = (names[0],)
        else:
            if self._vault.late:  # it may keep one of them locked
                await self._vault.catch_up()
            self.locks = await locks.acquire(names)

    async def hold(self, names: Sequence[bytes]) -> None:
        """Let other writers of records wait that a create turns out to change, until it ends."""
        if not (self.locks or self._ended):  # after that, who waits for it may have them
            await self._lock((), names)

    def _keys(self, items: Sequence[BodyObject], ids: Sequence[str]) -> list[str]:
        """The ids that an update changes: one for each object, or several for a single one."""
        said = ids or [item.id for item in items if item.id is not None]
        keys = list(dict.fromkeys(said))
        if keys and (len(items) < 2 or len(items) == len(said) == len(keys)):
            return keys
        raise VaultError(
            Code.BAD_REQUEST,
            f"The request matches {self._operation.label}, but it does not say which record of "
            f"{self._operation.entity.name} each of its objects is: send each id, once. Where the "
            "answer alone tells it, the rule says create with response: {id: …}.",
        )

    def _draft(self, item: BodyObject) -> ProxiedDraft:
        request = self._operation.request
        fields: _Fields = {}
        several: dict[str, list[Value]] = {}
        keep: set[str] = set()
        for spot in item.spots:
            value, name = spot.value, spot.field
            if spot.transient:
                pass
            elif value is not None and (value.text or value.json):
                if not fields.get(name):  # nearly always
                    fields[name] = (value,)
                else:
                    several.setdefault(name, [*fields[name]]).append(value)
            elif _keeps(request.nulls, request.empty, value):
                keep.add(name)
            else:
                fields.setdefault(name, ())
        if several:
            fields.update([(name, tuple(values)) for name, values in several.items()])
        if item.emptied:
            self._empty(item.emptied, fields, keep)
        if len(fields) < len(self.collection.declared):
            self._count_absent(item)
        if keep:
            fields = {name: of for name, of in fields.items() if of or name not in keep}
        if self.collection.single:
            self._refuse_several(fields)
        further = item.appended.intersection(fields), self._cover
        erases, declared = request.absent is Absent.ERASE, self.collection.declared - item.appended
        return ProxiedDraft(fields, frozenset(keep), erases, declared, *further)

    def _empty(self, emptied: Mapping[str, Value | None], fields: _Fields, keep: set[str]) -> None:
        """Fields that the request empties by their container: erased, or kept."""
        request = self._operation.request
        for name, nothing in emptied.items():
            if name in fields:
                continue  # another place of the field holds a value
            if _keeps(request.nulls, request.empty, nothing):
                keep.add(name)
            else:
                fields[name] = ()

    def _refuse_several(self, drafted: Mapping[str, Sequence[Value]]) -> None:
        for name in self.collection.single & drafted.keys():
            if len(set(drafted[name])) > 1:
                raise VaultError(
                    Code.VALUE_UNFIT,
                    f"{self._operation.label} carries several values of {name}, whose token "
                    "shape gives all of them the same token: they could not be told apart again. "
                    "Send one, or give the field another token shape.",
                )

    def _count_absent(self, item: BodyObject) -> None:
        operation = self._operation
        if operation.verb is not _CREATE and operation.request.absent is Absent.KEEP:
            return
        present = {spot.field for spot in item.spots} | item.emptied.keys()
        absent = [name for name in operation.entity.fields if name not in present]
        if absent and operation.endpoint.on_error.field_absent == "refuse":
            raise VaultError(
                Code.FIELD_ABSENT,
                f"{operation.label} must carry every field; missing: {', '.join(absent)}.",
            )
        if absent:
            self.collection.observe("field_absent", len(absent))

    def _refuse_own_tokens(self) -> None:
        """Refuse tokens and masks of the record's own in place of values, where they may not be."""
        request = self._operation.request
        own = sorted({name for write in self.writes for name in write.own})
        masked = sorted({name for one in self.writes for name in one.masked})
        strict = [(own, "tokens")] if request.own_token is OwnToken.REFUSE else []
        if self._shared or request.own_mask is OwnMask.REFUSE:
            strict.append((masked, "masks"))
        for names, what in strict:
            if names:
                sent = f"{self._operation.label} was sent {what} in place of values"
                raise VaultError(Code.VALUE_UNFIT, f"{sent}, in: {', '.join(names)}.")
        meant = [
            name
            for name in own
            if any(value.token in _DIGITS for value in self.writes[0].tokens.get(name, ()))
        ]
        if meant:
            raise VaultError(
                Code.VALUE_UNFIT,
                f"{self._operation.label} was sent the number that is the token of: "
                f"{', '.join(meant)}. It may be meant as a "
                "value, which cannot be told from its token; give the field another token shape.",
            )

    def _passing_token(self, write: StagedWrite, name: str, value: Value | None) -> Value | None:
        """For a value that the application compares, or that a later change overwrites: the token
        of that value where the record has it, else one that stands for nothing. A comparison tells
        a caller no value that its view covers.
        """
        if value is None or not (value.text or value.json):
            return None
        view = self._view
        live = write.live.values.get(name, ()) if write.live is not None else ()
        for stored in (*live, *write.tokens.get(name, ())):
            meant = stored.value if view is None else view.visible(name, stored.value)
            if value in (meant, stored.stands_for):
                return stored.stands_for
        if view is not None and view.covers(name):
            raise hidden(self._operation, [name])
        return self.collection.mints[name](value, 0, 0)

    def _kept_token(self, write: StagedWrite, spot: Spot, at: int) -> Value | None:
        """The token of the stored value that a null or empty place keeps, if there is one."""
        request = self._operation.request
        if (
            write.live is None
            or spot.field in write.tokens
            or not _keeps(request.nulls, request.empty, spot.value)
        ):
            return None  # where other values of the field were sent, they are the whole of it
        live: tuple[TokenizedValue, ...] = write.live.values.get(spot.field, ())
        return live[at].stands_for if at < len(live) else None


def _keeps(nulls: Nulls, empty: Empty, value: Value | None) -> bool:
    return nulls is Nulls.KEEP if value is None else empty is Empty.KEEP

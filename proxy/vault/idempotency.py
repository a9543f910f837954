"""Idempotent requests: the first answer is stored with its write, and returned to repetitions.

A caller without an answer sends the same request with the same ``Idempotency-Key`` and gets the
outcome of the first. The answer is stored in the commit of the write (``closing``), so both exist
or neither. Refusals are not stored: nothing was done, and the request may succeed later. A request
without a write stores its answer in a separate commit.

A stored answer is sealed and bound to its caller and request, whose key and content are stored as
keyed hashes only. It is kept for a day, and goes in the commit in which a record that it shows is
deleted, expires or loses a value, or a file of such a record goes. After that only the execution is
known: a repetition is refused, and never executed again.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from proxy.crypto.prf import either
from proxy.errors import Code, VaultError
from proxy.model.schema import Schema
from proxy.storage.changes import Change, Conflict, Remember
from proxy.storage.rows import StoredReply
from proxy.vault.collection import Collection, TableSpec
from proxy.vault.records.commit import repeated
from proxy.vault.vault import Vault

#: Milliseconds for which an answer can be had again.
KEEP = 86_400_000

#: Name of the table for answers of operations that belong to no schema; no schema can have it.
_SYSTEM = "@system"


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """An answer as it was given."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    mark: str = ""  #: of the rights under which it was given
    shows: tuple[str, ...] | None = None  #: keys of the records that it shows; ``None``: not known


class IdempotentRequest:
    """A request under an idempotency key.

    Where ``replay`` or ``gone`` is set it was answered before, and must not be carried out.
    """

    def __init__(
        self, collection: Collection, key: bytes, digest: bytes, replay: Answered | None
    ) -> None:
        self.replay = replay
        self.gone = False  #: whether it was answered before, with an answer that is gone
        self.in_commit = False  #: whether the answer is, or is to be, in the commit of a write
        self._collection = collection
        self._key = key
        self._digest = digest

    def changes(
        self, answer: Answered | None, rids: Sequence[int] = (), *, files: bool = False
    ) -> Sequence[Change]:
        """Return the changes with which a write stores its answer for repetitions.

        ``None``: repetitions learn only that the request was executed. ``rids``: the records that
        it shows, and with ``files`` their files; it goes with them.
        """
        self.in_commit = True
        now = self._collection.clock()
        reply = StoredReply(self._key, now + KEEP, self._digest, b"")
        if answer is not None:
            reply = reply._replace(sealed=self._collection.sealer.reply(reply, _encode(answer)))
        return (Remember(reply, now, tuple(rids), files),)

    async def keep(self, answer: Answered | None, rids: Sequence[int] = ()) -> None:
        """Store the answer in a separate commit.

        Raises ``VaultError(IDEMPOTENCY_CHECK_FAILED)`` if there is one meanwhile.
        """
        try:
            await self._collection.store.commit(
                self._collection.table, self.changes(answer, rids, files=True)
            )
        except Conflict:
            raise repeated() from None


class Replies:
    """The requests with a key under way in this process, and the way to kept answers."""

    def __init__(self) -> None:
        self._running: set[tuple[str, bytes]] = set()

    @asynccontextmanager
    async def once(
        self, collection: Collection, scope: Sequence[str], request: bytes
    ) -> AsyncIterator[IdempotentRequest]:
        """Carry a request out at most once.

        ``scope`` says whose key it is and for what: client, method, path template, path parameters,
        the key. ``request`` is everything that has to be alike in a repetition. Raises
        ``VaultError(IDEMPOTENCY_CHECK_FAILED)`` when the first one is still running, or was another
        request.
        """
        hasher, name = collection.context.keyset.hasher, collection.name
        key = hasher("reply", name)(_encode(scope))
        running = [(collection.table, one) for one in either((key,))]
        if not self._running.isdisjoint(running) or not await _alone(collection, key):
            raise VaultError(
                Code.IDEMPOTENCY_CHECK_FAILED,
                "A request under this idempotency key is being carried out; ask again later.",
            )
        self._running.update(running)
        try:
            digest = hasher("request", name)(request)
            stored = await collection.store.reply(collection.table, key, collection.clock())
            if stored is not None and stored.digest != digest:
                raise VaultError(
                    Code.IDEMPOTENCY_CHECK_FAILED,
                    "This idempotency key was used for another request; use a new one.",
                )
            replay = (
                _decode(collection.sealer.open_reply(stored))
                if stored is not None and stored.sealed
                else None
            )
            one = IdempotentRequest(collection, key, digest, replay)
            one.gone = stored is not None and not stored.sealed
            yield one
        finally:
            self._running.difference_update(running)
            if collection.state.replicas is not None:
                collection.state.locks.release((key,))


async def _alone(collection: Collection, key: bytes) -> bool:
    """Whether no other replica carries that request out."""
    return collection.state.replicas is None or await collection.state.locks.attempt(key)


async def system_collection(vault: Vault) -> Collection:
    """Return the collection of answers to operations that belong to no schema."""
    return await vault.collection(TableSpec(Schema(_SYSTEM, ()), {}, None, addressed=False))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answered).decode

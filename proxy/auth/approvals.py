"""Requests that a second person has to approve: sealed in one note until they are decided or end.

Nothing is carried out by an approval itself. Who has asked sends the same request again; an
approval counts for that request alone, and is used up by it before it is carried out.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from proxy.auth.sealed_notes import SealedNote
from proxy.clock import Clock
from proxy.crypto.client_secrets import new_ident
from proxy.errors import Code, VaultError

#: Requests of one client, and of all, that wait or were decided.
MOST_OF_ONE: Final = 20
MOST_OF_ALL: Final = 500
_TRIES: Final = 5


class ApprovalRequest(NamedTuple):
    """A request as it is compared with those before."""

    operation: str
    environment: str
    client: str
    request: bytes  #: JSON: path, query, content


class Approval(msgspec.Struct, frozen=True):
    """A request, and what became of it. Instants are milliseconds since the epoch."""

    id: str
    operation: str
    environment: str
    client: str  #: that asks
    request: msgspec.Raw
    created_at: int
    ends_at: int  #: it is forgotten then, whatever it says
    state: Literal["pending", "approved", "refused"] = "pending"
    decided_by: str | None = None  #: the client that decided

    @property
    def wanted(self) -> ApprovalRequest:
        """Key by which an equal request finds this approval."""
        return ApprovalRequest(self.operation, self.environment, self.client, bytes(self.request))


_decode = msgspec.json.Decoder(list[Approval]).decode
_encode = msgspec.json.Encoder().encode
_Edit = Callable[[list[Approval]], Iterable[Approval]]


class Approvals:
    """Approvals of one instance. ``load`` before use.

    ``kinds`` of operations need a second person; ``lifetime`` of a request is in milliseconds.
    """

    def __init__(
        self, note: SealedNote, clock: Clock, kinds: frozenset[str], lifetime: int
    ) -> None:
        self.kinds = kinds
        self._note = note
        self._clock = clock
        self._lifetime = lifetime
        self._all: list[Approval] = []
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read them. Raises ``VaultError(CANNOT_OPEN)``."""
        content = await self._note.read()
        self._all = _decode(content) if content else []

    async def read_again(self) -> None:
        """Another process has written them: they count as they are now."""
        async with self._writing:
            await self.load()

    def listed(self) -> list[Approval]:
        """Return the approvals that have not expired, oldest first."""
        now = self._clock()
        return [one for one in self._all if one.ends_at > now]

    async def ask(self, wanted: ApprovalRequest, *, lasts: bool) -> Approval:
        """Return the state of a request; a new one waits for a decision from now on.

        One that was approved is used up, unless it ``lasts``. Raises
        ``VaultError(TOO_MANY_REQUESTS)``.
        """
        async with self._writing:
            one = next((other for other in self.listed() if other.wanted == wanted), None)
            if one is None:
                one = self._new(wanted)
                await self._change(lambda current: [*current, one])
            elif one.state == "approved" and not lasts:
                await self._change(lambda current: [other for other in current if other != one])
            return one

    async def decide(self, ident: str, by: str, *, approve: bool) -> Approval:
        """Approve or refuse a request that waits. Raises ``VaultError``: NOT_FOUND, CONFLICT."""
        async with self._writing:
            one = self.find(ident)
            if one.state != "pending":
                raise VaultError(Code.CONFLICT, f"The request was {one.state} already.")
            state: Literal["approved", "refused"] = "approved" if approve else "refused"
            decided = msgspec.structs.replace(one, state=state, decided_by=by)
            await self._change(
                lambda current: [decided if other.id == ident else other for other in current]
            )
            return decided

    def find(self, ident: str) -> Approval:
        """The one of that id. Raises ``VaultError(NOT_FOUND)``."""
        for one in self.listed():
            if one.id == ident:
                return one
        raise VaultError(Code.NOT_FOUND, "No request of that id waits: it may have ended.")

    def _new(self, wanted: ApprovalRequest) -> Approval:
        current, now = self.listed(), self._clock()
        own = sum(other.client == wanted.client for other in current)
        if own >= MOST_OF_ONE or len(current) >= MOST_OF_ALL:
            text = "Too many requests wait for an approval: have some of them decided."
            raise VaultError(Code.TOO_MANY_REQUESTS, text)
        return Approval(
            new_ident(),
            wanted.operation,
            wanted.environment,
            wanted.client,
            msgspec.Raw(wanted.request),
            now,
            now + self._lifetime,
        )

    async def _change(self, edit: _Edit) -> None:
        for _ in range(_TRIES):
            current = list(edit(self.listed()))
            if await self._note.written(_encode(current)):
                self._all = current
                return
            await self.load()  # another process was here first
        raise VaultError(Code.CONFLICT, "Others decide at the same moment: try again.")

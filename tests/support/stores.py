"""A wrapper round any store that fails or pauses where a test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast

from proxy.errors import Code, VaultError
from proxy.storage.base import CommitGuard, Replicas, RowTally, Store
from proxy.storage.changes import Change
from proxy.storage.notes import NoteRoot, NoteWrite
from proxy.storage.query import AggregateGroup, Grouping, RowPage, Select
from proxy.storage.rows import File, Past, Row, Staged, StoredReply, TableLayout
from tests.support.patience import PATIENCE

P = ParamSpec("P")
T = TypeVar("T")


def vault_down() -> VaultError:
    """What a store says whose disk is full."""
    return VaultError(Code.VAULT_DOWN, "The disk of the vault's database is full: free some space.")


class AclDecisions:
    """One place where calls wait: ``await gate.reached()`` until one stands there, ``gate.open()``
    lets all through.
    """

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def reached(self) -> None:
        """Until a call has come to the gate."""
        await asyncio.wait_for(self._reached.wait(), PATIENCE)

    def open(self) -> None:
        """Let through who waits and who still comes."""
        self._open.set()

    async def pass_through(self) -> None:
        self._reached.set()
        await self._open.wait()


@dataclass(slots=True)
class _Trap:
    verb: str
    change: type[Any] | None
    skip: int
    times: int | None
    late: bool
    error: Callable[[], Exception] | None = None
    gate: AclDecisions | None = None

    def springs(self, verb: str, changes: Sequence[Change]) -> bool:
        if verb != self.verb or self.times == 0:
            return False
        if self.change is not None and not any(
            isinstance(change, self.change) for change in changes
        ):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True

    async def act(self) -> None:
        if self.gate is not None:
            await self.gate.pass_through()
        if self.error is not None:
            raise self.error()


@dataclass(slots=True)
class FailingStore:
    """A ``Store`` that passes everything on to ``inner``, save where a trap was set.

    ``calls`` lists the verbs used.

    ``fail("commit", change=Bind, skip=1, times=2)``: of the commits that hold a ``Bind``, the first
    goes through, the next two fail. ``late``: the inner store does its work first, and the caller
    is told that it failed (or waits) all the same; that is what a crash between the flush and the
    answer looks like.
    """

    inner: Store
    calls: list[str] = field(default_factory=list)
    _traps: list[_Trap] = field(default_factory=list)

    def fail(
        self,
        verb: str,
        error: Callable[[], Exception] = vault_down,
        *,
        change: type[Any] | None = None,
        skip: int = 0,
        times: int | None = 1,
        late: bool = False,
    ) -> None:
        """Raise ``error()`` at that verb; ``times=None``: until ``mend``."""
        self._traps.append(_Trap(verb, change, skip, times, late, error=error))

    def pause(
        self,
        verb: str,
        *,
        change: type[Any] | None = None,
        skip: int = 0,
        times: int | None = 1,
        late: bool = False,
    ) -> AclDecisions:
        """Hold calls of that verb at a gate."""
        gate = AclDecisions()
        self._traps.append(_Trap(verb, change, skip, times, late, gate=gate))
        return gate

    def mend(self) -> None:
        """Take all traps away; who stands at a gate stays there until it is opened."""
        self._traps.clear()

    @property
    def guard(self) -> CommitGuard | None:
        """That of the inner store."""
        return self.inner.guard

    @guard.setter
    def guard(self, guard: CommitGuard | None) -> None:
        self.inner.guard = guard

    @property
    def at_once(self) -> None:
        """Everything is waited for, so that traps are met."""

    @property
    def replicas(self) -> Replicas | None:
        """Those of the inner store."""
        return self.inner.replicas

    @property
    def root(self) -> NoteRoot | None:
        """That of the inner store."""
        return self.inner.root

    @root.setter
    def root(self, root: NoteRoot | None) -> None:
        self.inner.root = root

    async def close(self) -> None:
        await self._pass(self.inner.close)

    async def ensure(self, layout: TableLayout) -> None:
        await self._pass(self.inner.ensure, layout)

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        await self._pass(self.inner.commit, table, changes)

    async def rows(self, table: str, rids: Sequence[int]) -> dict[int, Row]:
        return await self._pass(self.inner.rows, table, rids)

    async def by_keys(self, table: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        return await self._pass(self.inner.by_keys, table, keys)

    async def by_tokens(self, table: str, hashes: Sequence[bytes]) -> dict[bytes, tuple[int, ...]]:
        return await self._pass(self.inner.by_tokens, table, hashes)

    async def staged(self, table: str, rids: Sequence[int]) -> dict[int, tuple[Staged, ...]]:
        return await self._pass(self.inner.staged, table, rids)

    async def unsettled(
        self, table: str, before: int, limit: int
    ) -> tuple[list[Row], list[Staged]]:
        return await self._pass(self.inner.unsettled, table, before, limit)

    async def expired(self, table: str, now: int, limit: int) -> list[int]:
        return await self._pass(self.inner.expired, table, now, limit)

    async def count(self, table: str) -> tuple[int, int, int]:
        return await self._pass(self.inner.count, table)

    async def select(self, table: str, query: Select) -> RowPage:
        return await self._pass(self.inner.select, table, query)

    async def aggregate(self, table: str, query: Grouping) -> list[AggregateGroup]:
        return await self._pass(self.inner.aggregate, table, query)

    async def scan(self, table: str, after: int, limit: int) -> list[Row]:
        return await self._pass(self.inner.scan, table, after, limit)

    async def past(
        self, table: str, key: bytes, limit: int, offset: int, room: int | None = None
    ) -> tuple[list[Past], int]:
        return await self._pass(self.inner.past, table, key, limit, offset, room)

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        return await self._pass(self.inner.past_scan, table, after, limit)

    async def files(self, table: str, rids: Sequence[int]) -> dict[int, tuple[File, ...]]:
        return await self._pass(self.inner.files, table, rids)

    async def file_scan(self, table: str, after: bytes, limit: int) -> list[File]:
        return await self._pass(self.inner.file_scan, table, after, limit)

    async def reply(self, table: str, key: bytes, now: int) -> StoredReply | None:
        return await self._pass(self.inner.reply, table, key, now)

    async def reply_scan(self, table: str, after: bytes, limit: int) -> list[StoredReply]:
        return await self._pass(self.inner.reply_scan, table, after, limit)

    async def prune(self, table: str, before: int, now: int, limit: int) -> int:
        return await self._pass(self.inner.prune, table, before, now, limit)

    async def keep_tally(self, table: str, tally: RowTally, *, first: bool) -> int | None:
        return await self.inner.keep_tally(table, tally, first=first)

    async def check_tally(self, table: str) -> int | None:
        return await self._pass(self.inner.check_tally, table)

    async def doomed(self, limit: int) -> list[str]:
        return await self._pass(self.inner.doomed, limit)

    async def absolve(self, objects: Sequence[str]) -> None:
        await self._pass(self.inner.absolve, objects)

    async def drop(self, table: str) -> None:
        await self._pass(self.inner.drop, table)

    async def note(self, name: str) -> bytes | None:
        return await self._pass(self.inner.note, name)

    async def put_note(self, name: str, content: bytes, expected: bytes | None) -> None:
        await self._pass(self.inner.put_note, name, content, expected)

    async def put_notes(self, writes: Sequence[NoteWrite]) -> None:
        await self._pass(self.inner.put_notes, writes)

    async def read_notes(self, names: Sequence[str] | None = None) -> dict[str, bytes]:
        return await self._pass(self.inner.read_notes, names)

    async def refresh(self) -> Mapping[str, bytes]:
        return await self._pass(self.inner.refresh)

    async def check_notes(self) -> set[str]:
        return await self._pass(self.inner.check_notes)

    async def notes(self, ending: str) -> list[str]:
        return await self._pass(self.inner.notes, ending)

    async def drop_notes(self, ending: str, kind: type[NoteWrite] = NoteWrite) -> None:
        await self._pass(self.inner.drop_notes, ending)

    async def _pass(
        self, verb: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        name = getattr(verb, "__name__", "")
        self.calls.append(name)
        changes = cast("Sequence[Change]", arguments[1]) if name == "commit" else ()
        sprung = [trap for trap in self._traps if trap.springs(name, changes)]
        for trap in sprung:
            if not trap.late:
                await trap.act()
        answer = await verb(*arguments, **named)
        for trap in sprung:
            if trap.late:
                await trap.act()
        return answer

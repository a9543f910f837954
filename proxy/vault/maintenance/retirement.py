"""Agreement of all replicas before an older key is dropped.

The replica that leads proposes: the note of its job names what it would drop, and a fresh number.
With its maintenance each replica reads that, lets nothing through any more that the older key is
needed for, and writes down the number once all commits that it has accepted before are durable
(``Replicas.agree``). When all have, the leader scans once more. The keyset without the key is
written in a transaction during which no replica joins, and which is refused unless every replica
that can still write has agreed (``AgreedNote``).

So whoever does not agree keeps the key: a replica of a version before this one, one that has yet to
start, and one that hangs, until it is cleared away and can write nothing more. Finds of the last
scan withdraw the proposal. A crash leaves a proposal and agreements, and the next leader goes on.
"""

import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from proxy.errors import VaultError
from proxy.storage.base import Store
from proxy.storage.notes import Agreement
from proxy.vault.job import JobRun, NotedJob

_NUMBER_BITS = 62


class RetirementRun(JobRun, frozen=True, kw_only=True):
    """A run after which older keys are dropped, as its note stores it."""

    retiring: tuple[str, ...] = ()  #: ids of the keys that are proposed to be dropped
    proposal: int = 0  #: number of that proposal; 0: there is none


RetirementT = TypeVar("RetirementT", bound=RetirementRun)


class RetirementJob(NotedJob[RetirementT]):
    """Runs whose last step needs the agreement of all replicas.

    ``linger``: seconds after which no work uses what it has read before.
    """

    def __init__(
        self,
        store: Store,
        note: str,
        of: type[RetirementT],
        report: Callable[[VaultError], None],
        linger: float = 0.0,
    ) -> None:
        super().__init__(store, note, of, report)
        #: the replicas that have not agreed to the proposal, as operators know them
        self.blockers: Sequence[str] = ()
        self._linger = linger
        self._proposal = 0  #: that this replica keeps to
        self._waited = self._last = 0.0

    async def follow_up(self) -> None:
        await super().follow_up()
        if await self.ask_blockers():
            await self._agree()
            await self.ask_blockers()

    async def ask_blockers(self) -> Sequence[str]:
        """Read who has not agreed to the proposal; nobody where there is none."""
        run, replicas = self.run, self._store.replicas
        open_ = run is not None and not set(self._keys).isdisjoint(run.retiring)
        self.blockers = await replicas.disagreeing(self._agreement) if replicas and open_ else ()
        return self.blockers

    @property
    @abstractmethod
    def _keys(self) -> Sequence[str]:
        """The ids of all keys of this kind that this replica has."""

    @abstractmethod
    def _comply(self, run: RetirementT) -> bool:
        """Let nothing through that a retiring key is needed for; ``False``: this replica cannot,
        for it does not write with the key of the run.
        """

    @property
    def _agreement(self) -> Agreement:
        return Agreement(self._note, 0 if self.run is None else self.run.proposal)

    async def _agreed(self) -> Agreement | None:
        """The proposal where there is one and all have agreed to it."""
        agreement = self._agreement
        return agreement if agreement.proposal and not await self.ask_blockers() else None

    async def _agree(self) -> None:
        """Keep to the proposal, and say so once what was under way before has ended.

        Of the time between two calls no more than ``linger`` counts: a process that stood still
        has ended nothing.
        """
        run, replicas = self.run, self._store.replicas
        if run is None or replicas is None or not self._comply(run):
            return
        now = time.monotonic()
        if self._proposal != run.proposal:
            self._proposal, self._waited, self._last = run.proposal, 0.0, now
        self._waited += min(now - self._last, self._linger)
        self._last = now
        if self._waited >= 2 * self._linger:
            await replicas.agree(self._agreement)

    def _proposing(self, run: RetirementT, keys: Sequence[str]) -> RetirementT:
        """The run with the proposal to drop these keys; without any where there are none."""
        retiring = tuple(keys)
        if retiring == run.retiring:
            return run
        number = secrets.randbits(_NUMBER_BITS) + 1 if retiring else 0
        return msgspec.structs.replace(run, retiring=retiring, proposal=number)

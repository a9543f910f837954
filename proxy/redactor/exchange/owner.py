"""The owner's side of exchanges that other processes carry (``owner_protocol``): it has the vault,
keys and audit log, reads and rewrites bodies, stages and settles.

A front that goes away in the middle leaves what it had begun in doubt, as a broken connection to
the application does: both values stay, and a later answer tells.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from proxy.errors import VaultError
from proxy.redactor.exchange.fork_exchange import AnyExchange
from proxy.redactor.exchange.frame_connection import FrameConnection
from proxy.redactor.exchange.owner_connection import OwnerConnection
from proxy.redactor.exchange.owner_fast_path import (
    Begun,
    BoundPlan,
    GeneralWay,
    bound_plan,
    reveal,
    stage_write,
)
from proxy.redactor.exchange.owner_protocol import (
    ROOM,
    Draining,
    Fault,
    HeadersRedacted,
    Redact,
    RedactHeaders,
    Reveal,
    StageWrite,
    longest_body,
    other_rules,
    views_of,
)
from proxy.redactor.exchange.rule_exchange import RuleExchange
from proxy.redactor.exchange.runtime import Runtime, VaultRules
from proxy.redactor.rules import Match, RuleSet
from proxy.telemetry import logs

_log = logs.logger("rules")

#: Seconds that answers without an end, and other long ones, have left when the owner drains:
#: requests that fronts hold back meanwhile must not wait in vain.
_STREAMS: Final = 5.0
#: Versions of rules that are remembered beside the one in force: fronts follow a moment later.
_EARLIER: Final = 4


class OwnerTerms(NamedTuple):
    """Terms that fronts are told at the beginning."""

    country: str
    secret: bytes


class EarlierRules(Protocol):
    """Memory of the rules that fronts use: the next owner has them as well."""

    async def remember(self, rules: RuleSet) -> None:
        """Fronts use these, which are in force. Raises the errors of the store."""

    async def recall(self, version: str) -> Runtime | None:
        """Return those that fronts have used; ``None``: not lately. Raises ``VaultError``."""


class VaultOwner:
    """Answers fronts, whoever they are: the listener has let them in."""

    def __init__(
        self, in_force: VaultRules, terms: OwnerTerms, earlier: EarlierRules | None = None
    ) -> None:
        self._in_force = in_force
        self.terms = terms
        self._earlier = earlier
        self._recalling = asyncio.Lock()
        self._rules: dict[str, Runtime] = {}
        self._planned: Runtime | None = None  #: the rules in force when these were found
        self._plans: dict[tuple[str, int, int], BoundPlan] = {}
        self._fronts: set[OwnerConnection] = set()
        self.servers: list[asyncio.AbstractServer] = []  #: that bring connections
        self._draining = False

    def connection(self, admit: Callable[[asyncio.BaseTransport], bool]) -> FrameConnection:
        """Return what serves a new connection, if it may come from where it does."""
        front = OwnerConnection(self, self._fronts.discard, _nobody if self._draining else admit)
        self._fronts.add(front)
        return front.connection

    def rules(self, version: str) -> Runtime | None:
        """Return the rules of that version: in force, or before."""
        runtime = self._in_force.runtime
        if self._rules.get(runtime.rules.version) is not runtime:
            self._rules.pop(runtime.rules.version, None)
            self._rules[runtime.rules.version] = runtime
            for old in list(self._rules)[: -_EARLIER - 1]:
                del self._rules[old]
        return self._rules.get(version)

    async def knows(self, version: str) -> bool:
        async with self._recalling:  # all fronts come when an owner starts
            try:
                await self._look_for(version)
            except VaultError as error:
                _log.warning("rules that a front uses could not be remembered", fault=error)
        return self.rules(version) is not None

    async def _look_for(self, version: str) -> None:
        runtime = self.rules(version)
        if self._earlier is None:
            return
        if runtime is None and (recalled := await self._earlier.recall(version)) is not None:
            self._rules = {version: recalled, **self._rules}
        elif runtime is not None and runtime is self._in_force.runtime:
            await self._earlier.remember(runtime.rules)

    def exchange(self, job: Redact) -> AnyExchange:
        rules = self.rules(job.rules)
        if rules is None:
            raise other_rules()
        operation = rules.operations[job.operation]
        match = Match(operation, job.params, rules)
        exchange = rules.exchange(match, views_of(operation.endpoint)[job.view])
        if job.began and isinstance(exchange, RuleExchange):
            exchange.began = job.began
        return exchange

    def longest(self) -> int:
        runtimes = (self._in_force.runtime, *self._rules.values())
        return ROOM + max(longest_body(one.rules) for one in runtimes)

    def begin(self, way: GeneralWay, job: Reveal | StageWrite) -> Begun | None:
        """Begin in few steps; ``None``: not ordinary, which was said."""
        if self._planned is not self._in_force.runtime:
            self._planned = self._in_force.runtime
            self._plans.clear()
        scope = job.rules, job.operation, job.view
        bound = self._plans.get(scope)
        if bound is None:
            bound = bound_plan(self._in_force, self.rules(job.rules), *scope[1:])
            if bound is not None:
                self._plans[scope] = bound
        if isinstance(job, StageWrite):
            return stage_write(way, job, bound)
        return reveal(way, job, bound)

    async def redact_headers(self, way: GeneralWay, job: RedactHeaders) -> None:
        try:
            rules = self.rules(job.rules)
            if rules is None:
                raise other_rules()
            of = [one for one in rules.rules.endpoints if one.name == job.endpoint]
            if not of:
                raise other_rules()
            fields = await rules.redact_headers(of[0], job.host, job.headers)
        except VaultError as error:
            way.send(HeadersRedacted(job.n, Fault.of(error)))
            return
        way.send(HeadersRedacted(job.n, None, tuple(fields)))

    async def drain(self, seconds: float) -> None:
        """Let fronts bring to its end what they have begun, for so long at most; those that connect
        from now on get to the next owner, where one accepts at the same sockets.
        """
        self._draining = True
        for server in self.servers:
            server.close()
        self.servers.clear()
        for front in self._fronts:
            front.connection.send(Draining())
        loop = asyncio.get_running_loop()
        now = loop.time()
        ends = (now + seconds, now + min(seconds, _STREAMS))
        while any(  # noqa: ASYNC110  # fronts bring it about
            loop.time() < (ends[0] if front.waited_for else ends[1])
            for front in self._fronts
            if front.waited_for or front.streams
        ):
            await asyncio.sleep(0.01)
        for front in [*self._fronts]:
            front.connection.close()


def _nobody(_: asyncio.BaseTransport) -> bool:
    return False

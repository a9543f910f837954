"""The real upstream: a pool for each address, the one safe retry, the sweeper of deadlines."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, cast

import msgspec

from proxy.net.client_connection import UpstreamConnection
from proxy.net.outgoing_body import Upload
from proxy.net.pool import Pool
from proxy.net.reply import (
    BufferedReply,
    Call,
    CallLimits,
    PendingReply,
    Tunnel,
    UpstreamAddress,
    UpstreamFault,
    UpstreamResponse,
)
from proxy.net.tls import ClientTls, client_context


class Route(NamedTuple):
    """Route to an application."""

    limits: CallLimits = CallLimits()
    #: for ``https``; ``None``: the machine's authorities, and no certificate of ours
    tls: ClientTls | None = None


class HttpUpstream:
    """HTTP/1.1 to any number of applications. Bound to the event loop it is first used in.

    ``special`` has the ways to addresses that differ, by ``Address.special``; ``on_circuit`` learns
    when an address is suspended (true) and when it answers again (false).
    """

    def __init__(
        self,
        limits: CallLimits | None = None,
        tls: ClientTls | None = None,
        special: Mapping[str, Route] | None = None,
        on_circuit: Callable[[UpstreamAddress, bool], None] = lambda _address, _open: None,
    ) -> None:
        self._way = Route(limits or CallLimits(), tls)
        self._special = dict(special or {})
        self._on_circuit = on_circuit
        self._pools: dict[UpstreamAddress, Pool] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        ways = [way.limits for way in (self._way, *self._special.values())]
        shortest = min(
            min(limits.head, limits.idle, limits.keep, limits.total or 60.0) for limits in ways
        )
        self._interval = min(1.0, max(0.02, shortest / 8))
        self._due = 0.0  #: when the sweeper is to come again, in loop time

    def begin(self, call: Call, pending: PendingReply) -> bool:
        pool = self._pools.get(call.address)
        if pool is None or not pool.idle or pool.breaker.engaged:
            return False
        connection = pool.idle.pop()
        poll = connection.poll
        if connection.stale() if poll is None else poll.poll(0):
            connection.retire()
            return False
        pending.call, pending.carrier, pending.watch = call, connection, pool.breaker
        try:
            connection.start(call, pending)
        except Exception as error:  # noqa: BLE001  # raised again in the task that goes on
            pending.set_exception(error)
        return True

    async def send(self, call: Call, pending: PendingReply | None = None) -> UpstreamResponse:
        """See ``UpstreamPort.send``.

        An idle connection with bytes to read is never chosen: it has ended, or the bytes would be
        taken for the answer to a later request. An application may also close it just when it is
        chosen. An idempotent request is then sent again, on a fresh connection; any other is never
        repeated.
        """
        pool = self._pools.get(call.address) or self._pool(call.address)
        breaker = pool.breaker
        # The started exchange was admitted then, so its end must be reported whatever others met.
        tries = (
            breaker.admit(asyncio.get_running_loop().time())
            if breaker.engaged and pending is None
            else False
        )
        try:
            reply = await self._exchange(pool, call, pending)
        except UpstreamFault as fault:
            now = asyncio.get_running_loop().time()
            breaker.failed(fault, now, tried=tries, responsive=pool.responsive(now))
            raise
        except BaseException:
            if tries:
                breaker.left()
            raise
        if breaker.engaged:
            breaker.answered()
        return reply

    @staticmethod
    async def _exchange(
        pool: Pool, call: Call, pending: PendingReply | None = None
    ) -> UpstreamResponse:
        if not isinstance(call.body, (bytes, Upload)):
            upload = await pool.uploads.enter(call.body)
            try:
                return await HttpUpstream._exchange(
                    pool, msgspec.structs.replace(call, body=upload)
                )
            except BaseException:
                upload.leave()
                raise
        while True:
            if pending is not None:
                connection, used = cast("UpstreamConnection", pending.carrier), 1
                answer: Awaitable[UpstreamResponse] = pending.outcome()
                pending = None
            else:
                connection = pool.idle.pop() if pool.idle else await pool.fresh()
                used = connection.served
                if used and connection.stale():
                    connection.retire()
                    continue
                answer = connection.begin(call)
            turn = connection.served
            try:
                return await answer
            except UpstreamFault as fault:
                connection.leave(turn)
                if not (used and call.replayable and fault.silent):
                    raise
            except BaseException:
                connection.leave(turn)
                raise

    def tunnel(self, reply: UpstreamResponse) -> Tunnel:
        connection = reply.connection if isinstance(reply, BufferedReply) else None
        if not isinstance(connection, UpstreamConnection):
            raise TypeError("the reply is not of this upstream")
        return connection

    def _pool(self, address: UpstreamAddress) -> Pool:
        limits = self._special.get(address.special, self._way).limits
        pool = self._pools[address] = Pool(
            address, limits, self._tls(address), partial(self._on_circuit, address)
        )
        if self._sweeper is None:
            self._due = asyncio.get_running_loop().time()
            self._sweep()
        return pool

    def _tls(self, address: UpstreamAddress) -> ClientTls | None:
        tls = self._special.get(address.special, self._way).tls
        return ClientTls(client_context()) if tls is None and address.scheme == "https" else tls

    def renew(self, way: Route, special: Mapping[str, Route]) -> None:
        """Make connections with the TLS of these ways from now on; standing ones, limits stay."""
        self._way, self._special = way, dict(special)
        for address, pool in self._pools.items():
            pool.tls = self._tls(address)

    def _sweep(self) -> None:
        """End exchanges past their deadline, and schedule the next sweep.

        A sweeper that comes much too late means that this process stood still: a machine that was
        moved, an overloaded core. Answers that came meanwhile wait unread; their silence was ours,
        not the application's.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        late = now - self._due
        if late < self._interval:
            late = 0.0
        for pool in self._pools.values():
            pool.sweep(now, late)
        self._due = now + self._interval
        self._sweeper = loop.call_at(self._due, self._sweep)

    def refusal(self, address: UpstreamAddress) -> UpstreamFault | None:
        pool = self._pools.get(address)
        if pool is None or not (pool.breaker.open or pool.line):
            return None
        return pool.refusal(asyncio.get_running_loop().time())

    def suspended(self, address: UpstreamAddress) -> bool:
        """Whether requests to that address are refused, but for one that tries it now and then."""
        pool = self._pools.get(address)
        return pool is not None and pool.breaker.open

    def counts(self, address: UpstreamAddress) -> tuple[int, int]:
        """Connections to that address: busy and idle."""
        pool = self._pools.get(address)
        return (pool.busy, len(pool.idle)) if pool is not None else (0, 0)

    def close(self) -> None:
        """Drop idle connections now, and the others when their exchange ends."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

"""The real upstream: a pool for each address, the one retry that is safe, and the sweeper of deadlines."""

import asyncio
import ssl
from collections.abc import Mapping

from proxy.web.upstream.connection import Connection
from proxy.web.upstream.limits import Limits
from proxy.web.upstream.pool import Pool
from proxy.web.upstream.port import Address, Call, Reply, Tunnel, UpstreamFault
from proxy.web.upstream.reply import BufferedReply
from proxy.web.upstream.tls import client_context


class HttpUpstream:
    """HTTP/1.1 to any number of applications. Bound to the event loop it is first used in."""

    def __init__(self, limits: Limits | None = None, contexts: Mapping[Address, ssl.SSLContext] | None = None) -> None:
        self._limits = limits or Limits()
        self._contexts = dict(contexts or {})
        self._pools: dict[Address, Pool] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        shortest = min(self._limits.head, self._limits.idle, self._limits.keep, self._limits.total or 60.0)
        self._interval = min(1.0, max(0.02, shortest / 8))
        self._due = 0.0  #: when the sweeper is to come again, in loop time

    async def send(self, call: Call) -> Reply:
        """See ``Upstream.send``.

        An application may close an idle connection at the moment it is chosen. A request that means the same when sent
        twice then goes out once more, on a fresh connection. Any other is never sent twice: its connection is asked
        beforehand whether it has ended.
        """
        pool = self._pools.get(call.address) or self._pool(call.address)
        while True:
            connection = pool.idle.pop() if pool.idle else await pool.fresh()
            used = connection.served
            again = call.replayable
            if used and not again and connection.stale():
                connection.retire()
                continue
            answer = connection.begin(call)
            try:
                return await answer
            except UpstreamFault as fault:
                connection.abort()
                if not (used and again and fault.silent):
                    raise
            except BaseException:
                connection.abort()
                raise

    def tunnel(self, reply: Reply) -> Tunnel:
        """See ``Upstream.tunnel``."""
        if not isinstance(reply, BufferedReply) or not isinstance(reply.feed, Connection):
            raise TypeError("the reply is not of this upstream")
        return reply.feed

    def _pool(self, address: Address) -> Pool:
        context = self._contexts.get(address)
        if context is None and address.scheme == "https":
            context = client_context()
        pool = self._pools[address] = Pool(address, self._limits, context)
        if self._sweeper is None:
            self._due = asyncio.get_running_loop().time()
            self._sweep()
        return pool

    def _sweep(self) -> None:
        """End what is over its deadline, and come again.

        A sweeper that comes much too late means that this process stood still: a machine that was moved, an overloaded
        core. Answers that came meanwhile wait unread; their silence was ours, not the application's.
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

    def counts(self, address: Address) -> tuple[int, int]:
        """Connections to that address: busy and idle."""
        pool = self._pools.get(address)
        return (pool.busy, len(pool.idle)) if pool is not None else (0, 0)

    def close(self) -> None:
        """Drop idle connections now, and the others as soon as their exchange is over."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

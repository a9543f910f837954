"""The gateway: each request is shown to the rules, then passed through, redacted, or refused."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Protocol

from proxy.errors import Code, VaultError
from proxy.redactor.rules import Endpoint, Unmatched
from proxy.telemetry.metrics import Metrics
from proxy.web import overriding, writer
from proxy.web.errors import status_of
from proxy.web.forwarding import asked, authority
from proxy.web.matched import Job, Matched, Patience, Rooms
from proxy.web.passing import Passing
from proxy.web.ports import Journal, Rules, Seen
from proxy.web.request_head import Heads
from proxy.web.server import CallerServer, Incoming
from proxy.web.upstream.client import HttpUpstream
from proxy.web.upstream.limits import Limits as UpstreamLimits
from proxy.web.upstream.port import Address, Upstream

_DENIED = "No rule names this request, and the endpoint answers only what its rules name."

_DENY, _REPORT = Unmatched.DENY, Unmatched.REPORT

#: Faults of the application; all others are refusals of the proxy.
_FAILURES = frozenset(
    {
        Code.UPSTREAM_UNREACHABLE,
        Code.UPSTREAM_TIMEOUT,
        Code.UPSTREAM_BROKEN,
        Code.UNREADABLE_ANSWER,
        Code.ANSWER_TOO_LARGE,
    }
)


class UpstreamSettings(Protocol):
    """The settings towards applications; times in milliseconds."""

    @property
    def connect(self) -> int:
        """Until the connection stands."""

    @property
    def head(self) -> int:
        """From the end of the request to the head of the answer."""

    @property
    def idle(self) -> int:
        """Longest silence within a message, either way."""

    @property
    def total(self) -> int:
        """The whole exchange; 0: no limit."""

    @property
    def connections(self) -> int:
        """At most so many at once to one application."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The way to the applications, and bounds towards callers."""

    upstream: Upstream
    heads: Heads = field(default_factory=Heads)
    patience: Patience = field(default_factory=Patience)
    held: int = 256 * 1024 * 1024  #: bytes of bodies that matched exchanges may hold, all together
    met: Callable[[str, Address], None] = lambda _endpoint, _address: None  #: told when an endpoint is first asked for

    @classmethod
    def of(cls, settings: UpstreamSettings, held: int, metrics: Metrics) -> "GatewayOptions":
        """Options for a real upstream whose connections are counted in ``metrics``; ``held`` as the member."""
        upstream = HttpUpstream(
            UpstreamLimits(
                connect=settings.connect / 1000,
                head=settings.head / 1000,
                idle=settings.idle / 1000,
                total=settings.total / 1000,
                connections=settings.connections,
            )
        )

        def met(endpoint: str, address: Address) -> None:
            for place, state in enumerate(("busy", "idle")):
                metrics.watch(
                    "domicile_upstream_connections", partial(_count, upstream, address, place), endpoint, state
                )

        return cls(upstream, held=held, met=met)


def _count(upstream: HttpUpstream, address: Address, place: int) -> float:
    return float(upstream.counts(address)[place])


class Gateway:
    """One per process: ``server`` makes the protocol of each caller's connection."""

    def __init__(self, rules: Rules, journal: Journal, options: GatewayOptions) -> None:
        upstream = options.upstream
        self._rules = rules
        self._journal = journal
        self._passing = Passing(upstream, options.patience.write)
        self._rooms = Rooms.of(options.held, options.patience)
        self._matched = Matched(upstream, options.patience, self._rooms)
        self._met = options.met
        self._upstream = upstream
        self._patience = options.patience
        self._addresses: dict[tuple[str, str], Address] = {}
        self._draining = False
        self.server = CallerServer(
            self.handle,
            options.heads,
            self._unreadable,
        )

    async def handle(self, incoming: Incoming) -> None:
        """Answer one request."""
        if self._draining:
            incoming.close = True
        try:
            fields = asked(incoming.head)
            endpoint = self._route(incoming)
            body = None
            if incoming.head.method.upper() == "POST" and overriding.concerned(self._rules, incoming):
                room = self._rooms.requests
                endpoint, body = await overriding.look(self._rules, incoming, endpoint, self._patience.body, room)
            match = incoming.match
            if endpoint.searched:
                host = authority(incoming.target, incoming.head.host)
                fields = fields._replace(headers=await self._rules.referred(host, fields.headers))
            if match is not None:
                job = Job(fields, match, self._address(endpoint), body)
                await self._matched.carry(incoming, job, self._rules.exchange(match))
            elif endpoint.unmatched is _DENY:
                raise VaultError(Code.OPERATION_DENIED, _DENIED)
            else:
                await self._passing.forward(incoming, fields, self._address(endpoint), body)
            await writer.taken(incoming, self._patience.write)
        except VaultError as error:
            self._refuse(incoming, error)
        except TimeoutError:  # the caller took nothing of its answer
            incoming.cut()
            self._tell(incoming, None)
        except ConnectionError:  # the caller went away; nobody reads an answer any more
            incoming.close = True
            self._tell(incoming, None)
        except asyncio.CancelledError:
            self._tell(incoming, None)
            raise
        except Exception:
            self._tell(incoming, Code.INTERNAL)
            raise
        else:
            self._tell(incoming, None)

    def _route(self, incoming: Incoming) -> Endpoint:
        """Which endpoint and operation the request belongs to. Raises ``VaultError``."""
        head = incoming.head
        method = head.method
        if method == "CONNECT":
            raise VaultError(Code.BAD_REQUEST, "CONNECT is for forward proxies; this one stands before an application.")
        host = authority(incoming.target, head.host)
        endpoint, incoming.match = self._rules.match(method, host, incoming.target, incoming.raw)
        incoming.endpoint = endpoint
        return endpoint

    def _address(self, endpoint: Endpoint) -> Address:
        key = (endpoint.name, endpoint.upstream)
        address = self._addresses.get(key)
        if address is None:
            if len(self._addresses) > 1000:  # rule files come and go
                self._addresses.clear()
            address = self._addresses[key] = Address.parse(endpoint.upstream)
            self._met(endpoint.name, address)
        return address

    # ------------------------------------------------ ends

    def _refuse(self, incoming: Incoming, error: VaultError) -> None:
        """Answer in our own name, or break the connection if the application's answer has begun."""
        if incoming.began:
            incoming.close = True
            incoming.cut()
        else:
            if error.code is Code.BAD_REQUEST:
                incoming.close = True  # where this request ends, too, may be a matter of opinion
            match = incoming.match
            on_error = incoming.endpoint.on_error if incoming.endpoint is not None else None
            status = status_of(error, on_error, match.operation.verb if match is not None else None)
            writer.refuse(incoming, status, error)
        self._tell(incoming, error.code)

    def _tell(self, incoming: Incoming, code: Code | None) -> None:
        """The request is over, in whatever way."""
        if incoming.held is not None:
            incoming.held.close()
        endpoint, match = incoming.endpoint, incoming.match
        if code is not None:
            outcome = "failed" if code in _FAILURES else "refused"
        else:
            outcome = "passed" if match is None else "matched"
        self._journal.seen(
            Seen(
                "-" if endpoint is None else endpoint.name,
                "-" if match is None else match.operation.label,
                incoming.head.method,
                incoming.status,
                incoming.size,
                perf_counter() - incoming.started,
                outcome,
                code,
                match is None and endpoint is not None and endpoint.unmatched is _REPORT,
            )
        )

    def _unreadable(self) -> None:
        """A caller sent what is no request, and was told so."""
        self._journal.seen(Seen("-", "-", "-", 400, 0, 0.0, "refused", Code.BAD_REQUEST))

    # ------------------------------------------------ the end of service

    async def drain(self, seconds: float) -> None:
        """Let requests under way finish, for at most so long; nobody is listened for, idle connections close, busy ones with their answer."""
        self._draining = True
        self._stop_listening()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            for connection in self.server.callers:
                connection.finish()
            if not any(connection.busy for connection in self.server.callers):
                break
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End every connection, to callers and to applications."""
        self._draining = True
        self._stop_listening()
        await asyncio.gather(*(connection.stop() for connection in self.server.callers))
        self._upstream.close()

    def _stop_listening(self) -> None:
        for listener in self.server.listeners:
            listener.close()
        self.server.listeners.clear()

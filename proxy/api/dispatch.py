"""From a request to its operation's handler and back: what every operation has in common, in one
order.

In order: origin (``screen``), rate of its address, authentication, country (``outside``), rate of
its client, authorization, query, type and size of the body, its JSON, idempotency, the handler. The
first failed check answers. So callers without a token learn nothing of the vault, and no unwanted
body is read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final, Protocol, TypeVar, cast

from aiohttp import web

from proxy.api import request as bodies
from proxy.api.access import admit
from proxy.api.connection import STREAMED, DirectAnswer, close_answer, direct, peer, send
from proxy.api.context import (
    Access,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    Services,
    Takes,
    is_repeatable,
)
from proxy.api.cors import ORIGIN, cross_origin_fields
from proxy.api.whole_request import WholeRequest
from proxy.api.wire import error_answer
from proxy.audit.events import AuditContext, EventKind
from proxy.edge.firewall import PASSED_ON, Firewall, Mode, firewall_refusal
from proxy.edge.quotas import LimitedError, ObserveRefusal, limit_fields
from proxy.edge.rate_limit import RateLimit, Verdict
from proxy.errors import Code, Detail, VaultError
from proxy.model.rights import Principal
from proxy.net.client_address import caller_of
from proxy.net.server import FAILED, RequestKey
from proxy.telemetry import logs

# The data firewall of the vault listener: the origin of a request, before anything is revealed, and
# the rights that remain.
#
# It takes two steps, because a policy may admit its clients from outside, or keep them out: the
# address decides first; where a policy could change the verdict, it waits for authentication.

#: Set on requests from outside that were not refused by their address alone.
OUTSIDE: Final = RequestKey("outside", bool)

_CHAIN: Final = PASSED_ON[0]


def screen(request: web.Request, services: Services) -> None:
    """Check where a request comes from.

    Raises ``VaultError`` (OUTSIDE_COUNTRY) where no policy could let the caller in.
    """
    firewall = services.firewall
    if firewall is None or firewall.mode is Mode.OFF or not _outside(request, firewall):
        return
    if firewall.mode is Mode.BLOCK and not any(
        space.policies.masks for space in services.spaces.values()
    ):
        services.screened("blocked")
        raise firewall_refusal()
    request[OUTSIDE] = True


def outside(
    request: web.Request, services: Services, operation: ApiOperation, principal: Principal
) -> bool:
    """Whether a caller that is known now must see nothing in clear.

    Raises ``VaultError`` (OUTSIDE_COUNTRY).
    """
    firewall = services.firewall
    if firewall is None or (firewall.mode is Mode.OFF and not principal.policies):
        return False
    said = services.space(principal).policies.properties(principal.policies).firewall
    if firewall.mode is Mode.OFF:
        if said is None or not _outside(request, firewall):
            return False
    elif OUTSIDE not in request:
        return False
    blocked = said == "block" or (said is None and firewall.mode is Mode.BLOCK)
    if blocked or not operation.abroad:
        services.screened("blocked")
        raise firewall_refusal()
    services.screened("masked")
    return True


def _outside(request: web.Request, firewall: Firewall) -> bool:
    host = peer(request)
    straight = firewall.straight(host)
    if straight is not None:
        return straight
    chain = request.headers.getall(_CHAIN, ())
    return firewall.outside(host, chain, any(name in request.headers for name in PASSED_ON[1:]))


# Rate limits of the vault listener: counted before anything is read, and stated in every answer.

#: How the addresses of operations end that work on many records at once, and how much more one of
#: them weighs.
_MANY: Final = (
    "/batch", "/batch/update", "/batch/delete", "/batchWrite", "/batchDelete", "/aggregate",
    "/export",
)  # fmt: skip
_WEIGHT: Final = 8

_RATE_LIMIT_CHAIN: Final = "X-Forwarded-For"

#: Counts, their keys, and the audience of a refusal.
_Counter = Callable[[str, ObserveRefusal], tuple[RateLimit, Verdict] | None]


def request_weight(operation: ApiOperation) -> int:
    """Return the share of a client's concurrency that a request takes."""
    return _WEIGHT if operation.path.endswith(_MANY) else 1


def count_by_address(request: web.Request, services: Services, fields: dict[str, str]) -> None:
    """Count a request by its origin; ``fields`` of the answer report the limit.

    Raises ``VaultError`` (TOO_MANY_REQUESTS).
    """
    if services.quotas.address is not None:
        near, trusted = peer(request), services.trusted
        host = (
            caller_of(near, request.headers.getall(_RATE_LIMIT_CHAIN, ()), trusted)
            if trusted.holds(near)
            else near
        )
        _count(fields, services.quotas.caller, host, services.limited)


def count_by_client(services: Services, principal: Principal, fields: dict[str, str]) -> None:
    """Count a request by its client; as ``count_by_address``."""
    if services.quotas.credential is not None:
        _count(fields, services.quotas.client, principal.client, services.limited)


def _count(fields: dict[str, str], count: _Counter, key: str, limited: ObserveRefusal) -> None:
    try:
        counted = count(key, limited)
    except LimitedError as error:
        fields.update(limit_fields(*error.counted))
        raise
    if counted is not None:
        fields.update(limit_fields(*counted))


_log = logs.logger("web")

#: The caller of an operation that is open to everybody.
_NOBODY: Final = Principal("", "")

_UNREADABLE: Final = VaultError(Code.BAD_REQUEST, "The request cannot be understood.")

_REPLAYED: Final = "Idempotent-Replayed"

#: Seconds within which the body of a request has to be there; uploads have their own limits.
_BODY_SECONDS: Final = 60.0

#: Bytes of a body without a token: a form with credentials needs a tenth of that.
_STRANGER_BYTES: Final = 16 * 1024


class HasStatus(Protocol):
    """An answer that was made."""

    @property
    def status(self) -> int:
        """Its status."""


_Sent = TypeVar("_Sent", bound=HasStatus)


class OperationDispatcher:
    """An operation, with everything about its requests that is known before one comes."""

    def __init__(self, operation: ApiOperation, services: Services) -> None:
        self.operation = operation
        self.services = services
        self._query_names = frozenset(operation.query)
        self._guarded = operation.access is not Access.OPEN
        self.limit = (
            services.body_limit if self._guarded else min(services.body_limit, _STRANGER_BYTES)
        )
        self.kind = event_kind(operation)
        turns = (
            services.quotas.uploads
            if operation.takes is Takes.STREAM
            else services.quotas.concurrent
        )
        self._turns = turns if self._guarded else None
        self._weight = request_weight(operation)
        self._replayable = is_repeatable(operation)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of aiohttp."""
        return await self._respond(request, send)

    @property
    def direct(self) -> Callable[[WholeRequest], Awaitable[DirectAnswer]]:
        """The same for a request that aiohttp has not read."""
        respond = partial(self._respond, sender=direct)
        return cast("Callable[[WholeRequest], Awaitable[DirectAnswer]]", respond)

    async def _respond(
        self,
        request: web.Request,
        sender: Callable[[web.Request, ApiResponse, Mapping[str, str]], Awaitable[_Sent]],
    ) -> _Sent:
        """Answer a request, whatever happens: an error is a problem document, and a line of the
        audit log. ``sender`` makes what is sent of an answer and its further fields.
        """
        began, operation, services = perf_counter(), self.operation, self.services
        audit = AuditContext(operation.name, self.kind, request.match_info, operation.schema)
        fields: dict[str, str] = {}
        try:
            answer = await self._check_and_run(request, audit, fields)
            if answer.stream is not None:
                request[STREAMED] = operation
            response = await sender(request, answer, fields)
        except VaultError as error:
            response = await sender(request, self.refused(audit, error), fields)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = await sender(request, self.refused(audit, _UNREADABLE), fields)
        except asyncio.CancelledError:
            if not operation.quiet:
                services.audit.broken(audit)
            raise
        except Exception:  # noqa: BLE001  # the one catch-all: what nobody foresaw is told as such, and logged
            _log.exception("a request to the vault failed", method=request.method)
            response = await sender(request, self.refused(audit, FAILED), fields)
        services.observe(operation.name, response.status, perf_counter() - began)
        return response

    def refused(self, audit: AuditContext, fault: VaultError) -> ApiResponse:
        """The answer to a request that failed, with its line in the audit log."""
        operation = self.operation
        refuse = operation.refuse
        answer = error_answer(operation.name, fault) if refuse is None else refuse(fault)
        if not operation.quiet:
            self.services.audit.refused(audit, answer.status, fault.code)
        return answer

    async def _check_and_run(
        self, request: web.Request, audit: AuditContext, fields: dict[str, str]
    ) -> ApiResponse:
        """The answer, after checks that need no body; ``fields`` get what every answer tells."""
        operation, services, quotas = self.operation, self.services, self.services.quotas
        firewall = services.firewall is not None
        if firewall:
            screen(request, services)
        if quotas.address is not None:
            count_by_address(request, services, fields)
        principal, abroad = _NOBODY, False
        if self._guarded:
            principal = await services.access(request)
            if (origin := request.headers.get(ORIGIN)) is not None:
                fields.update(cross_origin_fields(origin, services, principal))
            audit.by, audit.environment = principal.client, principal.environment
            if firewall:
                abroad = outside(request, services, operation, principal)
            if quotas.credential is not None:
                count_by_client(services, principal, fields)
        if not operation.quiet:
            services.audit.ready()
        admit(operation, principal)
        query = _query(request, self._query_names) if request.query_string else {}
        path = request.match_info
        call = ApiRequest(
            operation, services, principal, audit, request, path, query, fields, outside=abroad
        )
        turns = self._turns
        if turns is None:
            return await self._run(call)
        await turns.enter(principal.client, self._weight)
        try:
            return await self._run(call)
        finally:
            turns.leave(principal.client, self._weight)

    async def _run(self, call: ApiRequest) -> ApiResponse:
        """The answer of the handler, after checks of the body, with its line in the audit log."""
        operation, request = self.operation, call.request
        if operation.takes is not Takes.NOTHING:
            bodies.check_media_type(request.headers, operation.takes.value)
            if operation.takes is not Takes.STREAM:
                body = bodies.arrived_body(request, self.limit)
                call.body = await _body(request, self.limit) if body is None else body
                if operation.takes is Takes.JSON:
                    call.content = await bodies.parsed(call.body)
        repeated = False
        if not self._guarded:
            answer = await operation.handler(call)
        else:
            space = self.services.spaces.get(call.principal.environment) or call.space
            with space.catalog.using():
                if self._replayable and "Idempotency-Key" in request.headers:
                    answer = await space.once(call, operation.handler)
                    repeated = _REPLAYED in answer.headers
                else:
                    answer = await operation.handler(call)
        if not operation.quiet:
            try:
                await self.services.audit.answered(
                    call.audit, answer.status, call.rights_to, repeated=repeated
                )
            except BaseException:
                await close_answer(answer)
                raise
        return answer


def event_kind(operation: ApiOperation) -> EventKind:
    """The kind of the line of this operation where its use cases have added no event."""
    if operation.access in (Access.ADMIN, Access.BEARER):
        return EventKind.ADMIN
    if operation.access is Access.OPEN:
        return EventKind.TOKEN
    if operation.reads or operation.method == "GET":
        return EventKind.REVEAL
    return EventKind.DELETE if operation.method == "DELETE" else EventKind.WRITE


def _query(request: web.Request, names: frozenset[str]) -> dict[str, str]:
    """Read the query parameters; raises ``VaultError`` (INVALID_INPUT) with every fault."""
    faults: list[Detail] = []
    query: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in names:
            text = (
                f"Known are: {', '.join(sorted(names))}."
                if names
                else "This operation has no query parameters."
            )
            faults.append(
                Detail("query", f"There is a parameter that this operation does not know. {text}")
            )
        elif name in query:
            faults.append(Detail(name, "This parameter may stand once."))
        query[name] = value
    if faults:
        raise bodies.misfit_query(*dict.fromkeys(faults))
    return query


async def _body(request: web.Request, limit: int) -> bytes:
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await bodies.read_request_body(request, limit)
    except TimeoutError:
        raise VaultError(Code.REQUEST_TIMEOUT, "The body did not arrive in time.") from None
    except (web.RequestPayloadError, OSError):
        raise VaultError(Code.BAD_REQUEST, "The body ended before it was complete.") from None

"""From a request to its operation's handler and back: what every operation has in common, in one
order.

From where, and how often (``screening``, ``limiting``); who calls; what it may call; the query;
type and size of the body; its JSON; idempotency; the handler. The first check that fails answers,
so that nobody without a token learns what the vault has, and nothing is read that is not wanted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web
from multidict import CIMultiDict

from proxy.api import request as bodies
from proxy.api.access import admit
from proxy.api.connection import peer, unsent
from proxy.api.context import (
    Access,
    ApiOperation,
    ApiRequest,
    ApiResponse,
    Services,
    Takes,
    is_repeatable,
)
from proxy.api.cors import CORS_FIELDS, allow_origin
from proxy.audit.events import AuditContext, EventKind
from proxy.edge.firewall import PASSED_ON, Firewall, Mode, firewall_refusal
from proxy.edge.limits import LimitedError, ObserveRefusal, limit_fields
from proxy.edge.rate_limit import Rates, Verdict
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import Principal
from proxy.net.client_address import caller_of
from proxy.net.server import RequestKey
from proxy.telemetry import logs

# The data firewall on the vault listener: where a request comes from, before anything is told, and
# what that leaves of it.
#
# Two steps, because a policy may let its clients in from outside, or keep them out: the address
# alone decides first; where a policy could change that, the verdict waits until it is known who
# calls.


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
    said = services.space(principal).policies.standing(principal.policies).firewall
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


# The limits on how often somebody may ask, on the vault listener: counted before anything is read,
# shown in every answer.


#: How the addresses of operations end that work on many records at once, and how much more one of
#: them weighs.
_MANY: Final = (
    "/batch",
    "/batch/update",
    "/batch/delete",
    "/batchWrite",
    "/batchDelete",
    "/aggregate",
    "/export",
)
_WEIGHT: Final = 8

_RATE_LIMIT_CHAIN: Final = "X-Forwarded-For"

_Count = Callable[[str, ObserveRefusal], tuple[Rates, Verdict] | None]

#: What was counted for a request, for the fields of its answer.
RATE_VERDICT: Final = RequestKey("counted", tuple[Rates, Verdict])


def request_weight(operation: ApiOperation) -> int:
    """How much of what a client may have under way a request takes."""
    return _WEIGHT if operation.path.endswith(_MANY) else 1


def by_address(request: web.Request, services: Services) -> None:
    """Count a request by where it comes from. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
    if services.quotas.address is not None:
        near, trusted = peer(request), services.trusted
        host = (
            caller_of(near, request.headers.getall(_RATE_LIMIT_CHAIN, ()), trusted)
            if trusted.holds(near)
            else near
        )
        _note(request, services.quotas.caller, host, services.limited)


def by_client(request: web.Request, services: Services, principal: Principal) -> None:
    """Count a request by its client. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
    if services.quotas.credential is not None:
        _note(request, services.quotas.client, principal.client, services.limited)


def rate_limit_fields(request: web.Request) -> Mapping[str, str]:
    """The rate-limit header fields of an answer; none where nothing was counted."""
    counted = request.get(RATE_VERDICT)
    return {} if counted is None else limit_fields(*counted)


def _note(request: web.Request, count: _Count, key: str, limited: ObserveRefusal) -> None:
    try:
        counted = count(key, limited)
    except LimitedError as error:
        request[RATE_VERDICT] = error.counted
        raise
    if counted is not None:
        request[RATE_VERDICT] = counted


_log = logs.logger("web")

#: The operation that a request reached, for the error table; set before anything can fail.
OPERATION_KEY: Final = RequestKey("operation", ApiOperation)

#: What the audit log tells of the request; absent where it tells nothing.
AUDIT_KEY: Final = RequestKey("audit", AuditContext)

#: The caller of an operation that is open to everybody.
_NOBODY: Final = Principal("", "")

_REPLAYED: Final = "Idempotent-Replayed"

#: Seconds within which the body of a request has to be there; uploads have their own limits.
_BODY_SECONDS: Final = 60.0

#: Seconds within which a reader has to take a piece of an answer: what it does not take stays in
#: memory.
_PIECE_SECONDS: Final = 30.0

#: Bytes of a body that somebody may send without a token: a form with credentials, which is a tenth
#: of it.
_STRANGER_BYTES: Final = 16 * 1024

#: Fields of every answer: none is cached, none has its type guessed.
_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Server": "domicile",
    "X-Content-Type-Options": "nosniff",
}


def operation_handler(
    operation: ApiOperation, services: Services
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The aiohttp handler of an operation."""
    return _Served(operation, services).handle


class _Served:
    """One operation, with all that can be known of its requests before one comes."""

    def __init__(self, operation: ApiOperation, services: Services) -> None:
        self._operation = operation
        self._services = services
        self._query_names = frozenset(operation.query)
        self._guarded = operation.access is not Access.OPEN
        self._limit = (
            services.body_limit if self._guarded else min(services.body_limit, _STRANGER_BYTES)
        )
        self._kind = event_kind(operation)
        turns = (
            services.quotas.uploads
            if operation.takes is Takes.STREAM
            else services.quotas.concurrent
        )
        self._turns = turns if self._guarded else None
        self._weight = request_weight(operation)
        self._replayable = is_repeatable(operation)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, or raise ``VaultError``."""
        operation, services = self._operation, self._services
        request[OPERATION_KEY] = operation
        audit = AuditContext(operation.name, self._kind, request.match_info, operation.schema)
        if not operation.quiet:
            request[AUDIT_KEY] = audit
        screen(request, services)
        by_address(request, services)
        principal, abroad = _NOBODY, False
        if self._guarded:
            principal = await services.access(request)
            allow_origin(request, services, principal)
            audit.by, audit.environment = principal.client, principal.environment
            abroad = outside(request, services, operation, principal)
            by_client(request, services, principal)
        if not operation.quiet:
            services.audit.ready()
        admit(operation, principal)
        query = _query(request, self._query_names) if request.query_string else {}
        call = ApiRequest(
            operation,
            services,
            principal,
            audit,
            request,
            request.match_info,
            query,
            outside=abroad,
        )
        turns = self._turns
        if turns is None:
            return await send(request, await self._carried(call))
        await turns.enter(principal.client, self._weight)
        try:
            answer = await self._carried(call)
        finally:
            turns.leave(principal.client, self._weight)
        return await send(request, answer)

    async def _carried(self, call: ApiRequest) -> ApiResponse:
        """The answer of the handler, with its line in the audit log."""
        operation, request = self._operation, call.request
        if operation.takes is not Takes.NOTHING:
            bodies.check_media_type(request, operation.takes.value)
            if operation.takes is not Takes.STREAM:
                call.body = await _body(request, self._limit)
                if operation.takes is Takes.JSON:
                    call.content = await bodies.parsed(call.body)
        repeated = False
        if not self._guarded:
            answer = await operation.handler(call)
        else:
            space = call.space
            with space.catalog.using():
                if self._replayable and "Idempotency-Key" in request.headers:
                    answer = await space.once(call, operation.handler)
                    repeated = _REPLAYED in answer.headers
                else:
                    answer = await operation.handler(call)
        if not operation.quiet:
            try:
                await self._services.audit.answered(
                    call.audit, answer.status, call.rights_to, repeated=repeated
                )
            except BaseException:
                await _close(answer)
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
        raise VaultError(
            Code.INVALID_INPUT, "The query parameters do not fit.", tuple(dict.fromkeys(faults))
        )
    return query


async def _body(request: web.Request, limit: int) -> bytes:
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await bodies.read_request_body(request, limit)
    except TimeoutError:
        raise VaultError(Code.REQUEST_TIMEOUT, "The body did not arrive in time.") from None
    except (web.RequestPayloadError, OSError):
        raise VaultError(Code.BAD_REQUEST, "The body ended before it was complete.") from None


async def send(request: web.Request, answer: ApiResponse) -> web.StreamResponse:
    """The response of an answer; a streamed one is sent here."""
    headers: CIMultiDict[str] = CIMultiDict(_ALWAYS)
    if answer.headers:
        headers.update(answer.headers)
    if (crossed := request.get(CORS_FIELDS)) is not None:
        headers.update(crossed)
    headers.update(rate_limit_fields(request))
    if answer.body or answer.stream is not None:
        headers.setdefault("Content-Type", answer.media_type)
    if answer.stream is None:
        response = web.Response(status=answer.status, body=answer.body or None, headers=headers)
        if unsent(request):
            response.force_close()
        return response
    return await _stream(request, answer, headers)


async def _stream(
    request: web.Request, answer: ApiResponse, headers: CIMultiDict[str]
) -> web.StreamResponse:
    stream: Any = answer.stream
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.length
    try:
        await response.prepare(request)
        if request.method != "HEAD":
            await _written(response, stream)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        raise  # the reader has gone
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except (
        Exception
    ):  # after the head nothing else can be answered: the connection breaks, so that it shows
        if not response.prepared:
            raise
        _log.exception("an answer broke off", operation=request[OPERATION_KEY].name)
        if request.transport is not None:
            request.transport.abort()
    finally:
        await _close(answer)  # a reader that went away must not leave a file open
    return response


async def _written(response: web.StreamResponse, stream: Any) -> None:
    async for piece in stream:
        async with asyncio.timeout(_PIECE_SECONDS):
            await response.write(piece)


async def _close(answer: ApiResponse) -> None:
    """Let go of what an answer has not sent."""
    if (close := getattr(answer.stream, "aclose", None)) is not None:
        await close()

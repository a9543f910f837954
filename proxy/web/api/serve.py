"""From a request to its operation's handler and back: what every operation has in common, in one order.

From where, and how often (``screening``, ``limiting``); who calls; what it may call; the query; type and size of the body; its
JSON; idempotency; the handler. The first check that fails answers, so that nobody without a token learns what the vault has, and
nothing is read that is not wanted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from multidict import CIMultiDict

from proxy.audit.members import Event
from proxy.errors import Code, Detail, VaultError
from proxy.telemetry import logs
from proxy.web.api import bodies
from proxy.web.api.access import not_admin
from proxy.web.api.auditing import NOBODY, Page
from proxy.web.api.crossing import CROSSING, crossing
from proxy.web.api.expecting import unsent
from proxy.web.api.limiting import by_address, by_client, told, weight
from proxy.web.api.operation import Access, Answer, Call, Operation, Services, Takes, is_repeatable
from proxy.web.api.screening import outside, screen

_log = logs.logger("web")

#: The operation that a request reached, for the error table; set before anything can fail.
OPERATION: Final = web.RequestKey("operation", Operation)

#: What the audit log tells of the request; absent where it tells nothing.
PAGE: Final = web.RequestKey("page", Page)

_REPLAYED: Final = "Idempotent-Replayed"

#: Seconds within which the body of a request has to be there; uploads have their own limits.
_BODY_SECONDS: Final = 60.0

#: Seconds within which a reader has to take a piece of an answer: what it does not take stays in memory.
_PIECE_SECONDS: Final = 30.0

#: Bytes of a body that somebody may send without a token: a form with credentials, which is a tenth of it.
_STRANGER_BYTES: Final = 16 * 1024

#: Fields of every answer: nobody keeps what came out of a vault, nor guesses what it is.
_ALWAYS: Final = {"Cache-Control": "no-store", "Server": "domicile", "X-Content-Type-Options": "nosniff"}


def serve(operation: Operation, services: Services) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The aiohttp handler of an operation."""
    return _Served(operation, services).handle


class _Served:
    """One operation, with all that can be known of its requests before one comes."""

    def __init__(self, operation: Operation, services: Services) -> None:
        self._operation = operation
        self._services = services
        self._known = frozenset(operation.query)
        self._guarded = operation.access is not Access.OPEN
        self._limit = services.body_limit if self._guarded else min(services.body_limit, _STRANGER_BYTES)
        self._event = event_of(operation)
        turns = services.quotas.uploads if operation.takes is Takes.STREAM else services.quotas.concurrent
        self._turns = turns if self._guarded else None
        self._weight = weight(operation)
        self._replayable = is_repeatable(operation)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request, or raise ``VaultError``."""
        operation, services = self._operation, self._services
        request[OPERATION] = operation
        page = None
        if self._event is not None:
            page = request[PAGE] = Page(operation.name, self._event, request.match_info, operation.schema)
        screen(request, services)
        by_address(request, services)
        principal, abroad = NOBODY, False
        if self._guarded:
            principal = await services.access(request)
            crossing(request, services, principal)
            if page is not None:
                page.principal = principal
            abroad = outside(request, services, operation, principal)
            by_client(request, services, principal)
        if page is not None:
            services.audit.ready()
        if operation.access is Access.ADMIN and not principal.admin:
            raise not_admin()
        query = _query(request, self._known) if request.query_string else {}
        call = Call(operation, services, principal, request, request.match_info, query, outside=abroad)
        turns = self._turns
        if turns is None:
            return await send(request, await self._carried(call, page))
        await turns.enter(principal.client, self._weight)
        try:
            answer = await self._carried(call, page)
        finally:
            turns.leave(principal.client, self._weight)
        return await send(request, answer)

    async def _carried(self, call: Call, page: Page | None) -> Answer:
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
        if page is not None:
            try:
                await self._services.audit.answered(page, answer.status, call.rights_to, repeated=repeated)
            except BaseException:
                await _close(answer)
                raise
        return answer


def event_of(operation: Operation) -> Event | None:
    """What a line of this operation tells where its use cases have noted nothing; ``None``: it leaves no lines."""
    if operation.quiet:
        return None
    if operation.access is Access.ADMIN:
        return Event.ADMIN
    if operation.access is Access.OPEN:
        return Event.TOKEN
    if operation.reads or operation.method == "GET":
        return Event.REVEAL
    return Event.DELETE if operation.method == "DELETE" else Event.WRITE


def _query(request: web.Request, known: frozenset[str]) -> dict[str, str]:
    """The query parameters, each known and there once; else ``VaultError`` (INVALID_INPUT) that names every fault."""
    faults: list[Detail] = []
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in known:
            text = f"Known are: {', '.join(sorted(known))}." if known else "This operation has no query parameters."
            faults.append(Detail("query", f"There is a parameter that this operation does not know. {text}"))
        elif name in found:
            faults.append(Detail(name, "This parameter may stand once."))
        found[name] = value
    if faults:
        raise VaultError(Code.INVALID_INPUT, "The query parameters do not fit.", tuple(dict.fromkeys(faults)))
    return found


async def _body(request: web.Request, limit: int) -> bytes:
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await bodies.read(request, limit)
    except TimeoutError:
        raise VaultError(Code.REQUEST_TIMEOUT, "The body did not arrive in time.") from None
    except (web.RequestPayloadError, OSError):
        raise VaultError(Code.BAD_REQUEST, "The body ended before it was complete.") from None


async def send(request: web.Request, answer: Answer) -> web.StreamResponse:
    """The response of an answer; a streamed one is sent here."""
    headers: CIMultiDict[str] = CIMultiDict(_ALWAYS)
    if answer.headers:
        headers.update(answer.headers)
    if (crossed := request.get(CROSSING)) is not None:
        headers.update(crossed)
    headers.update(told(request))
    if answer.body or answer.stream is not None:
        headers.setdefault("Content-Type", answer.media_type)
    if answer.stream is None:
        response = web.Response(status=answer.status, body=answer.body or None, headers=headers)
        if unsent(request):
            response.force_close()
        return response
    return await _stream(request, answer, headers)


async def _stream(request: web.Request, answer: Answer, headers: CIMultiDict[str]) -> web.StreamResponse:
    stream: Any = answer.stream
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = answer.length
    try:
        await response.prepare(request)
        if request.method != "HEAD":
            await _written(response, stream)
        await response.write_eof()
    except (ConnectionError, asyncio.CancelledError):
        raise  # nobody reads any more
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except Exception:  # after the head nothing else can be answered: the connection breaks, so that it shows
        if not response.prepared:
            raise
        _log.exception("an answer broke off", operation=request[OPERATION].name)
        if request.transport is not None:
            request.transport.abort()
    finally:
        await _close(answer)  # a reader that went away must not leave a file open
    return response


async def _written(response: web.StreamResponse, stream: Any) -> None:
    async for piece in stream:
        async with asyncio.timeout(_PIECE_SECONDS):
            await response.write(piece)


async def _close(answer: Answer) -> None:
    """Let go of what an answer has not sent."""
    if (close := getattr(answer.stream, "aclose", None)) is not None:
        await close()

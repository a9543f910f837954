"""The application behind the vault listener: the routes of the one table, and the one place that catches everything."""

import asyncio
from time import perf_counter
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_protocol import RequestHandler

from proxy.errors import Code, VaultError
from proxy.telemetry import logs
from proxy.web.api.errors import refused
from proxy.web.api.limiting import by_address
from proxy.web.api.operation import Answer, Operation, Services
from proxy.web.api.operations import OPERATIONS
from proxy.web.api.screening import screen
from proxy.web.api.serve import OPERATION, PAGE, send, serve

_log = logs.logger("web")

#: The older name of the interface for frontends; its operations are the same (specification, "Model-based family").
_API: Final = "/api/"
_ALIAS: Final = "/webapi/"

#: A country in a path; ``/api/records/batch/…`` has addresses of its own.
_COUNTRY: Final = "{country:(?!batch/)[^/]+}"

#: Seconds that a new connection has to send the head of its first request. The library itself waits for ever.
_HEAD_SECONDS: Final = 30.0

#: Seconds for which a connection without a request is kept, and for which a body that nobody wants may go on arriving.
_KEEP_SECONDS: Final = 75.0
_LINGER_SECONDS: Final = 5.0

_FAILED: Final = VaultError(Code.INTERNAL, "The vault failed; its log names the place.")


def vault_app(services: Services, operations: tuple[Operation, ...] = OPERATIONS) -> web.Application:
    """The interface as an application; ``operations`` are those of the table unless a test has its own."""
    services.operations = operations
    app = web.Application(middlewares=[_watched(services), _outermost(services)], client_max_size=services.body_limit)
    for operation in operations:
        handler = serve(operation, services)
        path = operation.path.replace("{country}", _COUNTRY)
        app.router.add_route(operation.method, path, handler)
        if operation.method == "GET":
            app.router.add_route("HEAD", path, handler)
        if path.startswith(_API):
            app.router.add_route(operation.method, _ALIAS + path.removeprefix(_API), handler)
    return app


def _watched(services: Services) -> Middleware:
    """Counts every request that reached an operation."""

    @web.middleware
    async def watched(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = perf_counter()
        if isinstance(request.protocol, VaultConnection):
            request.protocol.heard()
        response = await handler(request)
        if (operation := request.get(OPERATION)) is not None:
            services.observe(operation.name, response.status, perf_counter() - began)
        return response

    return watched


def _outermost(services: Services) -> Middleware:
    """Every error becomes a problem document here, and here alone; and each is told to the audit log."""

    @web.middleware
    async def outermost(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except VaultError as error:
            fault = error
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return await send(request, _unreached(request, services, error))
        except asyncio.CancelledError:
            if (page := request.get(PAGE)) is not None:
                services.audit.broken(page)
            raise
        except Exception:  # noqa: BLE001  # the one catch-all: what nobody foresaw is told as such, and logged
            _log.exception("a request to the vault failed", method=request.method)
            fault = _FAILED
        answer = _refusal(request.get(OPERATION), fault)
        if (page := request.get(PAGE)) is not None:
            services.audit.refused(page, answer.status, fault.code)
        return await send(request, answer)

    return outermost


def _unreached(request: web.Request, services: Services, error: web.HTTPException) -> Answer:
    """The answer to a request that no operation takes; whoever is outside is not even told that."""
    try:
        screen(request, services)
        by_address(request, services)
    except VaultError as fault:
        return refused("", fault)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        answer = refused("", VaultError(Code.METHOD_NOT_ALLOWED, f"This address takes {allowed}."))
        return answer._replace(headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        return refused("", VaultError(Code.NOT_FOUND, "There is nothing at this address; /docs lists what there is."))
    return refused("", VaultError(Code.BAD_REQUEST, "The request cannot be understood."))


def _refusal(operation: Operation | None, fault: VaultError) -> Answer:
    if operation is not None and operation.refuse is not None:
        return operation.refuse(fault)
    return refused("" if operation is None else operation.name, fault)


class VaultConnection(RequestHandler):
    """A connection whose bytes may be no HTTP at all: the answer to them is a problem document, too, and quotes nothing.

    Compressed bodies stay as they are, so that they can be refused by their size and kind.
    """

    __slots__ = ("waiting",)

    def __init__(self, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast(Any, None),  # requests are not listed: their paths hold keys of people
            keepalive_timeout=_KEEP_SECONDS,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
        )
        self.waiting: asyncio.TimerHandle | None = None  #: ends the connection unless a request comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller is there, and has to ask for something in time."""
        super().connection_made(transport)
        self.waiting = asyncio.get_running_loop().call_later(_HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The caller has gone."""
        self.heard()
        super().connection_lost(exc)

    def heard(self) -> None:
        """A request came; from now on the library watches the time itself."""
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer. What the library refuses before any operation is asked (an unknown ``Expect``) quotes the request."""
        if isinstance(resp, web.HTTPException):
            resp = self.handle_error(request, 400)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        del request, message
        if status >= 500:
            self.log_exception("unhandled", exc_info=exc)
        fault = VaultError(Code.BAD_REQUEST, "This is not HTTP as it is understood here.") if status < 500 else _FAILED
        answer = refused("", fault)
        response = web.Response(
            status=answer.status, body=answer.body, headers={"Content-Type": answer.media_type, "Server": "domicile"}
        )
        response.force_close()
        return response

"""The application behind the vault listener: the routes of the one table, and what else answers."""

import re
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from proxy.api.connection import LOCAL, NOT_LOCAL, peer, send
from proxy.api.context import ApiOperation, ApiResponse, Services
from proxy.api.cors import preflight
from proxy.api.dispatch import OperationDispatcher, count_by_address, screen
from proxy.api.operation_table import OPERATIONS
from proxy.api.prompt import prompt_reads
from proxy.api.whole_request import Answering, Direct, WholeRequests
from proxy.api.wire import error_answer
from proxy.errors import Code, VaultError
from proxy.telemetry.logs import REQUEST_ID
from proxy.telemetry.tracing import accepted_id

_REQUEST_ID: Final = "X-Request-Id"

#: The older name of the interface for frontends; its operations are the same (specification,
#: "Model-based family").
_API: Final = "/api/"
_ALIAS: Final = "/webapi/"

#: Where the model-based family is, and its addresses that no reading changes: without escapes, and
#: without ``.`` and ``..``.
_MODELS: Final = "/api/models"
_UNESCAPED: Final = re.compile(rf"{_MODELS}/([\w~-][\w.~-]*(?:/[\w~-][\w.~-]*)*)", re.ASCII)
_Shape = tuple[list[tuple[int, str]], list[tuple[int, str]], web.AbstractRoute]

#: The most frequent routes come first, for aiohttp tries them in order. In the table
#: ``export_records`` stands before ``read_record``, whose path fits it as well.
_OFTEN: Final = frozenset({"find_records", "export_records", "read_record", "create_record"})

#: Those of them whose requests need not be read by aiohttp (``whole_request``).
_DIRECT: Final = _OFTEN - {"export_records"}

#: A country in a path; ``/api/records/batch/…`` and ``/api/records/rehash/…`` are no countries.
_COUNTRY: Final = "{country:(?!(?:batch|rehash)/)[^/]+}"


def vault_app(
    services: Services, operations: tuple[ApiOperation, ...] = OPERATIONS, hsts: int = 0
) -> web.Application:
    """Build the interface as an application.

    ``operations`` are those of the table unless a test has its own; ``hsts`` are the seconds for
    which browsers shall use TLS alone (RFC 6797).
    """
    services.operations = operations
    app = web.Application(client_max_size=services.body_limit)
    app[LOCAL] = NOT_LOCAL
    app.router.register_resource(models := _Models())
    if services.request_ids:
        app.middlewares.insert(0, _identified(services))
        app.on_response_prepare.append(_show_request_id)
    if hsts:
        app.on_response_prepare.append(_secured(f"max-age={hsts}"))
    for operation in sorted(operations, key=lambda one: one.name not in _OFTEN):
        served = OperationDispatcher(operation, services)
        handler = served.handle
        path = operation.path.replace("{country}", _COUNTRY)
        route = app.router.add_route(operation.method, path, handler)
        if models.add(route, path) and operation.name in _DIRECT:
            models.answering[route] = Answering(served.direct, prompt_reads(served))
        if operation.method == "GET":
            app.router.add_route("HEAD", path, handler)
        if path.startswith(_API):
            app.router.add_route(operation.method, _ALIAS + path.removeprefix(_API), handler)
    app.router.add_route("*", "/{address:.*}", _outermost(services, app))
    if not app.middlewares and not app.on_response_prepare:
        models.direct = Direct(app, models.match, models.answering)
    return app


class _Models(web.PlainResource):
    """The addresses of the model-based family, found in one step where they have no escapes.

    aiohttp tries the pattern of one route after the other. What is not found here it finds, and
    what is found here it would find.
    """

    def __init__(self) -> None:
        super().__init__(_MODELS)
        #: by method and number of segments: which say what, which are parameters, and the route
        self.shapes: dict[tuple[str, int], list[_Shape]] = {}
        #: by route what answers requests that aiohttp has not read
        self.answering: dict[web.AbstractRoute, Answering] = {}
        #: these operations, for connections; ``None``: every request goes aiohttp's way
        self.direct: Direct | None = None

    def add(self, route: web.AbstractRoute, path: str) -> bool:
        """Find that route, too, where its path is of this family; whether it is."""
        if not path.startswith(f"{_MODELS}/"):
            return False
        parts = list(enumerate(path.removeprefix(f"{_MODELS}/").split("/")))
        fixed = [(at, text) for at, text in parts if text[0] != "{"]
        names = [(at, text[1:-1]) for at, text in parts if text[0] == "{"]
        self.shapes.setdefault((route.method, len(parts)), []).append((fixed, names, route))
        return True

    def match(self, method: str, path: str) -> tuple[web.AbstractRoute, dict[str, str]] | None:
        """The route of a method and a path as it was sent, and the parameters."""
        match = _UNESCAPED.fullmatch(path)
        parts = [] if match is None else match[1].split("/")
        for fixed, names, route in self.shapes.get((method, len(parts)), ()):
            for at, text in fixed:
                if parts[at] != text:
                    break
            else:
                values: dict[str, str] = {}
                for at, name in names:
                    values[name] = parts[at]
                return route, values
        return None

    async def resolve(
        self, request: web.Request
    ) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        """The route of a request, as ``web.Resource.resolve``; it allows no methods by itself."""
        if self.direct is not None and isinstance(request.protocol, WholeRequests):
            request.protocol.direct = self.direct
        target = self.match(request.method, request.rel_url.raw_path)
        return None if target is None else web.UrlMappingMatchInfo(target[1], target[0]), set()


def _identified(services: Services) -> Middleware:
    """Give each request its id: that of a trusted proxy in front, else a new one."""

    @web.middleware
    async def identified(request: web.Request, handler: Handler) -> web.StreamResponse:
        sent = request.headers.get(_REQUEST_ID) if services.trusted.holds(peer(request)) else None
        REQUEST_ID.set(accepted_id(sent))
        return await handler(request)

    return identified


async def _show_request_id(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[_REQUEST_ID] = REQUEST_ID.get()


def _secured(policy: str) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Set ``Strict-Transport-Security`` over TLS; plain HTTP must not (RFC 6797 section 7.2)."""

    async def secured(request: web.Request, response: web.StreamResponse) -> None:
        if request.secure:
            response.headers["Strict-Transport-Security"] = policy

    return secured


def _outermost(services: Services, app: web.Application) -> Handler:
    """Answer what no operation takes: the last of the routes, which has every address."""

    async def outermost(request: web.Request) -> web.StreamResponse:
        allowed: set[str] = set()
        for resource in app.router.resources():
            allowed |= (await resource.resolve(request))[1]
        fields: dict[str, str] = {}
        return await send(
            request, _unreached(request, services, allowed - {hdrs.METH_ANY}, fields), fields
        )

    return outermost


def _unreached(
    request: web.Request, services: Services, methods: AbstractSet[str], fields: dict[str, str]
) -> ApiResponse:
    """Answer a request that no operation takes at a known address; outsiders are refused first."""
    try:
        screen(request, services)
        count_by_address(request, services, fields)
    except VaultError as fault:
        return error_answer("", fault)
    if methods:
        if (crossed := preflight(request, services, methods)) is not None:
            return crossed
        allowed = ", ".join(sorted(methods))
        answer = error_answer(
            "", VaultError(Code.METHOD_NOT_ALLOWED, f"This address takes {allowed}.")
        )
        return answer._replace(headers={"Allow": allowed})
    if request.path == "/docs/":
        return ApiResponse(308, b"", {"Location": "../docs"})
    text = "There is nothing at this address; /docs lists what there is."
    return error_answer("", VaultError(Code.NOT_FOUND, text))

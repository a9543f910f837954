"""Handlers that show the interface document: as JSON for programs, as a page for people."""

from dataclasses import replace
from functools import lru_cache

from proxy.api.context import ApiOperation, ApiRequest, ApiResponse
from proxy.api.dispatch import by_client, outside
from proxy.api.openapi.assemble import assemble, render
from proxy.api.openapi.described import DESCRIBED
from proxy.api.openapi.page import POLICY, page


async def openapi(call: ApiRequest) -> ApiResponse:
    """The document; for who sends an access token, with the schemas that it may use from where it
    is, as it knows them.
    """
    if "Authorization" not in call.request.headers:
        return ApiResponse(200, _bare(call.services.operations))
    caller = await _known(call)
    seen = [
        (caller.rights(declared.records), declared.schema)
        for declared in caller.space.catalog.schemas()
    ]
    schemas = [
        rights.view or schema
        for rights, schema in seen
        if rights.actions and not caller.kept_out(rights)
    ]
    return ApiResponse(
        200, render(assemble(call.services.operations, DESCRIBED, schemas, call.services.limits))
    )


async def docs(call: ApiRequest) -> ApiResponse:
    """The page."""
    return ApiResponse(
        200,
        _docs_page(call.services.operations),
        {"Content-Security-Policy": POLICY},
        "text/html; charset=utf-8",
    )


async def _known(call: ApiRequest) -> ApiRequest:
    """The call of who has shown a token: that may be shown here, and is held to what others with a
    token are held to.
    """
    request, services = call.request, call.services
    principal = await services.access(request)
    abroad = outside(request, services, call.operation, principal)
    by_client(request, services, principal)
    return replace(call, principal=principal, outside=abroad)


@lru_cache(2)
def _bare(operations: tuple[ApiOperation, ...]) -> bytes:
    return render(assemble(operations, DESCRIBED))


@lru_cache(2)
def _docs_page(operations: tuple[ApiOperation, ...]) -> bytes:
    return page(assemble(operations, DESCRIBED), DESCRIBED)

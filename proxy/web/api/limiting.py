"""The limits on how often somebody may ask, on the vault listener: counted before anything is read, told in every answer."""

from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from proxy.model.access import Principal
from proxy.web.api.connection import peer
from proxy.web.api.operation import Operation, Services
from proxy.web.guard.quotas import LimitedError, Told, limit_fields
from proxy.web.guard.rates import Rates, Verdict
from proxy.web.peers import caller_of

#: How the addresses of operations end that work on many records at once, and how much more one of them weighs.
_MANY: Final = ("/batch", "/batch/update", "/batch/delete", "/batchWrite", "/batchDelete", "/aggregate", "/export")
_WEIGHT: Final = 8

_CHAIN: Final = "X-Forwarded-For"

_Count = Callable[[str, Told], tuple[Rates, Verdict] | None]

#: What was counted for a request, for the fields of its answer.
COUNTED: Final = web.RequestKey("counted", tuple[Rates, Verdict])


def weight(operation: Operation) -> int:
    """How much of what a client may have under way a request takes."""
    return _WEIGHT if operation.path.endswith(_MANY) else 1


def by_address(request: web.Request, services: Services) -> None:
    """Count a request by where it comes from. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
    if services.quotas.address is not None:
        near, trusted = peer(request), services.trusted
        host = caller_of(near, request.headers.getall(_CHAIN, ()), trusted) if trusted.holds(near) else near
        _note(request, services.quotas.caller, host, services.limited)


def by_client(request: web.Request, services: Services, principal: Principal) -> None:
    """Count a request by who sends it. Raises ``VaultError`` (TOO_MANY_REQUESTS)."""
    if services.quotas.credential is not None:
        _note(request, services.quotas.client, principal.client, services.limited)


def told(request: web.Request) -> Mapping[str, str]:
    """The fields that the answer to a request tells of its limit; none where nothing was counted."""
    counted = request.get(COUNTED)
    return {} if counted is None else limit_fields(*counted)


def _note(request: web.Request, count: _Count, key: str, limited: Told) -> None:
    try:
        counted = count(key, limited)
    except LimitedError as error:
        request[COUNTED] = error.counted
        raise
    if counted is not None:
        request[COUNTED] = counted

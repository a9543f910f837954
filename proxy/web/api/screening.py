"""The data firewall on the vault listener: where a request comes from, before anything is told, and what that leaves of it.

Two steps, because a policy may let its clients in from outside, or keep them out: the address alone decides first; where a
policy could change that, the verdict waits until it is known who calls.
"""

from typing import Final

from aiohttp import web

from proxy.model.access import Principal
from proxy.web.api.connection import peer
from proxy.web.api.operation import Operation, Services
from proxy.web.guard.firewall import PASSED_ON, Firewall, Mode, refused

#: Set on requests from outside that were not refused by their address alone.
OUTSIDE: Final = web.RequestKey("outside", bool)

_CHAIN: Final = PASSED_ON[0]


def screen(request: web.Request, services: Services) -> None:
    """Look where a request comes from. Raises ``VaultError`` (OUTSIDE_COUNTRY) where nobody outside gets an answer."""
    firewall = services.firewall
    if firewall is None or firewall.mode is Mode.OFF or not _outside(request, firewall):
        return
    if firewall.mode is Mode.BLOCK and not any(space.policies.masks for space in services.spaces.values()):
        services.screened("blocked")
        raise refused()
    request[OUTSIDE] = True


def outside(request: web.Request, services: Services, operation: Operation, principal: Principal) -> bool:
    """Whether a caller that is known now must see nothing in clear. Raises ``VaultError`` (OUTSIDE_COUNTRY)."""
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
        raise refused()
    services.screened("masked")
    return True


def _outside(request: web.Request, firewall: Firewall) -> bool:
    host = peer(request)
    straight = firewall.straight(host)
    if straight is not None:
        return straight
    chain = request.headers.getall(_CHAIN, ())
    return firewall.outside(host, chain, any(name in request.headers for name in PASSED_ON[1:]))

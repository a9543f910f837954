"""Pages of other origins that call the interface (CORS, the Fetch standard): those that an access policy of the caller names.

A browser asks before it sends a token (preflight); that request bears none, so it is answered for every origin that any policy
names. The answer to the request itself may be read by the page only if a policy of this very client names its origin.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

from proxy.errors import VaultError
from proxy.model.access import Principal
from proxy.web.api.operation import Answer, Services

_ORIGIN: Final = "Origin"
_ASKED: Final = "Access-Control-Request-Method"

#: Fields of the answer, for a request that says where its page comes from.
CROSSING: Final = web.RequestKey("crossing", Mapping[str, str])

#: What a page may send beside what every page may, and what it may read of an answer beside that.
_SENT: Final = "authorization, content-type, idempotency-key, if-match, if-none-match, if-range, range, x-client-auth, x-encrypted-storage, x-env-id, x-filename"
_READ: Final = "content-disposition, content-range, etag, idempotent-replayed, ratelimit, ratelimit-policy, retry-after"

#: Seconds for which browsers keep the answer to a preflight; a policy that changes counts for them within that time.
_KEPT: Final = "600"

_VARY: Final = {"Vary": _ORIGIN}


def preflight(request: web.Request, services: Services, methods: Iterable[str]) -> Answer | None:
    """The answer to a preflight; ``None`` for what is none, or comes from an origin that no policy names."""
    origin = request.headers.get(_ORIGIN)
    if request.method != "OPTIONS" or origin is None or _ASKED not in request.headers:
        return None
    if not any(origin in space.policies.origins for space in services.spaces.values()):
        return None
    return Answer(
        204,
        headers={
            **_VARY,
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": ", ".join(sorted(methods)),
            "Access-Control-Allow-Headers": _SENT,
            "Access-Control-Max-Age": _KEPT,
        },
    )


def crossing(request: web.Request, services: Services, principal: Principal) -> None:
    """Remember for the answer whether the page that asks may read it. Costs a look where no browser says its origin."""
    origin = request.headers.get(_ORIGIN)
    if origin is None:
        return
    try:
        origins = services.space(principal).policies.standing(principal.policies).origins
    except VaultError:
        origins = frozenset()  # its environment has gone: told by who looks for it next
    request[CROSSING] = _VARY
    if origin in origins:
        request[CROSSING] = {**_VARY, "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _READ}

"""CORS (the Fetch standard): which pages of other origins may call the interface.

Those that an access policy names. A browser asks before it sends a token (preflight); that request
bears none, so it is answered for every origin that any policy names. The answer to the request
itself may be read by the page only if a policy of this very client names its origin.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web

from proxy.api.context import ApiResponse, Services
from proxy.errors import VaultError
from proxy.model.rights import Principal

#: Where the page comes from that sent a request.
ORIGIN: Final = "Origin"
_METHOD: Final = "Access-Control-Request-Method"

#: Fields that a page may send, and may read of an answer, besides those that every page may.
_ALLOWED: Final = (
    "authorization, content-type, idempotency-key, if-match, if-none-match, if-range, range, "
    "x-client-auth, x-encrypted-storage, x-env-id, x-filename, x-purpose"
)
_EXPOSED: Final = (
    "content-disposition, content-range, etag, idempotent-replayed, ratelimit, ratelimit-policy, "
    "retry-after"
)

#: Seconds for which browsers keep the answer to a preflight; a policy that changes counts for them
#: within that time.
_MAX_AGE: Final = "600"

_VARY: Final = {"Vary": ORIGIN}


def preflight(
    request: web.Request, services: Services, methods: Iterable[str]
) -> ApiResponse | None:
    """Answer a preflight; ``None`` for another request, or an origin that no policy names."""
    origin = request.headers.get(ORIGIN)
    if request.method != "OPTIONS" or origin is None or _METHOD not in request.headers:
        return None
    if not any(origin in space.policies.origins for space in services.spaces.values()):
        return None
    return ApiResponse(
        204,
        headers={
            **_VARY,
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": ", ".join(sorted(methods)),
            "Access-Control-Allow-Headers": _ALLOWED,
            "Access-Control-Max-Age": _MAX_AGE,
        },
    )


def cross_origin_fields(origin: str, services: Services, principal: Principal) -> Mapping[str, str]:
    """The fields of the answer by which the page that sent the request may read it."""
    try:
        origins = services.space(principal).policies.properties(principal.policies).origins
    except VaultError:
        origins = frozenset()  # its environment has gone: a later check refuses the request
    if origin not in origins:
        return _VARY
    return {
        **_VARY,
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": _EXPOSED,
    }

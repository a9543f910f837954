"""The endpoints of the token service: ``/oauth2/*`` and its metadata.

Their errors are those of RFC 6749, not problem documents.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from proxy.api import wire
from proxy.api.connection import caller
from proxy.api.context import ApiRequest, ApiResponse
from proxy.api.wire import api_status
from proxy.auth.authorization_server import OAuthError, slow_down
from proxy.errors import Code, VaultError
from proxy.net.problem import wait_of

#: Nothing between here and the client may keep a token (RFC 6749, section 5.1).
_NOT_CACHED: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}

#: Metadata and public keys change once a day; a reader that meets an unknown key asks again.
_CACHED: Final = {"Cache-Control": "public, max-age=300"}


async def token(call: ApiRequest) -> ApiResponse:
    """An access token by client credentials (RFC 6749, section 4.4)."""
    return await _answered(call, call.services.auth.token)


async def introspect(call: ApiRequest) -> ApiResponse:
    """Return whether a token is valid, and its claims (RFC 7662)."""
    return await _answered(call, call.services.auth.introspection)


async def metadata(call: ApiRequest) -> ApiResponse:
    """Answer with the metadata of this token service (RFC 8414)."""
    return wire.json_answer(200, call.services.auth.metadata())._replace(headers=_CACHED)


async def jwks(call: ApiRequest) -> ApiResponse:
    """The public keys of access tokens (RFC 7517)."""
    return wire.json_answer(200, call.services.auth.jwks())._replace(headers=_CACHED)


def oauth_refusal(error: VaultError) -> ApiResponse:
    """Answer a request that failed before its handler, in the words of RFC 6749."""
    status = 400 if error.code is Code.UNSUPPORTED_MEDIA_TYPE else api_status("", error.code)
    if error.code is Code.TOO_MANY_REQUESTS:
        return _error_answer(slow_down(error.retry_after or 1))
    if error.code is Code.OUTSIDE_COUNTRY:
        return _error_answer(
            OAuthError("access_denied", "Tokens are given only inside the country.", status)
        )
    if status < 500:
        return _error_answer(
            OAuthError(
                "invalid_request",
                "The request is no form of the size and type that is taken here.",
                status,
            )
        )
    word = "temporarily_unavailable" if status == 503 else "server_error"
    refusal = OAuthError(word, "The service failed; try again later.", status)
    refusal.retry_after = wait_of(error)
    return _error_answer(refusal)


async def _answered(call: ApiRequest, ask: Callable[..., Awaitable[Any]]) -> ApiResponse:
    sent = call.request.headers.getall("Authorization", ())
    authorization = ", ".join(sent) if sent else None  # several are invalid
    address = caller(call.request, call.services.trusted)
    try:
        answer = await ask(call.body, authorization, address, call.audit)
    except OAuthError as error:
        return _error_answer(error)
    return wire.json_answer(200, answer)._replace(headers=_NOT_CACHED)


def _error_answer(error: OAuthError) -> ApiResponse:
    headers = dict(_NOT_CACHED)
    if error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    body = wire.encode_json({"error": error.error, "error_description": error.description})
    return ApiResponse(error.status, body, headers)

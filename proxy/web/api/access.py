"""Who sends a request: the bearer of an access token (RFC 6750), shown in ``Authorization`` and nowhere else."""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from proxy.auth.external import External
from proxy.auth.tokens import Tokens
from proxy.errors import Code, VaultError
from proxy.model.access import Principal

_CHALLENGE: Final = 'Bearer realm="domicile"'


def bearer(tokens: Tokens, external: External | None = None) -> Callable[[web.Request], Awaitable[Principal]]:
    """The check of every guarded operation: whom the token of a request stands for, which we or an ``external`` issuer made.

    Raises ``VaultError`` (UNAUTHORIZED) with the challenge of RFC 6750 section 3, or (BAD_REQUEST) for two tokens at once.
    """

    async def access(request: web.Request) -> Principal:
        sent = request.headers.getall("Authorization", ())
        if len(sent) > 1:
            raise _refused(Code.BAD_REQUEST, "Authorization stands more than once.", "invalid_request")
        scheme, _, token = sent[0].partition(" ") if sent else ("", "", "")
        if scheme.lower() != "bearer":
            raise _refused(Code.UNAUTHORIZED, "An access token is needed: ask for one at /oauth2/token.")
        token = token.strip(" ")
        try:
            return tokens.principal(token) if external is None else await _either(token, tokens, external)
        except VaultError as error:
            if error.code is not Code.UNAUTHORIZED:
                raise
            raise _refused(error.code, error.message, "invalid_token") from None

    return access


async def _either(token: str, tokens: Tokens, external: External) -> Principal:
    """Whom a token stands for, whoever made it; one of the issuer's that is remembered costs a look-up."""
    found = external.remembered(token)
    if found is not None:
        return found
    try:
        return tokens.principal(token)
    except VaultError:
        return await external.principal(token)


def not_admin(
    text: str = "This operation is for administrators: clients that were made with the right to administer.",
) -> VaultError:
    """The refusal of an operation that only administrators may call."""
    return _refused(Code.FORBIDDEN, text, "insufficient_scope")


def _refused(code: Code, message: str, error: str | None = None) -> VaultError:
    refusal = VaultError(code, message)
    refusal.challenge = _CHALLENGE if error is None else f'{_CHALLENGE}, error="{error}"'
    return refusal

"""OAuth authorization server (RFC 6749) without HTTP.

Requests arrive as forms, answers leave as members of JSON.

Clients prove themselves as RFC 6749, section 2.3.1, has it: Basic, or form members.
"""

import base64
import binascii
import math
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from proxy.audit.events import AuditContext
from proxy.auth.access_tokens import SigningKeys, TokenIssuer
from proxy.auth.audiences import Audiences
from proxy.auth.clients import Client, Clients
from proxy.auth.sealed_notes import SealedNote
from proxy.auth.secret_checks import KnownNetworks, SecretChecks, Throttle
from proxy.clock import Clock
from proxy.crypto.keyset import Keyset
from proxy.errors import VaultError
from proxy.storage.base import Store

GRANT: Final = "client_credentials"
TOKEN_PATH: Final = "/oauth2/token"
INTROSPECTION_PATH: Final = "/oauth2/introspect"
KEYS_PATH: Final = "/oauth2/jwks"

#: Told the outcome of each request for a token: ``issued``, ``slowed`` or the word of the error.
ObserveTokens = Callable[[str], None]


#: How a client that did not prove itself may do so (RFC 7617); its own characters never come back
#: to it.
CHALLENGE: Final = 'Basic realm="domicile", charset="UTF-8"'


class OAuthError(Exception):
    """A refusal: ``error`` is a registered word, ``description`` a constant text for developers."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.retry_after: int | None = None  #: seconds
        self.challenge: str | None = None  #: of ``WWW-Authenticate``


def invalid_request(description: str) -> OAuthError:
    """The request is not one: a parameter is missing, repeated or malformed."""
    return OAuthError("invalid_request", description)


def invalid_client(
    description: str = "The client is unknown, disabled, or its secret is wrong.",
) -> OAuthError:
    """Client authentication failed; the same words for every reason that tells about a client."""
    error = OAuthError("invalid_client", description, 401)
    error.challenge = CHALLENGE
    return error


def slow_down(seconds: int, status: int = 429) -> OAuthError:
    """Too many failures, or too much at once.

    No registered word of the token endpoint fits better.
    """
    error = OAuthError(
        "temporarily_unavailable", "Too many attempts: wait as long as Retry-After says.", status
    )
    error.retry_after = seconds
    return error


_PARAMETERS: Final = 32


class Credentials(NamedTuple):
    """A client id and a secret, as sent."""

    client: str
    secret: str


def read_form(body: bytes) -> dict[str, str]:
    """The parameters of a request body; those without a value count as absent (RFC 6749, section
    3.2).

    ``audience`` may be repeated (RFC 8693, section 2.1), any other may not. Raises ``OAuthError``.
    """
    try:
        pairs = urllib.parse.parse_qsl(
            body.decode("ascii"), errors="strict", max_num_fields=_PARAMETERS
        )
    except ValueError:
        raise invalid_request(
            "The body is not a form in UTF-8, or has too many parameters."
        ) from None
    form: dict[str, str] = {}
    for name, value in pairs:
        if name == "audience" and name in form:
            form[name] += " " + value
        elif name in form:
            raise invalid_request("A parameter is there more than once.")
        else:
            form[name] = value
    return form


def credentials(authorization: str | None, form: Mapping[str, str]) -> Credentials:
    """Return the client's credentials, sent in exactly one way. Raises ``OAuthError``."""
    if authorization is None:
        if "client_id" in form and "client_secret" in form:
            return Credentials(form["client_id"], form["client_secret"])
        raise invalid_client(
            "No client authentication: send client id and secret as Basic credentials or in the "
            "form."
        )
    sent = _basic(authorization)
    if "client_secret" in form or form.get("client_id", sent.client) != sent.client:
        raise invalid_request("The client proves itself in two ways at once: choose one.")
    return sent


def _basic(authorization: str) -> Credentials:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise invalid_client(
            "This endpoint takes Basic credentials, or client id and secret in the form."
        )
    try:
        client, colon, secret = (
            base64.b64decode(encoded.strip(" "), validate=True).decode().partition(":")
        )
        if colon:
            return Credentials(_unquoted(client), _unquoted(secret))
    except (ValueError, binascii.Error):
        pass
    raise invalid_client(
        "The Basic credentials cannot be read: encode client id, colon and secret in Base64."
    )


def _unquoted(text: str) -> str:
    """Both halves are form-encoded before they are joined; ids and secrets of ours need none."""
    return urllib.parse.unquote_plus(text, errors="strict")


class AuthorizationServer:
    """The endpoints ``/oauth2/*`` of one instance, and the checks behind them."""

    def __init__(
        self,
        tokens: TokenIssuer,
        secret_checks: SecretChecks,
        throttle: Throttle,
        observe: ObserveTokens,
    ) -> None:
        self.tokens = tokens
        self.clients = tokens.clients
        self.keys = tokens.keys
        self.audiences = tokens.audiences
        self._secret_checks = secret_checks
        self._throttle = throttle
        self.networks = throttle.networks
        self._observe = observe

    def close(self) -> None:
        """Let the threads that check secrets end."""
        self._secret_checks.close()

    async def token(
        self, body: bytes, authorization: str | None, address: str, audit: AuditContext
    ) -> dict[str, Any]:
        """An access token for a client that proves itself (RFC 6749, section 4.4).

        Raises ``OAuthError``.
        """
        try:
            answer = await self._token(body, authorization, address, audit)
        except OAuthError as error:
            self._observe("slowed" if error.retry_after is not None else error.error)
            raise
        self._observe("issued")
        return answer

    async def _token(
        self, body: bytes, authorization: str | None, address: str, audit: AuditContext
    ) -> dict[str, Any]:
        form = read_form(body)
        client = await self._authenticated(form, authorization, address, audit)
        if "grant_type" not in form:
            raise invalid_request("The parameter grant_type is missing.")
        if form["grant_type"] != GRANT:
            raise OAuthError("unsupported_grant_type", "The only grant here is client_credentials.")
        if form.get("scope", client.environment).split() != [client.environment]:
            raise OAuthError(
                "invalid_scope", "The scope is the id of the environment of the credentials."
            )
        try:
            audience = self.audiences.ours(form.get("audience", ""))
        except ValueError:
            raise OAuthError(
                "invalid_target",
                "An audience is not an address of this service; see the setting auth.audiences.",
            ) from None
        return {
            "access_token": self.tokens.issue(client, audience),
            "token_type": "bearer",
            "expires_in": self.tokens.lifetime,
            "scope": client.environment,
        }

    async def introspection(
        self, body: bytes, authorization: str | None, address: str, audit: AuditContext
    ) -> dict[str, Any]:
        """Whether a token is valid, for a client of the same environment (RFC 7662).

        Raises ``OAuthError``.

        The client authenticates as at the token endpoint, or with its own access token.
        """
        form = read_form(body)
        environment = await self._asking(form, authorization, address, audit)
        if "token" not in form:
            raise invalid_request("The parameter token is missing.")
        claims = self.tokens.claims(form["token"])
        if claims is None or claims.scope != environment:
            return {"active": False}
        return {
            "active": True,
            "scope": claims.scope,
            "client_id": claims.client_id,
            "token_type": "bearer",
            "exp": claims.exp,
            "iat": claims.iat,
            "sub": claims.sub,
            "aud": claims.aud,
            "iss": claims.iss,
            "jti": claims.jti,
        }

    def metadata(self) -> dict[str, Any]:
        """Return the authorization server metadata (RFC 8414)."""
        issuer = self.audiences.first
        methods = ["client_secret_basic", "client_secret_post"]
        return {
            "issuer": issuer,
            "token_endpoint": issuer + TOKEN_PATH,
            "token_endpoint_auth_methods_supported": methods,
            "introspection_endpoint": issuer + INTROSPECTION_PATH,
            "introspection_endpoint_auth_methods_supported": [*methods, "Bearer"],
            "jwks_uri": issuer + KEYS_PATH,
            "grant_types_supported": [GRANT],
            # required, and never empty (RFC 8414, sections 2 and 3.2)
            "response_types_supported": ["none"],
        }

    def jwks(self) -> dict[str, Any]:
        """The keys that tokens can be verified with elsewhere (RFC 7517)."""
        return {"keys": self.keys.public()}

    async def _asking(
        self, form: Mapping[str, str], authorization: str | None, address: str, audit: AuditContext
    ) -> str:
        """The environment of the client that introspects."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return (await self._authenticated(form, authorization, address, audit)).environment
        claims = self.tokens.claims(token.strip(" "))
        if claims is None:
            raise invalid_client("The access token is not valid.")
        return claims.scope

    def _check_pace(self, client: str, address: str) -> None:
        wait = self._throttle.wait(client, address)
        if wait:
            raise slow_down(math.ceil(wait / 1000))

    async def _authenticated(
        self, form: Mapping[str, str], authorization: str | None, address: str, audit: AuditContext
    ) -> Client:
        sent = credentials(authorization, form)
        self._check_pace(sent.client, address)  # before it takes room from others
        try:
            source, first = self._throttle.source(sent.client, address)
            async with self._secret_checks.slot(source, first=first):
                # earlier attempts in the queue may have failed
                self._check_pace(sent.client, address)
                client = self.clients.find(sent.client)
                audit.subject = client.id if client is not None else None
                fits = await self._secret_checks.matches(
                    client.secret if client else None, sent.secret
                )
                if client is None or not fits or client.disabled:
                    self._throttle.failed(sent.client, address)
                    raise invalid_client()
                self._throttle.succeeded(sent.client, address)
        except VaultError as error:
            raise slow_down(error.retry_after or 1, 503) from None
        if self.clients.find(client.id) != client:  # changed while its secret was checked
            raise invalid_client()
        return client


# The token service of an opened store: everything read, and the first signing key made where there
# is none.


@dataclass(frozen=True, slots=True)
class AuthOptions:
    """Settings of access."""

    lifetime: int = 300  #: of an access token, in seconds
    audiences: Sequence[str] = ()  #: the addresses that are ours; none: those of the listener
    apart: bool = True  #: whether tokens of the external issuer name their environment


async def open_clients(
    store: Store,
    keysets: Mapping[str, Keyset],
    secret_checks: SecretChecks,
    clock: Clock,
    *,
    apart: bool = True,
) -> Clients:
    """The clients of the environments that these keysets belong to; ``apart`` as of ``Clients``."""
    clients = Clients(store, secret_checks, clock, apart=apart)
    for environment, keyset in keysets.items():
        await clients.join(environment, keyset.aead())
    return clients


async def open_service(
    store: Store,
    keysets: Mapping[str, Keyset],
    clock: Clock,
    observe: ObserveTokens,
    options: AuthOptions,
) -> AuthorizationServer:
    """The token service. The first environment's keyset seals the signing keys.

    ``close`` it after use.
    """
    secret_checks = SecretChecks()
    try:
        clients = await open_clients(store, keysets, secret_checks, clock, apart=options.apart)
        environment, keyset = next(iter(keysets.items()))
        keys = SigningKeys(store, keyset.aead(), environment, clock)
        await keys.load()
        networks = KnownNetworks(clock, SealedNote(store, keyset.aead(), environment, "networks"))
        await networks.load()
    except BaseException:
        secret_checks.close()
        raise
    tokens = TokenIssuer(clients, keys, Audiences(options.audiences), clock, options.lifetime)
    return AuthorizationServer(tokens, secret_checks, Throttle(clock, networks=networks), observe)

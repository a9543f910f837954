"""Access tokens: made (RFC 9068), and checked with each request in microseconds.

What cannot change about a token is checked once: its signature, its form, its audience. It is remembered until the token
ends or newer ones need the place. What can change is asked each time: the time, and the client as it is now.
"""

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from proxy.auth.audiences import Audiences
from proxy.auth.clients import Client, Clients
from proxy.auth.keys import SigningKeys
from proxy.clock import Clock
from proxy.crypto.signing import signed_by
from proxy.errors import Code, VaultError
from proxy.model.access import Principal

#: The media type of access tokens without ``application/`` (RFC 9068, section 2.1): a token for something else is none.
KIND: Final = "at+jwt"

#: Tokens remembered: one a client for ten thousand clients, with room for those that ask twice; some 20 MB when full.
REMEMBERED: Final = 16_384


class Claims(msgspec.Struct, frozen=True):
    """What a token says (RFC 9068, section 2.2). Instants are seconds since the epoch."""

    iss: str
    sub: str
    client_id: str
    aud: list[str]
    scope: str  #: the environment
    iat: int
    exp: int
    jti: str
    ver: int  #: of the client's secret; a claim of ours


class _Seen(NamedTuple):
    claims: Claims
    client: Client
    principal: Principal
    until: int  # milliseconds since the epoch


_decode = msgspec.json.Decoder(Claims).decode
_encode = msgspec.json.Encoder().encode


class Tokens:
    """Makes and checks the tokens of this instance. ``lifetime`` is in seconds."""

    def __init__(
        self, clients: Clients, keys: SigningKeys, audiences: Audiences, clock: Clock, lifetime: int = 300
    ) -> None:
        self.clients = clients
        self.keys = keys
        self.audiences = audiences
        self._clock = clock
        self.lifetime = lifetime
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        """How many tokens are remembered."""
        return len(self._seen)

    def issue(self, client: Client, audience: Sequence[str]) -> str:
        """A token for this client at these addresses."""
        now = self._clock() // 1000
        claims = Claims(
            iss=self.audiences.first,
            sub=client.id,
            client_id=client.id,
            aud=list(audience),
            scope=client.environment,
            iat=now,
            exp=now + self.lifetime,
            jti=secrets.token_urlsafe(16),
            ver=client.version,
        )
        return self.keys.current.sign(_encode(claims), KIND)

    def principal(self, token: str) -> Principal:
        """Whom the token stands for, at this moment. Raises ``VaultError(UNAUTHORIZED)``, and does not tell why."""
        return self._valid(token).principal

    def claims(self, token: str) -> Claims | None:
        """What a valid token says; ``None`` for every other text (RFC 7662, section 2.2)."""
        try:
            return self._valid(token).claims
        except VaultError:
            return None

    def _valid(self, token: str) -> _Seen:
        seen = self._seen.get(token)
        if seen is None or self.clients.find(seen.client.id) is not seen.client:  # a change makes a new object
            self._seen.pop(token, None)
            seen = self._read(token)
            if len(self._seen) >= REMEMBERED:
                del self._seen[next(iter(self._seen))]  # the oldest, which ends first
            self._seen[token] = seen
        if self._clock() >= seen.until:
            del self._seen[token]
            raise _refused()
        return seen

    def _read(self, token: str) -> _Seen:
        try:
            claims = _decode(signed_by(token, self.keys.known, KIND))
        except (ValueError, msgspec.MsgspecError):
            raise _refused() from None
        client = self.clients.find(claims.client_id)
        if client is None or client.disabled or (client.version, client.environment) != (claims.ver, claims.scope):
            raise _refused()
        if not self.audiences.meets(claims.aud):
            raise _refused()
        principal = Principal(client.id, client.environment, client.admin, client.policies)
        return _Seen(claims, client, principal, claims.exp * 1000)


def _refused() -> VaultError:
    return VaultError(
        Code.UNAUTHORIZED,
        "The access token is not valid: it has expired, was revoked, or is not for this service. Ask for a new one.",
    )

"""Access tokens: made (RFC 9068), and checked with each request in microseconds.

The constant properties of a token are checked once: signature, form, audience. They are cached
until the token ends or newer ones need the place. The time and the client's state are checked on
each use.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from proxy.auth.audiences import Audiences
from proxy.auth.clients import Client, Clients
from proxy.auth.sealed_notes import SealedNote
from proxy.clock import Clock
from proxy.crypto.aead import RecordAead
from proxy.crypto.jws import SigningKey, signed_by
from proxy.errors import Code, VaultError
from proxy.model.record import Principal
from proxy.storage.base import Store

# The keys that sign access tokens: sealed in the store, replaced by age while requests go on.
#
# A new key signs from the moment it is durable. The ones before verify until every token that they
# can have signed has ended; then they are forgotten. Nobody has to do anything, and no request
# notices.


#: Longest lifetime of a token that can be set, in seconds; a retired key verifies for as long.
LONGEST_LIFETIME: Final = 3600

#: Milliseconds after which another key signs.
SIGNING_KEY_LIFETIME: Final = 24 * 3_600_000


class _StoredKey(msgspec.Struct, frozen=True):
    seed: bytes
    made_at: int
    retired_at: int | None = None


_decode = msgspec.json.Decoder(list[_StoredKey]).decode
_encode = msgspec.json.Encoder().encode


class SigningKeys:
    """A signing key, and older keys that only verify. ``load`` before use."""

    def __init__(self, store: Store, aead: RecordAead, environment: str, clock: Clock) -> None:
        self._note = SealedNote(store, aead, environment, "signing")
        self._clock = clock
        self._stored: list[_StoredKey] = []  # the last one signs
        self.by_kid: dict[str, SigningKey] = {}  #: by ``kid``; the last one signs

    @property
    def current(self) -> SigningKey:
        """The key that signs."""
        return self.by_kid[next(reversed(self.by_kid))]

    def public(self) -> list[dict[str, Any]]:
        """The public halves of all keys that verify, the newest first (RFC 7517)."""
        return [key.jwk for key in reversed(self.by_kid.values())]

    async def load(self) -> None:
        """Read the keys; a store without any gets the first one."""
        self._adopt(await self._read())
        await (self.upkeep() if self._stored else self.rotate())

    async def upkeep(self) -> None:
        """Rotate when the key is old enough, and forget those whose tokens have all ended.

        Raises the errors of the store.
        """
        now = self._clock()
        if now - self._stored[-1].made_at >= SIGNING_KEY_LIFETIME:
            await self.rotate()
        elif any(_over(stored, now) for stored in self._stored):
            await self._write([stored for stored in self._stored if not _over(stored, now)])

    async def rotate(self) -> None:
        """Sign with a fresh key from now on.

        Raises the errors of the store; the earlier key then keeps signing.
        """
        now = self._clock()
        retired = [
            stored
            if stored.retired_at is not None
            else msgspec.structs.replace(stored, retired_at=now)
            for stored in self._stored
            if not _over(stored, now)
        ]
        await self._write([*retired, _StoredKey(SigningKey.create().seed(), now)])

    async def read_again(self) -> None:
        """Another process has written the keys: they count as they are now."""
        self._adopt(await self._read())

    async def _read(self) -> list[_StoredKey]:
        content = await self._note.read()
        return _decode(content) if content else []

    async def _write(self, stored: list[_StoredKey]) -> None:
        try:
            await self._note.write(_encode(stored))
        except VaultError as error:
            if error.code is not Code.CONFLICT:
                raise
            stored = await self._read()  # another process rotated: its keys are as good
        self._adopt(stored)

    def _adopt(self, stored: list[_StoredKey]) -> None:
        keys = [SigningKey(item.seed) for item in stored]
        self._stored = stored
        self.by_kid = {key.kid: key for key in keys}


def _over(stored: _StoredKey, now: int) -> bool:
    return stored.retired_at is not None and now - stored.retired_at > LONGEST_LIFETIME * 1000


#: The media type of access tokens without ``application/`` (RFC 9068, section 2.1): a token for
#: something else is none.
KIND: Final = "at+jwt"

#: Tokens remembered: one a client for ten thousand clients, with room for those that ask twice;
#: some 20 MB when full.
MOST_CACHED_TOKENS: Final = 16_384


class AccessClaims(msgspec.Struct, frozen=True):
    """Claims of an access token (RFC 9068, section 2.2). Instants are seconds since the epoch."""

    iss: str
    sub: str
    client_id: str
    aud: list[str]
    scope: str  #: the environment
    iat: int
    exp: int
    jti: str
    ver: int  #: of the client's secret; a claim of ours


class _CachedToken(NamedTuple):
    claims: AccessClaims
    client: Client
    principal: Principal
    until: int  # milliseconds since the epoch: it is read again then


_decode_claims = msgspec.json.Decoder(AccessClaims).decode


class TokenIssuer:
    """Makes and checks the tokens of this instance. ``lifetime`` is in seconds."""

    def __init__(
        self,
        clients: Clients,
        keys: SigningKeys,
        audiences: Audiences,
        clock: Clock,
        lifetime: int = 300,
    ) -> None:
        self.clients = clients
        self.keys = keys
        self.audiences = audiences
        self._clock = clock
        self.lifetime = lifetime
        self._cache: dict[str, _CachedToken] = {}

    def __len__(self) -> int:
        """Count the cached tokens."""
        return len(self._cache)

    def issue(self, client: Client, audience: Sequence[str]) -> str:
        """A token for this client at these addresses."""
        now = self._clock() // 1000
        claims = AccessClaims(
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
        """Return the current principal of the token.

        Raises ``VaultError(UNAUTHORIZED)``, and does not tell why.
        """
        return self._valid(token).principal

    def claims(self, token: str) -> AccessClaims | None:
        """Return the claims of a valid token, else ``None`` (RFC 7662, section 2.2)."""
        try:
            return self._valid(token).claims
        except VaultError:
            return None

    def _valid(self, token: str) -> _CachedToken:
        cached, now = self._cache.get(token), self._clock()
        # a change makes a new object
        if (
            cached is None
            or now >= cached.until
            or self.clients.find(cached.client.id) is not cached.client
        ):
            self._cache.pop(token, None)
            cached = self._read(token, now)
            if len(self._cache) >= MOST_CACHED_TOKENS:
                del self._cache[next(iter(self._cache))]  # the oldest, which ends first
            self._cache[token] = cached
        return cached

    def _read(self, token: str, now: int) -> _CachedToken:
        try:
            claims = _decode_claims(signed_by(token, self.keys.by_kid, KIND))
        except (ValueError, msgspec.MsgspecError):
            raise _refused() from None
        client = self.clients.find(claims.client_id)
        if (
            client is None
            or client.disabled
            or (client.version, client.environment) != (claims.ver, claims.scope)
        ):
            raise _refused()
        if now >= claims.exp * 1000 or not self.audiences.meets(claims.aud):
            raise _refused()
        return _CachedToken(claims, client, *client.principal_until(now, claims.exp * 1000))


def _refused() -> VaultError:
    return VaultError(
        Code.UNAUTHORIZED,
        "The access token is not valid: it has expired, was revoked, or is not for this service. "
        "Ask for a new one.",
    )

"""Access tokens: issued (RFC 9068), and checked with each request in microseconds.

The constant properties of a token are checked once: signature, form, audience. They are cached
until the token ends or newer ones need the place. The time and the client's state are checked on
each use.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from proxy.auth.audiences import Audiences
from proxy.auth.clients import Client, Clients
from proxy.auth.sealed_notes import SealedNote
from proxy.clock import Clock
from proxy.crypto.aead import RecordAead
from proxy.crypto.jws import SigningKey, signed_by
from proxy.errors import Code, VaultError
from proxy.model.rights import Principal, Rights
from proxy.model.schema import Schema
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
        return self.by_kid[next(reversed(self.by_kid))]

    def public(self) -> list[dict[str, Any]]:
        """The public halves of all keys that verify, the newest first (RFC 7517)."""
        return [key.jwk for key in reversed(self.by_kid.values())]

    async def load(self) -> None:
        """Read the keys; a store without any gets the first one."""
        self._adopt(await self._read())
        await (self.maintain() if self._stored else self.rotate())

    async def maintain(self) -> None:
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
        if not await self._note.written(_encode(stored)):
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

#: Instants kept for that: more than the seconds that a token lives.
_MOST_ENDS: Final = LONGEST_LIFETIME + 1000


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


class Caller(Principal, frozen=True, eq=False, kw_only=True):
    """The principal of a verified token, with what lets the next request of it be short.

    One object, because among ten thousand callers each object more is a wait for memory. The rights
    are those last asked for (``Policies.rights_of``), of a schema and policies in force then.
    """

    claims: AccessClaims
    holder: Client
    #: milliseconds since the epoch: the token is read again then
    until: int
    #: ``Clients.state`` when the holder was last found to be as it was
    checked: object
    schema: Schema | None = None
    in_force: object = None
    rights: Rights | None = None

    def keep(self, schema: Schema, in_force: object, rights: Rights) -> None:
        """Let the rights stand with it."""
        for name, value in (("schema", schema), ("in_force", in_force), ("rights", rights)):
            structs.force_setattr(self, name, value)


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
        self._cache: dict[str, Caller] = {}
        self._ends: dict[int, int] = {}  # one number for all tokens that end at the same time

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

    def principal(self, token: str) -> Caller:
        """Return the current principal of the token.

        Raises ``VaultError(UNAUTHORIZED)``, and does not tell why.
        """
        cached, now = self._cache.get(token), self._clock()
        if (
            cached is not None
            and now < cached.until
            and (cached.checked is self.clients.state or self._still(cached))
        ):
            return cached
        self._cache.pop(token, None)
        cached = self._read(token, now)
        if len(self._cache) >= MOST_CACHED_TOKENS:
            del self._cache[next(iter(self._cache))]  # the oldest, which ends first
        self._cache[token] = cached
        return cached

    def claims(self, token: str) -> AccessClaims | None:
        """Return the claims of a valid token, else ``None`` (RFC 7662, section 2.2)."""
        try:
            return self.principal(token).claims
        except VaultError:
            return None

    def _still(self, cached: Caller) -> bool:
        """Whether the client is as it was: clients have changed, and a changed one is another."""
        if self.clients.find(cached.client) is not cached.holder:
            return False
        structs.force_setattr(cached, "checked", self.clients.state)
        return True

    def _read(self, token: str, now: int) -> Caller:
        try:
            claims = _decode_claims(signed_by(token, self.keys.by_kid, KIND))
        except (ValueError, msgspec.MsgspecError):
            raise token_refused() from None
        client = self.clients.find(claims.client_id)
        if (
            client is None
            or client.disabled
            or (client.version, client.environment) != (claims.ver, claims.scope)
        ):
            raise token_refused()
        if now >= claims.exp * 1000 or not self.audiences.meets(claims.aud):
            raise token_refused()
        principal, until = client.principal_until(now, claims.exp * 1000)
        if len(self._ends) >= _MOST_ENDS:
            self._ends.clear()
        until = self._ends.setdefault(until, until)
        return Caller(
            *structs.astuple(principal),
            claims=claims,
            holder=client,
            until=until,
            checked=self.clients.state,
        )


def token_refused() -> VaultError:
    """The refusal of a token, whatever is wrong with it."""
    return VaultError(
        Code.UNAUTHORIZED,
        "The access token is not valid: it has expired, was revoked, or is not for this service. "
        "Ask for a new one.",
    )

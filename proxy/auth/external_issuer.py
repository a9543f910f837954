"""Access tokens of an external issuer: verified by its keys (RFC 7517, RFC 9068), or asked about
one by one (RFC 7662).

Who a token stands for is a client that is registered here under the id which the issuer gives it
(``Client.external``): environment, policies and the right to administer are ours to give, never the
token's. Which claims name environment and client is set.

Keys and answers are believed for a minute at most, also where the clock is set back meanwhile, and
never past the end of the token; a client that ends, ends at once. An issuer that cannot be asked
makes no token valid.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from proxy.auth.access_tokens import token_refused
from proxy.auth.clients import Client, Clients
from proxy.clock import Clock
from proxy.crypto.jws import ForeignKeys, UnknownKeyError
from proxy.errors import Code, VaultError
from proxy.model.rights import Principal

#: Milliseconds for which keys and answers of an issuer are believed.
BELIEVED: Final = 60_000

#: Milliseconds between two look-ups of an unknown key of a token, and after a failed one.
PAUSE: Final = 5_000
_FAILED: Final = 1_000

#: Tokens that are remembered, as many that are valid as that are not, and milliseconds for which it
#: is kept that one is not.
MOST_CACHED_ANSWERS: Final = 16_384
_REFUSED: Final = 10_000

#: Milliseconds that the clocks of issuer and vault may differ for the beginning of a token; its end
#: is exact.
_SKEW: Final = 60_000

_decode = msgspec.json.Decoder(dict[str, Any]).decode

ForeignClaims = dict[str, Any]


class Expected(NamedTuple):
    """Claims that a token must have, and their names."""

    issuer: str | None  #: ``iss``; ``None``: any, where that is optional
    audience: Callable[[Sequence[str]], bool]  #: whether one of these addresses is ours
    #: the claim that names the environment; ``None``: where the client is registered
    environment: str | None = "scope"
    client: str = "client_id"  #: the claim that names the client
    #: of ``aud`` and ``iss``, those that may be missing (introspection)
    optional: frozenset[str] = frozenset()


class ByKeys:
    """Tokens are verified here, with keys that the issuer publishes.

    ``fetch`` gives their document; ``addressed``: a token has to say whom it is for.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], clock: Clock, *, addressed: bool = True
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._addressed = addressed
        self._keys: ForeignKeys | None = None
        self._at = 0  # when the keys were asked for
        self._failed: tuple[int, VaultError] | None = None
        self._asking = asyncio.Lock()

    async def claims(self, token: str) -> tuple[ForeignClaims, int]:
        """Return the claims of a valid token, and the time until which they may be trusted, in
        milliseconds since the epoch.

        Raises ``ValueError`` for a token that is not valid; ``VaultError(ISSUER_UNREACHABLE)``.
        """
        keys = await self._fresh(BELIEVED)
        try:
            payload = keys.payload(token)
        except UnknownKeyError:
            payload = (await self._fresh(PAUSE)).payload(token)
        claims = _decode(payload)
        addressed = claims.get("aud") or not self._addressed
        if not isinstance(claims.get("exp"), int | float) or not addressed:
            raise ValueError("the token has no expiry or no audience")
        return claims, self._at + BELIEVED

    def _current(self, age: int) -> ForeignKeys | None:
        """The keys, if they are no older than that."""
        return self._keys if 0 <= self._clock() - self._at < age else None

    async def _fresh(self, age: int) -> ForeignKeys:
        """The keys, no older than that; whoever needs no new ones waits for no issuer."""
        if (keys := self._current(age)) is not None:
            return keys
        async with self._asking:
            if (keys := self._current(age)) is not None:
                return keys
            now = self._clock()
            if self._failed is not None and 0 <= now - self._failed[0] < _FAILED:
                raise self._failed[1]
            try:
                self._keys = ForeignKeys.read(await self._fetch())
            except ValueError:
                self._failed = (now, unreachable("what it publishes is no set of keys"))
                raise self._failed[1] from None
            except VaultError as error:
                self._failed = (now, error)
                raise
            self._at = now
            return self._keys


class ByIntrospection:
    """Tokens are verified by introspection. ``ask`` returns the answer of the issuer."""

    def __init__(self, ask: Callable[[str], Awaitable[bytes]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock

    async def claims(self, token: str) -> tuple[ForeignClaims, int]:
        now = self._clock()
        try:
            claims = _decode(await self._ask(token))
        except msgspec.MsgspecError:
            raise unreachable("its answer is no JSON object") from None
        if claims.get("active") is not True:
            raise ValueError("the token is not active")
        return claims, now + BELIEVED


_Said = TypeVar("_Said")
_Name = TypeVar("_Name")
_Value = TypeVar("_Value")


class _Span(NamedTuple):
    """Milliseconds since the epoch. An instant before it tells that the clock was set back."""

    since: int
    until: int


_NEVER: Final = _Span(0, 0)


class _CachedAnswer(NamedTuple, Generic[_Said]):
    span: _Span
    said: _Said


class TokenReader(Generic[_Said]):
    """Cache of tokens of an issuer, each for as long as its claims may be trusted.

    ``read`` makes it of the claims and the end of their belief; ``ValueError`` when they do not
    count here.
    """

    def __init__(
        self,
        issuer: ByKeys | ByIntrospection,
        read: Callable[[ForeignClaims, int], tuple[_Said, int]],
        clock: Clock,
        most_cached: int = MOST_CACHED_ANSWERS,
    ) -> None:
        self._most_cached = most_cached
        self._issuer = issuer
        self._read = read
        self._clock = clock
        self._cache: dict[str, _CachedAnswer[_Said]] = {}
        #: Separate, so that made-up tokens displace no valid one; by digests, for they may be long.
        self._bad: dict[bytes, _Span] = {}
        self._running: dict[str, asyncio.Task[_Said]] = {}

    def __len__(self) -> int:
        """Count the cached tokens."""
        return len(self._cache) + len(self._bad)

    def remembered(self, token: str) -> _Said | None:
        """Return the cached meaning of a token that may still be trusted."""
        cached = self._cache.get(token)
        if cached is None or not cached.span.since <= self._clock() < cached.span.until:
            return None
        return cached.said

    async def ask(self, token: str) -> _Said:
        """Return the meaning of a token; ask its issuer if it is not cached.

        Raises ``VaultError``: UNAUTHORIZED, which does not tell why; ISSUER_UNREACHABLE.
        """
        since, until = self._bad.get(_digest(token), _NEVER)
        if since <= self._clock() < until:
            raise token_refused()
        task = self._running.get(token)
        if task is None:  # requests that come together ask once
            task = self._running[token] = asyncio.create_task(self._ask_once(token))
            task.add_done_callback(lambda done: self._ended(token, done))
        return await asyncio.shield(task)

    def _ended(self, token: str, task: "asyncio.Task[_Said]") -> None:
        del self._running[token]
        if not task.cancelled():
            task.exception()  # all waiters have their result, or have left

    async def _ask_once(self, token: str) -> _Said:
        since = self._clock()
        try:
            claims, until = await self._issuer.claims(token)
            said, until = self._read(claims, until)
        except (ValueError, msgspec.MsgspecError):
            self._cache.pop(token, None)
            now = self._clock()
            self._put(self._bad, _digest(token), _Span(now, now + _REFUSED))
            raise token_refused() from None
        self._bad.pop(_digest(token), None)
        self._put(self._cache, token, _CachedAnswer(_Span(since, until), said))
        return said

    def _put(self, cache: dict[_Name, _Value], name: _Name, value: _Value) -> None:
        """Remember one more; the oldest gives way."""
        cache.pop(name, None)
        if len(cache) >= self._most_cached:
            del cache[next(iter(cache))]
        cache[name] = value


class External:
    """Principals of the tokens of an external issuer."""

    def __init__(
        self,
        issuer: ByKeys | ByIntrospection,
        clients: Clients,
        expected: Expected,
        clock: Clock,
        most_cached: int = MOST_CACHED_ANSWERS,
    ) -> None:
        self._clients = clients
        self._expected = expected
        self._clock = clock
        self._reader = TokenReader(issuer, self._read, clock, most_cached)

    def __len__(self) -> int:
        """Count the cached tokens."""
        return len(self._reader)

    def remembered(self, token: str) -> Principal | None:
        """Return the cached principal of a token that may still be trusted."""
        cached = self._reader.remembered(token)
        if cached is None:
            return None
        client, principal = cached
        return principal if self._clients.find(client.id) is client else None

    async def principal(self, token: str) -> Principal:
        """Return the principal of a token. Raises as ``TokenReader.ask``."""
        principal = self.remembered(token)
        if principal is None:
            _, principal = await self._reader.ask(token)
        return principal

    def _read(self, claims: ForeignClaims, until: int) -> tuple[tuple[Client, Principal], int]:
        """The client that the claims name. ``ValueError`` when they do not count here."""
        expected = self._expected
        end = check_claims(claims, expected, self._clock())
        (name,) = _words(claims.get(expected.client))
        places = (
            None
            if expected.environment is None
            else frozenset(_scope(claims.get(expected.environment)))
        )
        registered = self._clients.registered(name)
        fitting = [
            client for client in registered if places is None or client.environment in places
        ]
        if len(fitting) != 1 or fitting[0].disabled:
            raise ValueError("the token names no client that is registered, or several")
        principal, until = fitting[0].principal_until(self._clock(), min(until, end))
        return (fitting[0], principal), until


def check_claims(claims: ForeignClaims, expected: Expected, now: int) -> int:
    """The end of a token, in milliseconds; ``ValueError`` when it does not count here."""
    end = int(_instant(claims, "exp", (now + BELIEVED) / 1000) * 1000)
    if now >= end or _instant(claims, "nbf", 0) * 1000 > now + _SKEW:
        raise ValueError("the token has ended, or has not begun")
    if missing := {"iss", "aud"} - claims.keys() - expected.optional:
        raise ValueError(f"nothing tells of the token's {' and '.join(sorted(missing))}")
    if (
        "iss" in claims
        and claims["iss"] != expected.issuer
        and not (expected.issuer is None and "iss" in expected.optional)
    ):
        raise ValueError("the token is of another issuer")
    if "aud" in claims and not expected.audience(_words(claims["aud"])):
        raise ValueError("the token is for another audience")
    return end


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def unreachable(reason: str) -> VaultError:
    """The failure to reach the issuer; ``reason`` says what it did, never what it said."""
    error = VaultError(
        Code.ISSUER_UNREACHABLE,
        f"The issuer of access tokens cannot be asked, so no token of it is valid: {reason}.",
    )
    error.retry_after = 1
    return error


def _instant(claims: ForeignClaims, name: str, default: float) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise ValueError("an instant of the token is none")
    return value


def _words(value: Any) -> list[str]:
    """Return a text or a list of texts as a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts):
        raise ValueError("a claim of the token is no text")
    return texts


def _scope(value: Any) -> list[str]:
    """The words of a scope, which some issuers write as a list."""
    return [word for text in _words(value) for word in text.split()]

"""Requests of our own to services of the customer: filter endpoints, token issuers.

One client, with connections that are used again.

It goes to the address it was given and nowhere else: no redirect is followed, no proxy of the
environment is used, no cookie is kept, the certificate is verified, and an answer has a bounded
size.
"""

import asyncio
import base64
import ipaddress
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import aiohttp
import yarl
from aiohttp.abc import ResolveResult

from proxy.auth.external_acl import timed_out, wrong
from proxy.auth.external_issuer import unreachable
from proxy.net.client_address import IpNetwork, canonical_address, in_networks, is_special_address
from proxy.net.tls import machine_context

# Egress allow-list for filter endpoints of tenants: the hosts and addresses that may be called for
# them (SSRF protection).
#
# A tenant administrator could otherwise have this program send requests to anything it reaches:
# services of the private network, the metadata of a cloud, its own administration. A name counts
# only if the list has it, and its address is checked again at each connection, for its owner may
# have changed it.


class EgressPolicy:
    """The hosts of ``acl.allow``: names, networks and single addresses.

    A name reaches public addresses, and of others those of the networks.
    """

    def __init__(self, allowed: Iterable[str | IpNetwork] = ()) -> None:
        destinations = tuple(allowed)
        self._names = frozenset(item for item in destinations if isinstance(item, str))
        self._networks = tuple(item for item in destinations if not isinstance(item, str))

    def lists(self, url: str) -> bool:
        """Whether the host of an address, read as by what connects to it, is in the list."""
        try:
            host = (yarl.URL(url).raw_host or "").lower().removesuffix(".")
        except ValueError:
            return False
        return (
            in_networks(canonical_address(host), self._networks)
            if _is_address(host)
            else host in self._names
        )

    def allows(self, address: str) -> bool:
        """Whether a name of the list may stand for that IP address."""
        there = canonical_address(address)
        return in_networks(there, self._networks) or not is_special_address(there)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


#: Nobody may be asked: what holds where nothing is set.
NO_EGRESS: Final = EgressPolicy()

#: Bytes of an answer: the keys of ten thousand records.
LARGEST_ANSWER: Final = 4 * 2**20

#: Connections in all and to one host, so that one that hangs leaves room for others, and seconds
#: for which one that is idle is kept. Who finds none waits within the time of the exchange.
_CONNECTIONS: Final = 200
_TO_ONE: Final = 100
_KEEP: Final = 15.0

_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "domicile",
}


class UnansweredError(Exception):
    """There is no valid answer; the text says what the other side did, never what it said."""


class Outbound:
    """For the event loop it is entered on.

    ``seconds``: what one exchange may take, connecting included; ``context``: whom it trusts,
    ``None``: the authorities of the machine; ``egress``: where it may go, ``None``: anywhere.
    """

    def __init__(
        self, seconds: float, context: ssl.SSLContext | None, egress: EgressPolicy | None = None
    ) -> None:
        self.seconds = seconds
        self._context = context
        self._egress = egress
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        resolver = None if self._egress is None else _Bounded(self._egress)
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS, limit_per_host=_TO_ONE, keepalive_timeout=_KEEP, resolver=resolver
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # the time of the exchange is measured here, as one
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> bytes:
        """The body of an answer with the status 200.

        Raises ``TimeoutError``, ``UnansweredError``.
        """
        if self._egress is not None and not self._egress.lists(url):
            raise UnansweredError("its host is not in acl.allow")
        async with asyncio.timeout(self.seconds):
            try:
                return await self._exchange(method, url, headers, body)
            except _ClosedError:
                pass  # a kept connection was closed meanwhile; asking twice changes nothing
            try:
                return await self._exchange(method, url, headers, body)
            except _ClosedError:
                raise UnansweredError("it closes connections without an answer") from None

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> bytes:
        if self._session is None:
            raise RuntimeError("the client was not entered")
        sent = {**_HEADERS, **headers}
        if self._context is None:  # 40 ms once, and most instances ask nobody
            self._context = machine_context()
        try:
            async with self._session.request(
                method,
                url,
                data=body or None,
                headers=sent,
                allow_redirects=False,
                ssl=self._context,
            ) as answer:
                return await _body(answer)
        except aiohttp.ClientConnectorCertificateError:
            raise UnansweredError("its certificate does not hold") from None
        except aiohttp.ClientConnectorDNSError as error:
            cause = error.os_error
            raise UnansweredError(
                str(cause) if isinstance(cause, _BeyondError) else "it cannot be reached"
            ) from None
        except aiohttp.ClientConnectorError:
            raise UnansweredError("it cannot be reached") from None
        except (aiohttp.ClientConnectionError, ConnectionError):
            raise _ClosedError from None
        except (aiohttp.ClientError, ValueError):
            raise UnansweredError("it does not speak HTTP") from None


class _BeyondError(OSError):
    """A name stands for addresses that may not be asked."""

    def __init__(self) -> None:
        super().__init__("its host stands for an address that is neither public nor in acl.allow")


class _Bounded(aiohttp.ThreadedResolver):
    """Looks names up, and gives those of their addresses that may be asked and connected to."""

    def __init__(self, egress: EgressPolicy) -> None:
        super().__init__()
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await super().resolve(host, port, family)
        within = [one for one in addresses if self._egress.allows(one["host"])]
        if addresses and not within:
            raise _BeyondError
        return within


class _ClosedError(Exception):
    """The connection ended before there was an answer."""


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    if answer.status != 200:
        raise UnansweredError("its status is another than 200")
    if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnansweredError("its answer is compressed, which was not asked for")
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise UnansweredError(f"its answer is larger than {LARGEST_ANSWER} bytes")
        pieces.append(piece)
    return b"".join(pieces)


# Asks filter endpoints (``auth.external_acl``) over HTTP.

#: Told how each exchange ended: ``answered``, ``wrong``, ``late``.
ObserveOutbound = Callable[[str], None]


class AclClient:
    """Client for all policies; ``outbound`` is entered by its maker."""

    def __init__(self, outbound: Outbound, observe: ObserveOutbound) -> None:
        self._outbound = outbound
        self._observe = observe

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        """The body of the endpoint's answer. Raises as ``auth.external_acl.AclTransport``."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        try:
            body = await self._outbound.ask("POST", url, headers, question)
        except TimeoutError:
            self._observe("late")
            raise timed_out(self._outbound.seconds) from None
        except UnansweredError as error:
            self._observe("wrong")
            raise wrong(str(error)) from None
        self._observe("answered")
        return body


# Client of an external token issuer: fetches its keys (RFC 7517), or introspects a token (RFC
# 7662).


class IssuerClient:
    """``url``: of keys or introspection; ``credentials``: ``client id:secret`` of ours there."""

    def __init__(self, outbound: Outbound, url: str, credentials: str | None = None) -> None:
        self._outbound = outbound
        self._url = url
        self._headers = {} if credentials is None else {"Authorization": _basic(credentials)}

    async def keys(self) -> bytes:
        """The document with the keys. Raises ``VaultError`` (ISSUER_UNREACHABLE)."""
        return await self._request("GET", self._headers, b"")

    async def introspect(self, token: str) -> bytes:
        """Return the issuer's answer on a token; raises as ``keys``."""
        form = urllib.parse.urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        return await self._request("POST", headers, form)

    async def _request(self, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
        try:
            return await self._outbound.ask(method, self._url, headers, body)
        except TimeoutError:
            raise unreachable(f"it did not answer within {self._outbound.seconds:g} s") from None
        except UnansweredError as error:
            raise unreachable(str(error)) from None


def _basic(credentials: str) -> str:
    """Both halves are form-encoded before they are joined (RFC 6749, section 2.3.1)."""
    client, _, secret = credentials.partition(":")
    joined = f"{urllib.parse.quote_plus(client)}:{urllib.parse.quote_plus(secret)}"
    return "Basic " + base64.b64encode(joined.encode()).decode()

"""Requests of our own to services of the customer: filter endpoints, token issuers. One client, with connections that are used again.

It goes to the address it was given and nowhere else: no redirect is followed, no proxy of the environment is used, no cookie is kept,
the certificate is verified, and an answer has a bounded size.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.abc import ResolveResult

from proxy.web.guard.reach import Reach

#: Bytes of an answer: the keys of ten thousand records.
LARGEST: Final = 4 * 2**20

#: Connections in all, and seconds for which one that is idle is kept. Who finds none waits within the time of the exchange.
_CONNECTIONS: Final = 100
_KEEP: Final = 15.0

_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "domicile"}


class UnansweredError(Exception):
    """There is no answer that counts; the text says what the other side did, never what it said."""


class Outbound:
    """For the event loop it is entered on. ``seconds``: what one exchange may take, connecting included; ``reach``: where it may go,
    ``None``: anywhere.
    """

    def __init__(self, seconds: float, context: ssl.SSLContext, reach: Reach | None = None) -> None:
        self.seconds = seconds
        self._context = context
        self._reach = reach
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        resolver = None if self._reach is None else _Bounded(self._reach)
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS, keepalive_timeout=_KEEP, ssl=self._context, resolver=resolver
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # the time of the exchange is measured here, as one
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
        """The body of an answer with the status 200. Raises ``TimeoutError``, ``UnansweredError``."""
        if self._reach is not None and not self._reach.names(url):
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

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
        if self._session is None:
            raise RuntimeError("the client was not entered")
        sent = {**_HEADERS, **headers}
        try:
            async with self._session.request(
                method, url, data=body or None, headers=sent, allow_redirects=False
            ) as answer:
                return await _body(answer)
        except aiohttp.ClientConnectorCertificateError:
            raise UnansweredError("its certificate does not hold") from None
        except aiohttp.ClientConnectorDNSError as error:
            told = error.os_error
            raise UnansweredError(str(told) if isinstance(told, _BeyondError) else "it cannot be reached") from None
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
    """Looks names up, and gives those of their addresses that may be asked: the very ones that are connected to."""

    def __init__(self, reach: Reach) -> None:
        super().__init__()
        self._reach = reach

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        within = [one for one in found if self._reach.leads(one["host"])]
        if found and not within:
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
        if size > LARGEST:
            raise UnansweredError(f"its answer is larger than {LARGEST} bytes")
        pieces.append(piece)
    return b"".join(pieces)

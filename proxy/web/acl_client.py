"""Asks filter endpoints (``auth.acl``) over HTTP: one client for all policies, with connections that are used again.

It goes to the address of the policy and nowhere else: no redirect is followed, no proxy of the environment is used, no cookie is kept,
the certificate is verified, and an answer has a bounded size.
"""

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import aiohttp

from proxy.auth.acl import late, wrong
from proxy.errors import VaultError

#: Bytes of an answer: the keys of ten thousand records.
LARGEST: Final = 4 * 2**20

#: Connections in all, and seconds for which one that is idle is kept. Who finds none waits within the time of the exchange.
_CONNECTIONS: Final = 100
_KEEP: Final = 15.0

_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "domicile",
}

#: Told how each exchange ended: ``answered``, ``wrong``, ``late``.
Observe = Callable[[str], None]


class AclClient:
    """For the event loop it is entered on. ``timeout`` is the seconds that one exchange may take, connecting included."""

    def __init__(self, timeout: float, context: ssl.SSLContext, observe: Observe) -> None:
        self._timeout = timeout
        self._context = context
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEEP, ssl=self._context)
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

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        """The body of the endpoint's answer. Raises as ``auth.acl.Asker``."""
        try:
            async with asyncio.timeout(self._timeout):
                body = await self._patiently(url, token, question)
        except TimeoutError:
            self._observe("late")
            raise late(self._timeout) from None
        except VaultError:
            self._observe("wrong")
            raise
        self._observe("answered")
        return body

    async def _patiently(self, url: str, token: str, question: bytes) -> bytes:
        """One exchange; a second one where a kept connection turned out to be closed: asking twice changes nothing."""
        try:
            return await self._exchange(url, token, question)
        except _ClosedError:
            pass
        try:
            return await self._exchange(url, token, question)
        except _ClosedError:
            raise wrong("it closes connections without an answer") from None

    async def _exchange(self, url: str, token: str, question: bytes) -> bytes:
        if self._session is None:
            raise RuntimeError("the client was not entered")
        headers = {**_HEADERS, "Authorization": f"Bearer {token}"}
        try:
            async with self._session.post(url, data=question, headers=headers, allow_redirects=False) as answer:
                return await _body(answer)
        except aiohttp.ClientConnectorCertificateError:
            raise wrong("its certificate does not hold") from None
        except aiohttp.ClientConnectorError:
            raise wrong("it cannot be reached") from None
        except (aiohttp.ClientConnectionError, ConnectionError):
            raise _ClosedError from None
        except (aiohttp.ClientError, ValueError):
            raise wrong("it does not speak HTTP") from None


class _ClosedError(Exception):
    """The connection ended before there was an answer."""


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    if answer.status != 200:
        raise wrong("its status is another than 200")
    if answer.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise wrong("its answer is compressed, which was not asked for")
    pieces: list[bytes] = []
    size = 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > LARGEST:
            raise wrong(f"its answer is larger than {LARGEST} bytes")
        pieces.append(piece)
    return b"".join(pieces)

"""Asks an external issuer of access tokens: for its keys (RFC 7517), or what a token is (RFC 7662)."""

import base64
import urllib.parse
from collections.abc import Mapping

from proxy.auth.external import unreachable
from proxy.web.outbound import Outbound, UnansweredError


class IssuerClient:
    """``url`` is where keys or introspection are; ``credentials`` are ``client id:secret`` of ours at the issuer."""

    def __init__(self, outbound: Outbound, url: str, credentials: str | None = None) -> None:
        self._outbound = outbound
        self._url = url
        self._headers = {} if credentials is None else {"Authorization": _basic(credentials)}

    async def keys(self) -> bytes:
        """The document with the keys. Raises ``VaultError`` (ISSUER_UNREACHABLE)."""
        return await self._asked("GET", self._headers, b"")

    async def introspect(self, token: str) -> bytes:
        """What the issuer says of a token; raises as ``keys``."""
        form = urllib.parse.urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        return await self._asked("POST", headers, form)

    async def _asked(self, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
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

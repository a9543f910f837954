"""Audiences: the addresses at which tokens are issued and accepted.

An address is compared as an origin (RFC 6454): scheme, host in lower case, and the port unless it
is the usual one.
"""

import urllib.parse
from collections.abc import Sequence
from typing import Final

_PORTS: Final = {"http": 80, "https": 443}
_EVERYWHERE: Final = ("0.0.0.0", "[::]")  # noqa: S104  # recognised here, not listened at
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def origin(address: str) -> str:
    """The address in its one spelling. ``ValueError`` when it is not ``http(s)://host[:port]``."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("this is not an address at http:// or https://")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("only scheme, host and port may be given")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port
    return f"{parts.scheme}://{host}" + (
        f":{port}" if port is not None and port != _PORTS[parts.scheme] else ""
    )


class Audiences:
    """The addresses of the settings; without any, those that the listener has itself.

    A listener on every interface or on loopback also has the names of loopback, so that a first try
    with ``localhost`` works; one that speaks TLS has the names of its certificates, and no other.
    The names that a proxy in front gives it cannot be known here: those have to be set.
    """

    def __init__(self, configured: Sequence[str] = ()) -> None:
        self._names = tuple(origin(address) for address in configured)
        self._configured = bool(configured)
        self._listener = ""
        self._certified: tuple[str, ...] = ()

    def listening(self, listener: str) -> None:
        """Tell where the listener is, as ``host:port``; of no effect where addresses are set."""
        self._listener = listener
        self._find()

    def certified(self, names: Sequence[str]) -> None:
        """Tell for which names its certificates stand: it is reached by these alone, over TLS.

        Wildcards name no address.
        """
        self._certified = tuple(name for name in names if not name.startswith("*."))
        self._find()

    def _find(self) -> None:
        if self._configured or not self._listener:
            return
        port = self._listener.rpartition(":")[2]
        addresses = [f"https://{name}:{port}" for name in self._certified]
        self._names = tuple(
            dict.fromkeys(
                map(origin, addresses or [f"http://{name}" for name in _names(self._listener)])
            )
        )

    @property
    def first(self) -> str:
        """The address that this instance calls itself by: the issuer of its tokens."""
        return self._names[0]

    def ours(self, parameter: str) -> tuple[str, ...]:
        """The addresses of an ``audience`` parameter, separated by spaces; the first one of ours
        where none is named.

        ``ValueError`` as soon as one of them is not ours.
        """
        addresses = tuple(dict.fromkeys(origin(address) for address in parameter.split()))
        if any(address not in self._names for address in addresses):
            raise ValueError("this address belongs to another server")
        return addresses or (self.first,)

    def meets(self, named: Sequence[str]) -> bool:
        """Whether a token for these addresses is for us."""
        return any(address in self._names for address in named)


def _names(listener: str) -> list[str]:
    host, _, port = listener.rpartition(":")
    names = [] if host in _EVERYWHERE else [host]
    if not names or host in _LOOPBACK:
        names += _LOOPBACK
    return [f"{name}:{port}" for name in names]

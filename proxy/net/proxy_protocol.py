"""PROXY protocol, versions 1 and 2: the caller's address before its first byte.

After HAProxy's specification (proxy-protocol.txt). A strict reader without I/O: only a plain
preamble of a stream connection is accepted, and nothing is guessed. The checksum of version 2
(CRC32c) is verified if present; of its further fields only TLS is used.
"""

import asyncio
import ipaddress
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, cast

from proxy.net.client_address import (
    UNKNOWN,
    ClientAddress,
    IpNetwork,
    Trusted,
    canonical_address,
    loopback,
    peer_of,
)
from proxy.telemetry import logs

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V1: Final = re.compile(
    rb"PROXY (?:(TCP[46]) ([0-9A-Fa-f.:]{2,39}) ([0-9A-Fa-f.:]{2,39}) (0|[1-9][0-9]{0,4}) "
    rb"(0|[1-9][0-9]{0,4})"
    rb"|UNKNOWN(?: [\x20-\x7e]*)?)"
)
#: The longest line of version 1, its line end included (section 2.1).
V1_MAX: Final = 107
#: The most that is read of version 2 behind its first 16 bytes. Load balancers send some hundred
#: bytes at most.
V2_MAX: Final = 4096

_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
#: Bytes of addresses and ports by family and transport (section 2.2); a datagram is no connection
#: and stands not here.
_SIZES: Final = {0x00: 0, _TCP4: 12, _TCP6: 36, 0x31: 216}
_CRC32C, _SSL = 0x03, 0x20


class BadPreambleError(Exception):
    """The bytes are not a preamble. The text never quotes them."""


class Preamble(NamedTuple):
    """Parsed PROXY preamble."""

    size: int  #: bytes of it; the rest is the caller's
    local: bool = False  #: the load balancer speaks for itself, e.g. to see whether we live
    host: str = ""  #: the caller's address; empty: not told
    port: int = 0
    secure: bool = False  #: the caller came over TLS


def parse_preamble(data: bytes) -> Preamble | None:
    """Read the preamble at the start of these bytes; ``None``: it is not complete.

    Raises ``BadPreambleError``.
    """
    if data[:12] == _SIGNATURE[: len(data)]:
        return _binary(data) if len(data) >= 16 else None
    if data[:6] == b"PROXY "[: len(data)]:
        return _text(data)
    raise BadPreambleError("it begins neither as version 1 nor as version 2")


def _text(data: bytes) -> Preamble | None:
    end = data.find(b"\r\n", 0, V1_MAX)
    if end < 0:
        if len(data) >= V1_MAX or b"\n" in data:
            raise BadPreambleError("the line of version 1 has no end")
        return None
    match = _V1.fullmatch(data, 0, end)
    if match is None:
        raise BadPreambleError("the line of version 1 is not as the specification says")
    family, source, target, port, other = match.groups()
    if family is None:
        return Preamble(end + 2)
    kind = ipaddress.IPv4Address if family == b"TCP4" else ipaddress.IPv6Address
    try:
        host, _ = str(kind(source.decode())), kind(target.decode())
    except ValueError:
        raise BadPreambleError("an address of version 1 is not of its family") from None
    if int(port) > 65535 or int(other) > 65535:
        raise BadPreambleError("a port is too large")
    return Preamble(end + 2, host=host, port=int(port))


def _binary(data: bytes) -> Preamble | None:
    command, family, length = data[12], data[13], int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise BadPreambleError("version or command of version 2 is unknown")
    if length > V2_MAX:
        raise BadPreambleError("version 2 announces too many bytes")
    size = 16 + length
    if len(data) < size:
        return None
    if command == _LOCAL:
        return Preamble(size, local=True)
    addresses = _SIZES.get(family)
    if addresses is None:
        raise BadPreambleError("version 2 tells of what is no stream connection")
    if length < addresses:
        raise BadPreambleError("version 2 announces fewer bytes than its addresses need")
    secure = _extras(data[:size], 16 + addresses)
    if family == _TCP4:
        host, port = str(ipaddress.IPv4Address(data[16:20])), struct.unpack_from("!H", data, 24)[0]
    elif family == _TCP6:
        host, port = str(ipaddress.IPv6Address(data[16:32])), struct.unpack_from("!H", data, 48)[0]
    else:
        return Preamble(size, secure=secure)
    return Preamble(size, host=host, port=port, secure=secure)


def _extras(data: bytes, at: int) -> bool:
    """Check the fields behind the addresses; return whether one reports TLS towards the caller."""
    secure = False
    for kind, start, end in _fields(data, at):
        if kind == _CRC32C:
            bare = data[:start] + bytes(end - start) + data[end:]
            if end - start != 4 or int.from_bytes(data[start:end], "big") != crc32c(bare):
                raise BadPreambleError("the checksum of version 2 does not fit")
        elif kind == _SSL:
            if end - start < 5:
                raise BadPreambleError("the TLS field of version 2 is too short")
            secure = bool(data[start] & 1)
    return secure


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Kind, start and end of each further field."""
    while at < len(data):
        if len(data) - at < 3:
            raise BadPreambleError("a field of version 2 is cut off")
        start = at + 3
        end = start + int.from_bytes(data[at + 1 : start], "big")
        if end > len(data):
            raise BadPreambleError("a field of version 2 is longer than its preamble")
        yield data[at], start, end
        at = end


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum (RFC 3309 appendix B), reflected, as in the PROXY protocol."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


# Reads the PROXY protocol before a connection is the HTTP server's, from peers that are trusted to
# speak it.
#
# The specification forbids to guess whether a preamble is there. Here the peer's address decides: a
# trusted proxy must send one, within five seconds, and anybody else speaks HTTP at once, so that a
# preamble of theirs is answered with 400. Where the setting is off, this file has no part in a
# connection.

_log = logs.logger("web")

#: How long a preamble may take. It is one segment of a machine nearby; the specification asks for
#: three seconds or more.
PREAMBLE_TIMEOUT: Final = 5.0


class CallerAware(Protocol):
    """An HTTP connection that can be told who its caller is."""

    learned: ClientAddress | None  #: who the caller is, once somebody asked or a trusted proxy told


class Preambles:
    """Makes the protocol of new connections: a reader of the preamble, with the connection that
    follows it.

    ``secure``: TLS follows the preamble, so callers use it whatever the preamble says.
    """

    def __init__(
        self,
        networks: Sequence[IpNetwork],
        patience: float = PREAMBLE_TIMEOUT,
        *,
        secure: bool = False,
    ) -> None:
        self.trusted = Trusted(networks)
        self.patience = patience
        self.secure = secure
        self.waiting: set[_Reader] = set()  #: connections whose preamble is not complete
        #: Whether a connection may stay, now that the address of its caller is known.
        self.admit: Callable[[asyncio.BaseTransport, str], bool] = lambda _transport, _host: True

    def __call__(self, connection: CallerAware, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Wrap a new connection; ``inner`` follows, and ``connection`` learns the caller."""
        return _Reader(self, connection, inner)

    def close(self) -> None:
        """End the connections that have not begun to speak HTTP."""
        for reader in list(self.waiting):
            reader.end()


class _Reader(asyncio.Protocol):
    def __init__(self, home: Preambles, connection: CallerAware, inner: asyncio.Protocol) -> None:
        self._home = home
        self._connection = connection
        self._inner = inner
        self._buffer = b""
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._timer: asyncio.TimerHandle | None = None
        self.idle_since = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._home.trusted.holds(peer_of(transport).host):
            self._hand_over(b"")
            return
        self._home.waiting.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._home.patience, self._refuse, "it did not come in time")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            preamble = parse_preamble(self._buffer)
        except BadPreambleError as why:
            self._refuse(str(why))
            return
        if preamble is not None:
            self._forget()
            learned = self._connection.learned = self._learned(preamble)
            if (
                learned.host
                and not preamble.local
                and not self._home.admit(self._transport, learned.host)
            ):
                self._transport.abort()
                return
            self._hand_over(self._buffer[preamble.size :])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # the name is asyncio's
        self._forget()

    def _learned(self, preamble: Preamble) -> ClientAddress:
        """Return the caller's address; unknown if the proxy does not tell it, never the proxy's."""
        secure = self._home.secure or preamble.secure
        if preamble.local:
            return peer_of(self._transport)._replace(secure=secure)
        if not preamble.host or self._of_another_machine(preamble.host):
            return UNKNOWN._replace(secure=secure)
        return ClientAddress(canonical_address(preamble.host), preamble.port, secure)

    def _of_another_machine(self, host: str) -> bool:
        """Whether a proxy elsewhere tells of its own loopback, behind which anybody may be."""
        return loopback(canonical_address(host)) and not loopback(peer_of(self._transport).host)

    def _hand_over(self, rest: bytes) -> None:
        transport, inner = self._transport, self._inner
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if rest:
            inner.data_received(rest)

    def _refuse(self, reason: str) -> None:
        _log.warning("a trusted proxy sent no PROXY preamble and was refused", reason=reason)
        self.end()

    def _forget(self) -> None:
        self._home.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Drop the connection."""
        self._forget()
        self._transport.abort()

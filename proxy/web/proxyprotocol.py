"""The PROXY protocol, versions 1 and 2: what a load balancer says of its caller before the caller's first byte.

After HAProxy's specification (proxy-protocol.txt). A strict reader without I/O: whatever is not plainly one preamble of a
stream connection is refused, and nothing is guessed. The checksum of version 2 (CRC32c) is verified where it is given, of
its further fields only the one that tells of TLS is used.
"""

import ipaddress
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V1: Final = re.compile(
    rb"PROXY (?:(TCP[46]) ([0-9A-Fa-f.:]{2,39}) ([0-9A-Fa-f.:]{2,39}) (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4})"
    rb"|UNKNOWN(?: [\x20-\x7e]*)?)"
)
#: The longest line of version 1, its line end included (section 2.1).
V1_MAX: Final = 107
#: The most that is read of version 2 behind its first 16 bytes. Load balancers send some hundred bytes at most.
V2_MAX: Final = 4096

_LOCAL, _PROXY = 0x20, 0x21
_TCP4, _TCP6 = 0x11, 0x21
#: Bytes of addresses and ports by family and transport (section 2.2); a datagram is no connection and stands not here.
_SIZES: Final = {0x00: 0, _TCP4: 12, _TCP6: 36, 0x31: 216}
_CRC32C, _SSL = 0x03, 0x20


class BadPreambleError(Exception):
    """The bytes are not a preamble. The text never quotes them."""


class Preamble(NamedTuple):
    """What was read."""

    size: int  #: bytes of it; what follows is the caller's
    local: bool = False  #: the load balancer speaks for itself, e.g. to see whether we live
    host: str = ""  #: the caller's address; empty: not told
    port: int = 0
    secure: bool = False  #: the caller came over TLS


def parse(data: bytes) -> Preamble | None:
    """Read the preamble at the start of these bytes; ``None``: it is not complete. Raises ``BadPreambleError``."""
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
    """Check the further fields behind the addresses; whether one tells of TLS towards the caller."""
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
    """The Castagnoli checksum (RFC 3309 appendix B), reflected, as iSCSI and the PROXY protocol use it."""
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF

import asyncio
import ipaddress
import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.net.client_address import UNKNOWN, ClientAddress
from proxy.net.proxy_protocol import (
    V1_MAX,
    V2_MAX,
    BadPreambleError,
    Preamble,
    Preambles,
    crc32c,
    parse_preamble,
)
from tests.support.table import table
from tests.unit.net.test_client_address import Transport

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = (
    ipaddress.ip_address("192.0.2.7").packed
    + ipaddress.ip_address("198.51.100.1").packed
    + struct.pack("!HH", 5, 80)
)
V6 = (
    ipaddress.ip_address("2001:db8::7").packed
    + ipaddress.ip_address("::1").packed
    + struct.pack("!HH", 6, 80)
)


def v2(payload: bytes, command: int = 0x21, family: int = 0x11, length: int | None = None) -> bytes:
    return (
        SIGNATURE
        + bytes([command, family])
        + struct.pack("!H", len(payload) if length is None else length)
        + payload
    )


def extra(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack("!H", len(value)) + value


def summed(payload: bytes, *, wrong: int = 0) -> bytes:
    """With a checksum behind it, as the specification computes it."""
    whole = v2(payload + extra(3, bytes(4)))
    return whole[:-4] + struct.pack("!I", crc32c(whole) ^ wrong)


def test_the_checksum_is_that_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue


@table(
    "data, told",
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 5 80\r\n", Preamble(40, host="192.0.2.7", port=5)),
        (b"PROXY TCP6 2001:DB8::7 ::1 65535 0\r\n", Preamble(36, host="2001:db8::7", port=65535)),
        (b"PROXY UNKNOWN\r\n", Preamble(15)),
        (b"PROXY UNKNOWN ffff:f...f:ffff 1 2\r\n", Preamble(35)),
        (v2(V4), Preamble(28, host="192.0.2.7", port=5)),
        (v2(V6, family=0x21), Preamble(52, host="2001:db8::7", port=6)),
        (v2(b"", family=0), Preamble(16)),
        (v2(extra(4, b"xyz"), family=0), Preamble(22)),
        (v2(bytes(216), family=0x31), Preamble(232)),
        (v2(b"", command=0x20, family=0), Preamble(16, local=True)),
        (v2(V4 + b"rubbish", command=0x20), Preamble(35, local=True)),
        (v2(V4 + extra(1, b"h2") + extra(4, b"")), Preamble(36, host="192.0.2.7", port=5)),
        (
            v2(V4 + extra(0x20, b"\x01\0\0\0\0")),
            Preamble(36, host="192.0.2.7", port=5, secure=True),
        ),
        (
            v2(V4 + extra(0x20, b"\x02\0\0\0\0")),
            Preamble(36, host="192.0.2.7", port=5, secure=False),
        ),
        (summed(V4), Preamble(35, host="192.0.2.7", port=5)),
        (v2(V4 + extra(4, bytes(V2_MAX - 15))), Preamble(16 + V2_MAX, host="192.0.2.7", port=5)),
    ],
)
def test_a_preamble_is_read_and_not_a_byte_behind_it(data, told):
    assert parse_preamble(data) == told
    assert parse_preamble(data + b"GET / HTTP/1.1\r\n") == told
    for end in range(0, len(data), max(1, len(data) // 50)):
        assert parse_preamble(data[:end]) is None


@table(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"PROXY  TCP4 192.0.2.7 198.51.100.1 5 80\r\n",
        b"proxy TCP4 192.0.2.7 198.51.100.1 5 80\r\n",
        b"PROXY TCP5 192.0.2.7 198.51.100.1 5 80\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5 80 9\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 05 80\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 80\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5 65536\r\n",
        b"PROXY TCP4 192.0.2.300 198.51.100.1 5 80\r\n",
        b"PROXY TCP4 ::1 ::1 5 80\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 5 80\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 5 80\n",
        b"PROXY UNKNOWN\nGET / HTTP/1.1\r\n",
        b"PROXY UNKNOWN \x00\r\n",
        b"PROXY UNKNOWN " + b"x" * V1_MAX,
        b"PROXY UNKNOWN " + b"x" * (V1_MAX - 15) + b"\r\n",
        SIGNATURE[:-1] + b"\r" + bytes(20),
        v2(V4, command=0x11),
        v2(V4, command=0x22),
        v2(V4, family=0x12),
        v2(V4, family=0x41),
        v2(V4[:-1]),
        v2(V6[:-1], family=0x21),
        v2(V4, length=V2_MAX + 1),
        v2(V4 + b"\x04\x00"),
        v2(V4 + b"\x04\x00\x05abcd"),
        v2(V4 + extra(0x20, b"\x01")),
        v2(V4 + extra(3, b"abc")),
        summed(V4, wrong=1),
    ],
)
def test_what_is_not_plainly_a_preamble_is_refused(data):
    with pytest.raises(BadPreambleError):
        parse_preamble(data)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11\0"]),
)
def test_any_bytes_are_read_refused_or_waited_for(data, start):
    try:
        told = parse_preamble(start + data)
    except BadPreambleError:
        return
    assert told is None or told.size <= len(start + data)


@given(st.binary(max_size=60), st.integers(1, 60))
def test_more_bytes_never_change_what_was_read_or_refused(data, cut):
    data = SIGNATURE + b"\x21\x11\x00\x10" + data
    try:
        early = parse_preamble(data[:cut])
    except BadPreambleError:
        with pytest.raises(BadPreambleError):
            parse_preamble(data)
        return
    if early is not None:
        assert parse_preamble(data) == early


class Connection(Transport):
    """From a load balancer, with what it tells of the caller."""

    learned: ClientAddress | None = None

    def set_protocol(self, _protocol: Any) -> None:
        """Everything that follows is not looked at."""


@table(
    ("peer", "told", "learned"),
    [
        ("10.0.0.1", "TCP4 192.0.2.7 10.0.0.9", ClientAddress("192.0.2.7", 5)),
        ("10.0.0.1", "TCP4 127.0.0.6 10.0.0.9", UNKNOWN),
        ("10.0.0.1", "TCP6 ::1 ::1", UNKNOWN),
        ("10.0.0.1", "TCP6 ::ffff:127.0.0.1 ::1", UNKNOWN),
        ("127.0.0.1", "TCP4 127.0.0.1 127.0.0.1", ClientAddress("127.0.0.1", 5)),
    ],
)
async def test_the_loopback_of_another_machine_is_nobody_on_this_one(peer, told, learned):
    networks = [ipaddress.ip_network(one) for one in ("10.0.0.0/8", "127.0.0.0/8")]
    connection = Connection(peername=(peer, 9))
    reader = Preambles(networks)(connection, asyncio.Protocol())
    reader.connection_made(cast("Any", connection))
    reader.data_received(f"PROXY {told} 5 80\r\n".encode())
    assert connection.learned == learned

import pytest

from proxy.net.websocket import (
    PROTOCOL_FAULT,
    TOO_BIG,
    MessageReader,
    Opcode,
    ProtocolFault,
    SocketMessage,
    encode_close,
    encode_message,
)
from tests.support.table import table

#: The examples of RFC 6455, section 5.7.
HELLO = bytes.fromhex("810548656c6c6f")
MASKED = bytes.fromhex("818537fa213d7f9f4d5158")
PIECES = bytes.fromhex("010348656c") + bytes.fromhex("80026c6f")
PING = bytes.fromhex("890548656c6c6f")


def read(
    data: bytes, *, masked: bool = False, size: int = 0, most: int = 1 << 20
) -> list[SocketMessage]:
    """The messages of some bytes, which come in pieces of that size."""
    reader = MessageReader(most, masked=masked)
    size = size or len(data)
    return [
        message for at in range(0, len(data), size) for message in reader.feed(data[at : at + size])
    ]


@table("size", [1, 2, 3, 1000])
def test_messages_are_read_however_their_bytes_arrive(size):
    messages = read(HELLO + PIECES + PING, size=size)
    assert [(one.opcode, one.content()) for one in messages] == [
        (Opcode.TEXT, b"Hello"),
        (Opcode.TEXT, b"Hello"),
        (Opcode.PING, b"Hello"),
    ]
    assert [one.content() for one in read(MASKED * 2, masked=True, size=size)] == [b"Hello"] * 2


def test_a_control_frame_may_stand_between_fragments():
    messages = read(PIECES[:5] + PING + PIECES[5:])
    assert [one.opcode for one in messages] == [Opcode.PING, Opcode.TEXT]
    assert messages[1].content() == b"Hello"


@table("masked", [True, False])
@table("size", [0, 1, 125, 126, 65535, 65536, 100_001])
def test_what_is_written_is_read_again(size, masked):
    content = bytes(range(256)) * (size // 256 + 1)
    data = encode_message(Opcode.BINARY, content[:size], masked=masked)
    (message,) = read(data, masked=masked)
    assert (message.opcode, message.size) == (Opcode.BINARY, size)
    assert message.content() == content[:size]


def test_a_close_frame_holds_code_and_reason():
    (message,) = read(encode_close(1008, "no", masked=True), masked=True)
    assert (message.opcode, message.content()) == (Opcode.CLOSE, b"\x03\xf0no")


@table(
    ("data", "code"),
    [
        (bytes.fromhex("c10548656c6c6f"), PROTOCOL_FAULT),  # an extension
        (bytes.fromhex("8300"), PROTOCOL_FAULT),  # an unknown kind
        (MASKED, PROTOCOL_FAULT),
        (bytes.fromhex("8000"), PROTOCOL_FAULT),  # goes on with nothing
        (bytes.fromhex("0100") * 2, PROTOCOL_FAULT),  # a message within a message
        (bytes.fromhex("0900"), PROTOCOL_FAULT),  # a ping in fragments
        (bytes.fromhex("897e"), PROTOCOL_FAULT),  # a long ping
        (bytes.fromhex("0100") + bytes(2) * 1000, TOO_BIG),
        (bytes.fromhex("817f00000001") + bytes(4), TOO_BIG),
        (bytes.fromhex("0108") + b"12345678" + bytes.fromhex("8003"), TOO_BIG),
    ],
)
def test_what_is_no_frame_is_a_fault(data, code):
    with pytest.raises(ProtocolFault) as fault:
        read(data, most=10)
    assert fault.value.code == code


def test_a_frame_of_a_client_without_a_mask_is_a_fault():
    with pytest.raises(ProtocolFault):
        read(HELLO, masked=True)

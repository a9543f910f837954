import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.net.http1.fields import BadMessageError, parse_trailers
from proxy.net.http1.head import (
    Framing,
    ResponseHead,
    check_response_start,
    parse_response_head,
    with_line_ends,
)
from proxy.net.http1.reader import ResponseReader
from tests.support.table import table


def parse(text: bytes) -> ResponseHead:
    data = text + b"\r\n\r\n"
    return parse_response_head(data, data.find(b"\r\n\r\n"))


def test_a_head_is_kept_byte_for_byte():
    head = parse(
        b"HTTP/1.1 200 All  right\r\nX-b: \xe9t\xe9\r\nx-B:2\r\nSet-Cookie: a\r\nSet-Cookie: b "
    )
    assert (head.minor, head.status, head.reason) == (1, 200, b"All  right")
    assert head.block == b"X-b: \xe9t\xe9\r\nx-B:2\r\nSet-Cookie: a\r\nSet-Cookie: b \r\n"
    assert head.headers == (
        (b"X-b", b"\xe9t\xe9"),
        (b"x-B", b"2"),
        (b"Set-Cookie", b"a"),
        (b"Set-Cookie", b"b"),
    )
    assert head.verbatim
    assert head.forwarded() == head.block


@table("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 200 OK"])
def test_a_reason_may_be_missing_and_the_version_may_be_old(line):
    assert parse(line).status == 200


@table(
    "head",
    [
        b"HTTP/2 200 OK",
        b"HTTP/1.2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 200\tOK",
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 OK\nX: y",
        b"ICY 200 OK",
        b" HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\nX : y",
        b"HTTP/1.1 200 OK\r\n X: y",
        b"HTTP/1.1 200 OK\r\nX: y\r\n folded",
        b"HTTP/1.1 200 OK\r\nX: y\nZ: w",
        b"HTTP/1.1 200 OK\r\nX: y\rZ: w",
        b"HTTP/1.1 200 OK\r\nX: \x00",
        b"HTTP/1.1 200 OK\r\nX: \x7f",
        b"HTTP/1.1 200 OK\r\nX\x80: y",
        b"HTTP/1.1 200 OK\r\n: y",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nServer",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x1",
        b"HTTP/1.1 200 OK\r\nContent-Length:",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
    ],
)
def test_what_two_readers_could_read_differently_is_refused(head):
    parse(b"HTTP/1.1 200 OK\r\nServer: x\r\nX: y")  # names seen before are still checked
    with pytest.raises(BadMessageError):
        parse(head)


@table(
    ("fields", "close", "plain", "forwarded"),
    [
        (b"", False, True, b""),
        (b"\r\nConnection: keep-alive", False, True, b""),
        (b"\r\nX: 1\r\nKeep-Alive: timeout=5\r\nconnection: Keep-Alive", False, True, b"X: 1\r\n"),
        (b"\r\nConnection: close\r\nX: 1", True, True, b"X: 1\r\n"),
        (b"\r\nConnection: X, close\r\nX: 1", True, False, b"X: 1\r\n"),
        (b"\r\nUpgrade: h2c\r\nConnection: upgrade", False, False, b"Upgrade: h2c\r\n"),
        (b"\r\nDomicile-Answer: proxy", False, False, b"Domicile-Answer: proxy\r\n"),
        (b"\r\nTransfer-Encoding: Chunked", False, True, b"Transfer-Encoding: Chunked\r\n"),
    ],
)
def test_what_the_fields_say_about_the_connection(fields, close, plain, forwarded):
    head = parse(b"HTTP/1.1 200 OK" + fields)
    assert (head.close, head.verbatim, head.forwarded()) == (close, plain, forwarded)


def test_an_old_version_closes_unless_it_says_otherwise():
    assert parse(b"HTTP/1.0 200 OK").close
    assert not parse(b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive").close


@table(
    ("head", "method", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", "GET", Framing.LENGTH),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", "HEAD", Framing.NONE),
        (b"HTTP/1.1 204 OK\r\nContent-Length: 5", "GET", Framing.NONE),
        (b"HTTP/1.1 304 OK\r\nContent-Length: 5", "GET", Framing.NONE),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "GET", Framing.CHUNKED),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", "HEAD", Framing.NONE),
        (b"HTTP/1.1 200 OK", "GET", Framing.CLOSE),
        (b"HTTP/1.1 101 Switching", "GET", Framing.TUNNEL),
    ],
)
def test_how_the_end_of_a_body_is_known(head, method, kind):
    assert ResponseReader.framing(parse(head), method) is kind


def test_trailers_are_fields():
    assert parse_trailers(b"") == ()
    assert parse_trailers(b"X-Sum: 1\r\nY: 2\r\n") == ((b"X-Sum", b"1"), (b"Y", b"2"))
    with pytest.raises(BadMessageError):
        parse_trailers(b"X Sum: 1\r\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        head = parse(b"HTTP/1.1 200 OK\r\nServer: x\r\n" + data.replace(b"\r\n\r\n", b""))
    except BadMessageError:
        return
    assert (
        b"\r\n".join(b":".join(pair) for pair in head.headers).count(b"\n") == len(head.headers) - 1
    )
    assert all(name.isascii() and name.strip() == name != b"" for name, _ in head.headers)


@table(
    "data",
    [
        b"", b"H", b"HTTP/1.", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r",
        b"HTTP/1.1 200 OK\r\nX: y\r\nZ\r", b"HTTP/1.1 200 OK\nX: y\n",
    ],
)  # fmt: skip
def test_the_beginning_of_a_head_is_waited_for(data):
    assert check_response_start(data) is data


@table(
    "data",
    [
        b"X", b"\r\nHTTP/1.1 200 OK", b"HTTP/2", b"HTTP/1.1 200 OK\r\nX: y\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\nX", b"HTTP/1.1 20 OK\r\n",
        b"HTTP/1.1 200 OK\r\nX: \x00\r\n", b"HTTP/1.1 200 OK\nX: y\r\n",
        b"HTTP/1.1 200 OK\nX: y\rz\n\n",
    ],
)  # fmt: skip
def test_what_can_never_become_a_head_is_refused_at_once(data):
    with pytest.raises(BadMessageError):
        check_response_start(data)


def test_bare_line_ends_throughout_are_mended_and_the_body_is_left_alone():
    assert (
        with_line_ends(b"HTTP/1.1 200 OK\nX: y\n\na\nb\r\n")
        == b"HTTP/1.1 200 OK\r\nX: y\r\n\r\na\nb\r\n"
    )
    for data in (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\na\n\nb", b"HTTP/1.1 200 OK\nX: y\n", b"\n\n"):
        assert with_line_ends(data) is data


#: More than a head may be (``MOST``), with what ends a head of either form within it and behind.
MOST = 65536
LONG_BODY = b"\r\n\r\n\n\n" + b"[1,]" * 20_000 + b"\r\n\r\na\n\nb"


def read_pieces(data: bytes, size: int, most: int = MOST) -> tuple[ResponseHead, bytes] | None:
    """The first head of an answer that comes ``size`` bytes at a time, and all behind it."""
    reader = ResponseReader(most)
    for at in range(0, len(data), size):
        if (read := reader.read_head(data[at : at + size])) is not None:
            return read[0], read[1] + data[at + size :]
    return None


@table("size", [1, 7, 40, 1000, 1 << 20])
@table("end", [b"\n", b"\r\n"])
@table("body", [b"", b"ab", b"a\r\n\r\nb", b"\n\n", LONG_BODY, b"x" * 100_000, LONG_BODY[6:]])
def test_the_first_line_tells_where_a_head_ends_whatever_its_body_holds(body, end, size):
    data = b"HTTP/1.1 200 OK\nX: y\nContent-Length: %d\n\n" % len(body)
    read = read_pieces(data.replace(b"\n", end) + body, size)
    assert read is not None
    head, rest = read
    assert head.block == b"X: y\r\nContent-Length: %d\r\n" % len(body)
    assert (head.status, head.length) == (200, len(body))
    assert rest == body


def test_interim_heads_with_bare_line_ends_come_before_a_long_body():
    reader = ResponseReader(MOST)
    final = b"HTTP/1.1 200 OK\nX: y\n\n" + LONG_BODY
    interim = reader.read_head(b"HTTP/1.1 103 Early Hints\nX: 0\n\n" + final)
    assert interim is not None
    assert (interim[0].status, interim[1]) == (103, final)
    read = reader.read_head(interim[1])
    assert read is not None
    assert (read[0].block, read[1]) == (b"X: y\r\n", LONG_BODY)


@table("size", [1, 7, 1 << 20])
@table("body", [b"", b"a\r\n\r\nb\n\nc", LONG_BODY])
@table(
    "head",
    [
        b"HTTP/1.1 200 OK\nX: y\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\r\nZ: w\n\n",
        b"HTTP/1.1 200 OK\nX: y\n\r\n",
        b"HTTP/1.1 200 OK\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\rZ: w\n\n",
        b"HTTP/1.1 200 OK\r\nX: y\nZ: w\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\nZ: w\n\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\n\r\n",
    ],
)
def test_a_head_that_mixes_line_ends_is_refused_whatever_its_body_holds(head, body, size):
    with pytest.raises(BadMessageError):
        read_pieces(head + body, size)


@table("size", [1, 7, 1 << 20])
@table("body", [b"", LONG_BODY])
@table("end", [b"\n", b"\r\n"])
def test_a_head_of_either_form_that_is_too_large_is_refused(end, body, size):
    start = b"HTTP/1.1 200 OK" + end + b"X: "
    value = b"y" * (1000 - len(b"HTTP/1.1 200 OK\r\nX: "))
    assert read_pieces(start + value + end * 2 + body, size, 1000) is not None
    for data in (start + value + b"y" + end * 2 + body, start + value * 2):
        with pytest.raises(BadMessageError, match="too large"):
            read_pieces(data, size, 1000)


def test_an_ordinary_head_is_looked_for_once():
    class Bytes(bytes):
        finds = 0

        def find(self, *args):
            type(self).finds += 1
            return super().find(*args)

    reader = ResponseReader(MOST)
    for number in (1, 2):
        assert reader.read_head(Bytes(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n" + LONG_BODY)) is not None
        assert Bytes.finds == number


@table(
    ("data", "alone"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokk", False),
        (b"HTTP/1.1 200 OK\r\n\r\nok", False),
        (b"HTTP/1.1 304 OK\r\nContent-Length: 2\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 103 OK\r\nX: 2\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 34\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 34\r", False),
    ],
)
def test_an_answer_alone_is_whole_and_has_a_head_that_says_its_length(data, alone):
    reader = ResponseReader(MOST)
    first = reader.complete_message(data)
    assert (None if first is None else (first[0].status, first[1])) == (
        (200, b"ok") if alone else None
    )
    known = data.partition(b"\r\n\r\n")[0].rstrip(b"\r\n") + b"\r\n\r\n"
    read = reader.read_head(known)
    assert read is not None
    lone = reader.complete_message(data)
    assert lone == ((read[0], b"ok") if alone else None)
    assert first is None or lone == first, "it is not read again"


@table(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX : y\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: " + b"y" * MOST + b"\r\n\r\nok",
    ],
)
def test_an_answer_alone_that_is_not_http_is_told_of_as_any(data):
    reader = ResponseReader(MOST)
    assert reader.complete_message(data) is None
    with pytest.raises(BadMessageError):
        reader.read_head(data)

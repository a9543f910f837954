"""Heads of requests: what is read as it came, and what is no request at all."""

import pytest

from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import Heads, RequestHead, check_request_start, parse_request_head
from tests.support.rawclient import get
from tests.support.table import table


def parse(data: bytes, limits: Heads | None = None) -> RequestHead:
    assert data.endswith(b"\r\n\r\n")
    return parse_request_head(data, len(data) - 4, limits or Heads())


def test_a_head_in_its_parts():
    head = parse(b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-a:1\r\nx-A:\t 2 \r\n\r\nrest\r\n\r\n"[:-8])
    assert (head.method, head.target, head.minor) == ("GET", b"/a?b", 1)
    assert head.headers == ((b"Host", b"x"), (b"X-a", b"1"), (b"x-A", b"2"))
    assert head.block == b"Host: x\r\nX-a:1\r\nx-A:\t 2 \r\n"
    assert (head.host, head.length, head.chunked, head.close, head.upgrade) == (
        "x",
        0,
        False,
        False,
        False,
    )
    assert head.values(b"x-a") == ["1", "2"]


@table("method", ["GET", "get", "M-SEARCH", "X", "!#$%&'*+-.^_`|~09", "BREW", "A" * 300])
def test_any_token_is_a_method(method):
    assert parse(get(method=method)).method == method


@table(
    "target",
    [
        "/", "//", "/\xe9\xff", "/a?b=\xc3\xa9", '/"<>\\^`{|}#', "http://x/", "HTTPS://y:1?z",
        "urn://", "/%", "/?", "/*",
    ],
)  # fmt: skip
def test_targets_are_kept_byte_for_byte(target):
    assert parse(get(target)).target == target.encode("latin-1")


def test_options_alone_may_ask_all():
    assert parse(get("*", method="OPTIONS")).target == b"*"
    assert parse(get("a:80", method="CONNECT")).method == "CONNECT"


@table(
    ("fields", "minor", "close"),
    [
        ([], 1, False),
        (["Connection: close"], 1, True),
        (["Connection: X, Close"], 1, True),
        (["Connection: keep-alive"], 1, False),
        ([], 0, True),
        (["Connection: Keep-Alive"], 0, False),
        (["Connection: X", "connection: keep-alive"], 0, False),
        (["Connection: keep-alive, close"], 0, True),
    ],
)
def test_whether_the_connection_goes_on(fields, minor, close):
    assert parse(get("/", *fields).replace(b"HTTP/1.1", b"HTTP/1.%d" % minor)).close is close


@table(
    ("fields", "upgrade"),
    [
        (["Connection: upgrade", "Upgrade: websocket"], True),
        (["Connection: keep-alive, Upgrade", "Upgrade: a, b/2"], True),
        (["Upgrade: websocket"], False),
        (["Connection: upgrade"], False),
        (["Connection: upgrade", "Upgrade: h2c"], False),
        (["Connection: upgrade", "Upgrade: TLS/1.2"], False),
        (["Connection: upgrade", "Upgrade: websocket", "Upgrade: x, HTTP/2.0"], False),
    ],
)
def test_another_protocol_is_asked_for_unless_it_is_http(fields, upgrade):
    assert parse(get("/", *fields)).upgrade is upgrade
    assert not parse(get("/", *fields).replace(b"HTTP/1.1", b"HTTP/1.0")).upgrade


@table(
    ("fields", "length", "chunked"),
    [
        (["Content-Length: 0"], 0, False),
        (["content-length:007"], 7, False),
        (["Transfer-Encoding: Chunked"], 0, True),
    ],
)
def test_how_the_body_is_framed(fields, length, chunked):
    head = parse(get("/", *fields))
    assert (head.length, head.chunked) == (length, chunked)


@table(
    "data",
    [
        get("/", "Content-Length: 3", "content-length: 3"),
        get("/", "Content-Length: 3, 3"),
        get("/", "Content-Length: +3"),
        get("/", "Content-Length: 0x3"),
        get("/", "Content-Length:"),
        get("/", "Content-Length: \xb2"),
        get("/", "Content-Length: " + "1" * 19),
        get("/", "Content-Length: 3", "Transfer-Encoding: chunked"),
        get("/", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        get("/", "Transfer-Encoding: gzip, chunked"),
        get("/", "Transfer-Encoding: chunked;a"),
        get("/", "Transfer-Encoding:"),
        get("/", "Transfer-Encoding: identity"),
        get("/", "Transfer-Encoding: chunked").replace(b"1.1", b"1.0"),
        get("/", "Transfer-Encoding : chunked"),
        get("/", "Host: app.test"),
        get("/", "X: y\n"),
        get("/", "X: a\rb"),
        get("/", "X: a\x00b"),
        get("/", "X: a\x7fb"),
        get("/", " folded"),
        get("/", "\tfolded"),
        get("/", ": no name"),
        get("/", "no colon"),
        get("/", "X\xe9: y"),
        get("/", "X(: y"),
        get("/a b"),
        get("/a\tb"),
        get("/\x7f"),
        get("*"),
        get("a"),
        get(""),
        get("/", method="G T"),
        get("/", method="G\xe9T"),
        get("/", method=""),
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET / http/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        get("/" + "a" * 17000),
        get("/", "X: " + "a" * 17000),
    ],
)
def test_what_readers_could_read_differently_is_no_request(data):
    for _ in range(2):
        with pytest.raises(BadMessageError):
            parse(data)


@table(
    ("beginning", "fine"),
    [
        (b"G", True),
        (b"GET / HTTP/1.1\r\nHost: x\r", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r", True),
        (b"\x16\x03", False),
        (b"{", False),
        (b"GET / HTTP/1.1\n", False),
        (b"GET / HTTP/1.1\r\nHost: x\nX", False),
        (b"G" * 20_000, False),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000, False),
    ],
)
def test_what_can_never_become_a_head_is_refused_at_once(beginning, fine):
    if fine:
        check_request_start(beginning, Heads())
        return
    with pytest.raises(BadMessageError):
        check_request_start(bytearray(beginning), Heads())

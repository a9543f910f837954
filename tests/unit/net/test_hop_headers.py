import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.net.entity_tags import restored_tag
from proxy.net.hop_headers import (
    authority,
    encode_fields,
    request_fields,
    response_fields,
    trailing,
)
from proxy.net.http1.head import Framing, Heads, RequestHead, parse_request_head
from tests.support.table import table

Fields = tuple[tuple[bytes, bytes], ...]


def fields(*lines: bytes) -> Fields:
    pairs = [line.partition(b": ") for line in lines]
    return tuple((name, value) for name, _, value in pairs)


def head(lines: Fields) -> RequestHead:
    data = b"POST / HTTP/1.1\r\n" + encode_fields(lines)
    return parse_request_head(data + b"\r\n", len(data) - 2, Heads())


def test_fields_without_a_connection_pass_untouched():
    given_ = fields(b"Host: x", b"X: 1", b"x: 2")
    assert request_fields(head(given_)) == (given_, False, False)


def test_a_tag_of_ours_goes_back_as_the_applications_own():
    tag = restored_tag(b'W/"v1"', None, None, bytes) or b""
    given_ = fields(b"Host: x", b'if-MATCH: "a", ' + tag, b"X: " + tag)
    assert list(request_fields(head(given_)).headers) == [
        given_[0],
        (b"if-MATCH", b'"a", W/"v1"'),
        given_[2],
    ]


@table(
    ("lines", "kept"),
    [
        ([b"Connection: keep-alive", b"X: 1"], [b"X: 1"]),
        ([b"Connection: X", b"x: 1", b"Y: 2"], [b"Y: 2"]),
        ([b"Connection: x", b"Connection: close,\tY", b"X: 1", b"Y: 2", b"Z: 3"], [b"Z: 3"]),
        (
            [b"Connection: Cookie, Host, X-Forwarded-For", b"Cookie: a", b"X-Forwarded-For: b"],
            [b"Cookie: a", b"X-Forwarded-For: b"],
        ),
        ([b"Keep-Alive: 5", b"PROXY-connection: x", b"HTTP2-Settings: x", b"TE: gzip"], []),
        ([b"TE: trailers"], []),
        ([b"Connection: TE", b"TE: gzip, trailers"], [b"TE: trailers", b"Connection: TE"]),
        (
            [b"Connection: upgrade", b"Upgrade: websocket"],
            [b"Upgrade: websocket", b"Connection: Upgrade"],
        ),
        ([b"Upgrade: websocket"], []),
        ([b"Connection: upgrade", b"Upgrade: websocket, h2c"], []),
        ([b"Connection: upgrade", b"Upgrade: HTTP/3.0"], []),
        ([b"Connection: upgrade"], []),
        ([b"Domicile-Answer: x", b"dOMICILE_X: y", b"Domicile: z"], [b"Domicile: z"]),
        ([b"Transfer-Encoding: Chunked"], [b"Transfer-Encoding: Chunked"]),
    ],
)
def test_what_concerns_the_connection_stays_on_it(lines, kept):
    assert list(request_fields(head(fields(b"Host: x", *lines))).headers) == [
        (b"Host", b"x"),
        *fields(*kept),
    ]


def test_what_may_not_follow_a_body_is_kept_from_the_application():
    trailers = fields(
        b"X-Sum: 1",
        b"Host: y",
        b"content_length: 3",
        b"Authorization: a",
        b"X_HTTP_Method_Override: PUT",
        b"Connection: X-Sum",
        b"Domicile-Caller: x",
        b"Content-Digest: d",
        b"x-sum: 2",
    )
    assert trailing(trailers) == list(fields(b"X-Sum: 1", b"Content-Digest: d", b"x-sum: 2"))


@table(
    ("lines", "framing", "status", "minor", "kept"),
    [
        ([b"Connection: X", b"X: 1", b"Y: 2"], Framing.LENGTH, 200, 1, [b"Y: 2"]),
        ([b"Transfer-Encoding: chunked"], Framing.CHUNKED, 200, 1, [b"Transfer-Encoding: chunked"]),
        ([b"Transfer-Encoding: chunked"], Framing.CHUNKED, 200, 0, []),
        ([b"Transfer-Encoding: chunked"], Framing.NONE, 204, 1, []),
        ([b"Upgrade: h2c", b"Connection: Upgrade"], Framing.LENGTH, 200, 1, []),
        (
            [b"Upgrade: a/1", b"Connection: Upgrade"],
            Framing.LENGTH,
            426,
            1,
            [b"Upgrade: a/1", b"Connection: Upgrade"],
        ),
        (
            [b"Upgrade: ws", b"Connection: Upgrade"],
            Framing.TUNNEL,
            101,
            1,
            [b"Upgrade: ws", b"Connection: Upgrade"],
        ),
        ([b"Domicile-Answer: proxy", b"Set-Cookie: a"], Framing.LENGTH, 200, 1, [b"Set-Cookie: a"]),
    ],
)
def test_fields_of_answers(lines, framing, status, minor, kept):
    assert list(response_fields(fields(*lines), framing, status, minor)) == list(fields(*kept))


@table(
    ("target", "host", "expected"),
    [
        (b"/x", "App.Test:8080", "app.test:8080"),
        (b"/x", None, ""),
        (b"*", "a", "a"),
        (b"http://B/x", "b", "b"),
        (b"http://b:80/x", "b", "b:80"),
        (b"http://b?x", None, "b"),
        (b"/x", "[::1]:80", "[::1]:80"),
    ],
)
def test_the_host_that_is_asked_for(target, host, expected):
    assert authority(target, host) == expected


@table(
    ("target", "host"),
    [
        (b"/", "a b"), (b"/", "a,b"), (b"/", "a/b"), (b"/", "user@a"), (b"/", "a:b"),
        (b"/", "a:123456"), (b"/", "[::1"), (b"/", "é"), (b"/", "\udcff"), (b"http://b/", "a"),
        (b"a/b", "a"), (b"", "a"), (b"http://u@a/", "a"),
    ],
)  # fmt: skip
def test_a_host_that_is_no_plain_name_is_refused(target, host):
    for _ in range(2):
        with pytest.raises(VaultError) as caught:
            authority(target, host)
        assert caught.value.code is Code.BAD_REQUEST


_NAMES = st.sampled_from(
    [b"X", b"x-y", b"Connection", b"Keep-Alive", b"Cookie", b"Te", b"Domicile-X"]
)
_VALUES = st.sampled_from([b"", b"x", b"x-y, close", b"keep-alive", b"cookie", b"\xff", b"te"])


@given(st.lists(st.tuples(_NAMES, _VALUES), max_size=8))
def test_what_passes_is_a_part_of_what_came_in_its_order(given_):
    given_ = [(b"Host", b"x"), *given_]
    kept = list(request_fields(head(tuple(given_))).headers)
    rest = iter(given_)
    assert all(field in rest for field in kept)
    assert [field for field in given_ if field[0] in (b"Cookie", b"Host")] == [
        f for f in kept if f[0] in (b"Cookie", b"Host")
    ]


def test_fields_on_the_wire():
    assert encode_fields([(b"A", b"\xff"), (b"b", b"")]) == b"A: \xff\r\nb: \r\n"

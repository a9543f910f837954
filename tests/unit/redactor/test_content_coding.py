import gzip
import random
import zlib

import pytest
from backports import zstd

from proxy.errors import Code, VaultError
from proxy.redactor.content_coding import CODINGS, acceptable, deflate, field, inflate
from tests.support.table import table

MEBIBYTE = 1024 * 1024
NOISE = random.Random(7).randbytes(700_000)
BODIES = [b"", b"{}", b'{"name":"Ann"}' * 100, NOISE, b"a" * MEBIBYTE]


def refusal(body: bytes, coding: bytes, limit: int = 16 * MEBIBYTE, ratio: int = 200) -> Code:
    with pytest.raises(VaultError) as caught:
        inflate(body, coding, limit, ratio)
    assert caught.value.__context__ is None
    return caught.value.code


@table("coding", CODINGS)
@table("body", BODIES)
def test_what_is_deflated_is_inflated(coding, body):
    packed = deflate(body, coding)
    assert inflate(packed, coding.upper().encode(), 2 * MEBIBYTE) == (body, (coding,))


@table("coding", CODINGS)
@table("body", BODIES)
def test_a_stream_that_is_cut_or_goes_on_or_is_damaged_is_unreadable(coding, body):
    packed = deflate(body, coding)
    for bad in (
        packed[:-1],
        packed[: len(packed) // 2],
        packed + b"\0",
        packed + b"x",
        b"\xff" + packed,
    ):
        if bad:
            assert refusal(bad, coding.encode()) is Code.UNREADABLE_BODY


@table("coding", CODINGS)
def test_nothing_inflates_further_than_allowed(coding):
    packed = deflate(b"a" * (20 * MEBIBYTE), coding)
    assert refusal(packed, coding.encode(), ratio=10**9) is Code.TOO_LARGE
    exact = deflate(b"a" * 5000, coding)
    assert inflate(exact, coding.encode(), 5000)[0] == b"a" * 5000
    assert refusal(exact, coding.encode(), limit=4999) is Code.TOO_LARGE


@table("coding", ["gzip", "br", "zstd"])
def test_the_ratio_counts_from_a_mebibyte_on(coding):
    assert (
        len(inflate(deflate(b"a" * MEBIBYTE, coding), coding.encode(), 16 * MEBIBYTE, ratio=2)[0])
        == MEBIBYTE
    )
    assert (
        refusal(deflate(b"a" * (MEBIBYTE + 1), coding), coding.encode(), ratio=2) is Code.TOO_LARGE
    )


def test_stacked_codings_are_undone_from_the_last_to_the_first():
    packed = deflate(deflate(b"body", "br"), "gzip")
    assert inflate(packed, b" br ,, identity, X-GZIP", 100) == (b"body", ("br", "gzip"))
    assert refusal(packed, b"gzip, br") is Code.UNREADABLE_BODY
    assert refusal(packed, b"br, gzip, gzip, gzip") is Code.UNREADABLE_BODY


def test_no_coding_leaves_the_body():
    for named in (None, b"", b"identity"):
        assert inflate(b"body", named, 100) == (b"body", ())
    assert deflate(b"body", "identity") == b"body"


def test_an_empty_body_has_nothing_to_inflate():
    assert inflate(b"", b"gzip", 100) == (b"", ("gzip",))


def test_an_unknown_coding_is_unreadable():
    assert refusal(b"x", b"compress") is Code.UNREADABLE_BODY
    assert refusal(b"", b"gzip;q=1") is Code.UNREADABLE_BODY


def test_a_bare_deflate_stream_is_read_too():
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    assert inflate(stream.compress(b"body") + stream.flush(), b"deflate", 100)[0] == b"body"


def test_several_gzip_members_and_zstd_frames_are_one_body_within_bounds():
    assert inflate(gzip.compress(b"bo") + gzip.compress(b"dy"), b"gzip", 100)[0] == b"body"
    frames = zstd.compress(b"bo") + zstd.compress(b"dy")
    assert inflate(frames, b"zstd", 100)[0] == b"body"
    assert refusal(gzip.compress(b"") * 100, b"gzip") is Code.TOO_LARGE
    assert refusal(zstd.compress(b"") * 100, b"zstd") is Code.TOO_LARGE
    assert refusal(gzip.compress(b"a" * 60) * 2, b"gzip", limit=100) is Code.TOO_LARGE


def test_a_zstd_window_beyond_the_standard_is_refused():
    for window, allowed in ((23, True), (24, False), (27, False)):
        stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window})
        packed = stream.compress(b"a" * 1000) + stream.flush()
        if allowed:
            assert inflate(packed, b"zstd", 1000)[0] == b"a" * 1000
        else:
            assert refusal(packed, b"zstd") is Code.UNREADABLE_BODY


@table(
    "accepted, coding",
    [
        (None, "identity"),
        (b"", "identity"),
        (b"gzip, deflate, br, zstd", "br"),
        (b"gzip", "gzip"),
        (b"x-gzip;q=0.5", "gzip"),
        (b"br;q=0.5, GZIP;q=0.8", "gzip"),
        (b"br;q=0, gzip", "gzip"),
        (b"*", "br"),
        (b"*;q=0", "identity"),
        (b"*;q=0.3, br;q=0", "gzip"),
        (b"identity, gzip;q=0.5", "identity"),
        (b"identity;q=0.5, gzip;q=0.5", "gzip"),
        (b"identity;q=0, compress", "identity"),
        (b"gzip;q=2, br;q=x", "identity"),
        (b"gzip;q=0.0001", "identity"),
        (b"gzip;q=1.5", "gzip"),
        (b"gzip ; q=0.001", "gzip"),
        (b"gzip;q=1.000", "gzip"),
        (b" , ;q=1,", "identity"),
    ],
)
def test_the_coding_of_an_answer_is_one_the_caller_likes(accepted, coding):
    assert acceptable(accepted, ["br", "gzip"]) == coding


def test_repeated_fields_are_one_list():
    headers = ((b"Content-Encoding", b"br"), (b"X", b"1"), (b"content-encoding", b"gzip"))
    assert field(headers, b"content-encoding") == b"br, gzip"
    assert field(headers, b"accept-encoding") is None

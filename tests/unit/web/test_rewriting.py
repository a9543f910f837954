import pytest

from proxy.web.rewriting import (
    answer_fields,
    codings_readable,
    declared_length,
    private,
    readable,
    request_fields,
)


@pytest.mark.parametrize(
    ("accepted", "asked"),
    [
        (b"gzip, br", b"gzip, br"),
        (b"GZIP;q=0.5 ,identity", b"GZIP;q=0.5 ,identity"),
        (b"gzip, compress, *", b"gzip"),
        (b"*", b"identity"),
        (b"dcb", b"identity"),
        (b"", b"identity"),
    ],
)
def test_only_codings_that_can_be_undone_are_asked_for(accepted, asked):
    assert readable(accepted) == asked


@pytest.mark.parametrize(
    ("values", "yes"),
    [([], True), ([b"gzip"], True), ([b"br, zstd"], True), ([b"gzip", b"aes128gcm"], False), ([b"gzip, x"], False)],
)
def test_which_answers_can_be_undone(values, yes):
    assert codings_readable(tuple((b"Content-encoding", value) for value in values)) is yes


@pytest.mark.parametrize(
    ("given", "private_"),
    [
        (b"public, max-age=60", b"max-age=60, private"),
        (b"s-maxage=5", b"private"),
        (b"no-store", b"no-store"),
        (b"No-Store, private", b"No-Store"),
        (b'private="set-cookie", max-age=1', b"max-age=1, private"),
        (b"", b"private"),
    ],
)
def test_no_shared_cache_keeps_a_restored_answer(given, private_):
    assert private(given) == private_


def test_fields_of_a_rewritten_request():
    given = [
        (b"A", b"1"),
        (b"transfer-ENCODING", b"chunked"),
        (b"Content-Encoding", b"br"),
        (b"Trailer", b"x"),
        (b"a", b"2"),
    ]
    assert request_fields(given, 3) == [(b"A", b"1"), (b"a", b"2"), (b"Content-Length", b"3")]
    assert request_fields(given, None) == [(b"A", b"1"), (b"a", b"2")]


def test_fields_of_a_restored_answer():
    given = ((b"Content-Encoding", b"gzip"), (b"content-encoding", b"br"), (b"ETAG", b"x"), (b"Set-Cookie", b"a"))
    kept = [(b"Set-Cookie", b"a"), (b"Cache-Control", b"private"), (b"Content-Length", b"9")]
    assert answer_fields(given, 9, b"br") == [(b"Content-Encoding", b"br"), *kept]
    assert answer_fields(given, 9, None) == kept
    assert answer_fields((), 9, b"br") == [(b"Content-Encoding", b"br"), *kept[1:]]


@pytest.mark.parametrize(
    ("headers", "length"), [((), None), (((b"content-length", b"7"),), 7), (((b"Content-Length", b"x"),), None)]
)
def test_the_declared_length(headers, length):
    assert declared_length(headers) == length

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.path import (
    bare_host,
    is_plain,
    looser,
    path_segments,
    readings,
    readings_of,
    split_target,
)
from tests.support.table import table


@table(
    ("target", "parts"),
    [
        (b"/a/b?c=d", (b"/a/b", b"c=d", None)),
        (b"/a?", (b"/a", b"", None)),
        (b"/a#f?x", (b"/a", b"x", None)),
        (b"/a?x#f", (b"/a", b"x", None)),
        (b"http://Host:80/a?b", (b"/a", b"b", b"Host:80")),
        (b"HTTPS://user@host", (b"/", b"", b"host")),
        (b"http://host?x=1", (b"/?x=1".partition(b"?")[0], b"x=1", b"host")),
        (b"*", (b"/", b"", None)),
        (b"a/b", (b"/a/b", b"", None)),
    ],
)
def test_a_target_comes_apart(target, parts):
    assert tuple(split_target(target))[:3] == parts


@table(
    ("target", "reading"),
    [
        (b"/x#/../a/b", b"a/b"),
        (b"/x#/..%2fa/b?c", b"a/b"),
        (b"http://host/x#y/%2e%2e/a/b", b"a/b"),
        (b"/a/b#/../c", b"a/b"),
    ],
)
def test_a_fragment_may_be_a_part_of_the_path(target, reading):
    assert tuple(reading.split(b"/")) in readings_of(split_target(target))


def test_a_fragment_behind_a_query_is_none_of_the_path():
    for target in (b"/x?y#/../a", b"/x"):
        assert readings_of(split_target(target)) == ((b"x",),)


@table("path", [b"/a", b"/a/b.c/d-e_f~", b"/a..b", "/å".encode()])
def test_plain_paths_are_known_as_such(path):
    assert is_plain(path)


@table(
    "path",
    [
        b"/", b"/a/", b"//a", b"/a//b", b"/./a", b"/a/..", b"/a%20", b"/a;b", b"/a\\b", b"/a#b",
        b"/a\xff", b"/\xed\xa0\x80", b"a", b"", b"/.well-known",
    ],
)  # fmt: skip
def test_unusual_paths_are_known_as_such(path):
    assert not is_plain(path)


@table(
    "path, reading",
    [
        (b"/a/./b", b"a/b"),
        (b"/x/../a/b", b"a/b"),
        (b"/../a/b", b"a/b"),
        (b"//a///b", b"a/b"),
        (b"/a/b/", b"a/b"),
        (b"/a;x=1/b;y", b"a/b"),
        (b"/%61/b", b"a/b"),
        (b"/%2561/b", b"a/b"),
        (b"/a%2fb", b"a/b"),
        (b"/a%252Fb", b"a/b"),
        (b"/a\\b", b"a/b"),
        (b"/a%5Cb", b"a/b"),
        (b"/x/%2e%2E/a/b", b"a/b"),
        (b"/x/%252e%252e/a/b", b"a/b"),
        (b"/x/..;/a/b", b"a/b"),
        (b"/x/..%3b/a/b", b"a/b"),
        (b"/x/..\\a/b", b"a/b"),
        (b"/x//../a/b", b"a/b"),
        (b"/y/x//../../a/b", b"a/b"),
        (b"/a;%2f..%2fz/b", b"a/b"),
        (b"/a/b;jsessionid=1?", b"a/b;jsessionid=1?"),
        (b"/x%2fy/%2e%2e/a/b", b"a/b"),
        (b"/%u0061/b", b"a/b"),
        (b"/a%FF/b", b"a/b"),
        (b"/%fea/b", b"a/b"),
        (b"/a\xff/b", b"a/b"),
        (b"/a%ED%A0%80/b", b"a/b"),
        (b"/%ED%A0%BD%ED%B8%80a/b", b"a/b"),
        (b"/a%25FF/b", b"a/b"),
        (b"/%FF/a/b", b"a/b"),
        (b"/x/.%FF./a/b", b"a/b"),
        (b"/%2\xff561/b", b"a/b"),
        (b"/%C1%A1/b", b"a/b"),
        (b"/%E0%81%A1/b", b"a/b"),
        (b"/x/..%C0%AFa/b", b"a/b"),
        (b"/a%FF/b", b"a\xef\xbf\xbd/b"),
        (b"/\xe5/b", "å/b".encode()),
    ],
)
def test_each_usual_reading_is_among_them(path, reading):
    assert tuple(reading.split(b"/")) in readings(path)


def test_the_standard_reading_comes_first():
    assert readings(b"/x/../a/%2561;v=1/b%2Fc/")[0] == (b"a", b"%61;v=1", b"b/c")
    assert readings(b"/a%20b")[0] == (b"a b",)
    assert readings(b"/")[0] == ()


def test_a_harmless_escape_has_two_readings():
    assert readings(b"/a%20b/c") == ((b"a b", b"c"), (b"a%20b", b"c"))


def test_text_beyond_ascii_has_no_reading_of_its_own():
    path = "/år/köp".encode()
    assert readings(b"/%C3%A5r/k%C3%B6p") == (
        (b"\xc3\xa5r", b"k\xc3\xb6p"),
        (b"%C3%A5r", b"k%C3%B6p"),
    )
    assert readings(path) == ((b"\xc3\xa5r", b"k\xc3\xb6p"),) * 2


def test_a_path_made_of_tricks_is_refused_instead_of_followed():
    with pytest.raises(VaultError) as caught:
        readings(
            b"/..%252e%252e..//;%2e%5ca%253b;%2f%5c\\a.%2f/a/../%253b/%252e%2e//a%5c%5c.\\/../%252e%253b%3b%3b///../"
            * 2
        )
    assert caught.value.code is Code.BAD_REQUEST


@table(
    ("path", "read"),
    [
        (b"a/b", []),
        (b"a.b/c", []),
        (b"a/b.json", [b"a/b"]),
        (b"a/b.tar.gz", [b"a/b.tar"]),
        (b"a./b. .", [b"a/b"]),
        (b"a/ b.json.", [b"a/b.json", b"a/b"]),
        (b"a/.json", [b"a"]),
        (b"a/...", [b"a"]),
        (b"a/b.c d", []),
        (b".", [b""]),
        (b"a/b?", [b"a/b"]),
        (b"a/b#c.json", [b"a/b", b"a/b#c"]),
        (b"a/?b", [b"a"]),
        (b"a?b/c", []),
        (b"index.php/a", [b"a"]),  # PHP
        (b"x/App_dev.PHP/a/b.json", [b"x/App_dev.PHP/a/b", b"x/a/b.json", b"x/a/b"]),
        (b"a/index.php", [b"a/index"]),
        (b"in dex.php/a", []),
        (b"a/__data.json", [b"a/__data", b"a"]),  # SvelteKit
        (b"__data.json", [b"__data", b""]),
        (b"a/q-data.json", [b"a/q-data", b"a"]),  # Qwik
        (b"a/_payload.json", [b"a/_payload", b"a"]),  # Nuxt
        (b"_root.data", [b"_root", b""]),  # React Router
        (b"_next/data/b1/a/7.json", [b"_next/data/b1/a/7", b"a/7"]),  # Next.js
        (b"x/_next/data/b1/index.json", [b"x/_next/data/b1/index", b"x"]),
        (b"_next/data/b1.json", [b"_next/data/b1"]),
        (b"_next/static/b1/a.json", [b"_next/static/b1/a"]),
    ],
)
def test_applications_that_see_less_in_a_path(path, read):
    assert [b"/".join(reading) for reading in looser(tuple(path.split(b"/")))] == read


def test_segments_leave_out_what_is_empty():
    assert path_segments(b"//a//b/") == (b"a", b"b")


@table(
    ("host", "bare"),
    [
        ("A.b", "a.b"), (" a:80", "a"), ("a:", "a"), ("a.:80", "a"), ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"), ("a:b", "a:b"), ("", ""),
    ],
)  # fmt: skip
def test_a_host_is_compared_without_port_case_and_final_dot(host, bare):
    assert bare_host(host) == bare

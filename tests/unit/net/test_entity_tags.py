import hashlib

from proxy.net.entity_tags import (
    CONDITIONED,
    expected_marks,
    lists_tag,
    own_tag,
    restored_tag,
    tag_marks,
)
from tests.support.table import table


def keyed(message: bytes) -> bytes:
    return hashlib.blake2b(message, key=b"x", digest_size=16).digest()


GIVEN = [
    b'"a"', b'W/"a"', b'""', b'W/""', b'"1,\xe5"', b'"a-gzip"', b'"a-domicile.s"', b"abc123",
    b"W/abc", b"a=b",
]  # fmt: skip


@table("given", GIVEN)
@table("body", [b"", b"Ann", None])
def test_a_shown_tag_goes_back_as_exactly_the_one_that_was_given(given, body):
    tag = restored_tag(given, body, b"gzip", keyed)
    assert tag is not None
    assert tag != given
    for sent in (
        tag,
        b"W/" + tag.removeprefix(b"W/"),
        tag.removeprefix(b"W/"),
        tag[:-1] + b'-gzip"',
        tag[:-1] + b';br"',
    ):
        assert own_tag(sent) == given
        assert own_tag(b'"other", ' + sent + b',W/"more"') == b'"other", ' + given + b',W/"more"'


@table("given", [b"", b" ", b'"a', b'"a"b"', b"a,b", b'"a" "b"'])
def test_what_is_no_tag_is_not_shown(given):
    assert restored_tag(given, b"", None, keyed) is None


@table(
    "given",
    [b"*", b'"a"', b'W/"a", "b"', b'"a-domicile.x00"', b"-domicile.s", b'"a-domicile.s0"', b""],
)
def test_what_was_not_shown_goes_as_it_came(given):
    assert own_tag(given) == given


def test_what_differs_for_two_callers_or_over_time_has_two_tags():
    tags = [
        restored_tag(b'"a"', *view, keyed)
        for view in [(b"Ann", None), (b"Eve", None), (b"Ann", b"gzip"), (None, None)]
    ]
    assert len(set(tags)) == len(tags)
    assert restored_tag(b'"a"', b"Ann", None, keyed) == tags[0]
    assert restored_tag(b'"a"', b"Ann", None, bytes) != tags[0]


def test_strength_is_kept_but_for_what_nobody_can_be_sure_of():
    tags = [restored_tag(given, b"", None, keyed) or b"" for given in (b'"a"', b"a", b'W/"a"')]
    assert [tag[:2] for tag in tags] == [b'"a', b'"a', b"W/"]
    assert restored_tag(b'"a"', None, None, keyed) == b'W/"a-domicile.s"'


@table(
    ("listed", "yes"),
    [
        (b'"a"', True),
        (b'W/"a"', True),
        (b'"b" , W/"a","c"', True),
        (b'"b"', False),
        (b"*", False),
        (b"a", False),
        (b"", False),
    ],
)
def test_a_tag_is_looked_for_weakly(listed, yes):
    assert lists_tag(listed, b'"a"') is yes
    assert lists_tag(listed, b'W/"a"') is yes
    assert lists_tag(listed, b"a") is False


@table("given", GIVEN)
def test_a_shown_tag_carries_the_mark_of_what_the_application_cannot_tell_apart(given):
    one, other = b"0123456789abcdef", b"fedcba9876543210"
    tag, changed = (restored_tag(given, b"Ann", None, keyed, mark) or b"" for mark in (one, other))
    bare = restored_tag(given, b"Ann", None, keyed) or b""
    assert (
        tag_marks(tag)
        == tag_marks(b"W/" + tag.removeprefix(b"W/"))
        == tag_marks(tag[:-1] + b'-gzip"')
        == (one,)
    )
    assert tag_marks(tag + b", " + changed) == (one, other)
    assert own_tag(tag) == own_tag(changed) == own_tag(bare) == given
    assert tag_marks(bare) == (b"",)
    headed = restored_tag(given, None, None, keyed) or b""
    for foreign in (b"*", b'"x"', b""):
        assert tag_marks(foreign) == ()
    assert tag_marks(headed) == (b"",)  # of a body that nobody was shown
    assert tag_marks(b'"x", ' + tag) == tag_marks(tag + b', W/"y"') == (one,)
    assert tag_marks(headed + b", " + tag) == (b"", one)
    assert tag_marks(bare + b", " + tag) == (b"", one)
    assert restored_tag(given, None, None, keyed, one) == restored_tag(given, None, None, keyed)


@table(
    ("if_match", "since", "marks"),
    [
        (None, None, ()),
        (b'"x"', b"Sun, 06 Nov 1994 08:49:37 GMT", ()),  # which is what counts then
        (None, b"Sun, 06 Nov 1994 08:49:37 GMT", (b"@784111776999",)),
        (None, b"Sunday, 06-Nov-94 08:49:37 GMT", (b"@784111776999",)),
        (None, b"Sun Nov  6 08:49:37 1994", (b"@784111776999",)),
        (None, b"yesterday", (b"@0",)),
        (None, b"Sun, 06 Nov 1900 08:49:37 GMT", (b"@0",)),
        (None, b"\xff", (b"@0",)),
    ],
)
def test_what_a_change_expects_is_a_mark_or_a_date(if_match, since, marks):
    assert expected_marks(if_match, since) == marks


def test_a_head_without_conditions_of_ours_is_known():
    assert not CONDITIONED(b'PUT /p HTTP/1.1\r\nIf-Match: "x"\r\n')
    assert CONDITIONED(b"PUT /p HTTP/1.1\r\nIF-UNMODIFIED-SINCE: x\r\n")
    assert CONDITIONED(b'PUT /p HTTP/1.1\r\nif-match: "x-domicile.s"\r\n')

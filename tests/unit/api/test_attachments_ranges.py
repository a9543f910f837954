import pytest

from proxy.api.attachments import requested_range
from proxy.errors import Code, VaultError

ETAG = '"abc"'


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=0-9", (0, 10)),
        ("bytes=3-99", (3, 10)),
        ("bytes=9-", (9, 10)),
        ("bytes=-1", (9, 10)),
        ("bytes=-99", (0, 10)),
        (" Bytes = 2-3 ", (2, 4)),
    ],
)
def test_one_range_is_understood(text, span):
    assert requested_range({"Range": text}, 10, ETAG) == span


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-2",
        "items=0-1",
        "bytes=0-1,3-4",
        "bytes=0-1x",
        "bytes=٣-٤",
    ],
)
def test_what_is_no_single_range_is_ignored(text):
    assert requested_range({"Range": text}, 10, ETAG) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)],
)
def test_a_range_behind_the_end_is_refused(text, size):
    with pytest.raises(VaultError) as caught:
        requested_range({"Range": text}, size, ETAG)
    assert caught.value.code is Code.RANGE_UNSATISFIABLE
    assert str(size) in caught.value.message


def test_a_range_counts_only_for_the_content_that_it_was_asked_of():
    assert requested_range({"Range": "bytes=0-1", "If-Range": ETAG}, 10, ETAG) == (0, 2)
    for other in ('"abd"', f"W/{ETAG}", "Sat, 21 Nov 2026 00:00:00 GMT"):
        assert requested_range({"Range": "bytes=0-1", "If-Range": other}, 10, ETAG) is None
        assert requested_range({"Range": "bytes=99-", "If-Range": other}, 10, ETAG) is None
    assert requested_range({}, 10, ETAG) is None

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.multipart import Scan, broken_off, cut_short, misunderstood
from proxy.errors import Code, VaultError

BETWEEN = b"\r\n--b1"
CONTENTS = st.lists(
    st.sampled_from([b"\r", b"\n", b"--", b"b", b"1", b"\r\n--b", b"x" * 2000]), max_size=12
).map(b"".join)


def scanned(body: bytes, cuts: list[int], view: bool) -> bytes:
    """The content of a body that comes in such pieces."""
    scan, found, places = (
        Scan(BETWEEN),
        bytearray(),
        sorted({cut % (len(body) + 1) for cut in cuts}),
    )
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        piece = body[start:end]
        found += scan.content(memoryview(bytearray(piece)) if view else piece)
    scan.finish()
    return bytes(found)


@given(
    CONTENTS.filter(lambda made: BETWEEN not in made),
    st.lists(st.integers(0, 1 << 16), max_size=20),
    st.booleans(),
)
def test_the_content_ends_where_the_boundary_begins_however_it_is_cut(content, cuts, view):
    body = content + BETWEEN + b"--\r\nan epilogue"
    end = body.index(BETWEEN)  # the end of the content and the boundary may make an earlier one
    if body[end + len(BETWEEN) :].startswith(b"--"):
        assert scanned(body, cuts, view) == body[:end]


@given(st.lists(st.integers(0, 1 << 16), max_size=9), st.booleans())
@pytest.mark.parametrize(
    ("end", "text"),
    [
        (b"", "ends before"),
        (BETWEEN, "ends before"),
        (BETWEEN + b"-", "ends before"),
        (BETWEEN + b"\r\n", "it has more"),
        (BETWEEN + b"--" + b"y" * 1023, "Something follows"),
    ],
)
def test_what_is_behind_the_content_has_to_be_in_order(end, text, cuts, view):
    with pytest.raises(VaultError) as caught:
        scanned(b"content" + end, cuts, view)
    assert caught.value.code is Code.INVALID_FILE
    assert text in caught.value.details[0].text


def test_the_faults_are_told_from_a_connection_that_ended():
    assert (broken_off().code, misunderstood("file", "x").code) == (
        Code.INVALID_FILE,
        Code.INVALID_FILE,
    )
    assert cut_short().code is Code.BAD_REQUEST

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.net.http1.body import ChunkReader, frame
from proxy.net.http1.fields import BadMessageError
from tests.support.table import table

LIMIT = 200


def read(data: bytes, *cuts: int) -> tuple[bytes, ChunkReader]:
    reader = ChunkReader(LIMIT)
    pieces: list[bytes] = []
    edges = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(edges):
        if reader.done:
            reader.rest += data[start:end]
        else:
            pieces += reader.feed(data[start:end])
    return b"".join(pieces), reader


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 300), max_size=8),
    st.binary(max_size=9),
)
def test_what_was_framed_is_read_back_however_it_is_cut(pieces, cuts, rest):
    framed = b"".join(map(frame, pieces)) + b"0\r\n\r\n" + rest
    body, reader = read(framed, *[cut for cut in cuts if cut < len(framed)])
    assert reader.done
    assert body == b"".join(pieces)
    assert reader.rest == rest


@table("step", [1, 2, 3, 1000])
def test_extensions_are_read_over_and_trailers_kept(step):
    data = b'3;a=b\r\nabc\r\nA ; q="1"\r\n0123456789\r\n000\r\nX-Sum: 7\r\ny:z\r\n\r\nnext'
    body, reader = read(data, *range(step, len(data), step))
    assert body == b"abc0123456789"
    assert reader.trailers == ((b"X-Sum", b"7"), (b"y", b"z"))
    assert reader.rest == b"next"


@table(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b" 3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"-3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b"3_0\r\nabc\r\n",
        b"3\nabc\r\n",
        b"3;a\x00\r\nabc\r\n",
        b"3;a\nb\r\nabc\r\n",
        b"1000000000000000\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabc\r0\r\n\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"1" * 2000,
        b"3;" + b"a" * 2000 + b"\r\n",
        b"0\r\n" + b"A: b\r\n" * 100 + b"\r\n",
        b"0\r\n" + b"A" * 300,
    ],
)
@table("step", [1, 7, 5000])
def test_wrong_framing_is_refused_however_it_is_cut(data, step):
    with pytest.raises(BadMessageError):
        read(data, *range(step, len(data), step))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    try:
        body, _ = read(data, *range(1, len(data)))
    except BadMessageError:
        return
    assert len(body) <= len(data)

"""Requests out of bytes, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code
from proxy.net.http1.body import BodyQueue
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import Heads, RequestHead
from proxy.net.http1.reader import RequestReader
from tests.support.rawclient import chunked, get, post
from tests.support.table import table

STREAM = (
    b"\r\n\r\n"
    + get("/1")
    + post("/2", b"abc")
    + chunked("/3", b"de", b"fgh", trailers=b"X: 1\r\nx: 2\r\n")
    + b"\r\n"
    + post("/4", b"")
    + chunked("/5")
    + get("/6", "Connection: close")
)
READ = [
    (b"/1", b"", ()),
    (b"/2", b"abc", ()),
    (b"/3", b"defgh", ((b"X", b"1"), (b"x", b"2"))),
    (b"/4", b"", ()),
    (b"/5", b"", ()),
    (b"/6", b"", ()),
]


class Flow:
    def pause_reading(self) -> None:
        raise AssertionError

    def resume_reading(self) -> None:
        raise AssertionError


class Steered(Flow):
    paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def reader(limits: Heads | None = None, flow: Flow | None = None) -> RequestReader:
    return RequestReader(flow or Flow(), limits or Heads())


def read(pieces: list[bytes]) -> list[tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]]:
    one = reader()
    found: list[tuple[RequestHead, BodyQueue]] = []
    for piece in pieces:
        for head, body in one.feed(piece):
            assert isinstance(head, RequestHead)
            found.append((head, body))
    assert not one.in_body
    assert all(body.done for _, body in found)
    return [(head.target, body.take(), body.trailers) for head, body in found]


def test_requests_in_one_piece_and_in_single_bytes():
    assert read([STREAM]) == READ
    assert read([STREAM[at : at + 1] for at in range(len(STREAM))]) == READ


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_requests_cut_anywhere(cuts):
    places = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[a:b] for a, b in pairwise(places)]) == READ


def test_what_is_no_request_ends_it_and_what_came_before_is_given():
    one = reader()
    messages = one.feed(get("/1") + b"\x00" + get("/2"))
    assert [type(head) for head, _ in messages] == [RequestHead, BadMessageError]
    assert one.feed(get("/3")) == []


@table("piece", [1, 7, 100_000])
def test_a_head_without_end_is_refused(piece):
    one = reader(Heads(whole=1000), Steered())
    data = get("/", *["X: y"] * 100, "Y: " + "z" * 2000)
    found = [m for at in range(0, len(data), piece) for m in one.feed(data[at : at + piece])]
    assert len(found) == 1
    assert isinstance(found[0][0], BadMessageError)


def test_what_comes_behind_no_request_is_held_back_until_somebody_reads_it_away():
    flow = Steered()
    one = reader(flow=flow)
    [(fault, rest)] = one.feed(b"no request\r\n\r\n")
    assert isinstance(fault, BadMessageError)
    assert not rest.done
    while not flow.paused:
        one.feed(b"x" * 50_000)
    assert len(rest.take()) < 500_000
    assert not flow.paused


@table(
    "rest",
    [
        b"zz\r\n", b"3\nabc\n", b"0\n\n", b"0\r\nX: y\n\n", b"3\r\nabcd\r\n", b"3;x\ny\r\nabc\r\n",
        b"0\r\nX : y\r\n\r\n", b"0\r\nX: y\r\n z\r\n\r\n",
    ],
)  # fmt: skip
async def test_a_body_that_breaks_its_framing_ends_it(rest):
    one = reader()
    messages = one.feed(get("/", "Transfer-Encoding: chunked", method="POST") + b"2\r\nab\r\n")
    body = messages[0][1]
    assert one.in_body
    assert one.feed(rest + get("/2")) == []
    assert await body.read() in (b"ab", b"ababc")
    with pytest.raises(BadMessageError):
        await body.read()
    assert one.feed(get("/3")) == []


async def test_trailers_without_end_are_refused():
    one = reader(Heads(whole=1000))
    messages = one.feed(chunked("/", b"ab")[:-2])
    one.feed(b"X: y\r\n" * 100)
    assert await messages[0][1].read() == b"ab"
    with pytest.raises(BadMessageError):
        await messages[0][1].read()


async def test_the_end_in_the_middle_of_a_body_is_no_end_of_the_request():
    one = reader()
    messages = one.feed(post("/", b"abc")[:-1])
    one.end()
    assert await messages[0][1].read() == b"ab"
    with pytest.raises(BadMessageError):
        await messages[0][1].read()


def test_only_so_many_requests_are_read_ahead():
    one = reader()
    stream = b"".join(get(f"/{number}") for number in range(100))
    messages = one.feed(stream[:1900])
    found = len(messages)
    assert found == 32
    assert one.feed(stream[1900:], 0) == []
    targets = [head.target for head, _ in messages if isinstance(head, RequestHead)]
    assert one.pending
    while found < 100:
        more = one.feed(b"", 1)
        assert len(more) == 1
        targets += [head.target for head, _ in more if isinstance(head, RequestHead)]
        found += 1
    assert targets == [b"/%d" % number for number in range(100)]


def test_what_follows_an_upgrade_waits():
    one = reader()
    ask = post("/", b"ab", "Connection: upgrade", "Upgrade: x")
    assert len(one.feed(get("/1") + ask + get("/2")[:9])) == 2
    assert one.feed(get("/2")[9:]) == []
    assert one.pending == get("/2")
    one.decline()
    assert [head.target for head, _ in one.feed(b"") if isinstance(head, RequestHead)] == [b"/2"]


def test_another_protocol_gets_what_waited_and_nothing_more_is_read():
    one = reader()
    ask = get("/", "Connection: upgrade", "Upgrade: x")
    assert len(one.feed(ask + b"\x00not")) == 1
    assert one.feed(b" http") == []
    assert one.switched() == b"\x00not http"
    assert one.pending == b""


def outcome(pieces: list[bytes]) -> list[object]:
    """What is read of some bytes, up to the first that is no request."""
    one = reader()
    messages = []
    for piece in pieces:
        messages += one.feed(piece)
    return [
        (head.method, head.target, head.headers, body.done and (body.take(), body.trailers))
        if isinstance(head, RequestHead)
        else "no request"
        for head, body in messages
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, len(STREAM) - 1), st.sampled_from(b"\r\n\x00 :;0Aa\xff")),
        max_size=4,
    ),
    st.data(),
)
def test_any_bytes_are_read_in_the_same_way_or_refused_however_they_are_cut(changes, data):
    mutated = bytearray(STREAM)
    for place, byte in changes:
        mutated[place] = byte
    cuts = data.draw(st.lists(st.integers(0, len(mutated)), max_size=6))
    places = [0, *sorted(cuts), len(mutated)]
    assert outcome([bytes(mutated[a:b]) for a, b in pairwise(places)]) == outcome([bytes(mutated)])


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data):
    assert outcome([data]) == outcome([data[at : at + 1] for at in range(len(data))])


def test_empty_lines_cost_no_more_than_their_bytes():
    """Taken off one by one, with a copy of the rest for each, a million of them would take minutes."""
    one = reader()
    assert one.feed(b"\r\n" * 1_000_000 + b"\r") == []
    messages = one.feed(b"\n\r\n" + get("/1"))
    assert [head.target for head, _ in messages if isinstance(head, RequestHead)] == [b"/1"]


def heads(*requests: bytes) -> list[RequestHead]:
    one = reader()
    found = []
    for request in requests:
        ((head, body),) = one.feed(request)
        assert isinstance(head, RequestHead)
        assert body.done
        found.append(head)
    return found


def test_a_head_that_is_the_same_to_the_byte_is_read_once():
    first, again, other, back = heads(get("/a"), get("/a"), get("/b"), get("/a"))
    assert again is first
    assert (other.target, back.target) == (b"/b", b"/a")
    assert back is not first  # only the last one is remembered


def test_bodies_behind_equal_heads_are_their_own():
    one = reader()
    bodies = [
        message[1].take() for text in (b"abc", b"xyz") for message in one.feed(post("/2", text))
    ]
    assert bodies == [b"abc", b"xyz"]


@table(
    "longer",
    [get("/a", "X: 1"), get("/a").replace(b"/a", b"/b"), get("/a").replace(b"GET", b"PUT")],
)
def test_a_head_that_differs_is_read(longer):
    first, other = heads(get("/a"), longer)
    assert other is not first
    (alone,) = heads(longer)
    assert (other.method, other.target, other.headers) == (
        alone.method,
        alone.target,
        alone.headers,
    )


def test_what_was_searched_for_is_not_remembered():
    first, again = heads(get("/a?email=ann@x.example"), get("/a?email=ann@x.example"))
    assert again is not first


def test_a_long_head_is_not_remembered():
    long = get("/a", "Cookie: " + "x" * 4096)
    first, again = heads(long, long)
    assert again is not first


@table(
    "data, code",
    [
        (get("/" + "a" * 17_000), Code.URI_TOO_LONG),
        (get("/" + "a" * 100_000), Code.URI_TOO_LONG),
        (get("/" + "a" * 17_000, "X: " + "a" * 100_000), Code.URI_TOO_LONG),
        (get("/", "X: " + "a" * 17_000), Code.HEADER_TOO_LARGE),
        (get("/", "X" * 17_000 + ": a"), Code.HEADER_TOO_LARGE),
        (get("/", "X: " + "a" * 100_000), Code.HEADER_TOO_LARGE),
        (get("/", *["X: y"] * 200), Code.HEADER_TOO_LARGE),
        (get("/", *["X: " + "y" * 10_000] * 7), Code.HEADER_TOO_LARGE),
        (b"\x16\x03" + b"a" * 17_000 + b"\r\n\r\n", Code.BAD_REQUEST),
    ],
)
@table("piece", [1000, 1 << 20])
def test_what_is_too_long_is_told_from_what_cannot_be_read_however_it_is_cut(data, code, piece):
    one = reader()
    found = [m for at in range(0, len(data), piece) for m in one.feed(data[at : at + piece])]
    [(fault, _)] = found
    assert isinstance(fault, BadMessageError)
    assert fault.code is code


#: What may follow a first request: the same, others, more than one, and parts.
FOLLOWING = [
    get("/1"),
    get("/a/other"),
    get("/1?q=x"),
    get("/2", "X: 1"),
    post("/1", b"abc"),
    post("/1", b"abcd"),
    get("/1") + get("/1"),
    post("/1", b"abc")[:-1],
    get("/1")[:-2],
    get("/1").replace(b"1.1", b"1.0"),
    b"\r\n" + get("/1"),
    get("/1").replace(b"GET /1", b"GET  /1"),
    get("/1").replace(b"GET /1", b"GET /\x001"),
    get("/1", "Connection: close"),
    chunked("/1", b"de"),
    post("/1", b"abc").replace(b"Host", b"Hest"),
]


def primed(first: bytes) -> RequestReader:
    one = reader()
    assert len(one.feed(first)) == 1
    return one


def told(head: RequestHead | BadMessageError, body: BodyQueue) -> tuple[object, ...]:
    assert isinstance(head, RequestHead)
    slots = ("method", "target", "minor", "block", "headers", "host", "length", "close", "upgrade")
    return (*(getattr(head, name) for name in slots), body.buffered, body.done)


@table("first", FOLLOWING[:6])
@table("data", FOLLOWING)
def test_a_request_alone_is_read_as_any_other_or_left_alone(first, data):
    quick, usual = primed(first), primed(first)
    lone = quick.complete_message(data)
    expected = usual.feed(data)
    if lone is None:
        assert [type(head) for head, _ in quick.feed(data)] == [type(head) for head, _ in expected]
        return
    ((head, body),) = expected
    assert told(*lone) == told(head, body)
    assert [told(*one) for one in quick.feed(data)] == [told(*one) for one in usual.feed(data)]


def test_the_very_same_head_and_one_with_another_target_are_read_alone():
    one = primed(post("/1", b"abc"))
    for data in (post("/1", b"xyz"), post("/2", b"xyz"), post("/2", b"abc")):
        assert one.complete_message(data) is not None
    assert one.complete_message(post("/2?q=1", b"abc")) is not None
    assert one.complete_message(post("/2", b"abc")) is None  # nothing is kept of what has a query

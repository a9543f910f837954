import pytest

from proxy.redactor.bodies.events import Cutter, Event, cutter_of, is_stream
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Stream
from tests.support.table import table

NDJSON = b'{"a":1}\n\n{"b":2}\r\n{"c"\t:3} \n{"d":4}'
SSE = (
    b'\xef\xbb\xbf: hello\n\nid: 7\nevent: new\nretry: 10\ndata: {"a":\ndata:1}\n\n'
    b'data: {"b":2}\r\n\r\ndata\r\rdata:  {"c":3}\r: between\rid\r\rdataset: no\n\ndata: {"d":4}'
)
MIXED: RawHeaders = ((b"Content-Type", b'multipart/mixed; deferSpec=20220824; boundary="-"'),)
PARTS = (
    b'hello\r\n---\r\nContent-Type: application/json; charset=utf-8\r\n\r\n{\r\n"a":1}\r\n---  \r\n'
    b'content-length: 7\r\nX-Id: 3\r\n\r\n{"b":2}\r\n---\r\nContent-Type: image/png\r\n\r\n\x89-\r\n--\r\n---'
    b'\r\n\r\n{"c":3}\r\n---\r\n\r\n\r\n---\r\nContent-Type: application/b+json\r\n\r\n{"d":4}\n\r\n-----\r\nbye'
)
STREAMS = (Stream.NDJSON, Stream.SSE, Stream.MULTIPART)


def made(stream: Stream, most: int = 1000) -> Cutter:
    return cutter_of(stream, MIXED if stream is Stream.MULTIPART else (), most)


def cut(stream: Stream, pieces: list[bytes], most: int = 1000) -> list[Event]:
    cutter = made(stream, most)
    return [event for piece in pieces for event in cutter.feed(piece)] + cutter.end()


def documents(events: list[Event]) -> list[bytes]:
    return [event.document for event in events if event.lines]


WANTED = {
    Stream.NDJSON: (NDJSON, [b'{"a":1}', b'{"b":2}', b'{"c"\t:3}', b'{"d":4}']),
    Stream.SSE: (SSE, [b'{"a":\n1}', b'{"b":2}', b"", b' {"c":3}', b'{"d":4}']),
    Stream.MULTIPART: (PARTS, [b'{\r\n"a":1}', b'{"b":2}', b'{"c":3}', b"", b'{"d":4}\n']),
}


@table("stream", STREAMS)
@table("size", [1, 2, 3, 5, 7, 1000])
def test_documents_are_cut_alike_however_the_bytes_arrive(stream, size):
    whole, wanted = WANTED[stream]
    events = cut(stream, [whole[at : at + size] for at in range(0, len(whole), size)])
    assert b"".join(event.raw for event in events) == whole
    assert documents(events) == wanted
    assert not any(event.unread for event in events)


@table("stream", STREAMS)
def test_an_event_is_there_as_soon_as_its_last_byte_is(stream):
    cutter = made(stream)
    event = {
        Stream.NDJSON: b'{"a":1}\n',
        Stream.SSE: b'data: {"a":1}\n\n',
        Stream.MULTIPART: b'\r\n---\r\nContent-Length: 7\r\n\r\n{"a":1}',
    }[stream]
    assert documents(cutter.feed(event)) == [b'{"a":1}']
    assert documents(cutter.feed(event[:-1])) == []
    assert documents(cutter.feed(event[-1:])) == [b'{"a":1}']


def test_a_part_is_there_as_its_boundary_begins():
    cutter = made(Stream.MULTIPART)
    assert cutter.feed(b'---\r\n\r\n{"a":1}\r\n--') == [Event(b"---")]
    assert documents(cutter.feed(b"-")) == [b'{"a":1}']
    assert cutter.end() == []


@table(
    ("head", "told"),
    [
        (b"Content-Type: text/plain", False),
        (b"Content-Type: multipart/mixed; boundary=x", True),
        (b"Content-Type: application/json; charset=utf-16", True),
        (b"Content-Transfer-Encoding: base64", True),
        (b"Content-Encoding: gzip", True),
        (b"X: 1\r\nx: 2", True),
        (b"no field", True),
        (b"X: " + b"y" * 9000, True),
        (b"Content-Length: 9\r\nContent-Length: 7", True),
        (b"Content-Length: -1", True),
    ],
)
def test_a_part_that_is_no_plain_json_passes_and_the_next_is_read(head, told):
    whole = b'---\r\n%b\r\n\r\n{"a":1}\r\n---\r\n\r\n{"b":2}\r\n-----' % head
    for size in (1, 7, 100_000):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        events = cut(Stream.MULTIPART, pieces, 20_000)
        assert b"".join(event.raw for event in events) == whole
        assert documents(events) == [b'{"b":2}']
        assert any(event.unread for event in events) is told


@table(
    ("whole", "told"),
    [
        (b"no part at all", True),
        (b'---\r\n\r\n{"a":', True),
        (b"---\r\nContent-Length: 7\r\n\r\n{}", True),
        (b'---\r\n\r\n{"a":1}\r\n---\r\n', False),
    ],
)
def test_a_part_that_is_cut_off_is_told(whole, told):
    events = cut(Stream.MULTIPART, [whole])
    assert b"".join(event.raw for event in events) == whole
    assert any(event.unread for event in events) is told


def test_the_size_that_a_part_tells_follows_its_document():
    (event,) = [one for one in cut(Stream.MULTIPART, [PARTS]) if b'"b"' in one.raw]
    other = event.with_document(b'{"b":"\xc3\xa4"}')
    assert b"content-length: 10\r\nX-Id: 3\r\n\r\n" in other.raw
    again = other.with_document(b"{}")
    assert b"content-length: 2\r\nX-Id: 3\r\n\r\n{}" in again.raw


def test_an_event_of_very_many_lines_passes_unread():
    whole = b"data: [\n" + b"data:\n" * 20_000 + b"data: ]\n\ndata: 1\n\n"
    events = cut(Stream.SSE, [whole], 2_000_000)
    assert b"".join(event.raw for event in events) == whole
    assert documents(events) == [b"1"]
    assert [event.unread for event in events].count(True) == 1


def test_lines_without_data_pass_at_once():
    cutter = made(Stream.SSE)
    assert cutter.feed(b": still here\nid: 3\n") == [Event(b": still here\n"), Event(b"id: 3\n")]
    assert cutter.feed(b"data: 1\nid: 4\n") == []
    (event,) = cutter.feed(b"\n")
    assert (event.raw, event.document) == (b"data: 1\nid: 4\n\n", b"1")


def test_a_carriage_return_ends_an_event_before_its_line_feed_comes():
    cutter = made(Stream.SSE)
    assert documents(cutter.feed(b"data: 1\r\n\r")) == [b"1"]
    assert cutter.feed(b"\ndata: 2\r")[0] == Event(b"\n")
    assert documents(cutter.feed(b"\n\r\n")) == [b"2"]


@table("stream", STREAMS)
@table("size", [1, 3, 50, 1000])
def test_an_event_over_the_limit_passes_unread_and_the_next_is_read(stream, size):
    long, short = b'{"long":"' + b"x" * 100 + b'"}', b'{"a":1}'
    before, after = {
        Stream.NDJSON: (b"", b"\n"),
        Stream.SSE: (b"data: ", b"\n\n"),
        Stream.MULTIPART: (b"\r\n---\r\n\r\n", b"\r\n---"),
    }[stream]
    middle = after if stream is not Stream.MULTIPART else b""
    whole = before + long + middle + before + short + after
    events = cut(stream, [whole[at : at + size] for at in range(0, len(whole), size)], 60)
    assert b"".join(event.raw for event in events) == whole
    assert documents(events) == [short]
    assert sum(event.unread for event in events) == 1


def test_an_event_of_many_lines_over_the_limit_passes_unread_in_order():
    whole = b"data: 1\n" * 20 + b"data: " + b"2" * 80 + b"\n\ndata: 3\n\n"
    for size in (1, 10, 1000):
        events = cut(Stream.SSE, [whole[at : at + size] for at in range(0, len(whole), size)], 60)
        assert b"".join(event.raw for event in events) == whole
        assert documents(events) == [b"3"]
        assert any(event.unread for event in events)


def test_another_document_takes_the_places_of_the_lines():
    (event,) = cut(Stream.SSE, [b'id: 1\n: x\ndata: {"a":\ndata:"t"}\r\n\n'])[-1:]
    other = event.with_document(b'{"a":\n"Ann"}')
    assert other.raw == b'data: {"a":\ndata:"Ann"}\r\n\n'
    assert other.document == b'{"a":\n"Ann"}'
    with pytest.raises(ValueError, match="zip"):
        event.with_document(b"one line")


@table(
    "stream, declared, coding, wanted",
    [
        (Stream.NDJSON, b"application/x-ndjson; charset=utf-8", None, True),
        (Stream.NDJSON, b"application/jsonl", b"identity", True),
        (Stream.NDJSON, b"Application/JSON", None, True),
        (Stream.NDJSON, b"application/stream+json", None, True),
        (Stream.NDJSON, None, None, True),
        (Stream.NDJSON, b"text/html", None, False),
        (Stream.NDJSON, b"application/x-ndjson", b"gzip", False),
        (Stream.SSE, b"text/event-stream;charset=UTF-8", None, True),
        (Stream.SSE, b"application/json", None, False),
        (Stream.MULTIPART, b'multipart/mixed; x="a;b"; Boundary="a b"', None, True),
        (Stream.MULTIPART, b"multipart/mixed;boundary=-", None, True),
        (Stream.MULTIPART, b"multipart/mixed; boundary=a; boundary=b", None, False),
        (Stream.MULTIPART, b"multipart/mixed; boundary=", None, False),
        (Stream.MULTIPART, b"multipart/mixed; boundary=a b", None, False),
        (Stream.MULTIPART, b"multipart/mixed", None, False),
        (Stream.MULTIPART, b"multipart/form-data; boundary=a", None, False),
    ],
)
def test_the_type_of_an_answer_says_whether_it_is_a_stream(stream, declared, coding, wanted):
    fields = [(b"Content-Type", declared), (b"content-encoding", coding)]
    assert is_stream(stream, tuple((n, v) for n, v in fields if v is not None)) is wanted

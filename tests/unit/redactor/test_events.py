import pytest

from proxy.redactor.events import CUTTERS, Event, is_stream
from proxy.redactor.rules import Stream

NDJSON = b'{"a":1}\n\n{"b":2}\r\n{"c"\t:3} \n{"d":4}'
SSE = (
    b'\xef\xbb\xbf: hello\n\nid: 7\nevent: new\nretry: 10\ndata: {"a":\ndata:1}\n\n'
    b'data: {"b":2}\r\n\r\ndata\r\rdata:  {"c":3}\r: between\rid\r\rdataset: no\n\ndata: {"d":4}'
)


def cut(stream: Stream, pieces: list[bytes], most: int = 1000) -> list[Event]:
    cutter = CUTTERS[stream](most)
    return [event for piece in pieces for event in cutter.feed(piece)] + cutter.end()


def documents(events: list[Event]) -> list[bytes]:
    return [event.document for event in events if event.lines]


WANTED = {
    Stream.NDJSON: (NDJSON, [b'{"a":1}', b'{"b":2}', b'{"c"\t:3}', b'{"d":4}']),
    Stream.SSE: (SSE, [b'{"a":\n1}', b'{"b":2}', b"", b' {"c":3}', b'{"d":4}']),
}


@pytest.mark.parametrize("stream", CUTTERS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_documents_are_cut_alike_however_the_bytes_arrive(stream, size):
    whole, wanted = WANTED[stream]
    events = cut(stream, [whole[at : at + size] for at in range(0, len(whole), size)])
    assert b"".join(event.raw for event in events) == whole
    assert documents(events) == wanted
    assert not any(event.unread for event in events)


@pytest.mark.parametrize("stream", CUTTERS)
def test_an_event_is_there_as_soon_as_its_last_byte_is(stream):
    cutter = CUTTERS[stream](1000)
    event = {Stream.NDJSON: b'{"a":1}\n', Stream.SSE: b'data: {"a":1}\n\n'}[stream]
    assert documents(cutter.feed(event)) == [b'{"a":1}']
    assert documents(cutter.feed(event[:-1])) == []
    assert documents(cutter.feed(event[-1:])) == [b'{"a":1}']


def test_lines_without_data_pass_at_once():
    cutter = CUTTERS[Stream.SSE](1000)
    assert cutter.feed(b": still here\nid: 3\n") == [Event(b": still here\n"), Event(b"id: 3\n")]
    assert cutter.feed(b"data: 1\nid: 4\n") == []
    (event,) = cutter.feed(b"\n")
    assert (event.raw, event.document) == (b"data: 1\nid: 4\n\n", b"1")


def test_a_carriage_return_ends_an_event_before_its_line_feed_comes():
    cutter = CUTTERS[Stream.SSE](1000)
    assert documents(cutter.feed(b"data: 1\r\n\r")) == [b"1"]
    assert cutter.feed(b"\ndata: 2\r")[0] == Event(b"\n")
    assert documents(cutter.feed(b"\n\r\n")) == [b"2"]


@pytest.mark.parametrize("stream", CUTTERS)
@pytest.mark.parametrize("size", [1, 3, 50, 1000])
def test_an_event_over_the_limit_passes_unread_and_the_next_is_read(stream, size):
    long, short = b'{"long":"' + b"x" * 100 + b'"}', b'{"a":1}'
    before, after = {Stream.NDJSON: (b"", b"\n"), Stream.SSE: (b"data: ", b"\n\n")}[stream]
    whole = before + long + after + before + short + after
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


@pytest.mark.parametrize(
    ("stream", "declared", "coding", "wanted"),
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
    ],
)
def test_the_type_of_an_answer_says_whether_it_is_a_stream(stream, declared, coding, wanted):
    fields = [(b"Content-Type", declared), (b"content-encoding", coding)]
    assert is_stream(stream, tuple((n, v) for n, v in fields if v is not None)) is wanted

import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from proxy.errors import Code, VaultError
from proxy.telemetry.tracing import (
    Step,
    Trace,
    Tracer,
    accepted_id,
    new_trace,
    open_tracer,
    parse_traceparent,
)
from tests.support.table import table

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Processor(SpanProcessor):
    """Keeps the spans that end."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.closed = False

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        self.closed = True


@table("flags", ["00", "01", "03"])
def test_a_trace_is_continued_in_a_span_of_ours(flags):
    trace = parse_traceparent(f" 00-{TRACE}-{PARENT}-{flags} ".encode())
    assert trace is not None
    assert (trace.trace_id, trace.parent_id, trace.sampled) == (TRACE, PARENT, flags != "00")
    assert trace.span_id not in (PARENT, "0" * 16)
    assert trace.traceparent == f"00-{TRACE}-{trace.span_id}-{flags[0]}{int(flags) & 1}".encode()


def test_a_later_version_may_say_more():
    assert parse_traceparent(f"01-{TRACE}-{PARENT}-01-more".encode()) is not None


@table(
    "value",
    [
        b"",
        b"00-" + TRACE.encode(),
        f"00-{TRACE.upper()}-{PARENT}-01".encode(),
        f"00-{'0' * 32}-{PARENT}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{TRACE}-{PARENT}-01-more".encode(),
        f"00-{TRACE}-{PARENT}-01x".encode(),
    ],
)
def test_an_invalid_field_is_no_trace(value):
    assert parse_traceparent(value) is None


def test_a_share_of_new_traces_is_sampled():
    assert {new_trace(100).sampled for _ in range(50)} == {True}
    assert {new_trace(0).sampled for _ in range(50)} == {False}
    assert {new_trace(50).sampled for _ in range(200)} == {True, False}
    assert new_trace(0).parent_id == ""


@table("sent", ["01J8Z", "req-7", "Root=1-67891233-abcdef012345678912345678"])
def test_an_id_that_was_sent_is_taken(sent):
    assert accepted_id(sent) == sent


@table("sent", [None, "", "a b", 'x"y', "x" * 129, "å"])
def test_what_is_no_id_is_replaced(sent):
    ids = {accepted_id(sent), accepted_id(sent)}
    assert len(ids) == 2
    assert all(len(ident) == 32 for ident in ids)


def test_spans_lie_below_the_one_of_the_request():
    processor = Processor()
    tracer = Tracer(processor)
    trace = Trace(TRACE, "", "1234567890abcdef", True)
    tracer.record(
        trace,
        Step("GET /people", 1.0, 2.0),
        {"http.response.status_code": 502},
        [Step("application", 1.5, 1.75)],
    )
    step, whole = processor.spans
    assert (whole.name, whole.parent, step.parent) == ("GET /people", None, whole.context)
    assert (step.end_time or 0) - (step.start_time or 0) == 250_000_000
    assert (whole.status.is_ok, step.status.is_ok) == (False, True)
    tracer.close()
    assert processor.closed


def test_without_the_library_the_setting_is_a_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(VaultError) as caught:
        open_tracer("http://127.0.0.1:4318/v1/traces")
    assert caught.value.code is Code.BAD_SETTINGS
    assert "domicile[otel]" in caught.value.message

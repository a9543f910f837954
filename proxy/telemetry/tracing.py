"""Ids of requests, W3C trace context, and the spans of requests for a collector of OpenTelemetry.

The ids of a trace are read and made without any library. The OpenTelemetry SDK is loaded only where
the setting ``tracing.endpoint`` names a collector; the extra ``domicile[otel]`` brings it.
"""

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy import __version__
from proxy.errors import Code, VaultError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import SpanContext, SpanKind

#: Version 00 (https://www.w3.org/TR/trace-context/); later versions may say more behind it.
_TRACEPARENT: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)

#: Whatever proxies in front make: UUIDs, ULIDs, and ids with a prefix.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

#: How attributes of a span are named: https://opentelemetry.io/docs/specs/semconv/http/.
Attributes = Mapping[str, str | int]


class Trace(NamedTuple):
    """Trace context of a request; ids are lower-case hexadecimal."""

    trace_id: str
    parent_id: str  #: the span of the caller; empty at the root of a trace
    span_id: str  #: the span of this request
    sampled: bool

    @property
    def traceparent(self) -> bytes:
        """The field for the application, whose spans go below the one of this request."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}".encode("ascii")


class Step(NamedTuple):
    """A step of a request: its name, begin and end."""

    name: str
    began: float  #: on the clock of ``perf_counter``
    ended: float


def accepted_id(sent: str | None) -> str:
    """The id of a request: the one that was sent, where it is one; else a new one."""
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return secrets.token_hex(16)


def parse_traceparent(value: bytes) -> Trace | None:
    """The trace that a ``traceparent`` field continues, in a new span; ``None`` if invalid."""
    parts = _TRACEPARENT.fullmatch(value.strip())
    if parts is None:
        return None
    version, trace_id, parent_id, flags, rest = parts.groups()
    invalid = version == b"ff" or (version == b"00" and rest) or not trace_id.strip(b"0")
    if invalid or not parent_id.strip(b"0"):
        return None
    sampled = bool(int(flags, 16) & 1)
    return Trace(trace_id.decode(), parent_id.decode(), secrets.token_hex(8), sampled)


def new_trace(percent: int) -> Trace:
    """Begin a trace, of which ``sample`` in a hundred are recorded."""
    sampled = secrets.randbelow(100) < percent
    return Trace(secrets.token_hex(16), "", secrets.token_hex(8), sampled)


class Tracer:
    """Sends the spans of requests to a collector, in batches and from its own thread."""

    def __init__(self, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource

        self._processor = processor
        self._resource = Resource.create(
            {"service.name": "domicile", "service.version": __version__}
        )
        self._offset = time.time_ns() - time.perf_counter_ns()

    def record(
        self, trace: Trace, whole: Step, attributes: Attributes, steps: Iterable[Step] = ()
    ) -> None:
        """Hand on the span of one request, and one below it for each of its steps."""
        from opentelemetry.trace import SpanKind

        own = _context(trace.trace_id, trace.span_id, sampled=trace.sampled)
        parent = (
            _context(trace.trace_id, trace.parent_id, sampled=True) if trace.parent_id else None
        )
        for step in steps:
            kind = SpanKind.CLIENT if step.name == "application" else SpanKind.INTERNAL
            below = _context(trace.trace_id, secrets.token_hex(8), sampled=trace.sampled)
            self._end(step, (below, own), kind, {})
        self._end(whole, (own, parent), SpanKind.SERVER, attributes)

    def close(self) -> None:
        """Send the waiting spans, and end."""
        self._processor.shutdown()

    def _end(
        self,
        step: Step,
        contexts: "tuple[SpanContext, SpanContext | None]",
        kind: "SpanKind",
        attributes: Attributes,
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        context, parent = contexts
        failed = int(attributes.get("http.response.status_code", 0)) >= 500
        self._processor.on_end(
            ReadableSpan(
                step.name,
                context,
                parent,
                self._resource,
                attributes,
                kind=kind,
                status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                start_time=self._offset + int(step.began * 1e9),
                end_time=self._offset + int(step.ended * 1e9),
            )
        )


def open_tracer(endpoint: str) -> Tracer:
    """A tracer that sends to the collector at ``endpoint`` (OTLP over HTTP).

    Raises ``VaultError(BAD_SETTINGS)`` where the extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise VaultError(
            Code.BAD_SETTINGS,
            "tracing.endpoint needs the OpenTelemetry SDK: install domicile[otel], or remove the "
            "setting.",
        ) from None
    return Tracer(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))


def _context(trace_id: str, span_id: str, *, sampled: bool) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags)

"""Ids by which one request is followed: in answers, log lines, audit lines and traces.

The id of a request (``X-Request-Id``) is that of a trusted proxy in front, else a new one: anybody
else could write what he likes into the logs. A trace (``traceparent``) is continued whoever sent
it, as W3C Trace Context has it.
"""

from typing import Final, NamedTuple

from proxy.net.http1.fields import HeaderField
from proxy.net.request import RequestContext
from proxy.redactor.message import RawHeaders, header
from proxy.telemetry.logs import REQUEST_ID
from proxy.telemetry.tracing import Trace, accepted_id, new_trace, parse_traceparent

_OURS: Final = (b"x-request-id", b"x_request_id")
_TRACEPARENT: Final = b"traceparent"


class Correlation(NamedTuple):
    """Gives requests their ids, and tells them to applications. Made only where one is switched
    on.
    """

    ids: bool  #: requests have ids
    sample: int | None  #: in a hundred traces that begin here so many are recorded; none: no traces

    def identify(self, incoming: RequestContext, trusted: bool) -> None:
        """Give a request its ids, before anything can be said of it; ``trusted``: its caller is."""
        if self.ids:
            sent = header(incoming.raw, _OURS[0]) if trusted else None
            ident = accepted_id(None if sent is None else sent.decode("latin-1"))
            incoming.request_id = ident
            incoming.answer_fields = b"X-Request-Id: %b\r\n" % ident.encode("ascii")
            REQUEST_ID.set(ident)
        if self.sample is not None:
            incoming.trace = trace_of(incoming.raw) or new_trace(self.sample)

    def fields(self, incoming: RequestContext, fields: list[HeaderField]) -> list[HeaderField]:
        """The fields for the application, with the ids in place of those that the caller sent."""
        if self.ids:
            fields = [field for field in fields if field[0].lower() not in _OURS]
            fields.append((b"X-Request-Id", incoming.request_id.encode("ascii")))
        if incoming.trace is not None:
            fields = [field for field in fields if field[0].lower() != _TRACEPARENT]
            fields.append((_TRACEPARENT, incoming.trace.traceparent))
        return fields


def trace_of(headers: RawHeaders) -> Trace | None:
    """The trace that a request is a part of."""
    value = header(headers, _TRACEPARENT)
    return None if value is None else parse_traceparent(value)

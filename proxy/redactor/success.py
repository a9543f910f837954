"""What the status of an answer means for its request: taken, refused, or nobody knows.

An expired session is answered by a redirect like a saved form is, and a pop-up by a page like a form with mistakes is.
So a rule may say where a redirect must lead, and what a page must hold, to count. Pure functions.
"""

import enum
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Condition, ResponseRule
from proxy.redactor.template import Kind, Segment, Template


class Outcome(enum.Enum):
    """What the application did with a request, by its answer."""

    TAKEN = enum.auto()
    REFUSED = enum.auto()
    DOUBTFUL = enum.auto()
    UNREAD = enum.auto()  #: the body tells, and it was not read (yet)


def outcome(rule: ResponseRule, target: bytes, status: int, headers: RawHeaders, body: bytes | None) -> Outcome:
    """What an answer to a request for ``target`` says; ``body`` is ``None`` where it was not read."""
    if status in rule.success:
        return Outcome.TAKEN
    for condition in rule.conditions:
        if status in condition.statuses and _leads(condition, headers, target):
            if condition.text and body is None:
                return Outcome.UNREAD
            if condition.text.encode() in (body or b""):
                return Outcome.TAKEN
    return Outcome.DOUBTFUL if status >= 500 or 300 <= status < 400 else Outcome.REFUSED


def _leads(condition: Condition, headers: RawHeaders, target: bytes) -> bool:
    """Whether the one ``Location`` leads to a path that the condition names (RFC 9110, section 10.2.2)."""
    if not condition.locations:
        return True
    places = [value for name, value in headers if name.lower() == b"location"]
    if len(places) != 1:
        return False
    try:
        path = urlsplit(urljoin(target.decode("latin-1"), places[0].decode("latin-1").strip())).path
    except ValueError:
        return False
    parts = [unquote_to_bytes(part) for part in path.encode("latin-1").split(b"/") if part]
    return any(_fits(template, parts) for template in condition.locations)


def _fits(template: Template, parts: Sequence[bytes]) -> bool:
    segments = template.segments
    if segments and segments[-1].kind is Kind.REST:
        if len(parts) < len(segments):
            return False
        segments = segments[:-1]
        parts = parts[: len(segments)]
    return len(parts) == len(segments) and all(map(_takes, segments, parts))


def _takes(segment: Segment, part: bytes) -> bool:
    if segment.kind is Kind.LITERAL:
        return segment.text.encode() == part
    if segment.kind is Kind.MIXED:
        return segment.regex().fullmatch(part) is not None
    return True

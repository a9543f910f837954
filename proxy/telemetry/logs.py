"""Log lines on standard error, JSON or text, whose field names all stand in one table.

A line is an event (a constant text in the code) and fields of ``FIELDS``. A name outside the table
raises in development and tests; in service it is left out and named in ``unlisted``, so that
nothing personal slips in and no line is lost. Exceptions are logged by class and place, never by
their text, which may quote input. Lines of libraries are reduced to logger, level and place for the
same reason. Of warnings and errors that repeat each other, as all requests do while the database is
away, the first ones are written and the others counted.
"""

import atexit
import json
import logging
import sys
import threading
import time
from asyncio import get_running_loop
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final, TextIO, cast

import structlog

#: Fields of log lines, with their meaning. None ever holds content of a request, an answer or a
#: record.
FIELDS: Final[Mapping[str, str]] = {
    "time": "the instant, UTC, ISO 8601 with milliseconds",
    "level": "debug, info, warning, error",
    "room": "the part of the program that speaks",
    "event": "what happened, a constant text",
    "answer_kinds": "kinds of personal values suspected in an answer that no rule names",
    "address": "an address this process listens at or connects to, as the settings or rules name it",
    "client": "the id of a client of the vault's own interface",
    "code": "an error code of proxy.errors",
    "content_type": "a content type by a registered name, or other",
    "count": "how many",
    "duration_ms": "how long it took, in milliseconds",
    "endpoint": "an endpoint, as the rule file names it",
    "engine": "the kind of store",
    "entity": "an entity, as the rule file names it",
    "environment": "the id of an environment",
    "exception": "the class of an exception",
    "field": "a field, as the rule file names it",
    "file": "a file of the operator: settings, rules, keys, database",
    "layer": "what isolates resident functions: landlock, seccomp, network_namespace, user",
    "listener": "proxy, vault or admin",
    "files": "files of the operator",
    "logger": "the logger of a library that spoke",
    "method": "the method of a request",
    "operation": "an operation, as the rule file writes its match",
    "parameter": "a parameter that no rule names: unknown words are hidden",
    "place": "where such a parameter stands: query, form, upload, body or argument",
    "path": "the shape of a path that no rule names: unknown words and values are hidden",
    "passed": "how many rules let requests pass unchanged",
    "pid": "the process",
    "reason": "a constant text that says why",
    "repeated": (
        "so many more lines were left out in these ten seconds that differ from this one at most in "
        "request, trace, duration, size and count"
    ),
    "request_id": "the id of a request: that of a trusted proxy in front, or a new one",
    "request_kinds": "kinds of personal values suspected in a request that no rule names",
    "sink": "a place that the audit log is shipped to",
    "signal": "the signal that arrived",
    "source": (
        "where in a file of the operator or in a document a fault is: file:line:column or a JSON "
        "Pointer"
    ),
    "size": "bytes of body sent to the caller",
    "status": "the status of an answer",
    "template": "the path template of a rule, never a path",
    "text": "the message of a VaultError, which never quotes a value",
    "trace_id": "the trace that a request is a part of (W3C Trace Context)",
    "unmatched": "what happens to requests that no rule names: report, pass or deny",
    "unlisted": "names of fields that were left out because this table lacks them",
    "verb": "create, read, update or delete",
    "worker": "the number of a worker (serve --workers) that speaks",
    "version": "a version of the program, the rules or the database",
    "where": "file and line of the innermost frames of an exception or of a library's line",
}

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

#: The id of the request that is handled now; empty outside of one, and where requests have none.
REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")

#: How many frames of an exception a line names, innermost first.
_FRAMES: Final = 8

#: Seconds in which a service writes only the first of warnings and errors that repeat each other;
#: how many; how many different ones are counted at once; and the fields in which they may differ.
SPAN: Final = 10.0
_FIRST: Final = 20
_MOST_COUNTED: Final = 200
_OF_ONE_REQUEST: Final = frozenset(
    {"time", "request_id", "trace_id", "duration_ms", "size", "count"}
)

LogEvent = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Style:
    """Format of log lines: lowest level, ``json`` or ``text``; strict about unlisted fields.

    ``worker``: the number that stands in each line; 0: none. ``span``: seconds in which only the
    first of equal warnings and errors are written; 0: all are.
    """

    level: str = "info"
    format: str = "json"
    strict: bool = True
    worker: int = 0
    span: float = 0.0


def configure(style: Style, stream: TextIO | None = None) -> None:
    """Set the style for the whole process, our lines and those of libraries alike.

    May be called again.
    """
    _ours(style, stream)
    root = logging.getLogger()
    root.handlers = [_Libraries()]
    root.setLevel(max(LEVELS[style.level], logging.WARNING))


def log_crashes() -> None:
    """Make a line of what nobody caught, in whichever thread; Python would print its text."""

    def tell(error: BaseException | None) -> None:
        logger("serve").error("the program failed", exc_info=error)

    sys.excepthook = lambda _kind, error, _trace: tell(error)
    threading.excepthook = lambda crash: tell(crash.exc_value)
    sys.unraisablehook = lambda crash: tell(crash.exc_value)


class _Losing:
    """A stream that drops what it cannot write: logging must not fail a request.

    The disk under the log may be full, or its pipe closed.

    Without its own stream it uses the current standard error at each line, which a test or a
    supervisor may have replaced.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            (self._stream or sys.stderr).write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            (self._stream or sys.stderr).flush()


def _ours(style: Style, stream: TextIO | None) -> None:
    losing = cast("TextIO", _Losing(stream))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp,
            _correlate,
            *([partial(_name_worker, style.worker)] if style.worker else ()),
            _name_exceptions,
            _Repeats(style.span),
            _refuse_unlisted if style.strict else _drop_unlisted,
            render_json if style.format == "json" else render_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[style.level]),
        logger_factory=lambda *_: structlog.WriteLogger(losing),
        cache_logger_on_first_use=False,
    )


def logger(room: str, *, each: bool = False) -> structlog.typing.FilteringBoundLogger:
    """The logger of a room: ``log.info("rules loaded", version=…)`` with fields of ``FIELDS``.

    ``each``: its warnings are all written, however often they repeat each other.
    """
    more = {"each": True} if each else {}
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger(room=room, **more)
    return bound


@dataclass(slots=True)
class _Span:
    """A span of time in which lines repeat each other."""

    end: float
    event: LogEvent  #: the last of them
    lines: int = 0


class _Repeats:
    """Of warnings and errors that repeat each other the first ones pass; the others are counted, and
    their number is a line at the end of the span.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spans: dict[tuple[tuple[str, str], ...], _Span] = {}  #: by what their lines say
        atexit.register(self._end)

    def __call__(self, _logger: object, _method: str, event: LogEvent) -> LogEvent:
        if (
            event.pop("each", False)
            or "repeated" in event
            or event["level"] not in ("warning", "error")
        ):
            return event
        said = tuple(
            (name, str(event[name])) for name in sorted(event) if name not in _OF_ONE_REQUEST
        )
        now, span = time.monotonic(), self._spans.get(said)
        if span is not None and now >= span.end:
            self._close(said, span)
            span = None
        if span is None:
            if not self._has_room(now):
                return event
            span = self._spans[said] = _Span(now + self._seconds, event)
        span.event = event
        span.lines += 1
        if span.lines <= _FIRST:
            return event
        if span.lines == _FIRST + 1:
            with suppress(RuntimeError):  # without a loop the next such line closes it, or the end
                get_running_loop().call_later(
                    span.end - now, self._close, said, span,
                    context=Context(),  # of no request
                )  # fmt: skip
        raise structlog.DropEvent

    def _has_room(self, now: float) -> bool:
        if len(self._spans) >= _MOST_COUNTED:
            for said, span in [*self._spans.items()]:
                if now >= span.end:
                    self._close(said, span)
        return len(self._spans) < _MOST_COUNTED

    def _close(self, said: tuple[tuple[str, str], ...], span: _Span) -> None:
        """Forget a span, and tell how many lines were left out."""
        if self._spans.get(said) is not span:
            return
        self._spans.pop(said, None)  # another thread may just have done so
        if span.lines > _FIRST:
            named = {name: span.event[name] for name, _ in said}
            level, room, text = (named.pop(name) for name in ("level", "room", "event"))
            getattr(logger(room), level)(text, **named, repeated=span.lines - _FIRST)

    def _end(self) -> None:
        if self in structlog.get_config()["processors"]:
            for said, span in [*self._spans.items()]:
                self._close(said, span)


def traceback_place(trace: TracebackType | None) -> str:
    """The innermost frames of a traceback as ``file:line, file:line``; no text of a line."""
    frames: list[str] = []
    while trace is not None:
        frames.append(f"{_short(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return ", ".join(reversed(frames[-_FRAMES:]))


class _Libraries(logging.Handler):
    """Handles log records of libraries: tells module and line, never their text."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {
            "logger": record.name,
            "where": f"{_short(record.pathname)}:{record.lineno}",
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["exc_info"] = record.exc_info[1]
        level = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(logger("library"), level)("a library spoke", **fields)


#: Signs that a terminal obeys, or that turn the direction of what it shows, escaped as in JSON.
#: Those before U+0020 are escaped in any JSON.
STEERING: Final = {
    code: f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
                 *range(0x2066, 0x206A))
}  # fmt: skip


def render_json(_logger: object, _method: str, event: LogEvent) -> str:
    """Render an event as a line of JSON: fixed members first, the rest in alphabetical order."""
    return json.dumps(_ordered(event), ensure_ascii=False, default=str).translate(STEERING)


def render_text(_logger: object, _method: str, event: LogEvent) -> str:
    """Render an event as text: time, level, room, event, name=value; line breaks escaped."""
    rest = _ordered(event)
    head = [str(rest.pop(name, "")) for name in ("time", "level", "room", "event")]
    tail = [
        f"{name}={json.dumps(value, ensure_ascii=False, default=str).translate(STEERING)}"
        for name, value in rest.items()
    ]
    return f"{head[0]} {head[1]:<7} {head[2]:<8} {head[3]}" + "".join(f" {pair}" for pair in tail)


def _ordered(event: LogEvent) -> dict[str, Any]:
    fixed = {name: event[name] for name in ("time", "level", "room", "event") if name in event}
    return fixed | {name: event[name] for name in sorted(event) if name not in fixed}


def _stamp(_logger: object, _method: str, event: LogEvent) -> LogEvent:
    event["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _correlate(_logger: object, _method: str, event: LogEvent) -> LogEvent:
    if request_id := REQUEST_ID.get():
        event.setdefault("request_id", request_id)
    return event


def _name_worker(number: int, _logger: object, _method: str, event: LogEvent) -> LogEvent:
    event["worker"] = number
    return event


def _name_exceptions(_logger: object, _method: str, event: LogEvent) -> LogEvent:
    """``exc_info`` becomes the class and the place; the text stays behind. Of a ``fault``, which
    is a ``VaultError``, code and message are told.
    """
    if (fault := event.pop("fault", None)) is not None:
        event["code"], event["text"] = fault.code, fault.message
    info = event.pop("exc_info", None)
    if not info:
        return event
    error = info if isinstance(info, BaseException) else sys.exc_info()[1]
    if error is not None:
        event["exception"] = type(error).__qualname__
        event["where"] = traceback_place(error.__traceback__) or event.get("where", "")
    return event


def _unlisted(event: LogEvent) -> list[str]:
    return sorted(name for name in event if name not in FIELDS)


def _refuse_unlisted(_logger: object, _method: str, event: LogEvent) -> LogEvent:
    if names := _unlisted(event):
        raise ValueError(
            f"{', '.join(names)} may not stand in a log line: add it to proxy.telemetry.logs.FIELDS"
        )
    return event


def _drop_unlisted(_logger: object, _method: str, event: LogEvent) -> LogEvent:
    if names := _unlisted(event):
        for name in names:
            del event[name]
        event["unlisted"] = names
    return event


def _short(path: str) -> str:
    """The end of a path, such as ``proxy/vault/seal.py``, without the machine's folders."""
    return "/".join(PurePath(path).parts[-3:])


# Default configuration: strict text on standard error, so that a test or a script sees a wrong name
# at once. The standard library's logging is left alone: importing this file must not change the
# surrounding program.
_ours(Style(format="text"), None)

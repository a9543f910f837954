"""Answers that the proxy gives itself: problem details (RFC 9457), marked so that nobody takes them for the application's."""

import json
from http import HTTPStatus
from typing import Final

from proxy.errors import Code, Detail, VaultError
from proxy.telemetry import logs

#: The field that tells who answered. The application cannot set it: it is dropped from whatever passes through.
ANSWER: Final = b"Domicile-Answer: proxy\r\n"

_VAULT = "The vault cannot be used at the moment, so nothing of this request was kept; send it again later."

#: What callers are told in place of sentences for the operator, which may name files of this machine; those are logged.
_TOLD_CALLERS: Final = {
    Code.VAULT_DOWN: _VAULT,
    Code.BAD_STORE: _VAULT,
    Code.BAD_KEYS: _VAULT,
    Code.STORE_BUSY: _VAULT,
    Code.NOT_WRITABLE: _VAULT,
}

#: When to try again, in seconds, after errors that pass by themselves.
_RETRY: Final = {Code.OVERLOADED: 1, Code.UPSTREAM_BUSY: 1, Code.AUDIT_DOWN: 1}

_log = logs.logger("web")


def problem(status: int, code: Code, message: str, details: tuple[Detail, ...] = ()) -> bytes:
    """The JSON document: no value of anyone in it, only places and sentences."""
    return json.dumps(
        {
            "type": "about:blank",
            "title": reason(status),
            "status": status,
            "code": str(code),
            "detail": message,
            "errors": [{"title": str(code), "source": source, "detail": text} for source, text in details],
        },
        ensure_ascii=False,
    ).encode()


def document(status: int, error: VaultError) -> bytes:
    """The JSON document of an error; what only the operator may read is logged, and callers get a sentence of their own."""
    told = _TOLD_CALLERS.get(error.code)
    if told is None:
        return problem(status, error.code, error.message, error.details)
    _log.error("the vault failed a request", code=error.code, text=error.message)
    return problem(status, error.code, told)


def wait_of(error: VaultError) -> int | None:
    """Seconds after which it is worth trying again, for ``Retry-After``; ``None`` where nobody knows."""
    return error.retry_after or _RETRY.get(error.code)


def reason(status: int) -> str:
    """The usual reason phrase of a status, or an empty text."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def answer(status: int, error: VaultError, *, head: bool = False, close: bool = False) -> bytes:
    """A whole own answer as bytes. ``head``: to a HEAD request, so the body stays away. ``close``: the connection ends."""
    body = document(status, error)
    wait = wait_of(error)
    lines = [
        b"HTTP/1.1 %d %b\r\n" % (status, reason(status).encode("ascii", "replace")),
        b"Content-Type: application/problem+json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n" % len(body),
        ANSWER,
        b"" if wait is None else b"Retry-After: %d\r\n" % wait,
        b"".join(f"{name}: {value}\r\n".encode("ascii") for name, value in (error.limit or {}).items()),
        b"Connection: close\r\n\r\n" if close else b"\r\n",
        b"" if head else body,
    ]
    return b"".join(lines)

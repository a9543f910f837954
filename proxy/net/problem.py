"""Answers of the proxy itself: statuses, and problem details (RFC 9457) as JSON or as a page."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from proxy.errors import Code, Detail, VaultError
from proxy.net.response import RequestContext
from proxy.redactor import content_coding
from proxy.redactor.content_coding import weights
from proxy.redactor.rules import REFUSAL_WORDS, OnError, Verb
from proxy.telemetry import logs

# The table from error codes to HTTP statuses, with an endpoint's ``on_error``.

_CODES: Final = {
    400: (Code.BAD_REQUEST, Code.MALFORMED_JSON, Code.AMBIGUOUS_JSON, Code.AMBIGUOUS_UPLOAD,
        Code.INVALID_RECORD, Code.INVALID_FILTER, Code.INVALID_OPTIONS, Code.INVALID_INPUT,
        Code.INVALID_FILE, Code.INVALID_SCHEMA, Code.INVALID_POLICY, Code.UNKNOWN_SCHEMA,
        Code.SCHEMA_OF_RULES, Code.UNKNOWN_FUNCTION),
    401: (Code.ACCESS_DENIED, Code.PARTIAL_MATCH_DISABLED, Code.UNAUTHORIZED),
    403: (Code.FIELD_HIDDEN, Code.OPERATION_DENIED, Code.PURPOSE_REQUIRED, Code.FORBIDDEN,
        Code.APPROVAL_NEEDED, Code.APPROVAL_REFUSED, Code.OUTSIDE_COUNTRY),
    404: (Code.NOT_FOUND, Code.NO_MATCH, Code.UNKNOWN_FILE),
    405: (Code.METHOD_NOT_ALLOWED,),
    408: (Code.REQUEST_TIMEOUT,),
    409: (Code.RECORD_EXISTS, Code.CONFLICT, Code.POLICY_IN_USE, Code.SCHEMA_BUSY,
        Code.REPLICAS_RUNNING, Code.SCHEMA_IN_USE, Code.ENVIRONMENT_IN_USE, Code.WRONG_COUNTRY,
        Code.FILE_EXISTS),
    412: (Code.PRECONDITION_FAILED,),
    413: (Code.TOO_LARGE,),
    414: (Code.URI_TOO_LONG,),
    415: (Code.UNREADABLE_BODY, Code.UNSUPPORTED_MEDIA_TYPE),
    416: (Code.RANGE_UNSATISFIABLE,),
    422: (Code.FIELD_ABSENT, Code.VALUE_UNFIT, Code.VALUE_INVALID, Code.SEARCH_REFUSED,
        Code.VALUE_ELSEWHERE, Code.UNPROCESSABLE, Code.BATCH_TOO_LARGE, Code.TOO_BROAD),
    429: (Code.TOO_MANY_REQUESTS, Code.TOO_MANY_UPLOADS, Code.IDEMPOTENCY_CHECK_FAILED),
    431: (Code.HEADER_TOO_LARGE,),
    500: (Code.CANNOT_OPEN, Code.FUNCTION_FAILED, Code.BAD_SETTINGS, Code.BAD_RULES, Code.BAD_KEYS,
        Code.BAD_STORE, Code.PORT_IN_USE, Code.INTERNAL),
    502: (Code.FILTER_ENDPOINT_WRONG, Code.UPSTREAM_UNREACHABLE, Code.UPSTREAM_BROKEN,
        Code.UNREADABLE_ANSWER, Code.ANSWER_TOO_LARGE),
    503: (Code.OVERLOADED, Code.VAULT_DOWN, Code.AUDIT_DOWN, Code.FILES_UNAVAILABLE,
        Code.FUNCTION_LIMIT, Code.ISSUER_UNREACHABLE, Code.UPSTREAM_BUSY, Code.UPSTREAM_SUSPENDED,
        Code.STORE_BUSY),
    504: (Code.FILTER_ENDPOINT_LATE, Code.UPSTREAM_TIMEOUT),
    507: (Code.SHAPE_FULL, Code.NOT_WRITABLE),
}  # fmt: skip

#: The status of every code, at all listeners.
STATUS: Final[Mapping[Code, int]] = MappingProxyType(
    {code: status for status, codes in _CODES.items() for code in codes}
)


def proxy_status(
    error: VaultError, on_error: OnError | None = None, verb: Verb | None = None
) -> int:
    """The status to answer with; ``on_error`` and ``verb`` of the matched operation, if any."""
    if on_error is None:
        return STATUS[error.code]
    if error.code in (Code.VAULT_DOWN, Code.AUDIT_DOWN):
        return _vault_down(on_error, verb)
    if error.code is Code.UNREADABLE_ANSWER and on_error.unreadable_answer.isdecimal():
        return int(on_error.unreadable_answer)
    chosen = {
        Code.UNREADABLE_BODY: on_error.unreadable_body,
        Code.AMBIGUOUS_JSON: on_error.ambiguous_json,
        Code.AMBIGUOUS_UPLOAD: on_error.ambiguous_json,
        Code.TOO_LARGE: on_error.too_large,
    }
    return chosen.get(error.code, STATUS[error.code])


def _vault_down(on_error: OnError, verb: Verb | None) -> int:
    """``vault_down_read`` may be no status; then an error has that of the table."""
    if verb is not Verb.READ:
        return on_error.vault_down_write
    read = on_error.vault_down_read
    return int(read) if read.isdecimal() else STATUS[Code.VAULT_DOWN]


# Answers of the proxy itself: problem details (RFC 9457), marked so that they are not taken for the
# application's.
#
# Browsers that request a page get them as a page: people who fill in a form should not see JSON. It
# holds no script, loads nothing, and may do nothing.

#: The field that tells who answered. The application cannot set it: it is dropped from whatever
#: passes through.
ANSWER: Final = b"Domicile-Answer: proxy\r\n"

_VAULT = (
    "The vault cannot be used at the moment, so nothing of this request was kept; send it again "
    "later."
)

#: Texts for callers in place of sentences for the operator, which may name files of this machine;
#: those are logged.
_TOLD_CALLERS: Final = {
    Code.VAULT_DOWN: _VAULT,
    Code.BAD_STORE: _VAULT,
    Code.BAD_KEYS: _VAULT,
    Code.STORE_BUSY: _VAULT,
    Code.NOT_WRITABLE: _VAULT,
}

#: Seconds after which to retry, for passing errors.
_RETRY: Final = {Code.OVERLOADED: 1, Code.UPSTREAM_BUSY: 1, Code.AUDIT_DOWN: 1}

_log = logs.logger("web")


def problem(status: int, code: Code, message: str, details: tuple[Detail, ...] = ()) -> bytes:
    """The JSON document: no value of anyone in it, only places and sentences."""
    return json.dumps(
        {
            "type": "about:blank",
            "title": reason_phrase(status),
            "status": status,
            "code": str(code),
            "detail": message,
            "errors": [
                {"title": str(code), "source": source, "detail": text} for source, text in details
            ],
        },
        ensure_ascii=False,
    ).encode()


def problem_document(status: int, error: VaultError) -> bytes:
    """The JSON document of an error.

    Sentences for the operator only are logged, and callers get a general one.
    """
    text = _TOLD_CALLERS.get(error.code)
    if text is None:
        return problem(status, error.code, error.message, error.details)
    _log.error("the vault failed a request", fault=error)
    return problem(status, error.code, text)


def wait_of(error: VaultError) -> int | None:
    """Seconds after which a retry makes sense, for ``Retry-After``; ``None`` if unknown."""
    return error.retry_after or _RETRY.get(error.code)


def reason_phrase(status: int) -> str:
    """The usual reason phrase of a status, or an empty text."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


#: What a person who uses the application in a browser reads: a heading, and what can be done.
_CHECK: Final = "Please check what you entered"
_AGAIN: Final = "Please try again"
_CHANGED: Final = (
    _AGAIN,
    "Somebody else has changed this in the meantime. Open it again, and make your change there.",
)
_REFUSED: Final = (
    "This did not work",
    "The application did not get what you sent. Go back, and try it in another way.",
)
_LATER: Final = (
    _AGAIN,
    (
        "The application cannot be reached at the moment. Wait a minute, then go back and try "
        "again. What was confirmed to you before is safe."
    ),
)
_ADVICE: Final = {
    Code.VALUE_ELSEWHERE: (
        _CHECK,
        (
            "Nothing was saved. Something personal that you entered stands in a second place as "
            "well, where it must not. Go back, and take it out of the other field, or the address."
        ),
    ),
    **dict.fromkeys(
        (Code.VALUE_UNFIT, Code.VALUE_INVALID, Code.FIELD_ABSENT),
        (
            _CHECK,
            (
                "Nothing was saved. A field is empty, or holds something that it does not take. Go "
                "back, correct what is named below, and send it again."
            ),
        ),
    ),
    **dict.fromkeys(
        (Code.SEARCH_REFUSED, Code.TOO_BROAD),
        (
            "This search is not possible",
            (
                "The data is protected, so not every search or order can be answered. Search for "
                "more letters of a name, three at least, for a whole name or address, or sort by "
                "another column."
            ),
        ),
    ),
    Code.FIELD_HIDDEN: (
        "This is not open to you",
        "You may not see this data, so you cannot search by it or compare it.",
    ),
    Code.OPERATION_DENIED: ("This is not open to you", "This part of the application is closed."),
    Code.OUTSIDE_COUNTRY: (
        "This is not open to you",
        "This data may only be used from within its home country.",
    ),
    Code.TOO_LARGE: (_CHECK, "Nothing was saved: it is too large. Send less, or a smaller file."),
    **dict.fromkeys((Code.CONFLICT, Code.PRECONDITION_FAILED, Code.RECORD_EXISTS), _CHANGED),
}

_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 "
    "system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1.5rem}"
    "h1{font-size:1.4rem}footer{margin-top:3rem;font-size:.8rem;opacity:.7}"
)
_PAGE: Final = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    "<title>{status} {title}</title>\n"
    f"<style>{_STYLE.replace('{', '{{').replace('}', '}}')}</style>\n</head>\n<body>\n<main>\n"
    "<h1>{heading}</h1>\n<p>{advice}</p>\n{reasons}"
    "<p>If that does not help, tell those who run the application what stands below.</p>\n</main>\n"
    "<footer>\n<p>{status} <code>{code}</code>. The proxy in front of the application answered "
    "this.</p>\n<p>{detail}</p>\n{errors}</footer>\n"
    "</body>\n</html>\n"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
#: The name of a field before the reason of its value.
_NAMED: Final = re.compile(r"^[\w-]+: ")
_WORD: Final = re.compile(rf"\{{({'|'.join(REFUSAL_WORDS)})\}}")
PROBLEM: Final = "application/problem+json"
_PROBLEM: Final = f"Content-Type: {PROBLEM}\r\n".encode()
_JSON: Final = b"Content-Type: application/json\r\n"
_HTML: Final = (
    f"Content-Type: text/html; charset=utf-8\r\nContent-Security-Policy: {_POLICY}\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
).encode()


def refusal_page(problem: bytes) -> bytes:
    """The page that shows a JSON document of ``problem``: what a person can do, then its words."""
    members = json.loads(problem)
    texts = {name: escape(str(members[name])) for name in ("status", "title", "detail", "code")}
    errors = [(one["source"], one["detail"]) for one in members["errors"]]
    items = [
        f"<li><code>{escape(where)}</code>: {escape(text.removeprefix(f'{where}: '))}</li>\n"
        for where, text in errors
    ]
    listed = f"<ul>\n{''.join(items)}</ul>\n" if items else ""
    reasons = ""
    if members["code"] == Code.VALUE_INVALID:  # these say to a person what to correct
        listed, reasons = "", listed.replace("<code>", "").replace("</code>", "")
    general = _LATER if members["status"] >= 500 else _REFUSED
    heading, advice = _ADVICE.get(members["code"], general)
    said = {"heading": heading, "advice": advice, "reasons": reasons, "errors": listed}
    return _PAGE.format(**texts, **said).encode()


@lru_cache(maxsize=256)  # browsers are of few kinds; the bounds on heads bound each value
def prefers_page(accept: bytes) -> bool:
    """Whether Accept asks for HTML by name, and for no JSON as much (RFC 9110 section 12.5.1)."""
    liked = weights(accept)
    page = max(liked.get("text/html", 0.0), liked.get("application/xhtml+xml", 0.0))
    document = max(liked.get("application/json", 0.0), liked.get("application/problem+json", 0.0))
    return page > document and page >= liked.get("*/*", 0.0)


def in_own_form(document: bytes, form: str) -> bytes:
    """A document of ``problem`` in the JSON of an application.

    ``form``: that JSON as text. A text that is a word in braces alone becomes that part of the
    document, one with more around it a longer text; ``fields`` are the reasons by their places.
    """
    parts = json.loads(document)
    parts["fields"] = {
        one["source"].removeprefix("/").replace("/", "."): _NAMED.sub("", one["detail"])
        for one in parts["errors"]
    }
    return json.dumps(_filled(json.loads(form), parts), ensure_ascii=False).encode()


def _filled(form: Any, parts: Mapping[str, Any]) -> Any:
    if isinstance(form, dict):
        return {name: _filled(value, parts) for name, value in form.items()}
    if isinstance(form, list):
        return [_filled(value, parts) for value in form]
    if not isinstance(form, str):
        return form
    whole = _WORD.fullmatch(form)
    return parts[whole[1]] if whole else _WORD.sub(lambda word: _text(parts[word[1]]), form)


def _text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)


def own_answer(
    status: int,
    error: VaultError,
    *,
    head: bool = False,
    close: bool = False,
    accept: bytes | None = None,
) -> bytes:
    """A whole own answer as bytes. ``head``: to a HEAD request, so the body stays away.

    ``close``: the connection ends.

    ``accept`` is the Accept field of the request, which tells whether a browser wants a page.
    """
    content = problem_document(status, error), _PROBLEM
    if accept is not None and prefers_page(accept):
        content = refusal_page(content[0]), _HTML
    return _whole(status, error, content, head=head, close=close)


def _whole(
    status: int, error: VaultError, content: tuple[bytes, bytes], *, head: bool, close: bool
) -> bytes:
    """The bytes of an answer with this body and these fields of it."""
    body, kind = content
    wait = wait_of(error)
    lines = [
        b"HTTP/1.1 %d %b\r\n" % (status, reason_phrase(status).encode("ascii", "replace")),
        b"%bContent-Length: %d\r\nCache-Control: no-store\r\n" % (kind, len(body)),
        ANSWER,
        b"" if wait is None else b"Retry-After: %d\r\n" % wait,
        b"".join(
            f"{name}: {value}\r\n".encode("ascii") for name, value in (error.limit or {}).items()
        ),
        b"Connection: close\r\n\r\n" if close else b"\r\n",
        b"" if head else body,
    ]
    return b"".join(lines)


def refuse_request(incoming: RequestContext, status: int, error: VaultError) -> None:
    """Answer in the proxy's own name."""
    incoming.begin(status)
    accept = content_coding.field(incoming.raw, b"accept")
    content = problem_document(status, error), _PROBLEM
    if accept is not None and prefers_page(accept):
        content = refusal_page(content[0]), _HTML
    elif incoming.endpoint is not None and incoming.endpoint.refusals:
        content = in_own_form(content[0], incoming.endpoint.refusals), _JSON
    head = incoming.head.method == "HEAD"
    whole = _whole(status, error, content, head=head, close=incoming.close)
    incoming.size += len(whole) - whole.index(b"\r\n\r\n") - 4
    incoming.write(whole)

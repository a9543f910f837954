"""``tests:`` of a rule file as typed structures; ``domicile rules test`` runs them.

``parse_case`` checks what the table of keys cannot: combinations of keys, and known placeholders.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from proxy.redactor.rules import Position, RuleTest
from proxy.tokenization import PERSISTENT, SHAPES, SYNONYMS

_SENT = re.compile(r"\{sent ([^{}]*)\}")


class _Absent:
    """Marks a body that a test does not speak of; ``None`` is the JSON value null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class TestRequest:
    """The request of the caller.

    ``json`` is ``ABSENT`` or the body; ``form`` is ``None`` or its members; ``text`` is ``None`` or
    the body.
    """

    method: str
    target: str  #: path with its query
    headers: Mapping[str, str]
    json: Any
    form: Mapping[str, str] | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class AppSees:
    """Expected request at the application.

    ``None`` and ``ABSENT`` mean that the test does not say.
    """

    without: tuple[str, ...]
    json: Any
    form: Mapping[str, Any] | None
    query: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AppAnswers:
    """Answer of the application.

    Texts may hold ``{sent $.email}``, a place of the request that it received.
    """

    status: int
    headers: Mapping[str, str]
    json: Any
    text: str | None


@dataclass(frozen=True, slots=True)
class CallerSees:
    """Expected answer at the caller."""

    status: int | None
    json: Any
    text: str | None
    headers: Mapping[str, str]
    code: str | None  #: of the error that the proxy answers itself


@dataclass(frozen=True, slots=True)
class Case:
    """A test of a rule file."""

    name: str
    endpoint: str
    call: TestRequest
    app_sees: AppSees
    app_answers: AppAnswers
    caller_sees: CallerSees
    position: Position
    roles: frozenset[str] = frozenset()  #: of the caller


def parse_case(test: RuleTest) -> Case:
    """The typed test; ``ValueError`` with a sentence that says what to write instead."""
    content = test.content
    for value in _leaves(content.get("app_sees")):
        _check_shape(value)
    for value in _leaves(content.get("app_answers")):
        _check_sent(value)
    sees, answers, caller = (
        content.get(key, {}) for key in ("app_sees", "app_answers", "caller_sees")
    )
    for side in (content["call"], answers, caller):
        if sum(key in side for key in ("json", "form", "text")) > 1:
            raise ValueError("a message has one body; keep one of 'json', 'form' and 'text'")
    return Case(
        test.name,
        test.endpoint,
        _call(content["call"]),
        AppSees(
            tuple(sees.get("without", ())),
            sees.get("json", ABSENT),
            sees.get("form"),
            sees.get("query"),
        ),
        AppAnswers(
            answers.get("status", 200),
            answers.get("headers", {}),
            answers.get("json", ABSENT),
            answers.get("text"),
        ),
        CallerSees(
            caller.get("status"),
            caller.get("json", ABSENT),
            caller.get("text"),
            caller.get("headers", {}),
            caller.get("code"),
        ),
        test.position,
        frozenset(content.get("as", ())),
    )


def _call(content: Mapping[str, Any]) -> TestRequest:
    if "match" in content:
        if "method" in content or "path" in content:
            raise ValueError("'match' says method and path together; leave 'method' and 'path' out")
        method, _, path = str(content["match"]).partition(" ")
        path = path.strip()
    elif "method" in content and "path" in content:
        method, path = content["method"], content["path"]
    else:
        raise ValueError("a call says what it calls; write match: GET /contacts/17")
    if not re.fullmatch(r"[A-Z-]+", method) or not path.startswith("/"):
        raise ValueError("a call is METHOD and path, such as GET /contacts/17")
    if "{" in path:
        raise ValueError("a call names one path, without placeholders; write GET /contacts/17")
    query = content.get("query", {})
    target = f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path
    return TestRequest(
        method,
        target,
        content.get("headers", {}),
        content.get("json", ABSENT),
        content.get("form"),
        content.get("text"),
    )


def _leaves(value: Any) -> Iterator[Any]:
    """Every text, and every mapping that may be a placeholder."""
    if isinstance(value, Mapping):
        if set(value) == {"shape"}:
            yield value
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value


def _check_shape(value: Any) -> None:
    if isinstance(value, Mapping) and str(value["shape"]) not in {*SHAPES, *SYNONYMS, *PERSISTENT}:
        raise ValueError(
            f"{{shape: …}} stands for any token of a shape; the shapes are {', '.join(SHAPES)}"
        )


def _check_sent(value: Any) -> None:
    text = value if isinstance(value, str) else ""
    for match in _SENT.finditer(text):
        if not match[1].startswith("$"):
            raise ValueError(
                "{sent …} repeats a place of what the application was sent; write {sent $.email}"
            )
    if "{sent" in _SENT.sub("", text):
        raise ValueError("this looks like a repeated value and is not one; write {sent $.email}")

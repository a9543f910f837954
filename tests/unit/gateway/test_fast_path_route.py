"""Which requests have a route of ordinary exchanges, and what their fields ask for."""

from types import SimpleNamespace
from typing import Any

from proxy.gateway.fast_path_route import FastPathRoute, fast_path_route
from proxy.net.entity_tags import restored_tag
from proxy.net.http1.head import Heads, parse_request_head
from proxy.net.reply import UpstreamAddress
from proxy.redactor.rules import Verb
from tests.support.gateway import keyed
from tests.support.table import table

ADDRESS = UpstreamAddress("http", "app.test", 80)
MARK = b"0123456789abcdef"
TAG = restored_tag(b'W/"6b"', b"Ann", None, keyed, MARK) or b""
BARE = restored_tag(b'"v1"', b"Ann", None, keyed) or b""


class Rules:
    """Rules in force, of which each operation has a plan."""

    edition = object()

    def __init__(self) -> None:
        self.asked = 0

    def fast_path(self, *_: Any) -> Any:
        self.asked += 1
        return "plan"


def route(
    method: str = "GET", *fields: bytes, target: str = "/p/1", rules: Any = None
) -> FastPathRoute | None:
    verb = {"GET": Verb.READ, "POST": Verb.CREATE}.get(method, Verb.UPDATE)
    carries = method in ("PUT", "POST")
    length = (b"Content-Type: application/json", b"Content-Length: 5") if carries else ()
    lines = [f"{method} {target} HTTP/1.1".encode(), b"Host: app.test", *length, *fields]
    data = b"\r\n".join(lines)
    head = parse_request_head(data + b"\r\n\r\n", len(data), Heads())
    operation = SimpleNamespace(verb=verb, endpoint=SimpleNamespace(views=()))
    match: Any = SimpleNamespace(operation=operation)
    given: Any = rules or Rules()
    incoming: Any = SimpleNamespace(head=head)
    return fast_path_route(given, match, incoming, ADDRESS, None)


def test_the_head_for_the_application_lacks_its_length_alone() -> None:
    found = route("PUT", b"Accept-Encoding: gzip", b"Connection: keep-alive")
    assert found is not None
    assert found.plans[None] is not None
    assert found.head == (
        b"PUT /p/1 HTTP/1.1\r\nHost: app.test\r\nContent-Type: application/json\r\n"
        b"Accept-Encoding: gzip\r\n"
    )


@table(
    ("method", "target", "field"),
    [
        ("GET", "/p/1?x=1", b"X: y"),
        ("POST", "/p;name=x", b"X: y"),
        ("HEAD", "/p/1", b"X: y"),
        ("GET", "/p/1", b"Connection: close"),
        ("PUT", "/p/1", b"Expect: 100-continue"),
        ("PUT", "/p/1", b"Content-Encoding: gzip"),
        ("POST", "/p", b"Idempotency-Key: order-1"),
    ],
)
def test_a_head_that_asks_for_more_has_none(method: str, target: str, field: bytes) -> None:
    assert route(method, field, target=target) is None


def test_a_create_has_one_unless_it_may_be_sent_again() -> None:
    assert route("POST", target="/p") is not None
    assert route("PUT", b"Idempotency-Key: order-1") is not None


def test_a_read_knows_the_tags_that_its_caller_has_and_the_application_is_not_asked() -> None:
    found = route("GET", b"If-None-Match: " + TAG, b'If-None-Match: "x"')
    assert found is not None
    assert found.if_none_match == TAG + b', "x"'
    assert b"If-None-Match" not in found.head
    assert found.marks == ()
    written = route("PUT", b"If-None-Match: " + TAG)
    assert written is not None
    assert written.if_none_match is None
    assert b'If-None-Match: W/"6b"\r\n' in written.head


def test_an_update_has_the_marks_that_its_caller_expects_and_the_application_its_own_tags() -> None:
    found = route("PUT", b"If-Match: " + TAG + b", " + BARE)
    assert found is not None
    assert found.marks == (MARK, b"")
    assert b'If-Match: W/"6b", "v1"\r\n' in found.head
    other = route("PUT", b'If-Match: "v1"')
    assert other is not None
    assert other.marks == ()


def test_what_heads_with_the_same_fields_have_in_common_is_found_once() -> None:
    rules: Any = Rules()
    found = route(rules=rules)
    assert found is not None
    assert rules.asked == 1
    head = parse_request_head(b"GET /p/2 HTTP/1.1\r\nHost: a\r\n\r\n", 26, Heads())
    incoming: Any = SimpleNamespace(head=head)
    for _ in range(2):
        fast_path_route(rules, found.match, incoming, ADDRESS, None)
    assert rules.asked == 2

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.graphql.address import (
    address_with,
    body_of_address,
    says_no_more,
    takes_events,
    takes_several,
)
from proxy.redactor.graphql.requests import GraphReader
from proxy.redactor.load import load_text
from proxy.redactor.message import Request
from tests.support.exchanges import rule_text
from tests.support.table import table


def reader() -> GraphReader:
    rule = "{match: POST /g, graphql: {p: {entity: p}}}"
    return GraphReader(load_text(rule_text(rule)).operations[0])


def refusal(text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
    return VaultError(code, text)


@table("target", [
    b"/g?query=x", b"/g?a=1&query=x", b"/g?qu%65ry=x", b"/g?variables={}", b"/g?extensions={}",
    b"/g?name=Ann", b"/g?Query=x", b"/g?variables[name]=Ann", b"/g?operationName=A&query=x",
])  # fmt: skip
def test_a_query_in_the_address_is_refused(target):
    for request in (
        Request("POST", target, (), b'{"query": "{ a }"}'),
        Request("GET", target, (), b""),
        Request("HEAD", target, ((b"Accept", b"text/event-stream"),), b""),
    ):
        with pytest.raises(VaultError):
            reader().with_body(request)
    page = Request("GET", b"/g", (), b"")
    assert reader().with_body(page) is page
    assert reader().read(page) == []


def test_an_address_is_read_as_a_body_and_written_back_with_what_changed():
    target = b"/g?v=1&query=%7B%20p%20%7D&variables=%7B%22n%22%3A%22Ann%22%7D&operationName=A"
    body, others = body_of_address(target, refusal)
    assert body == b'{"query":"{ p }","variables":{"n":"Ann"},"operationName":"A"}'
    assert others == ("v",)
    changed = body.replace(b"Ann", b"token")
    assert address_with(target, body, body) == target
    assert address_with(target, body, changed) == target.replace(b"Ann", b"token")


@table(
    ("body", "passes"),
    [
        (b'{"query": "query A { p { id } }", "operationName": "A"}', True),
        (b'{"query": "query A { p { id } }"}', True),
        (b'[{"query": "query A { p { id } }"}]', True),
        (b'{"query": "query A { p { id } }", "operationName": "B"}', False),
    ],
)
def test_an_address_may_name_the_operation_of_the_body_as_the_body_does(body, passes):
    assert says_no_more(b'{"operationName":"A"}', body) is passes
    assert says_no_more(b"{}", body)
    request = Request("POST", b"/g?v=1&operationName=A", (), body)
    if passes:
        assert reader().with_body(request) is request
    else:
        with pytest.raises(VaultError):
            reader().with_body(request)


@table(
    ("target", "code"),
    [
        (b"/g?query=a&query=b", Code.BAD_REQUEST),
        (b"/g?query=a&variables=x", Code.BAD_REQUEST),
        (b"/g?query=a#b", Code.BAD_REQUEST),
    ],
)
def test_an_address_that_can_be_read_in_several_ways_is_refused(target, code):
    with pytest.raises(VaultError) as caught:
        body_of_address(target, refusal)
    assert caught.value.code is code


@table(
    ("accept", "events", "several"),
    [
        (b"text/event-stream", True, True),
        (b"Multipart/Mixed, */*", False, True),
        (b"*/*", False, False),
    ],
)
def test_the_kinds_of_answers_that_a_caller_takes(accept, events, several):
    request = Request("GET", b"/g", ((b"Accept", accept),), b"")
    assert (takes_events(request), takes_several(request)) == (events, several)

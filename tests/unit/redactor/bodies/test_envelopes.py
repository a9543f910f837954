import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.bodies.envelopes import EnvelopeReader, InnerRequest, envelope_in_words, paired
from proxy.redactor.load import load_text
from proxy.redactor.tools.difference import differences
from proxy.redactor.tools.explain import as_data, find_operation
from tests.support.rules import operation_of, with_operations
from tests.support.table import table

BATCH = '{each: "$.requests[*]", answers: "$.responses[*]"}'
RPC = (
    "{each: $, path: $.method, body: $.params, id: $.id, base: /rpc/, defaults: {method: post}, "
    "answers: {each: $, body: $.result}}"
)


def reader(rule: str = BATCH) -> EnvelopeReader:
    operation = operation_of(f"{{match: POST /b, envelope: {rule}}}")
    assert operation.envelope is not None
    return EnvelopeReader(operation.envelope, operation.label, 64)


def requests(body: Any, rule: str = BATCH) -> list[InnerRequest]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return reader(rule).requests(raw)


def test_each_request_is_read_with_the_places_of_its_parts():
    raw = (
        b'{"requests": [ {"id": 1, "method":"PATCH", "path" : "/p\\/1?a=b", "body" : {"a": 1.0},'
        b'"headers": {"If-Match": "x"}}, {"method": "GET", "path": "/q", "body": null} ]}'
    )
    first, second = requests(raw)
    assert (first.method, first.targets, first.headers) == (
        "PATCH", ("/p/1?a=b",), ((b"If-Match", b"x"),)
    )  # fmt: skip
    assert first.path_at is not None
    assert first.body_at is not None
    assert raw[slice(*first.path_at)] == b'"/p\\/1?a=b"'
    assert raw[slice(*first.body_at)] == first.body == b'{"a": 1.0}'
    assert (second.body, second.body_at, second.id) == (b"", None, None)


def test_one_call_and_a_batch_of_them_are_read_alike():
    call = {"jsonrpc": "2.0", "id": 7, "method": "add", "params": {"a": 1}}
    (one,) = requests(call, RPC)
    (same, other) = requests([call, {**call, "id": "x"}], RPC)
    assert (one.method, one.targets, one.added, one.id) == ("POST", ("/rpc/add",), 5, b"7")
    assert (same.targets, same.id, other.id) == (one.targets, b"7", b'"x"')


@table(
    ("path", "targets", "removed"),
    [
        ("/p", ("/p", "/rpc/p"), ""),
        ("https://app.example/p?x", ("/p?x", "/rpc/p?x"), "https://app.example"),
        ("p/1", ("/rpc/p/1",), ""),
    ],
)
def test_a_path_is_read_in_every_way_that_an_application_may_take_it(path, targets, removed):
    (one,) = requests({"method": path, "params": {}}, RPC)
    assert (one.targets, one.removed) == (targets, removed)


@table(
    ("body", "code"),
    [
        ({"requests": "x"}, Code.BAD_REQUEST),
        ({"requests": ["x"]}, Code.BAD_REQUEST),
        ({"requests": [{"path": "/p"}]}, Code.BAD_REQUEST),
        ({"requests": [{"method": "GET"}]}, Code.BAD_REQUEST),
        ({"requests": [{"method": "GET", "path": 1}]}, Code.BAD_REQUEST),
        ({"requests": [{"method": "GET", "path": "p"}]}, Code.BAD_REQUEST),
        ({"requests": [{"method": "GET", "path": "/p", "headers": ["a"]}]}, Code.BAD_REQUEST),
        ({"requests": [{"method": "GET", "path": "/p", "headers": {"a": "b\r\nc"}}]}, Code.BAD_REQUEST),
        (b'{"requests": [{"method": "GET", "path": "/p", "path": "/q"}]}', Code.AMBIGUOUS_JSON),
        (b'{"requests": [{"method": "GET", "path": "/p", "Path": "/q"}]}', Code.AMBIGUOUS_JSON),
        (b'{"requests": [', Code.MALFORMED_JSON),
        ({"requests": [{"method": "GET", "path": "/p"}] * 201}, Code.TOO_LARGE),
    ],
)  # fmt: skip
def test_what_could_be_another_request_is_refused(body, code):
    with pytest.raises(VaultError) as caught:
        requests(body)
    assert caught.value.code is code


def test_answers_are_read_with_their_places():
    raw = b'{"responses":[{"status":"201","headers":{"Location":"/p/1"},"body":{"id":1}},{"x":1}]}'
    first, second = reader().answers(raw)
    assert (first.status, first.headers, first.body, first.taken) == (
        201, ((b"Location", b"/p/1"),), b'{"id":1}', True
    )  # fmt: skip
    assert [raw[slice(*at)] for at in first.fields_at] == [b'"/p/1"']
    assert (second.status, second.body, second.taken) == (None, b'{"x":1}', False)


def test_answers_belong_to_requests_by_order_or_by_id():
    calls: list[Any] = [{"id": one, "method": "add", "params": {}} for one in (1, 2, 3)]
    asked = requests(calls, RPC)
    given = reader(RPC).answers(b'[{"id":3,"result":{}},{"id":1,"error":{}},{"id":9}]')
    assert paired(asked, given, by_id=True) == [given[1], None, given[0]]
    assert paired(asked, given, by_id=False) == given
    assert paired(asked, given[:2], by_id=False) == [None] * 3
    twice = reader(RPC).answers(b'[{"id":1,"result":{}},{"id":1,"result":{}}]')
    assert paired(asked, twice, by_id=True) == [None] * 3


def test_an_envelope_is_explained():
    rule = operation_of(f"{{match: POST /b, envelope: {RPC}}}").envelope
    assert rule is not None
    words = envelope_in_words(rule)
    assert (words["path"], words["base"], words["defaults"]) == ("$.method", "/rpc/", "POST")
    assert (words["answers"], words["answer body"]) == ("$", "$.result")


def test_a_change_of_an_envelope_is_told():
    text = with_operations("{match: POST /b, envelope: {each: $.r, answers: $.a}}")
    old, new = load_text(text), load_text(text.replace("$.r,", "$.q,"))
    (change,) = differences(old, new)
    assert "the envelope" in change.text
    effective = as_data(find_operation(old, "POST", "/b"))
    assert effective["operation"]["envelope"]["each"] == "$.r"

import hashlib
import json

import pytest

from proxy.errors import VaultError
from proxy.model.schema import PathStep
from proxy.redactor.graphql.answers import answered_at
from proxy.redactor.graphql.requests import GraphReader, RequestedField
from proxy.redactor.load import load_text
from proxy.redactor.message import Request
from tests.support.exchanges import JSON, rule_text

SHOW = "query ($i: ID!) { p(id: $i) { id name } }"
HASH = hashlib.sha256(SHOW.encode()).hexdigest()
RULE = (
    "{match: POST /g, graphql: {p: {entity: p}, Mutation.add: {create: p, object: input}}, "
    f'persisted: {{{HASH}: "{SHOW}"}}}}'
)


def reader() -> GraphReader:
    return GraphReader(load_text(rule_text(RULE)).operations[0])


def read(body: object, target: bytes = b"/g", method: str = "POST") -> list[RequestedField]:
    return reader().read(Request(method, target, JSON, json.dumps(body).encode()))


def test_aliases_fragments_and_nested_fields_are_uses():
    asked = read(
        {
            "query": "{ a: p { k: id n: name ...F } x { y { p { id tags } } } } fragment F on P { m: name }"
        }
    )
    assert [one.use.path for one in asked] == [("a",), ("x", "y", "p")]
    assert asked[0].use.names == ("name", "name")
    assert asked[0].use.leaves == (("n",), ("m",))
    assert asked[0].use.ids == (("k",),)
    assert asked[1].use.leaves == (("tags", PathStep.EACH),)
    assert asked[0].position is None


def test_a_hash_that_the_rule_knows_is_its_document():
    (asked,) = read({"extensions": {"persistedQuery": {"sha256Hash": HASH}}, "variables": {"i": 1}})
    assert asked.use.path == ("p",)
    both = {"query": SHOW, "extensions": {"persistedQuery": {"sha256Hash": HASH.upper()}}}
    assert len(read(both)) == 1


def test_a_document_that_grows_by_its_fragments_is_refused():
    text = "{ ...F0 } " + " ".join(
        f"fragment F{n} on P {{ ...F{n + 1} ...F{n + 1} }}" for n in range(20)
    )
    with pytest.raises(VaultError):
        read({"query": text + " fragment F20 on P { a }"})
    with pytest.raises(VaultError):
        read([{"query": "{ a }"}] * 101)


def test_lists_on_the_way_to_an_object_are_told_by_the_answer():
    (asked,) = read({"query": "{ x { p { id } } }"})
    each = PathStep.EACH
    for document, path, found in (
        ({"data": {"x": {"p": {"id": 1}}}}, ("data", "x", "p"), [{"id": 1}]),
        ({"data": {"x": [None, {"p": [{"id": 1}]}]}}, ("data", "x", each, "p"), [[{"id": 1}]]),
        ({"data": {"x": [[{"p": None}]]}}, ("data", "x", each, each, "p"), [None]),
        ({"data": None}, ("data", "x", "p"), []),
        ({}, ("data", "x", "p"), []),
    ):
        assert answered_at(document, asked) == (path, found)

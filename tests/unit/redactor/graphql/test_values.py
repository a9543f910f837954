import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.graphql.values import GraphValues, edits, parse_document
from proxy.redactor.load import load_text
from tests.support.exchanges import rule_text
from tests.support.table import table


def refusal(text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
    return VaultError(code, text)


def swapped(query: str, escape: bool) -> str:
    """The query with the only value of its only field swapped."""
    body = json.dumps({"query": query}, ensure_ascii=escape).encode()
    rule = "{match: POST /g, graphql: {Mutation.add: {create: p, object: i}}}"
    field = load_text(rule_text(rule)).operations[0].graph[0]
    definition: Any = parse_document(query).definitions[0]
    values = GraphValues(body, None, (10, len(body) - 1), (query, parse_document(query)), refusal)
    values.declare(definition)
    node = definition.selection_set.selections[0]
    document, origins = values.document(field, node)
    old = json.loads(document)["object"]["name"]
    redacted = document.replace(json.dumps(old, ensure_ascii=False).encode(), b'"t\\"k"')
    for start, end, text in edits(document, origins, redacted):
        body = body[:start] + text + body[end:]
    return str(json.loads(body)["query"])


@table("escape", [True, False])
@table("value", ['"plain"', '"\\"\\u00e9\\n"', '"é😀"', '"""block "quoted" é\n  two"""', "ENUM"])
def test_a_value_is_written_in_its_place(value, escape):
    query = 'mutation { add(i: {note: "😀é", name: %s, vip: true}) { id } } # é'
    assert swapped(query % value, escape) == query % '"t\\"k"'


def test_documents_are_bounded_and_parsed_once():
    assert parse_document("{ a }") is parse_document("{ a }")
    for text, code in (
        ("{ a", Code.BAD_REQUEST),
        ("{ " + "a " * 20_000 + "}", Code.BAD_REQUEST),
        ("{" * 20_000, Code.BAD_REQUEST),
        ("{ a }" + " " * 70_000, Code.TOO_LARGE),
    ):
        with pytest.raises(VaultError) as caught:
            parse_document(text)
        assert caught.value.code is code

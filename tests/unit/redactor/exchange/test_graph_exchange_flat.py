"""Mutations whose arguments are the values of a record themselves."""

import re

import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import desk
from tests.support.table import table
from tests.unit.redactor.exchange.test_graph_exchange import FIELDS

FLAT = """{match: POST /graphql, graphql: {
  Mutation.add: {create: p, arguments: {name: name, mail: email, all.tags: marks}},
  Mutation.rename: {update: p, key: id, arguments: {name: name}}, Query.one: {read: p}}}""".replace(
    "\n", " "
)
ADDED = 'mutation ($n: S, $t: [S]) { add(name: $n, mail: "secret@x.example", all: {tags: $t, vip: "vip"}) { id } }'


async def test_arguments_of_a_mutation_may_be_the_values_themselves():
    tags = 'marks: {kind: text, at: "$.labels[*]"}'
    one = await desk(FLAT, fields=(*FIELDS, tags))
    given = {"n": "secret one", "t": ["secret a", "secret b"]}
    call = await one.send("POST /graphql", {"query": ADDED, "variables": given})
    assert b"secret" not in call.sent.body
    assert b'"vip\\"' in call.sent.body
    sent = call.json["variables"]
    mail = re.search(r'mail: "([^"]+)"', call.json["query"])
    assert mail is not None
    await call.answer(200, {"data": {"add": {"id": "7"}}})
    stored = {"id": "7", "name": sent["n"], "email": mail[1], "labels": sent["t"]}
    query = {"query": "{ one(id: 7) { id name email labels } }"}
    wanted = {**stored, "name": "secret one", "email": "secret@x.example", "labels": given["t"]}
    shown = await (await one.send("POST /graphql", query)).seen(200, {"data": {"one": stored}})
    assert shown == {"data": {"one": wanted}}
    rename = {"query": 'mutation { rename(id: 7, name: "secret two") { id } }'}
    call = await one.send("POST /graphql", rename)
    assert b"secret" not in call.sent.body
    token = re.search(r'name: "([^"]+)"', call.json["query"])
    assert token is not None
    await call.answer(200, {"data": {"rename": {"id": "7"}}})
    changed = {"data": {"one": {**stored, "name": token[1]}}}
    shown = await (await one.send("POST /graphql", query)).seen(200, changed)
    assert shown["data"]["one"] == {**wanted, "name": "secret two"}
    assert one.idle


@table("arguments", ['email: "secret"', 'Name: "secret"', 'all: {labels: ["secret"]}'])
async def test_an_argument_beside_them_that_is_called_like_a_field_is_refused(arguments):
    one = await desk(FLAT, fields=(*FIELDS, 'marks: {kind: text, at: "$.labels[*]"}'))
    with pytest.raises(VaultError) as caught:
        await one.send("POST /graphql", {"query": f"mutation {{ add({arguments}) {{ id }} }}"})
    assert caught.value.code is Code.VALUE_UNFIT
    assert "secret" not in caught.value.message

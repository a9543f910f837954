import asyncio
import json
import sys
from itertools import combinations
from types import FrameType
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.graphql.values import PARSED, parse_document
from tests.support.exchanges import Desk, desk
from tests.support.graphql import People
from tests.support.patience import PATIENCE
from tests.support.table import table

FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "born: {kind: date, token: {shape: date}}", "street: {kind: text, at: $.address.street}",
    'tags: {kind: text, at: "$.tags[*]"}',
)  # fmt: skip
RULE = """{match: POST /graphql, graphql: {
  Mutation.createPerson: {create: p, object: input},
  Mutation.updatePerson: {update: p, object: input, key: id},
  Mutation.deletePerson: {delete: p, key: id},
  Query.people: {read: p, arguments: {email: email, emails: email}},
  person: {entity: p}, node: {entity: p}}}""".replace("\n", " ")
ANN = {
    "name": 'Ann "Wexham" Lomère', "email": "ann@wexlomere.example", "born": "1931-02-27",
    "address": {"street": "Flumpergatan 7", "city": "Visby"}, "tags": ["yx-one", "yx-two"],
    "vip": True,
}  # fmt: skip
ALL = "id name email born address { street city } tags vip"
MARKERS = (
    "Wexham", "Lom\u00e8", "Lom\\u00e8", "wexlomere", "1931-02-27", "Flumper", "yx-", "secret",
)  # fmt: skip


class Office:
    """A caller, rules, and a server behind them."""

    def __init__(self, one: Desk) -> None:
        self.desk = one
        self.server = People()

    async def ask(self, query: Any, **more: Any) -> Any:
        """What the caller gets for a document, or for a whole body."""
        body = query if isinstance(query, list) else {"query": query, **more}
        view = self.desk.view("dpo") if self.desk.runtime.rules.endpoints[0].views else None
        call = await self.desk.send("POST /graphql", body, view=view)
        sent = call.sent.body.decode()
        assert not [marker for marker in MARKERS if marker in sent]
        seen = await call.seen(200, self.server.answer(json.loads(sent)))
        assert self.desk.idle
        return seen


async def office() -> Office:
    return Office(await desk(RULE, fields=FIELDS))


async def create(one: Office) -> Any:
    query = f"mutation ($in: PersonInput!) {{ createPerson(input: $in) {{ {ALL} }} }}"
    return (await one.ask(query, variables={"in": ANN}))["data"]["createPerson"]


async def test_variables_are_swapped_and_answers_restored():
    one = await office()
    assert await create(one) == {**ANN, "id": "1"}
    assert one.server.people["1"]["name"] != ANN["name"]
    assert (await one.ask(f"{{ person(id: 1) {{ {ALL} }} }}"))["data"]["person"]["name"] == ANN[
        "name"
    ]
    assert await one.desk.counts() == (1, 0, 0)


async def test_inline_values_block_strings_and_parts_of_variables_are_swapped():
    one = await office()
    query = '''mutation M($street: String, $tags: [String!]) {
      a: createPerson(input: {name: "secret \\"\\u00e9\\" x", email: """secret@wexlomere.example""",
        born: "1931-02-27", address: {street: $street, city: "Visby"}, tags: $tags}) {
          key: id n: name again: name ...More } }
      fragment More on Person { mail: email born address { s: street } ... on Person { tags } }'''
    more = {"variables": {"street": "Flumper 1", "tags": ["yx-one"]}, "operationName": "M"}
    answer = (await one.ask(query, **more))["data"]["a"]
    assert answer == {
        "key": "1", "n": 'secret "é" x', "again": 'secret "é" x', "born": "1931-02-27",
        "mail": "secret@wexlomere.example", "address": {"s": "Flumper 1"}, "tags": ["yx-one"],
    }  # fmt: skip


async def test_only_bytes_of_values_change():
    one = await office()
    query = (
        'mutation  {  createPerson( input : { name :"secret" , vip:true } ) { id } } # é \\u0041'
    )
    body = '{ "x": 1.0e2, "query": ' + json.dumps(query) + " }"
    call = await one.desk.send("POST /graphql", body.encode())
    sent = call.sent.body.decode()
    token = json.loads(sent)["query"].partition('name :"')[2].partition('"')[0]
    assert sent == body.replace("secret", token)
    await call.answer(200, {"data": {"createPerson": {"id": "1"}}})


async def test_records_are_changed_and_removed_by_their_id():
    one = await office()
    await create(one)
    query = 'mutation { updatePerson(id: 1, input: {name: "secret"}) { id name } }'
    assert (await one.ask(query))["data"]["updatePerson"] == {"id": "1", "name": "secret"}
    shown = await one.ask("query ($i: ID!) { person(id: $i) { id name born } }", variables={"i": 1})
    assert shown["data"]["person"] == {"id": "1", "name": "secret", "born": "1931-02-27"}
    assert (await one.ask("mutation { deletePerson(id: 1) }"))["data"] == {"deletePerson": True}
    assert await one.desk.counts() == (0, 0, 0)


async def test_searches_lists_and_pages_are_followed():
    one = await office()
    await create(one)
    for query, variables in (
        ('{ people(email: "ann@wexlomere.example") { id name } }', {}),
        ('{ people(emails: ["secret@a.example", "ann@wexlomere.example"]) { id name } }', {}),
        ("query ($e: String) { people(email: $e) { id name } }", {"e": ANN["email"]}),
        ("query ($e: [String!]) { people(emails: $e) { id name } }", {"e": ["x", ANN["email"]]}),
    ):
        answer = await one.ask(query, variables=variables)
        assert answer["data"]["people"] == [{"id": "1", "name": ANN["name"]}]
    page = (await one.ask("{ page { edges { node { id born tags } } } version }"))["data"]
    node = {"id": "1", "born": "1931-02-27", "tags": ["yx-one", "yx-two"]}
    assert page == {"page": {"edges": [{"node": node}]}, "version": "1"}


async def test_several_fields_and_requests_in_one_message():
    one = await office()
    two = 'mutation { a: createPerson(input: {name: "secret a"}) { id name } b: createPerson(input: {name: "secret b"}) { id name } }'
    answer = (await one.ask(two))["data"]
    assert answer == {"a": {"id": "1", "name": "secret a"}, "b": {"id": "2", "name": "secret b"}}
    answers = await one.ask([{"query": "{ person(id: 1) { id name } }"},
                             {"query": '{ people(email: "x") { id } person(id: 2) { name } }'}])  # fmt: skip
    assert [part["data"]["person"]["name"] for part in answers] == ["secret a", "secret b"]
    assert await one.desk.counts() == (2, 0, 0)


async def test_a_document_that_breaks_the_schema_leaves_nothing_behind():
    one = await office()
    query = 'mutation { createPerson(input: {name: "secret", nick: 1}) { id } }'
    answer = await one.ask(query)
    assert answer["data"] is None
    assert "secret" in answer["errors"][0]["message"]
    assert await one.desk.counts() == (0, 0, 0)


async def test_an_error_after_the_write_loses_nothing():
    one = await office()
    one.server.fails = True
    answer = await one.ask('mutation { createPerson(input: {name: "secret"}) { id } }')
    assert answer["data"] == {"createPerson": None}
    assert answer["errors"][0]["message"] == "no room for secret", "in the caller's own words"
    one.server.fails = False
    shown = await one.ask("{ person(id: 1) { id name } }")
    assert shown["data"]["person"]["name"] == "secret"


@table(
    ("body", "code"),
    [
        ({"query": "{ person(id: 1) { born } }"}, Code.VALUE_UNFIT),
        ({"query": "subscription { person { id } }"}, Code.VALUE_UNFIT),
        ({"query": "{ person(id: 1) { id "}, Code.BAD_REQUEST),
        ({"query": 'mutation { other(email: "secret") { id } }'}, Code.VALUE_UNFIT),
        ({"query": "mutation ($x: A) { other(a: {email: $x}) }", "variables": {"x": "secret"}}, Code.VALUE_UNFIT),
        ({"query": "{ version }", "variables": {"email": "secret"}}, Code.VALUE_UNFIT),
        ({"query": "{ version }", "variables": {"a": {"b": [{"email": "secret"}]}}}, Code.VALUE_UNFIT),
        ({"query": '{ person(id: 1, name: "secret") { id } }'}, Code.VALUE_UNFIT),
        ({"query": 'query A { version } query B { people(email: "secret") { id } }', "operationName": "A"}, Code.VALUE_UNFIT),
        ({"query": "query A { version } query B { version }"}, Code.VALUE_UNFIT),
        ({"query": 'mutation ($n: String = "secret") { createPerson(input: {name: $n}) { id } }', "variables": {"n": "x"}}, Code.VALUE_UNFIT),
        ({"query": "{ ...A } fragment A on Query { ...A }"}, Code.VALUE_UNFIT),
        ({"query": 'mutation { createPerson(input: {name: "a", Name: "secret"}) { id } }'}, Code.AMBIGUOUS_JSON),
        ({"query": 'mutation { createPerson(input: {address: "secret"}) { id } }'}, Code.VALUE_UNFIT),
        ({"query": 'mutation { a: updatePerson(id: 1, input: {name: "a"}) { id } b: updatePerson(id: "1", input: {name: "secret"}) { id } }'}, Code.VALUE_UNFIT),
        ({"extensions": {"persistedQuery": {"sha256Hash": "ab"}}}, Code.VALUE_UNFIT),
        ({"query": "{ version }", "extensions": {"persistedQuery": {"sha256Hash": "ab"}}}, Code.VALUE_UNFIT),
        ({"id": "stored", "variables": {"email": "secret"}}, Code.VALUE_UNFIT),
        ({"query": 7}, Code.BAD_REQUEST),
        ({"query": "{ version }", "variables": "secret"}, Code.BAD_REQUEST),
        ({"query": '{ people(email: "a@b.example", email: "secret") { id } }'}, Code.VALUE_UNFIT),
        ({"query": '{ people(filter: {email: "a@b.example", email: "secret"}) { id } }'}, Code.VALUE_UNFIT),
        ({"query": 'query ($name: String = "secret") { version }'}, Code.VALUE_UNFIT),
        ({"query": 'query ($f: F = {name: "secret"}) { version }'}, Code.VALUE_UNFIT),
        ({"query": 'query ($f: F = {a: 1, a: "secret"}) { version(f: $f) }'}, Code.VALUE_UNFIT),
        ({"query": "{ person(id: 1) { id @skip(if: true) born } }"}, Code.VALUE_UNFIT),
        ({"query": "query ($a: B) { person(id: 1) { ... @include(if: $a) { id } born } }"}, Code.VALUE_UNFIT),
        ({"query": "{ node { ... on Firm { id } ... on Person { born } } }"}, Code.VALUE_UNFIT),
        ({"query": "{ node { ...F born } } fragment F on Person { id }"}, Code.VALUE_UNFIT),
        ({"query": "query ($a: B) { person(id: 1) { born } person(id: 1) @skip(if: $a) { id } }"}, Code.VALUE_UNFIT),
        ({"query": "{ ...F0 } " + " ".join(f"fragment F{n} on Query {{ ...F{n + 1} }}" for n in range(900))}, Code.VALUE_UNFIT),
        ({"query": "{ ...F } fragment F on Query { a { ...F } }"}, Code.TOO_LARGE),
        (b'{"query": "mutation ($i: I) { createPerson(input: $i) { id } }", "variables": {"i": {"x": 1e400}}}', Code.BAD_REQUEST),
        ([{"query": "{ " + " ".join(f"a{n}: person(id: {n}) {{ id }}" for n in range(300)) + " }"}] * 2, Code.TOO_LARGE),
        (["secret"], Code.UNREADABLE_BODY),
        (b'{"query": "{ version }", "query": "secret"}', Code.AMBIGUOUS_JSON),
        (b'{"query": "{ version }", "Query": "secret"}', Code.AMBIGUOUS_JSON),
    ],
)  # fmt: skip
async def test_what_cannot_be_understood_is_refused(body, code):
    one = await office()
    with pytest.raises(VaultError) as caught:
        await one.desk.send("POST /graphql", body)
    assert caught.value.code is code, caught.value.message
    assert "secret" not in caught.value.message
    assert await one.desk.counts() == (0, 0, 0)
    assert one.desk.idle


SEARCH = """{match: POST /graphql, graphql: {Query.find: {read: p, arguments: {
  filter.email._eq: email, filter.email._in: email, q: {refuse: always}, sort: {refuse: [name, born]}}}}}""".replace(
    "\n", " "
)


@table(
    ("query", "variables", "code"),
    [
        ('{ find(filter: {name: {_contains: "secret"}}) { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(filter: {email: {_eq: "a@b.example", _sw: "secret"}}) { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(filter: {_and: [{email: {_eq: "secret"}}]}) { id } }', {}, Code.VALUE_UNFIT),
        ("query ($f: F) { find(filter: $f) { id } }", {"f": {"name": {"_eq": "secret"}}}, Code.VALUE_UNFIT),
        ("query ($f: F) { find(filter: $f) { id } }", {"f": {"_or": [{"x": {"email": ["secret"]}}]}}, Code.VALUE_UNFIT),
        ('query ($f: F = {name: "secret"}) { find(filter: $f) { id } }', {}, Code.VALUE_UNFIT),
        ("query ($v: S) { find(filter: {name: {_eq: $v}}) { id } }", {"v": "secret"}, Code.VALUE_UNFIT),
        ('query ($q: S = "secret") { find(q: $q) { id } }', {"q": None}, Code.SEARCH_REFUSED),
        ('query ($f: F = {name: "secret"}) { find(filter: $f) { id } }', {"f": None}, Code.VALUE_UNFIT),
        ('query @a(name: "secret") { find { id } }', {}, Code.VALUE_UNFIT),
        ('query ($q: S @a(name: "secret")) { find { id } }', {}, Code.VALUE_UNFIT),
        ('{ find { id @a(filter: {email: "secret"}) } }', {}, Code.VALUE_UNFIT),
        ('query ($v: S) { find { ... @a(name: $v) { id } } }', {"v": "secret"}, Code.VALUE_UNFIT),
        ('{ find(name_contains: "secret") { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(where: {nameStartsWithInsensitive: "secret"}) { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(where: {AND: [{email_not_in: ["secret"]}]}) { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(_name: {_ilike: "secret"}) { id } }', {}, Code.VALUE_UNFIT),
        ('{ find(condition: {tags: {contains: "secret"}}) { id } }', {}, Code.VALUE_UNFIT),
        ("query ($w: W) { find(where: $w) { id } }", {"w": {"name_Icontains": "secret"}}, Code.VALUE_UNFIT),
        ("query ($v: S) { find(where: {email: {equals: $v}}) { id } }", {"v": "secret"}, Code.VALUE_UNFIT),
        ('{ find(filter: "{name: secret}") { id } }', {}, Code.VALUE_UNFIT),
        ("query ($f: F) { find(filter: $f) { id } }", {"f": ['{"email": {"_eq": "secret"}}']}, Code.VALUE_UNFIT),
        ('{ find(q: "secret") { id } }', {}, Code.SEARCH_REFUSED),
        ("query ($q: S) { find(q: $q) { id } }", {"q": "secret"}, Code.SEARCH_REFUSED),
        ('{ find(sort: ["-name"]) { id } }', {}, Code.SEARCH_REFUSED),
        ("{ find(sort: NAME_DESC) { id } }", {}, Code.SEARCH_REFUSED),
        ("{ find(sort: {vip: ASC, born: DESC}) { id } }", {}, Code.SEARCH_REFUSED),
        ("query ($s: S) { find(sort: [$s]) { id } }", {"s": "name:desc"}, Code.SEARCH_REFUSED),
    ],
)  # fmt: skip
async def test_arguments_that_tokens_cannot_answer_are_refused(query, variables, code):
    one = await desk(SEARCH, fields=FIELDS)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /graphql", {"query": query, "variables": variables})
    assert caught.value.code is code, caught.value.message
    assert "secret" not in caught.value.message


@table(
    ("query", "variables"),
    [
        ('{ find(filter: {email: {_eq: "secret@x.example"}, vip: {_eq: true}}) { id } }', {}),
        ("query ($f: F) { find(filter: $f) { id } }", {"f": {"email": {"_in": ["secret@x.example"]}}}),
        ("query ($e: S) { find(filter: {email: {_eq: $e}}, q: $n) { id } }", {"e": "secret@x.example", "n": None}),
        ('{ find(filter: {name: {_null: true}}, sort: ["vip"], q: "", limit: 7) { id } }', {}),
        ("query ($s: S) { find(sort: $s) { id } }", {"s": "-vip"}),
        ('query ($s: S = "vip", $q: S) { find(sort: $s, q: $q) { id } }', {"s": "-vip", "q": ""}),
        ('{ __type(name: "vip") { name } }', {}),
        ('{ find(where: {named: "vip", containsName: "vip"}, nameplate: "vip") { id } }', {}),
        ('{ find(sort: "vip") @include(if: true) { id @a(label: "vip") } }', {}),
    ],
)  # fmt: skip
async def test_arguments_beside_those_pass(query, variables):
    one = await desk(SEARCH, fields=FIELDS)
    call = await one.send("POST /graphql", {"query": query, "variables": variables})
    assert b"secret" not in call.sent.body
    assert b"vip" in call.sent.body or b"example.org" in call.sent.body


SPELT = """{match: POST /graphql, graphql: {Mutation.add: {create: p, object: input}}}"""
TWO_WORDS = ("first_name: {kind: name}", "street: {kind: text, at: $.home_address.street}")


@table(
    ("member", "name"),
    [
        ({"firstName": "secret"}, "firstName"),
        ({"first_name": "vip", "FirstName": "secret"}, "FirstName"),
        ({"first_name": "vip", "firstName": ["secret"]}, "firstName"),
        ({"first-name": 19310227}, "first-name"),
        ({"homeAddress": {"street": "secret"}}, "homeAddress"),
        ({"first_name": "vip", "firstName": None}, "firstName"),
        ({"first_name": "vip", "lastName": "x", "first": "x"}, ""),
        ({"home": {"firstName": "x"}}, ""),
    ],
)
async def test_a_member_that_servers_translate_into_a_named_one_is_refused(member, name):
    one = await desk(SPELT, fields=TWO_WORDS)
    body = {"query": "mutation ($in: I) { add(input: $in) { id } }", "variables": {"in": member}}
    if not name:
        assert b'"vip"' not in (await one.send("POST /graphql", body)).sent.body
        return
    with pytest.raises(VaultError) as caught:
        await one.send("POST /graphql", body)
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert [one.source for one in caught.value.details] == [f"/object/{name}"]
    assert "secret" not in caught.value.message
    assert await one.counts() == (0, 0, 0)


PASSING = """{match: POST /graphql, graphql: {
  Query.find: {read: p, arguments: {where.email.equals: email, where.email.in: email}},
  Query.goods: {pass: true}, makers: {pass: true}}}""".replace("\n", " ")


@table(
    ("query", "variables"),
    [
        ('{ goods(where: {name_contains: "vip"}) { id } }', {}),
        ('{ ...Q } fragment Q on Query { all: goods(name: "vip") { makers(name: "vip") { id } } }', {}),
        ("query ($name: S) { goods(name: $name) { id } }", {"name": "vip"}),
        ("query ($w: W) { goods(a: [$w], b: {c: $w}) { id } }", {"w": {"name": "vip"}}),
        ('{ find(where: {email: {equals: "secret@x.example"}}) { id } goods(name: "vip") { id } }', {}),
        ("query ($w: W) { find(where: $w) { id } goods(name: 7) { vip } }", {"w": {"email": {"in": ["secret@x.example"]}}}),
    ],
)  # fmt: skip
async def test_a_field_of_the_schema_whose_arguments_hold_nobodys_data_passes(query, variables):
    one = await desk(PASSING, fields=FIELDS)
    call = await one.send("POST /graphql", {"query": query, "variables": variables})
    assert b"secret" not in call.sent.body
    assert b"vip" in call.sent.body


@table(
    ("query", "variables"),
    [
        ('{ find { goods(name: "secret") { id } } }', {}),
        ('{ goods { sellers(name: "secret") { id } } }', {}),
        ('{ goods @a(name: "secret") { id } }', {}),
        ("query ($name: S) { goods(name: $name) { id } find(name: $name) { id } }", {"name": "secret"}),
        ("query ($w: W) { goods(where: $w) { id } find(where: $w) { id } }", {"w": {"name": "secret"}}),
        ('mutation { goods(name: "secret") { id } }', {}),
    ],
)  # fmt: skip
async def test_its_word_covers_its_own_arguments_alone(query, variables):
    one = await desk(PASSING, fields=FIELDS)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /graphql", {"query": query, "variables": variables})
    assert caught.value.code is Code.VALUE_UNFIT
    assert "secret" not in caught.value.message


@table(
    ("query", "born"),
    [
        ("{ person(id: 1) { x: id @skip(if: true) born id } }", True),
        ("query ($a: Boolean! = true) { person(id: 1) { ... @include(if: $a) { id born } } }", True),
        ("{ person(id: 1) { id ... on Person { born } } }", True),
        ("{ person(id: 1) { ...F ...G } } fragment F on Person { id } fragment G on Person { born }", True),
        ("{ person(id: 1) { id @skip(if: true) name } }", False),
    ],
)  # fmt: skip
async def test_a_value_is_shown_by_the_id_that_is_there_whenever_it_is(query, born):
    one = await office()
    await create(one)
    shown = (await one.ask(query))["data"]["person"]
    assert shown["born" if born else "name"] == ANN["born" if born else "name"]


async def test_many_fields_of_one_operation_let_others_have_their_turn():
    one = await office()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    query = " ".join(f'a{n}: people(email: "a{n}@b.example") {{ id name }}' for n in range(200))
    turn()
    call = await one.desk.send("POST /graphql", {"query": f"{{ {query} }}"})
    assert turns > 2
    turns = 0
    await call.answer(200, {"data": {f"a{n}": [] for n in range(200)}})
    assert turns > 2


async def test_documents_of_many_addresses_do_not_disturb_each_other():
    one = await desk(SEARCH, fields=FIELDS)
    body = {"query": '{ find(filter: {email: {_eq: "secret@x.example"}}) { id } }'}
    sent = (await one.send("POST /graphql", body)).sent.body
    for number in range(PARSED + 1):  # others have been parsed meanwhile
        parse_document(f"{{ other{number} }}")
    assert (await one.send("POST /graphql", body)).sent.body == sent


async def test_a_failure_on_the_way_leaves_nothing_staged():
    one = await office()
    query = "mutation ($n: String) { createPerson(input: {name: $n, email: $n}) { id } }"
    with pytest.raises(VaultError) as caught:
        await one.desk.send(
            "POST /graphql", {"query": query, "variables": {"n": "secret@a.example"}}
        )
    assert caught.value.code is Code.VALUE_UNFIT
    assert await one.desk.counts() == (0, 0, 0)
    call = await one.desk.send(
        "POST /graphql", {"query": query.replace(", email: $n", ""), "variables": {"n": "x"}}
    )
    await call.exchange.failed(False)
    assert await one.desk.counts() == (0, 0, 0)


async def test_a_view_hides_what_its_callers_may_not_see():
    more = "views: [{who: [dpo], p: clear}, {who: [sales], p: mask, except: {name: clear}}]"
    one = Office(await desk(RULE, fields=FIELDS, more=more))
    await create(one)
    query = {"query": "{ person(id: 1) { id name email } }"}

    async def seen(*roles: str) -> Any:
        call = await one.desk.send("POST /graphql", query, view=one.desk.view(*roles))
        return (await call.seen(200, one.server.answer(call.json)))["data"]["person"]

    assert await seen("dpo") == {"id": "1", "name": ANN["name"], "email": ANN["email"]}
    sales = await seen("sales")
    assert sales["name"] == ANN["name"]
    assert sales["email"] == "a**@wexlomere.example"
    assert await seen("other") == one.server.answer(query)["data"]["person"]
    assert one.desk.idle


@table("more", [
    {"extensions": {"note": ANN["email"]}},
    {"variables": {"in": ANN, "other": f"to {ANN['email']}"}},
])  # fmt: skip
async def test_a_value_of_one_field_leaves_nowhere_else_in_the_message(more):
    one = await desk(RULE, fields=FIELDS)
    query = "mutation ($in: PersonInput!) { createPerson(input: $in) { id } other(text: $other) }"
    body = {"query": query, "variables": {"in": ANN}, **more}
    with pytest.raises(VaultError, match=r"a value of email stands in the body"):
        await one.send("POST /graphql", body)
    assert one.idle
    assert await one.counts() == (0, 0, 0)


async def test_fields_that_change_records_and_other_requests_never_wait_for_each_other():
    one = await desk(RULE, '{match: "PATCH /p/{id}", update: p}', fields=FIELDS)
    # as they are locked, and not as they are written
    last, first = next(
        pair for pair in combinations(map(str, range(10, 99)), 2)
        if one.people.key_hash(pair[0]) > one.people.key_hash(pair[1])
    )  # fmt: skip
    holder = await one.send(f"PATCH /p/{first}", {"name": "held"})
    text = 'updatePerson(id: "%s", input: {name: "secret"}) { id }'
    query = f"mutation {{ a: {text % last} b: {text % first} }}"
    waiting = asyncio.create_task(one.send("POST /graphql", {"query": query}))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await (await one.send(f"PATCH /p/{last}", {"name": "Y"})).answer(200, {"id": last})
        await holder.answer(200, {"id": first})
        await (await waiting).answer(200, {"data": {"a": {"id": last}, "b": {"id": first}}})
    assert one.idle


async def test_a_record_that_two_fields_spell_differently_is_one():
    one = await desk(RULE, fields=FIELDS)
    ident = "0b9f6a1e-7c4d-4e2a-9f10-aabbccddeeff"
    text = 'updatePerson(id: "%s", input: {name: "secret"}) { id }'
    query = f"mutation {{ a: {text % ident} b: {text % ident.upper()} }}"
    with pytest.raises(VaultError) as caught:
        async with asyncio.timeout(PATIENCE):
            await one.send("POST /graphql", {"query": query})
    assert caught.value.code is Code.VALUE_UNFIT
    assert one.idle


async def test_a_document_that_comes_again_is_not_parsed_again():
    one = await office()
    await create(one)
    query = f"{{ person(id: 1) {{ again: name {ALL} }} }}"
    rounds: list[list[str]] = []

    def called(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals["__name__"] == "graphql.language.parser":
            rounds[-1].append(frame.f_code.co_name)

    sys.setprofile(called)
    try:
        for _ in range(2):
            rounds.append([])
            await one.desk.send("POST /graphql", {"query": query})
    finally:
        sys.setprofile(None)
    first, second = rounds
    assert first
    assert not second

"""The rule language as its page and manual show it: every example loads, and one file that says all
of it is used, request by request. Nothing of it is refused as not supported.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from proxy.redactor.exchange.event_stream import StreamExchange
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders
from proxy.redactor.routing import Router
from tests.support.exchanges import FORM, HTML, JSON, Call, Desk, desk, desk_of, rule_text
from tests.support.table import table
from tests.support.tree import ROOT

# ------------------------------------------------------------------ the manual

MANUAL = (ROOT / "docs" / "rules.md").read_text("utf-8")
#: Answers that stand below each other are answers of several operations.
EXAMPLES = [
    example
    for part in MANUAL.split("```yaml\n")[1:]
    for example in re.split(r"(?m)^(?=response:)", part.partition("```")[0])
    if example.strip()
]
ENTITIES = """entities:
  contact: {fields: {name: {kind: name}, first_name: {kind: name}, last_name: {kind: name},
    email: {kind: email, token: {shape: email, same: true}}, phone: {kind: text, token: {shape: opaque, same: true}},
    birth_date: {kind: date, token: opaque}, street: {kind: text, at: $.address.street}, note: {kind: text},
    card: {kind: card}, passport: {kind: text}}}
  person: {fields: {name: {kind: name}, email: {kind: email}, phone: {kind: text}}}
  courier: {fields: {name: {kind: name}}}
  note: {fields: {text: {kind: text}}}
"""
#: Where an example is a part of what cannot stand alone, what stands before it.
BEFORE = {
    "    response:\\n": "operations:\n  - match: POST /x\n    create: contact\n    request: {form: {email: email}}\n",
    "    persisted:": "operations:\n  - match: POST /g\n    graphql: {contact: {entity: contact}}\n",
    "response:": 'operations:\n  - match: "GET /x/{id}"\n    read: contact\n    query: {email: email}\n    ',
    "  - ": "operations:\n",
    "operations:\n  - match: GET /people": next(one for one in EXAMPLES if "person:" in one),
    "tests:": "operations:\n  - {match: POST /api/contacts, create: contact}\n",
    "endpoint:\n  name": 'operations: [{match: "GET /x/{id}", read: contact}]\n',
}
FIELDS = re.compile(r"(phone|email): +\{kind")


def whole(example: str) -> str:
    """The rule file that an example is a part of."""
    if FIELDS.match(example):
        lines = "".join(f"      {line}\n" for line in example.splitlines())
        example = f"entities:\n  contact:\n    fields:\n{lines}"
    for start, before in BEFORE.items():
        if re.match(start, example):
            example = before + example
            break
    for key, more in (("entities", ENTITIES), ("endpoint", 'endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}\n'),
                      ("version", "version: 1\n")):  # fmt: skip
        if not re.search(rf"(?m)^{key}:", example):
            example = more + example
    return example.replace("0f3a…64 digits…", "0f" * 32)


@table("example", EXAMPLES)
def test_every_example_of_the_manual_loads(example: str) -> None:
    rules = load_text(whole(example))
    assert rules.endpoints


# ------------------------------------------------------------------ all of it in one file

LANGUAGE = """
version: 1
endpoint:
  name: crm
  upstream: https://crm.internal.example:8443
  host: [crm.example.com]
  unmatched: report
  caller: {from: jwt, jwks: "https://id.example.com/jwks.json", roles: $.roles}
  limits: {body: 2MiB, inflated: 16MiB, json_depth: 64, form_fields: 1000}
entities:
  contact:
    schema: contact
    expires: 7y
    fields:
      first_name: {kind: name,  mask: {first: 1}}
      last_name:  {kind: name,  find: [exact, partial], mask: {first: 1}}
      email:      {kind: email, token: {shape: email, same: true}, find: [exact], mask: {first: 1, domain: true}}
      phone:      {kind: phone, token: {shape: numeric, keep_last: 2}, find: [exact], mask: {last: 2}}
      birth_date: {kind: date,  token: {shape: date}, find: [exact, range], stored: plain, mask: {year: true}}
      card:       {kind: card,  token: {shape: luhn, keep_last: 4}, mask: {last: 4}}
      passport:   {kind: text,  token: {template: "PP-[A-Z0-9]{9}"}}
      street:     {kind: text,  at: $.address.street}
      tags:       {kind: text,  at: "$.tags[*]"}
  person: {fields: {name: {kind: name}, email: {kind: email, token: {shape: email, same: true}}, note: {kind: text}}}
views:
  - {who: [dpo],     contact: clear, person: clear}
  - {who: [sales],   contact: clear, except: {card: mask, passport: token}}
  - {who: [support], contact: mask}
operations:
  - match: POST /api/contacts
    create: contact
    request:  {object: $}
    response: {object: $, id: $.id}
  - match: GET /api/contacts
    read: contact
    query:
      email: {field: email}
      q:     {field: [last_name, email], via: vault, send: {param: ids, join: ",", none: "-1"}}
      sort:  {refuse: [first_name, last_name, birth_date]}
    response: {each: "$.items[*]", id: $.id, carriers: [$.next, Link]}
  - {match: "GET /api/contacts/{id}", read: contact, id: path id, response: {object: $}}
  - match: "PUT|PATCH /api/contacts/{id}"
    update: contact
    id: path id
    request: {object: $, absent: keep, nulls: erase, empty: store, own_token: keep, own_mask: keep}
  - {match: "DELETE /api/contacts/{id}", delete: contact, id: path id}
  - match: POST /contacts/search
    read: contact
    request: {form: {email: email}}
    response: {each: "$.results[*].contact", id: $.id}
  - match: POST /rpc
    when: {$.operationName: CreateContact}
    create: contact
    request:  {object: $.variables.input}
    response: {object: $.data.createContact, id: $.id}
  - match: "PATCH /api/contacts/{id}"
    when: {header Content-Type: application/json-patch+json}
    update: contact
    request: {patch: json}
  - match: PATCH /api/contacts
    update: contact
    id: "$.keys[*]"
    request: {object: $.data}
  - match: "POST /admin/contact/{id}/change/"
    update: contact
    request: {form: {email: email}, absent: keep}
    response: {success: [302]}
  - match: GET /scim/Users
    read: person
    query: {filter: {expression: scim, fields: {userName: email}}, "email_*": {field: email}, ids: {field: email, split: ","}, q: {refuse: always}}
    response: {each: "$.Resources[*]", id: "$.meta.location /scim/Users/{id}"}
  - match: POST /batch
    envelope: {each: "$.requests[*]", method: $.method, path: $.path, body: $.body, answers: "$.responses[*]"}
  - {match: "GET /static/{path*}", pass: true}
  - {match: POST /people, create: person}
  - {match: "GET /people/{id}/edit", read: person, id: path id, response: {restore: html}}
  - {match: GET /people/export.csv, read: person, response: {restore: csv, columns: {email: email, "Full name": name}, id: column ID}}
  - {match: POST /people/import, create: person, request: {csv: {email: email, name: name}, part: file}, response: {id: "$.ids[*]"}}
  - {match: GET /people/stream, read: person, response: {each: "$", stream: ndjson}}
  - {match: GET /live, read: person, response: {websocket: $.person}}
  - {match: "POST /people/{id}/photo", update: person, id: path id, request: {multipart: {caption: note}, files: pass}}
  - {match: "GET /by-mail/{email}", read: person, path: {email: {field: email}}}
  - match: POST /graphql
    graphql:
      person: {entity: person, id: id}
      Mutation.createPerson: {create: person, object: input}
on_error:
  vault_down:       {write: 503, read: tokens}
  unreadable_body:  415
  ambiguous_json:   400
  too_large:        413
  field_absent:     count
  unknown_token:    leave
  untold_token:     hide
  upstream_not_2xx: scan
  guard:            block
tests:
  - name: the application never sees the person, the caller does
    as: sales
    call:        {match: POST /api/contacts, json: {first_name: Annika, email: Annika@Example.com, vip: true}}
    app_sees:    {without: [Annika, annika@example.com], json: {vip: true, email: {shape: email}}}
    app_answers: {status: 201, json: {id: 17, email: "{sent $.email}", vip: true}}
    caller_sees: {status: 201, json: {id: 17, email: Annika@Example.com, vip: true}}
"""
EVE = {
    "first_name": "Evelina", "last_name": "Flumper", "email": "eve@flumper.example", "phone": "+46 70 123 45 67",
    "birth_date": "1931-02-27", "card": "4111 1111 1111 1111", "passport": "AB1234567",
    "address": {"street": "Flumpergatan 7"}, "tags": ["flump-one", "flump-two"],
}  # fmt: skip
BOB = {"name": "Bob Wexlom", "email": "bob@wexlom.example", "note": "wexlom-secret"}
SECRETS = re.compile(rb"(?i)flump|wexlom|evelina|1931-02-27|4111 1111|AB1234567|123 45")
MULTIPART: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--b--\r\n'
TABLE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\nemail,name\r\nbob@wexlom.example,Bob Wexlom\r\n\r\n--b--\r\n'
PATCH: RawHeaders = ((b"Content-Type", b"application/json-patch+json"),)

Answer = Callable[[Call, Any, Any], Any]


class Use(NamedTuple):
    """A request under the rules, and what its caller is to see of the answer."""

    match: str
    body: Any
    answer: Answer  #: of the call, and of what the application has of Eve and of Bob
    sees: str  #: in the answer
    headers: RawHeaders | None = None
    status: int = 200
    back: RawHeaders | None = None


USES = (
    Use("POST /api/contacts", EVE, lambda call, *_: {**call.json, "id": 2}, "Evelina", status=201),
    Use("GET /api/contacts?email=eve@flumper.example", b"", lambda _, eve, __: {"items": [eve], "next": "/x"}, "Flumpergatan"),
    Use("GET /api/contacts?q=lumpe", b"", lambda call, eve, _: {"items": [eve] * (b"ids=1" in call.sent.target)}, "Flumper"),
    Use("GET /api/contacts/1", b"", lambda _, eve, __: eve, "1931-02-27"),
    Use("PUT /api/contacts/1", {**EVE, "last_name": "Flumpera"}, lambda call, *_: call.json, "Flumpera"),
    Use("PATCH /api/contacts/1", {"last_name": "Flumperb"}, lambda call, *_: call.json, "Flumperb"),
    Use("PATCH /api/contacts/1", [{"op": "replace", "path": "/last_name", "value": "Flumperc"}],
        lambda call, *_: {"id": 1, "last_name": call.json[0]["value"]}, "Flumperc", PATCH),
    Use("PATCH /api/contacts", {"keys": [1, 2], "data": {"last_name": "Flumperd"}},
        lambda call, *_: [{"id": key, **call.json["data"]} for key in (1, 2)], "Flumperd"),
    Use("POST /contacts/search", b"email=eve%40flumper.example", lambda _, eve, __: {"results": [{"contact": eve}]}, "Evelina", FORM, 200, JSON),
    Use("POST /rpc", {"operationName": "CreateContact", "variables": {"input": EVE}},
        lambda call, *_: {"data": {"createContact": {**call.json["variables"]["input"], "id": 3}}}, "flump-two"),
    Use("POST /admin/contact/1/change/", b"email=eva%40flumper.example", lambda *_: b"", "", FORM, 302, ((b"Location", b"/admin/"),)),
    Use("GET /scim/Users?filter=userName%20eq%20%22bob@wexlom.example%22&email_work=bob@wexlom.example&ids=bob@wexlom.example", b"",
        lambda _, __, bob: {"Resources": [{**bob, "meta": {"location": "https://x/scim/Users/1"}}]}, "wexlom-secret"),
    Use("POST /batch", {"requests": [{"method": "POST", "path": "/people", "body": BOB}]},
        lambda call, *_: {"responses": [{"status": 201, "body": {**call.json["requests"][0]["body"], "id": 4}}]}, "Bob Wexlom",
        (*JSON, (b"Host", b"crm.example.com"))),
    Use("GET /people/1/edit", b"", lambda _, __, bob: f"<input value='{bob['note']}'>".encode(), "wexlom", back=HTML),
    Use("GET /people/export.csv", b"", lambda _, __, bob: f"ID,Full name,email\r\n1,{bob['name']},{bob['email']}\r\n".encode(), "Bob Wexlom",
        back=((b"Content-Type", b"text/csv"),)),
    Use("POST /people/import", TABLE, lambda *_: {"ids": [5]}, "", MULTIPART, 200, JSON),
    Use("GET /people/stream", b"", lambda _, __, bob: json.dumps(bob).encode() + b"\n", "bob@wexlom.example", back=((b"Content-Type", b"application/x-ndjson"),)),
    Use("GET /live", b"", lambda _, __, bob: {"person": bob}, "Bob Wexlom", status=101, back=()),
    Use("POST /people/1/photo", PART % (b"caption", b"wexlom-caption"), lambda *_: {"id": 1}, "", MULTIPART, 200, JSON),
    Use("GET /by-mail/bob@wexlom.example", b"", lambda _, __, bob: bob, "wexlom-secret"),
    Use("POST /graphql", {"query": 'mutation { createPerson(input: {name: "Bob Wexlom"}) { id } }'}, lambda *_: {"data": {"createPerson": {"id": 6}}}, ""),
    Use("POST /graphql", {"query": "{ person(id: 1) { id full: name } }"}, lambda _, __, bob: {"data": {"person": {"id": 1, "full": bob["name"]}}}, "Bob Wexlom"),
    Use("DELETE /api/contacts/1", b"", lambda *_: b"", "", status=204),
)  # fmt: skip


async def stored(one: Desk) -> tuple[Any, Any]:
    """What the application has of Eve and of Bob."""
    people: list[Any] = []
    for target, person in (("POST /api/contacts", EVE), ("POST /people", BOB)):
        call = await one.send(target, person, view=one.view("dpo"))
        assert not SECRETS.search(call.sent.body)
        people.append({**call.json, "id": 1})
        await call.answer(201, people[-1])
    return people[0], people[1]


@table("use", USES)
async def test_everything_of_one_file_that_says_all_of_it_works(use: Use) -> None:
    one = await desk_of(LANGUAGE)
    eve, bob = await stored(one)
    call = await one.send(use.match, use.body, use.headers, one.view("dpo"))
    sent = call.sent
    assert not SECRETS.search(
        b"\n".join([sent.target, sent.body, *(line for _, line in sent.headers)])
    )
    raw = use.answer(call, eve, bob)
    body = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    back = JSON if use.back is None and body else use.back or ()
    stream = await call.exchange.stream(use.status, back)
    if stream is not None:
        seen = await stream.restore(body) + (
            b"" if use.status == 101 else await cast(StreamExchange, stream).rest()
        )
        await stream.end()
    else:
        seen = (await call.answer(use.status, body, back)).body
    assert use.sees in seen.decode()
    assert one.idle


# ------------------------------------------------------------------ sentences of the page

SAME = tuple(f"{name}: {{kind: text, token: {{same: true}}}}" for name in ("a", "b"))


async def test_the_same_text_in_two_fields_has_two_tokens_and_in_one_field_one():
    one = await desk("{match: POST /p, create: p}", fields=SAME)
    first = await one.create({"a": "Zorbina", "b": "Zorbina"}, 1)
    second = await one.create({"a": "Zorbina", "b": "Zorbina"}, 2)
    assert first["a"] != first["b"]
    assert (first["a"], first["b"]) == (second["a"], second["b"])


async def test_a_token_once_given_stays_until_its_value_changes():
    one = await desk()
    stored = await one.create({"name": "Ann", "tags": ["one"]})
    call = await one.send("PATCH /p/1", {"name": "Ann", "tags": ["two"]})
    assert call.json["name"] == stored["name"]
    assert call.json["tags"] != stored["tags"]
    await call.answer(200, {"id": 1})
    call = await one.send("PATCH /p/1", {"name": "Anna"})
    assert call.json["name"] != stored["name"]


def test_matching_takes_the_same_steps_with_ten_rules_and_with_thousands():
    steps = []
    for count in (10, 3000):
        operations = (f'{{match: "GET /a{number}/{{id}}", read: p}}' for number in range(count))
        rules = load_text(rule_text(*operations))
        router, calls = Router(rules.rules, rules.endpoints), 0

        def counted(*_: object) -> None:
            nonlocal calls
            calls += 1

        router.match("GET", "app", b"/a7/17")
        sys.setprofile(counted)
        try:
            assert router.match("GET", "app", b"/a9/18")
        finally:
            sys.setprofile(None)
        steps.append(calls)
    assert steps[0] == steps[1]


@table("location", ["/p/7", "http://app.example/p/7", "/p/7/?x=1"])
async def test_an_id_stands_in_an_absolute_or_relative_location(location):
    one = await desk(
        '{match: POST /p, create: p, response: {id: "header Location /p/{id}", success: [201, 302]}}',
        '{match: "GET /p/{id}", read: p}',
    )
    for status in (201, 302):
        call = await one.send("POST /p", {"name": "Ann"})
        await call.answer(status, b"", ((b"Location", location.encode()),))
        assert await one.shown({**call.json, "id": 7}, "GET /p/7") == {"name": "Ann", "id": 7}


async def test_an_update_of_an_id_that_the_vault_does_not_know_creates_it():
    one = await desk()
    call = await one.send("PATCH /p/9", {"name": "Ann"})
    await call.answer(200, {"id": 9})
    assert await one.shown({**call.json, "id": 9}, "GET /p/9") == {"name": "Ann", "id": 9}

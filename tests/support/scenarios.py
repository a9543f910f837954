"""Rule files and what happens under them, each key of the rule language in one of them.

``tests/conformance/test_rule_effects.py`` takes out each key, one at a time, and has it happen
again.
"""

import json
import re
from typing import Any, cast

from proxy.errors import VaultError
from proxy.redactor.exchange.event_stream import MessageExchange
from proxy.redactor.exchange.rule_test_runner import run_case
from proxy.redactor.load.rule_tests import parse_case
from proxy.vault.proxied.deletes import OLDEST_LIST
from tests.support.effects import Probe, Scenario
from tests.support.exchanges import FORM, HTML, JSON

HEAD = """
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:3000"}
entities:
  p:
    fields:
      name: {kind: name}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      born: {kind: date}
      note: {kind: text}
  q: {fields: {title: {kind: text}, scan: {kind: text, token: filename}}}
  r: {fields: {mail: {kind: email, token: {shape: email, same: true}}}}
"""
ANN = {
    "name": "Ann Wexlomere",
    "email": "ann@wexlo.example",
    "note": "secretly",
    "born": "1931-02-27",
}
WORDS = ("Wexlomere", "wexlo.example", "secretly", "1931-02-27", "Other", "Elsewhere", "A*", "https://", "'=Formula")  # fmt: skip
LOCATION = ((b"Location", b"/p/7"),)


def with_id(number: int = 1) -> Any:
    """The application's answer: what it was sent, and its id."""
    return lambda call: {**call.json, "id": number}


async def created(probe: Probe, target: str = "/p", number: int = 1, **more: str) -> Any:
    """What the application has of a new record."""
    call, _ = await probe.send(f"POST {target}", {**ANN, **more}, with_id(number), 201)
    return {**call.json, "id": number}


# ------------------------------------------------------------------ fields and tokens

SHAPES = """
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:3000"}
entities:
  p:
    population: 3000
    fields:
      account:  {kind: text, token: {shape: prepended, prefix: ACC}}
      mail:     {kind: email, token: {shape: email, domain: t.example, same: true}}
      code:     {kind: text, token: {shape: numeric, keep_first: 2, keep_last: 3, else: opaque}}
      day:      {kind: date, token: {shape: date, from: 1990-01-01}}
      eve:      {kind: date, token: {shape: date, to: 1950-12-31}}
      passport: {kind: text, token: {template: "PP-[A-Z0-9]{9}"}}
      note:     {kind: text, token: {shape: fixed, value: hidden}}
      nick:     {kind: name, token: {shape: mask, first: 1, last: 1, char: "#"}}
      mail2:    {kind: email, token: {shape: mask, first: 1, domain: true}}
      joined:   {kind: date, token: {shape: mask, year: true, first: 0}}
      mixed:    {kind: text, token: {shape: mask, type: numeric}}
      street:   {kind: text, at: $.address.street, token: lower}
operations: [{match: POST /p, create: p}]
"""
SHAPED = {
    "account": "x-1", "mail": "a@b.example", "code": "12-345-678 90", "day": "2001-01-01", "eve": "2001-01-01", "passport": "X1",
    "note": "secretly", "nick": "Wexlomere", "mail2": "ann@wexlo.example", "joined": "1931-02-27",
    "mixed": "a1b2", "address": {"street": "Elsewhere 1"},
}  # fmt: skip


async def shapes(probe: Probe) -> None:
    call, _ = await probe.send("POST /p", SHAPED, with_id(), 201)
    for number in range(10, 20):  # one token is such by chance, but not so many
        more, _ = await probe.send("POST /p", SHAPED, with_id(number), 201)
        probe.note(more.json["day"] >= "1990", more.json["eve"] < "1951")
        probe.note(more.json["code"][:2], more.json["code"][-3:])
    again, _ = await probe.send("POST /p", {**SHAPED, "code": "n/a"}, with_id(2), 201)
    sent = call.json
    probe.note(
        sent["account"][:3], sent["mail"].partition("@")[2], sent["mail"] == again.json["mail"]
    )
    probe.note(sent["passport"][:3], re.sub(r"\d", "9", sent["code"]))
    probe.note(*(sent[name] for name in ("note", "nick", "mail2", "joined", "mixed")))
    probe.note(sent["address"]["street"].islower())


CHECKS = """
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:3000"}
on_error: {field_absent: refuse}
entities:
  p:
    schema: people
    expires: 90d
    fields:
      any:   {kind: text, check: {min: 2, max: 30}}
      iban:  {kind: text, check: {is: iban, max: 40}}
      phone: {kind: phone, check: {region: [no], max: 30}, token: {shape: numeric, else: opaque}}
      code:  {kind: text, check: {pattern: "[A-Z]+", max: 30}}
      mail:  {kind: email, check: true}
operations: [{match: POST /p, create: p}]
"""


async def checks(probe: Probe) -> None:
    fits = {
        "any": "ab",
        "iban": "DE89370400440532013000",
        "phone": "+47 22 12 34 56",
        "code": "AB",
        "mail": "a@b.example",
    }
    await probe.tried("POST /p", fits, with_id(), 201)
    for change in ({"any": "a"}, {"any": "a" * 31}, {"iban": "DE8937040044053201300"}, {"phone": "+46 70 123 45 67"},
                   {"code": "a"}, {"mail": "a"}):  # fmt: skip
        await probe.tried("POST /p", {**fits, **change}, with_id(), 201)
    await probe.tried("POST /p", {"any": "ab"}, with_id(), 201)
    probe.note(probe.desk.people.name)
    rows = await probe.desk.people.by_key(["1"])
    probe.note([row.expires_at is not None for row in rows.values()])


VIEWS = """
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:3000", caller: {from: jwt, jwks: "http://localhost:9"}}
entities:
  p:
    fields:
      name:  {kind: text, mask: {first: 1, char: "_"}}
      card:  {kind: text, mask: {last: 4}}
      email: {kind: text, mask: {first: 1, domain: true}}
      born:  {kind: text, mask: {first: 1}}
      day:   {kind: date, token: opaque, mask: {year: true, first: 0}}
views:
  - {who: [boss], p: clear}
  - {who: [desk], p: mask, except: {born: clear}}
operations:
  - {match: POST /p, create: p}
  - {match: "GET /p/{id}", read: p}
  - {match: "PATCH /p/{id}", update: p, request: {own_mask: refuse}}
"""


async def views(probe: Probe) -> None:
    record = {"name": "Ann Wexlomere", "card": "4111111111111111", "email": "ann@wexlo.example",
              "born": "1931-02-27", "day": "1931-02-27"}  # fmt: skip
    call, _ = await probe.send("POST /p", record, with_id(), 201, role="boss")
    stored = {**call.json, "id": 1}
    _, seen = await probe.send("GET /p/1", answer=stored, role="desk")
    masks = json.loads(seen.body)
    probe.note(masks)
    await probe.tried("PATCH /p/1", {"card": masks["card"]}, with_id(), role="desk")


# ------------------------------------------------------------------ operations

USUAL = """
on_error: {guard: report, upstream_not_2xx: pass, unreadable_answer: 502, ambiguous_json: 422, unreadable_body: 418,
  vault_down: {write: 599, read: 598}}
operations:
  - {match: POST /p, create: p, request: {other_kinds: pass}}
  - {match: POST /n, create: p, request: {object: $.in, fields: {email: $.mail}}, response: {object: $.out, id: $.key, fields: {email: $.mail}}}
  - {match: POST /several, create: p, request: {each: "$.all[*]"}, response: {each: "$.all[*]", id: $.id}}
  - {match: GET /p, read: p, response: {each: "$.items[*]", id: $.id}}
  - {match: "GET /p/{id}", read: p}
  - {match: "PUT /p/{id}", update: p, request: {absent: erase, nulls: keep, empty: keep, own_token: refuse}}
  - {match: "DELETE /p/{id}", delete: p, keep: 30d}
  - {match: POST /put, update: p, id: $.key}
  - {match: GET /known, pass: true}
  - {match: POST /known, when: {$.do: add}, create: q}
  - {match: POST /known, unmatched: true}
"""


async def usual(probe: Probe) -> None:
    stored = await created(probe)
    await probe.send(
        "POST /n",
        {"in": {"name": "Wexlomere"}, "mail": "x@wexlo.example"},
        lambda call: {"key": 9, "out": {**call.json["in"], "email": ""}, "mail": call.json["mail"]},
        201,
    )
    several, _ = await probe.send("POST /several", {"all": [ANN]}, lambda call: {"all": [{**call.json["all"][0], "id": 4}]}, 201)  # fmt: skip
    await probe.send("GET /p/9", answer=stored)
    await probe.send("GET /p/4", answer={**several.json["all"][0], "id": 4})
    await probe.send("GET /p", answer={"items": [stored]})
    await probe.tried("GET /p", answer=b"{", headers=())
    await probe.tried("GET /p/1", answer={"error": stored["name"]}, status=400)
    await probe.tried("POST /p", {"name": "Elsewhere", "x": "Elsewhere"}, with_id(3), 201)
    await probe.tried("POST /p", b'{"name": "a", "name": "b"}')
    await probe.tried("POST /p", b"\x89PNG", b"{}", 200, headers=((b"Content-Type", b"image/png"),))
    await probe.tried("POST /n", b"\x89PNG", headers=((b"Content-Type", b"image/png"),))
    for change in ({"name": None}, {"name": ""}, {"email": "b@wexlo.example"}):
        call, _ = await probe.send("PUT /p/1", {**ANN, **change}, with_id())
        probe.note(call.json["name"] in (None, ""))
        stored = {**stored, **call.json}
    await probe.tried("PUT /p/1", {"name": stored["name"]}, with_id())
    call, _ = await probe.send("PUT /p/1", {"name": "Other"}, with_id())
    rows = await probe.desk.people.by_key(["1"])
    live = probe.desk.people.sealer.open(rows["1"])
    probe.note(sorted(live.values))
    call, _ = await probe.send("POST /put", {"key": 1, **ANN}, with_id())
    await probe.send("DELETE /p/1", status=204)
    await probe.send("GET /p/1", answer={**call.json, "id": 1})
    await probe.tried("GET /known")
    await probe.tried("POST /known", {"do": "add", "title": "secretly"}, with_id())
    await probe.tried("POST /known", {"do": "else", "title": "secretly"})
    for verb in ("rows", "by_keys", "by_tokens", "commit"):
        probe.desk.store.fail(verb)
    await probe.tried("GET /p/4", answer=several.json["all"][0])
    await probe.tried("POST /p", ANN)


FORMS = """
endpoint: {name: app, upstream: "http://127.0.0.1:3000", limits: {form_fields: 3, json_depth: 3}}
on_error: {too_large: 499}
operations:
  - match: POST /form
    create: p
    request: {form: {name: name, mail: {field: email}}}
    response: {form: {name: name, mail: {field: email}}, id: $.id, success: [200]}
  - match: POST /admin
    create: p
    request: {form: {name: name}}
    response: {id: "header Location /p/{id}", success: [{status: 302, location: "/p/{id}"}, {status: 200, text: "<b>saved</b>"}]}
  - {match: "GET /p/{id}", read: p}
  - {match: POST /p, create: p}
  - {match: POST /find, read: p, request: {values: {$.mail: email}}, response: {each: "$[*]", id: $.id}}
  - {match: "GET /by/{mail}", read: p, path: {mail: {field: email}}, response: {object: $, id: $.id}}
"""


async def forms(probe: Probe) -> None:
    form = b"name=Wexlomere&mail=ann%40wexlo.example"
    await probe.send(
        "POST /form", form, lambda call: b"id=1&" + call.sent.body, headers=FORM, back=FORM
    )
    await probe.send("POST /form", form, b"", 302, headers=FORM, back=LOCATION)
    probe.note(await probe.desk.counts())
    for location in (b"/p/7", b"/login"):
        call, _ = await probe.send(
            "POST /admin",
            b"name=Wexlomere",
            b"",
            302,
            headers=FORM,
            back=((b"Location", location),),
        )
        probe.note(await probe.desk.counts())
        await probe.send("GET /p/7", answer={"id": 7, "name": call.form["name"]})
        probe.note(await probe.desk.counts())
    for page in (b"<b>saved</b>", b"once more"):
        await probe.send("POST /admin", b"name=Wexlomere", page, 200, headers=FORM, back=HTML)
        probe.note(await probe.desk.counts())
    stored = await created(probe, number=5)
    for target, body in (
        ("POST /find", {"mail": ANN["email"]}),
        ("GET /by/ann@wexlo.example", b""),
    ):
        await probe.tried(target, body, [stored] if body else stored)
    await probe.tried("POST /form", b"a&b&c&d&name=Wexlomere", headers=FORM)
    await probe.tried("POST /p", {"name": "Wexlomere", "a": {"b": {"c": {}}}}, with_id(8), 201)


QUERIES = """
entities:
  p:
    fields:
      name: {kind: name, find: [exact, partial]}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      born: {kind: date, token: opaque, stored: plain, find: [range]}
operations:
  - {match: POST /p, create: p}
  - match: GET /p
    read: p
    query:
      email: {field: email, split: ";", send: {param: mails, join: "|"}}
      many:  {field: email, split: ",", send: {param: m, repeat: true, none: "-"}}
      mixed: {field: email, split: ",", mixed: true}
      q:     {field: [name, email], via: vault, send: {param: ids, join: ",", none: "-1", most: 2}}
      whole: {field: name, via: vault, find: exact, send: {param: ids, join: ",", none: "-1", most: 2}}
      order: {via: vault, fields: {birthday: born}, send: {param: ids, join: ",", none: "-1", most: 2}}
      sort:  {refuse: [name], fields: {title: name}}
      any:   {refuse: always}
      by:    {drop: [name]}
      box:   {field: email, else: pass}
      tab:   {pass: true}
      scim:  {expression: scim, fields: {userName: email}}
      where: {json: {$.email: email}}
    response: {each: "$[*]", id: $.id}
  - match: GET /top
    read: p
    query: {q: {field: name, via: vault, send: {param: ids, none: "-1", most: 1}}}
    response: {each: "$[*]", id: $.id}
"""


async def queries(probe: Probe) -> None:
    stored = await created(probe)
    await created(probe, number=2)
    mail = stored["email"]
    await probe.tried("GET /top?q=exlom", answer=[])
    for query in ("email=a@wexlo.example;b@wexlo.example", "many=a@wexlo.example,b@wexlo.example", "many=", "mixed=a@wexlo.example,b@wexlo.example",
                  "q=exlom", "q=nobody", "whole=Ann%20Wexlomere", "whole=exlom", "order=birthday", "sort=-name", "sort=title", "any=1", "tab=1", "by=name", "box=ann",
                  "scim=userName%20eq%20%22ann@wexlo.example%22", "where={%22email%22:%22ann@wexlo.example%22}"):  # fmt: skip
        try:
            call, _ = await probe.send(f"GET /p?{query}", answer=[stored])
            sent = call.sent.target.decode().replace(mail, "TOKEN")
            probe.note(re.sub(r"[a-z0-9]{20,}", "t", sent))
        except Exception as error:  # noqa: BLE001  # what is refused is noted by the probe
            probe.note(type(error).__name__)
    probe.note(b"domicile_unnamed_parameters_total{" in probe.desk.metrics.render())


# ------------------------------------------------------------------ other bodies

UPLOADS = """
operations:
  - {match: POST /photo, create: p, request: {multipart: {name: name, more: {json: {$.email: email}}, city: {pass: true}}, files: pass}, response: {id: $.id}}
  - {match: POST /csv, create: p, request: {csv: {Name: name}}, response: {each: "$[*]", id: $.id}}
  - {match: POST /cities, create: p, request: {csv: {Name: name, City: {pass: true}}}, response: {each: "$[*]", id: $.id}}
  - {match: POST /file, create: p, request: {csv: {Name: name}, part: file}, response: {each: "$[*]", id: $.id}}
  - {match: "GET /p/{id}", read: p}
  - {match: POST /texts, create: p, request: {values: {$.in: {json: {$.name: name}}}}, response: {values: {$.in: {json: {$.name: name}}}, id: $.id}}
  - {match: "PATCH /p/{id}", update: p, request: {patch: json}}
  - {match: POST /scan, create: q, request: {multipart: {scan: {filename: scan}}}, response: {id: $.id}}
"""
MULTIPART = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
PART = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
CSV = ((b"Content-Type", b"text/csv"),)
PATCH = ((b"Content-Type", b"application/json-patch+json"),)


async def uploads(probe: Probe) -> None:
    name, more = b"Wexlomere", b'{"email": "ann@wexlo.example"}'
    texts = PART % (b"name", b"", name) + PART % (b"more", b"", more)
    texts += PART % (b"city", b"", name)  # called like the person
    photo = PART % (b"photo", b'; filename="a.png"', b"x")
    table = b"Name,Mail\r\nWexlomere,x\r\n"
    for target, body, headers in (
        ("POST /photo", texts + photo + b"--b--\r\n", MULTIPART),
        ("POST /scan", PART % (b"scan", b'; filename="Wexlomere.pdf"', b"") + b"--b--", MULTIPART),
        ("POST /csv", table, CSV),
        ("POST /cities", b"Name,City\r\nWexlomere,Wexlomere\r\n", CSV),
        ("POST /file", PART % (b"file", b'; filename="a.csv"', table) + b"--b--\r\n", MULTIPART),
    ):
        answer = {"id": 3} if target in ("POST /photo", "POST /scan") else [{"id": 4}]
        await probe.tried(target, body, answer, headers=headers)
    await probe.tried("POST /texts", {"in": '{"name": "Wexlomere"}'}, with_id(5), 201)
    patch = [{"op": "replace", "path": "/name", "value": "Other"}]
    await probe.tried("PATCH /p/5", patch, {"id": 5}, headers=PATCH)


ANSWERS = """
operations:
  - {match: POST /p, create: p}
  - {match: "GET /page/{id}", read: p, response: {restore: html, only: [name]}}
  - {match: "GET /form/{id}", read: p, response: {restore: html, form: {born: born}}}
  - {match: GET /csv, read: p, response: {restore: csv, columns: {Name: name, Mail: email}, formulas: escape}}
  - {match: GET /lines, read: p, response: {stream: ndjson, each: "$", id: $.id}}
  - {match: POST /r, create: r}
  - {match: GET /live, read: r, request: {websocket: $.search}, response: {websocket: $.p, id: $.id}}
  - {match: "GET /scan/{id}", read: p, response: {scan: true}}
  - {match: GET /links, read: p, query: {email: email}, response: {each: "$.items[*]", id: $.id, carriers: [Link]}}
  - {match: GET /all, read: p, response: {each: "$[*]", id: $.id, complete: true}}
  - {match: "DELETE /p/{id}", delete: p}
"""


async def answers(probe: Probe) -> None:
    stored = await created(probe)
    page = f"<p>{stored['name']} {stored['email']}</p><input name=born value='{stored['born']}'>".encode()
    for target in ("/page/1", "/form/1"):
        await probe.send(f"GET {target}", answer=page, back=HTML)
    table = f"Name,Mail\r\n{stored['name']},{stored['email']}\r\n"
    table += (await created(probe, number=2, name="=Formula"))["name"] + ",\r\n"
    await probe.streamed("GET /csv", 200, table.encode(), CSV)
    await probe.streamed("GET /lines", 200, stored, ((b"Content-Type", b"application/x-ndjson"),))
    call, _ = await probe.send("POST /r", {"mail": "a@wexlo.example"}, with_id(), 201)
    await probe.streamed("GET /live", 101, {"p": {**call.json, "id": 1}}, ())
    asked = cast(
        MessageExchange, await (await probe.desk.send("GET /live")).exchange.stream(101, ())
    )
    try:
        probe.note(probe.words(await asked.redact(b'{"search": {"mail": "ann@wexlo.example"}}')))
    except VaultError as error:
        probe.note(error.code)
    await probe.send("GET /scan/1", answer={"id": 1, "hello": f"Dear {stored['note']}"})
    link = f"</links?email={stored['email']}&page=2>; rel=next".encode()
    await probe.send(
        "GET /links?email=ann@wexlo.example", answer={"items": []}, back=(*JSON, (b"Link", link))
    )
    await created(probe, number=3)
    await probe.send("DELETE /p/3", status=500)
    probe.desk.clock.advance(OLDEST_LIST)
    await probe.send("GET /all", answer=[stored])
    probe.note(await probe.desk.counts())


# ------------------------------------------------------------------ several in one message

GRAPHQL = """
operations:
  - match: POST /g
    graphql:
      Mutation.add: {create: p, object: input}
      Mutation.set: {update: p, object: input, key: id}
      Mutation.drop: {delete: p, key: id, keep: 30d}
      Mutation.wipe: {delete: p, key: id}
      Query.find: {read: p, arguments: {mail: email, q: {refuse: always}}}
      Query.goods: {pass: true}
      p: {entity: p, id: number}
    persisted: {"%s": "{ p { number name } }"}
""" % ("0" * 64)


async def graphql(probe: Probe) -> None:
    async def ask(query: str, answer: Any, **more: Any) -> Any:
        try:
            return (await probe.send("POST /g", {"query": query, **more}, {"data": answer}))[0].json
        except Exception as error:  # noqa: BLE001  # noted by the probe
            probe.note(type(error).__name__)

    added = await ask(
        "mutation ($i: In) { add(input: $i) { id } }",
        {"add": {"id": 1}},
        variables={"i": {"name": "Wexlomere", "born": "1931-02-27"}},
    )
    stored = added["variables"]["i"]
    await ask("{ p { number born name } }", {"p": {"number": 1, **stored}})
    more = {"variables": {"i": {"name": "Other", "born": "1931-02-27"}}}
    added = await ask(
        "mutation ($i: In) { set(id: 1, input: $i) { id } }", {"set": {"id": 1}}, **more
    )
    stored = added["variables"]["i"]
    await ask(
        '{ find(mail: "ann@wexlo.example") { id name } }',
        {"find": [{"id": 1, "name": stored["name"]}]},
    )
    for name in ("drop", "wipe"):
        await ask(f"mutation {{ {name}(id: 1) }}", {name: True})
        await ask("{ p { number name } }", {"p": {"number": 1, **stored}})
    for query in ('{ find(q: "Wexlo") { id name } }', '{ goods(name: "chair") { id } }'):
        await ask(query, {})
    added = await ask("mutation ($i: In) { add(input: $i) { id } }", {"add": {"id": 1}}, **more)
    stored = added["variables"]["i"]
    hashed = {"extensions": {"persistedQuery": {"sha256Hash": "0" * 64}}}
    await probe.tried("POST /g", hashed, {"data": {"p": {"number": 1, **stored}}})


ENVELOPE = """
operations:
  - match: POST /batch
    envelope: {each: "$.in[*]", method: $.m, path: $.p, headers: $.h, body: $.b, id: $.i, base: /api/, defaults: {method: POST},
      answers: {each: "$.out[*]", status: $.s, headers: $.hh, body: $.bb}}
  - {match: POST /api/p, create: p, response: {id: "header Location /p/{id}"}}
  - {match: PUT /api/p, update: p, id: "header X-Key {id}"}
  - {match: "GET /p/{id}", read: p}
"""


async def envelope(probe: Probe) -> None:
    inner = {"in": [{"i": 1, "p": "p", "b": {"name": "Wexlomere"}},
                    {"i": 2, "m": "PUT", "p": "p", "h": {"X-Key": "8"}, "b": {"name": "Elsewhere"}}]}  # fmt: skip
    call, _ = await probe.send("POST /batch", inner, lambda call: {"out": [
        {"i": 2, "s": 200, "bb": call.json["in"][1]["b"]},
        {"i": 1, "s": 201, "hh": {"Location": "/p/7"}, "bb": call.json["in"][0]["b"]}]})  # fmt: skip
    probe.note(await probe.desk.counts(), sorted(await probe.desk.people.by_key(["7", "8"])))
    await probe.send("GET /p/7", answer={"id": 7, **call.json["in"][0]["b"]})
    refused = {"out": [{"i": 1, "s": 400, "bb": {}}, {"i": 2, "s": 400, "bb": {}}]}
    await probe.send("POST /batch", inner, refused)
    probe.note(await probe.desk.counts())


OBJECTS = """
operations:
  - match: POST /o
    objects:
      - {create: p, request: {object: $.a}, response: {object: $.a, id: $.id}}
      - {create: q, request: {object: $.b}, response: {object: $.b, id: $.id}}
  - match: PUT /o
    objects:
      - {update: p, id: $.a.id, request: {object: $.a}, response: {object: $.a}}
      - {delete: q, id: query gone, keep: 30d}
  - match: "GET /o/{mail}"
    objects:
      - {read: p, path: {mail: email}, query: {email: email}, response: {each: "$.all[*]", id: $.id}}
      - {read: q, response: {each: "$.more[*]", id: $.id}}
"""


async def objects(probe: Probe) -> None:
    both = {"a": {"name": "Wexlomere", "email": "ann@wexlo.example"}, "b": {"title": "secretly"}}
    call, _ = await probe.send(
        "POST /o",
        both,
        lambda call: {"a": {**call.json["a"], "id": 1}, "b": {**call.json["b"], "id": 2}},
        201,
    )
    a, b = {**call.json["a"], "id": 1}, {**call.json["b"], "id": 2}
    target = "GET /o/ann@wexlo.example?email=ann@wexlo.example"
    await probe.tried(target, answer={"all": [a], "more": [b]})
    await probe.tried("PUT /o?gone=2", {"a": {"id": 1, "name": "Other"}}, lambda call: call.json)
    await probe.tried(target, answer={"all": [a], "more": [b]})


TESTS = """
views: [{who: [boss], p: clear}]
endpoint: {name: app, upstream: "http://127.0.0.1:3000", caller: {from: jwt, jwks: "http://localhost:9"}}
operations:
  - {match: POST /p, create: p}
  - {match: POST /form, create: p, request: {form: {name: name}}, response: {id: $.id}}
  - {match: GET /p, read: p, query: {email: email, sort: {refuse: always}}, response: {object: $, restore: text, only: [name], id: $.id}}
tests:
  - name: one
    as: boss
    call: {method: POST, path: /p, json: {name: Ann Wexlomere, x: Other}, headers: {X-Key: Wexlomere}}
    app_sees: {without: [Other], json: {name: Ann Wexlomere}}
    app_answers: {status: 201, json: {id: 1, name: "{sent $.name}"}, headers: {X-Own: a}}
    caller_sees: {status: 299, json: {name: Ann}, headers: {X-Own: a}}
  - {name: text, as: boss, call: {match: POST /p, json: {name: Ann}}, app_answers: {status: 201, json: {id: 9}}, caller_sees: {text: Bye}}
  - {name: two, as: boss, call: {match: POST /form, form: {name: Ann}}, app_sees: {form: {name: Ann}}, app_answers: {status: 201, json: {id: 2}}}
  - {name: three, as: boss, call: {match: GET /p, query: {email: a@wexlo.example}}, app_sees: {query: {email: b}},
     app_answers: {text: Hello, headers: {Content-Type: text/plain}}, caller_sees: {text: Hello, headers: {X-Two: b}}}
  - {name: four, call: {match: POST /p, text: "{", headers: {Content-Type: application/json}}, app_answers: {status: 201, json: {id: 3}}}
  - {name: five, call: {match: GET /p?sort=x}, caller_sees: {code: search_refused}}
"""


async def rule_tests(probe: Probe) -> None:
    for test in probe.desk.runtime.rules.tests:
        probe.note(test.name, await run_case(probe.desk.runtime, parse_case(test)))


ENDPOINT = """
endpoint: {name: app, upstream: "http://127.0.0.1:3000", host: [a.example], prefix: /crm, unmatched: deny, limits: {body: 20, inflated: 30}}
operations: [{match: POST /crm/p, create: p}]
"""


async def endpoint(probe: Probe) -> None:
    for host, target in (("a.example", b"/crm/p"), ("b.example", b"/crm/p"), ("a.example", b"/p")):
        try:
            of, match = probe.desk.runtime.match("POST", host, target, ())
            probe.note(host, match is not None, of.unmatched, of.limits)
        except VaultError as error:
            probe.note(host, error.code)


RECORDS = """
entities:
  p:
    schema: records
    fields:
      name: {kind: name, keep_as: key1}
      mail: {kind: email, token: {shape: email, same: true}, keep_as: key3}
operations: [{match: POST /p, create: p}]
"""


async def records(probe: Probe) -> None:
    await probe.send("POST /p", {"name": "Wexlomere", "mail": "ann@wexlo.example"}, with_id(), 201)
    (row,) = (await probe.desk.people.by_key(["1"])).values()
    fields = probe.desk.records("records").open(row).fields
    probe.note(fields.get("key1"), fields.get("key3"))


def rules(more: str) -> str:
    """The usual head with these operations; with other entities or another endpoint where it says so."""
    head = HEAD
    for name in ("entities", "endpoint"):
        if f"\n{name}:" in more:
            head = re.sub(rf"(?ms)^{name}:.*?(?=^\w|\Z)", "", head)
    return head + more


USUALLY = {
    USUAL: usual, FORMS: forms, UPLOADS: uploads, ANSWERS: answers, GRAPHQL: graphql, ENVELOPE: envelope,
    OBJECTS: objects, TESTS: rule_tests, ENDPOINT: endpoint,
}  # fmt: skip
SCENARIOS = (
    Scenario(SHAPES, shapes, WORDS),
    Scenario(CHECKS, checks, WORDS),
    Scenario(VIEWS, views, WORDS, instead={("rule_file", "views"): [{"who": "boss", "p": "mask"}]}),
    Scenario(rules(QUERIES), queries, WORDS, instead={("field", "find"): ["exact"]}),
    Scenario(rules(RECORDS), records, WORDS, hosted=True),
    *(Scenario(rules(more), run, WORDS) for more, run in USUALLY.items()),
)

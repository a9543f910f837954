import asyncio
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from proxy.storage.changes import Replace
from tests.support.exchanges import FORM, JSON, USUAL, Desk, desk
from tests.support.table import table

FIELDS = (
    "name: {kind: name}",
    "phone: {kind: phone, token: {shape: numeric, keep_last: 2, else: opaque}}",
    "fax: {kind: phone, token: {shape: numeric, same: true, else: lower}, find: [exact]}",
    "born: {kind: date, token: {shape: date, else: opaque}}",
    'marks: {kind: number, at: "$.marks[*]", token: {shape: numeric, else: prepended}}',
    "card: {kind: card}",
    'extra: {kind: date, at: "$.extra.*.day"}',
)
FORMS = (
    '{match: POST /form, create: p, request: {form: {"card_*": card, born: born}}, response: '
    "{id: $.id}}"
)
FAX = '{match: GET /fax, read: p, query: {fax: {field: fax}}, response: {each: "$[*]", id: $.id}}'


async def made() -> Desk:
    return await desk(*USUAL[:1], *USUAL[2:], FORMS, FAX, fields=FIELDS)


@table("text", ["n/a", "ext 3", "-", "1987-04", "12", " "])
async def test_a_value_that_does_not_fit_has_a_token_of_the_second_format_and_comes_back(text):
    one = await made()
    person = {"phone": text, "fax": text, "born": text, "marks": [text, "1234567", text + "?"]}
    call = await one.send("POST /p", person)
    assert text not in [
        call.json["phone"],
        call.json["fax"],
        call.json["born"],
        *call.json["marks"],
    ]
    stored = {**call.json, "id": 1}
    assert await call.seen(201, stored) == {**person, "id": 1}
    assert await one.shown(stored) == {**person, "id": 1}
    again = await one.send("PATCH /p/1", {"phone": stored["phone"], "born": stored["born"]})
    assert again.json == {"phone": stored["phone"], "born": stored["born"]}, "own tokens are kept"
    await again.answer(200, stored)
    assert await one.shown(stored) == {**person, "id": 1}
    assert one.idle


async def test_values_change_between_the_formats_and_back():
    one = await made()
    stored: dict[str, object] = {"id": 1}
    call = await one.send("POST /p", {"phone": "070-123 45 67", "born": "1931-02-27"})
    stored |= call.json
    await call.answer(201, stored)
    for phone, born in (("n/a", "1987-04"), ("08-765 43 21", "1987-04-05"), ("ext 3", "-")):
        call = await one.send("PATCH /p/1", {"phone": phone, "born": born})
        stored |= call.json
        assert await call.seen(200, stored) == {"id": 1, "phone": phone, "born": born}
        assert await one.shown(stored) == {"id": 1, "phone": phone, "born": born}


async def test_a_search_finds_a_value_of_either_format_by_its_token():
    one = await made()
    for number, fax in enumerate(("070-123 45 67", "n/a"), 1):
        call = await one.send("POST /p", {"fax": fax})
        await call.answer(201, {**call.json, "id": number})
        asked = await one.send(f"GET /fax?fax={'%2B46701234567' if number == 1 else 'n%2Fa'}")
        assert asked.sent.target.decode() == f"/fax?fax={quote(call.json['fax'])}"


@pytest.mark.parametrize(
    ("match", "body", "headers", "places"),
    [
        ("POST /p", b'{"name": "Ann", "card": "Quibble"}', JSON, ["/card"]),
        (
            "POST /p",
            b'[{"name": "[,\\"}:"}, {"x": {"card": 1}, "card": "Quibble"}]',
            JSON,
            ["/1/card"],
        ),
        ("POST /p", b'{"extra": {"ann@x.se": {"day": "Quibble"}}}', JSON, ["/extra/*/day"]),
        (
            "PATCH /p/1",
            b'{"card": "Quibble", "extra": {"a": {"day": "Quibble"}}}',
            JSON,
            ["/card", "/extra/*/day"],
        ),
        ("POST /form", b"born=n%2Fa&card_of_ann=Quibble", FORM, ["card_*"]),
    ],
)
async def test_a_refusal_and_its_log_line_name_field_and_place_and_never_the_value(
    match, body, headers, places, lines
):
    one = await made()
    with pytest.raises(VaultError) as caught:
        await one.send(match, body, headers)
    error = caught.value
    assert error.code is Code.VALUE_UNFIT
    assert [detail.source for detail in error.details] == places
    assert all(detail.text.startswith(("card: ", "extra: ")) for detail in error.details)
    told = [
        line
        for line in lines()
        if line["event"] == "a value does not fit the token format of its field"
    ]
    assert [line["source"] for line in told] == places
    everything = json.dumps([error.message, error.details, told])
    assert not any(text in everything for text in ("Quibble", "Ann", "ann"))
    assert one.idle


@table(("verb", "match"), [("read", "POST /search"), ("delete", "POST /purge")])
async def test_a_search_in_a_body_names_field_and_place(verb: str, match: str):
    one = await desk(
        f"{{match: {match}, {verb}: p, request: {{object: $.filter}}, response: {{each: '$[*]', id: $.id}}}}",
        fields=("fax: {kind: phone, token: {shape: numeric, same: true}, find: [exact]}",),
    )
    with pytest.raises(VaultError) as caught:
        await one.send(match, {"filter": {"fax": "ext 3"}})
    (detail,) = caught.value.details
    assert (caught.value.code, detail.source) == (Code.VALUE_UNFIT, "/filter/fax")
    assert "fax" in caught.value.message
    assert "ext 3" not in f"{caught.value}{detail}"
    assert one.idle


CHECKED = (
    "email: {kind: email, token: {shape: email, same: true}, check: true}",
    "born: {kind: date, token: {shape: date}, check: {max: today-18y}}",
    'tags: {kind: text, at: "$.tags[*]", check: {pattern: "[a-z]+", max: 5}}',
)
CHECKED_WAYS = (
    *USUAL,
    '{match: POST /form, create: p, request: {form: {mail: email}}, response: {id: $.id}}',
    '{match: POST /file, create: p, request: {csv: {Mail: email}, part: f}, response: {id: "$.i[*]"}}',
    '{match: POST /parts, create: p, request: {multipart: {mail: email}}, response: {id: $.id}}',
    '{match: "PATCH /patch/{id}", update: p, request: {patch: json}}',
    '{match: "PATCH /many", update: p, request: {each: "$[*]"}, id: $.id, response: {each: "$[*]", id: $.id}}',
)  # fmt: skip
PARTS: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
PATCHED: RawHeaders = ((b"Content-Type", b"application/json-patch+json"),)
FILE = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.csv"\r\n\r\n%b\r\n--b--\r\n'


async def refused(
    one: Desk, match: str, body: Any, headers: RawHeaders | None = None
) -> list[tuple[str, str]]:
    """What is said of a request that is refused for its values; nothing is stored then."""
    before = await one.counts()
    with pytest.raises(VaultError) as caught:
        await one.send(match, body, headers)
    assert caught.value.code is Code.VALUE_INVALID
    assert "nope" not in f"{caught.value.message}{caught.value.details}"
    assert await one.counts() == before
    assert one.idle
    return [(detail.source, detail.text) for detail in caught.value.details]


async def test_the_log_line_of_a_value_that_is_refused_names_field_and_reason(lines):
    one = await desk(*CHECKED_WAYS, fields=CHECKED)
    await refused(one, "POST /p", {"email": "nope", "born": "nope", "tags": ["nope1", "nope2"]})
    told = [one for one in lines() if one["event"] == "a value is not what its field takes"]
    assert sorted({(one["operation"], one["field"]) for one in told}) == [
        ("POST /p", "born"), ("POST /p", "email"), ("POST /p", "tags"),
    ]  # fmt: skip
    assert len(told) == 3  # of equal reasons one
    assert "nope" not in json.dumps(told)


async def test_a_value_that_its_field_does_not_take_is_refused_in_every_body():
    one = await desk(*CHECKED_WAYS, fields=CHECKED)
    await one.create({"email": "ann@x.example", "born": "1980-01-01", "tags": ["vip"]})
    no_mail = "email: is no mail address"
    assert await refused(one, "POST /p", {"email": "nope"}) == [("/email", no_mail)]
    assert await refused(one, "PATCH /p/1", {"tags": ["a", "nope7"]}) == [
        ("/tags/1", "tags: does not fit the pattern [a-z]+")
    ]
    assert await refused(one, "POST /form", b"mail=nope", FORM) == [("mail", no_mail)]
    text = b'--b\r\nContent-Disposition: form-data; name="mail"\r\n\r\nnope\r\n--b--\r\n'
    assert await refused(one, "POST /parts", text, PARTS) == [("mail", no_mail)]
    rows = b'ID,Mail,Note\r\n1,ann@x.example,"a\r\n\r\nb"\r\n\r\n2,nope,x\r\n3,nope2,x\r\n'
    assert await refused(one, "POST /file", FILE % rows, PARTS) == [
        ("Mail, row 4", no_mail),
        ("Mail, row 5", no_mail),
    ]
    change = [{"op": "replace", "path": "/email", "value": "nope"}]
    assert await refused(one, "PATCH /patch/1", change, PATCHED) == [("/0/*", no_mail)]
    many = [{"id": 1, "email": "eve@x.example"}, {"id": 2, "email": "nope"}]
    assert await refused(one, "PATCH /many", many) == [("/1/email", no_mail)]
    assert (await refused(one, "POST /p", {"born": "2999-01-01"}))[0][0] == "/born"


COPIED_FIELDS = (
    "email: {kind: email}",
    "name: {kind: name, token: {shape: opaque, same: true}}",
    "ref: {kind: uuid}",
    "phone: {kind: phone, token: {shape: numeric, else: opaque}}",
)
COPIES = (
    USUAL[0],
    *USUAL[2:],
    '{match: POST /form, create: p, request: {form: {mail: email}}, response: {id: $.id}}',
    '{match: POST /file, create: p, request: {csv: {Mail: email}, part: f}, response: {id: "$.i[*]"}}',
    '{match: POST /parts, create: p, request: {multipart: {mail: email}}, response: {id: $.id}}',
    '{match: POST /all, create: p, request: {each: "$[*]"}, response: {each: "$[*]", id: $.id}}',
    '{match: "PUT /put/{id}", update: p}',
    '{match: POST /batch, envelope: {each: "$.requests[*]", answers: "$.responses[*]"}}',
    '{match: POST /graphql, graphql: {P: {entity: p}, Mutation.createP: {create: p, object: input}}}',
)  # fmt: skip
MUTATION = "mutation ($m: String!) { createP(input: {email: $m}) { id email } }"


@table("gone", [False, True])
async def test_a_token_in_place_of_a_value_is_refused_in_every_kind_of_create(gone):
    one = await desk(*COPIES, fields=COPIED_FIELDS)
    stored = await one.create({"email": "ann@x.example"})
    if gone:
        await (await one.send("DELETE /p/1")).answer(204)
    mail = stored["email"]
    rows = f"Mail\r\nbo@x.example\r\n{mail}\r\n".encode()
    part = b'--b\r\nContent-Disposition: form-data; name="mail"\r\n\r\n%b\r\n--b--\r\n'
    inner = {"method": "POST", "path": "/p", "body": {"email": mail}}
    before = await one.counts()
    for match, body, headers, place in (
        ("POST /p", {"email": mail}, None, "/email"),
        ("POST /p?x=1", {"email": "bo@x.example", "name": mail}, None, "/name"),
        ("PUT /put/9", {"email": mail}, None, "/email"),
        ("POST /all", [{"email": "bo@x.example"}, {"email": mail}], None, "/1/email"),
        ("POST /form", f"mail={quote(mail)}".encode(), FORM, "mail"),
        ("POST /parts", part % mail.encode(), PARTS, "mail"),
        ("POST /file", FILE % rows, PARTS, "Mail, row 3"),
        ("POST /batch", {"requests": [inner]}, None, "/email"),
        ("POST /graphql", {"query": MUTATION, "variables": {"m": mail}}, None, "/object/email"),
    ):
        with pytest.raises(VaultError) as caught:
            await one.send(match, body, headers)
        assert caught.value.code is Code.VALUE_UNFIT, match
        assert [detail.source for detail in caught.value.details] == [place], match
        assert mail not in f"{caught.value}{caught.value.details}"
        assert (one.idle, await one.counts()) == (True, before), match


async def test_a_token_of_another_entity_that_an_application_has_copied_is_no_value():
    ways = (
        '{match: "POST /q", create: q, response: {id: $.id}}',
        '{match: "PUT /q/{id}", update: q}',
    )
    one = await desk(*USUAL, *ways, entities=("  q: {fields: {text: {kind: text}}}",))
    stored = await one.create({"name": "Ann", "email": "ann@x.example"})
    kept = await one.send("POST /q", {"text": "a comment"})
    await kept.answer(201, {"id": 5})
    before = await one.counts()
    for match, sent in (
        ("POST /q", stored["name"]),
        ("PUT /q/5", stored["name"]),
        ("PUT /q/5", f"see {stored['name']}!"),
    ):
        with pytest.raises(VaultError) as caught:
            await one.send(match, {"text": sent})
        assert caught.value.code is Code.VALUE_UNFIT
        assert [detail.source for detail in caught.value.details] == ["/text"]
        assert (one.idle, await one.counts()) == (True, before)
    again = await one.send("PUT /q/5", kept.json)  # its own one is as it was
    assert again.json == kept.json


async def test_what_only_looks_like_a_token_or_cannot_be_told_from_a_value_is_one():
    one = await desk(*COPIES, fields=COPIED_FIELDS)
    ref = "6f1c2b34-9d7e-4a10-8b55-0c1d2e3f4a5b"
    ann = {"name": "Ann", "email": "ann@x.example", "phone": "+46 70 123 45 67", "ref": ref}
    stored = await one.create(ann)
    look_alikes = {"email": f"g{'0' * 25}@example.org", "name": f"A{'b' * 10}C{'d' * 10}"}
    for number, sent in enumerate(({**look_alikes, "ref": ref}, {"phone": stored["phone"]}), 2):
        shown = await one.create(sent, number)
        assert await one.shown(shown, f"GET /p/{number}") == {**sent, "id": number}
    with pytest.raises(VaultError) as caught:
        await one.send("POST /p", {"name": stored["name"]})
    assert caught.value.code is Code.VALUE_UNFIT, "the index has it"
    await (await one.send("DELETE /p/1")).answer(204)
    copied = await one.create({"name": stored["name"]}, 5)
    assert await one.shown(copied, "GET /p/5") == {"name": stored["name"], "id": 5}, (
        "nothing is left to compare it with"
    )


async def test_a_token_that_is_stored_as_a_value_already_may_come_back():
    one = await desk(*USUAL, '{match: "PUT /put/{id}", update: p}')
    await one.create({"name": "Ann", "email": "ann@x.example"})
    other = (await one.create({"name": "Bo"}, 2))["name"]
    row = (await one.people.by_key(["1"]))["1"]
    live = one.people.sealer.open(row)
    false = {"name": tuple(replace(of, text=other) for of in live.values["name"])}
    body = one.people.sealer.with_body(row, replace(live, values={**live.values, **false}))
    await one.store.commit(one.people.table, [Replace(body, row.version)])
    call = await one.send("PUT /put/1", {"name": other, "email": "bo@x.example"})
    assert await call.seen(200, {"id": 1, **call.json}) == {
        "id": 1, "name": other, "email": "bo@x.example"
    }  # fmt: skip


async def test_nothing_and_what_stands_for_a_stored_value_needs_no_check():
    one = await desk(*CHECKED_WAYS, fields=CHECKED)
    stored = await one.create({"email": "ann@x.example", "born": "1980-01-01", "tags": ["vip"]})
    own = {name: stored[name] for name in ("email", "born", "tags")}
    call = await one.send("PATCH /p/1", own)
    assert call.json == own
    await call.answer(200, stored)
    call = await one.send("PATCH /p/1", {"email": "", "tags": None})
    await call.answer(200, {"id": 1})
    assert await refused(one, "PATCH /p/2", own), "a token of another record is no value"


async def test_the_mask_of_a_value_that_comes_back_needs_no_check():
    more = "views:\n  - {who: [help], p: mask}"
    one = await desk(*CHECKED_WAYS, fields=CHECKED, more=more)
    stored = await one.create({"email": "ann@x.example", "born": "1980-01-01", "tags": ["vip"]})
    masked = await (await one.send("GET /p/1", view=one.view("help"))).seen(200, stored)
    assert masked["email"] != "ann@x.example"
    call = await one.send("PATCH /p/1", {"email": masked["email"]}, view=one.view("help"))
    assert call.json == {"email": stored["email"]}
    await call.answer(200, stored)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", {"email": "nope*"}, view=one.view("help"))
    assert caught.value.code is Code.VALUE_INVALID


async def test_ten_thousand_rows_are_checked_while_others_go_on():
    one = await desk(*CHECKED_WAYS, fields=CHECKED)
    body = b"Mail\r\n" + b"".join(b"nope%d\r\n" % number for number in range(9000))
    longest, last = 0.0, time.thread_time()

    async def others() -> None:
        nonlocal longest, last
        while True:
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    assert len(await refused(one, "POST /file", FILE % body, PARTS)) == 20
    watching.cancel()
    assert longest < 0.5


async def longest_turn(working: "asyncio.Future[Any]") -> float:
    """The share of the time that others waited for their turn at most."""
    longest, began = 0.0, time.perf_counter()
    last = began
    while not working.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest / (last - began)


async def test_many_values_of_one_object_are_looked_at_in_short_turns():
    one = await desk(
        *USUAL[:1], *USUAL[2:], fields=('mails: {kind: email, check: true, at: "$.mails[*]"}',)
    )
    slow = "a@" + ".".join(["\u00fc" * 28] * 8) + ".se"
    sent = asyncio.ensure_future(one.send("POST /p", {"mails": [slow] * 300}))
    assert await longest_turn(sent) < 0.4
    fault = sent.exception()
    assert isinstance(fault, VaultError)
    assert fault.code is Code.VALUE_INVALID


async def test_parts_of_many_values_are_hashed_beside_the_loop():
    field = 'notes: {kind: text, find: [partial], at: "$.notes[*]"}'
    one = await desk(
        "{match: POST /p, create: p}", '{match: "PATCH /p/{id}", update: p}', fields=(field,)
    )
    notes = [f"{number} {'abcdefgh ijklm' * 20}" for number in range(2500)]
    sent = asyncio.ensure_future(one.send("POST /p", {"notes": notes}))
    assert await longest_turn(sent) < 0.4
    await sent.result().answer(201, {"id": 1})
    assert one.idle

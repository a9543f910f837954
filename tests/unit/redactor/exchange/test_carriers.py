import pytest

from proxy.redactor.message import RawHeaders
from tests.support.exchanges import HTML, JSON, PLAIN, USUAL, Desk, desk

FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
)
MORE = "carriers: [Location, Link, Refresh, header Content-Disposition, $.next]"
LISTED = (
    "{match: GET /people, read: p, query: {email: {field: email}}, "
    f'response: {{each: "$.items[*]", id: $.id, {MORE}}}}}'
)
MADE = "{match: POST /people, create: p, request: {form: {name: name, email: email}}, " + (
    'response: {id: "header Location /people/{id}", ' + MORE + "}}"
)
FILE = '{match: "GET /people/{id}/file", read: p, response: {carriers: [Content-Disposition]}}'
ANN = "Ann@x.example"


async def people(*more: str) -> Desk:
    return await desk(*USUAL[:1], LISTED, FILE, *more, fields=FIELDS)


async def shown(one: Desk, name: str, address: str, target: str = f"/people?email={ANN}") -> str:
    """What the caller sees of a field; ``TOKEN`` stands for what the search was sent with."""
    call = await one.send(f"GET {target}")
    token = call.sent.target.decode().partition("email=")[2].partition("&")[0]
    headers: RawHeaders = ((name.encode(), address.replace("TOKEN", token).encode()),)
    answer = await call.answer(302, b"", headers)
    assert one.idle
    return dict(answer.headers)[name.encode()].decode().replace(token, "TOKEN")


@pytest.mark.parametrize(
    ("name", "address", "wanted"),
    [
        ("Location", "/people?email=TOKEN&page=2", "/people?email=Ann%40x.example&page=2"),
        ("location", "http://127.0.0.1:3000/people?email=TOKEN#a", None),
        ("Link", '</people?email=TOKEN&page=2>; rel=next, </x?a=TOKEN>; rel="x"', None),
        ("Refresh", "0; URL=/people?email=TOKEN", None),
    ],
)
async def test_an_address_shows_what_the_caller_searched_for(name, address, wanted):
    one = await people()
    got = await shown(one, name, address)
    assert got == (wanted or address.replace("TOKEN", "Ann%40x.example", 1))


@pytest.mark.parametrize(
    "address",
    [
        "/elsewhere?email=TOKEN",
        "/people?other=TOKEN",
        "/people/TOKEN",
        "https://evil.example/people?email=TOKEN",
        "//evil.example/people?email=TOKEN",
        "http://127.0.0.1:3000@evil.example/people?email=TOKEN",
        "/p?email=TOKEN",
        "people?email=TOKEN",
    ],
)
async def test_every_other_address_keeps_its_token(address):
    assert await shown(await people(), "Location", address) == address


async def test_a_field_that_the_rule_does_not_name_keeps_its_token():
    one = await people()
    assert (await shown(one, "X-Next", "/people?email=TOKEN")) == "/people?email=TOKEN"


async def test_the_token_of_somebody_else_is_never_read_out():
    one = await people()
    stored = await one.create({"name": "Bo", "email": "bo@x.example"})
    target = f"/people?email={stored['email']}"
    assert await shown(one, "Location", target, target) == "/people?email=TOKEN"


async def test_an_address_in_the_body_shows_it_too_and_comes_back_as_its_token():
    one = await people()
    call = await one.send(f"GET /people?email={ANN}")
    token = call.sent.target.partition(b"=")[2].decode()
    stored = await one.create({"name": "Ann", "email": ANN})
    body = f'{{"next": "\\/people?email={token}&page=2", "items": [{{"id": 1, "email": "{stored["email"]}"}}]}}'
    answer = await call.answer(200, body.encode(), JSON)
    assert answer.body.decode() == (
        '{"next": "/people?email=Ann%40x.example&page=2", "items": [{"id": 1, "email": "Ann@x.example"}]}'
    )
    again = await one.send("GET /people?email=Ann%40x.example&page=2")
    assert again.sent.target == f"/people?email={token}&page=2".encode()
    none = await (await one.send(f"GET /people?email={ANN}")).answer(200, b'{"next": null}', JSON)
    assert none.body == b'{"next": null}'


async def test_a_redirect_after_a_create_shows_what_was_sent():
    one = await desk(*USUAL[:1], LISTED, MADE, fields=FIELDS)
    form = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
    call = await one.send("POST /people", b"name=Ann&email=Ann%40x.example", form)
    location = f"/people?email={call.form['email']}".encode()
    answer = await call.answer(303, b"", ((b"Location", location),))
    assert answer.headers == ((b"Location", b"/people?email=Ann%40x.example"),)


async def test_the_name_of_a_file_shows_the_record_that_the_request_names():
    one = await people()
    ann = await one.create({"name": 'Ann "Å" / Q', "email": ANN})
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    field = f'attachment; filename="{ann["name"]}-{bo["name"]}.pdf"'
    headers = ((b"Content-Type", b"application/pdf"), (b"Content-Disposition", field.encode()))
    answer = await (await one.send("GET /people/1/file")).answer(200, b"%PDF", headers)
    assert answer.body == b"%PDF"
    assert dict(answer.headers)[b"Content-Disposition"].decode() == (
        f'attachment; filename="Ann ___ _ Q-{bo["name"]}.pdf"; '
        f"filename*=UTF-8''Ann%20_%C3%85_%20_%20Q-{bo['name']}.pdf"
    )
    for other in ("inline", 'attachment; filename="plain.pdf"'):
        named = ((b"Content-Disposition", other.encode()),)
        answer = await (await one.send("GET /people/1/file")).answer(200, b"%PDF", named)
        assert answer.headers == named


# ---------------------------------------------------------------------- scan


SCANNED = '{match: "GET /s/{id}", read: p, response: {object: $.p, scan: true}}'
GREETED = '{match: GET /s, read: p, response: {each: "$.p[*]", id: $.id, scan: true}}'


async def test_a_scanned_answer_shows_its_record_beside_the_named_places():
    one = await people(SCANNED)
    ann = await one.create({"name": "Ann", "email": ANN})
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    body = {
        "p": {"name": ann["name"]},
        "hello": f"Welcome, {ann['name']}, not {bo['name']}",
        "n": 1,
    }
    assert await (await one.send("GET /s/1")).seen(200, body) == {
        "p": {"name": "Ann"},
        "hello": f"Welcome, Ann, not {bo['name']}",
        "n": 1,
    }
    page = await (await one.send("GET /s/1")).answer(200, ann["name"].encode(), PLAIN)
    assert page.body == b"Ann"
    html = await (await one.send("GET /s/1")).answer(200, bo["name"].encode(), HTML)
    assert html.body.decode() == bo["name"]


async def test_a_value_that_looks_like_a_token_is_not_scanned_again():
    one = await people(SCANNED, GREETED)
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    ann = await one.create({"name": f"really {bo['name']}", "email": ANN})
    seen = await (await one.send("GET /s")).seen(200, {"p": [{"id": 1, "name": ann["name"]}]})
    assert seen == {"p": [{"id": 1, "name": f"really {bo['name']}"}]}


async def test_a_scanned_list_shows_the_values_of_the_entity_in_one_more_read():
    one = await people(GREETED)
    ann = await one.create({"name": "Ann", "email": ANN})
    body = {"p": [{"id": 1, "name": ann["name"]}] * 50, "top": f"best: {ann['name']}"}
    seen = await (await one.send("GET /s")).seen(200, body)
    assert seen == {"p": [{"id": 1, "name": "Ann"}] * 50, "top": "best: Ann"}
    written = await (await one.send(f"GET /s?q={ann['name']}")).seen(200, body)
    assert written["top"] == body["top"]


SCRIPT: RawHeaders = ((b"Content-Type", b"text/javascript; charset=utf-8"),)


@pytest.mark.parametrize(
    ("before", "behind", "kind"),
    [
        (")]}',\n", "", JSON),
        ("for(;;);", "\n", JSON),
        ("{} && ", "", JSON),
        ("cb(", ");", SCRIPT),
        ("/**/ typeof cb === 'function' && cb(", ");", SCRIPT),
    ],
)
async def test_an_answer_in_a_wrapping_is_ruled_as_the_json_that_it_is(before, behind, kind):
    one = await people(GREETED)
    ann = await one.create({"name": "Ann", "email": ANN})
    items = '{"items": [{"id": 1, "name": "NAME"}], "next": "/people?email=TOKEN"}'
    call = await one.send(f"GET /people?email={ANN}")
    raw = items.replace("NAME", ann["name"]).replace("TOKEN", ann["email"])
    answer = await call.answer(200, f"{before}{raw}{behind}".encode(), kind)
    shown = items.replace("NAME", "Ann").replace("TOKEN", "Ann%40x.example")
    assert answer.body.decode() == f"{before}{shown}{behind}"
    scanned = f'{before}{{"p": [], "top": "best: {ann["name"]}"}}{behind}'
    answer = await (await one.send("GET /s")).answer(200, scanned.encode(), kind)
    assert answer.body.decode() == scanned.replace(ann["name"], "Ann")
    call = await one.send("POST /p", {"name": "Ann"})
    refused = f'{before}{{"error": "no {call.json["name"]}"}}{behind}'
    assert b'"no Ann"' in (await call.answer(422, refused.encode(), kind)).body


@pytest.mark.parametrize("before", ["alert(1);cb(", "cb(1,", "cb(x", "cb"])
async def test_a_script_that_is_more_than_the_call_of_a_function_shows_tokens(before):
    one = await people(GREETED)
    ann = await one.create({"name": "Ann", "email": ANN})
    raw = f'{before}{{"items": [{{"id": 1, "name": "{ann["name"]}"}}]}});'.encode()
    assert (await (await one.send("GET /people")).answer(200, raw, SCRIPT)).body == raw
    assert one.events["unreadable_answer"] == 1
    assert (await (await one.send("GET /s")).answer(422, raw, SCRIPT)).body == raw

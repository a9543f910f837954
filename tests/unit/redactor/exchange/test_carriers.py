from urllib.parse import unquote

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.matcher import cookies_in
from proxy.redactor.exchange.runtime import VaultRules
from proxy.redactor.message import RawHeaders
from proxy.redactor.rules import Match
from tests.support.exchanges import FORM, HTML, JSON, PLAIN, USUAL, Desk, desk, member_form
from tests.support.table import table

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


@table(
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


async def test_an_address_shows_it_where_the_search_is_one_of_several_objects():
    """Both where it leads to, and where the caller has searched."""
    other = "  note:\n    fields:\n      text: {kind: text}"
    parts = (
        "{read: p, query: {email: {field: email}}, response: {restore: html, carriers: [Location]}}"
    )
    view = f"{{match: GET /view, objects: [{parts}, {{read: note, response: {{restore: html}}}}]}}"
    one = await desk(*USUAL[:1], LISTED, MADE, view, fields=FIELDS, entities=(other,))
    for target in (f"/people?email={ANN}", f"/view?email={ANN}"):
        for leads in ("/people", "/view"):
            got = await shown(one, "Location", f"{leads}?a=1&email=TOKEN&b=TOKEN", target)
            assert got == f"{leads}?a=1&email=Ann%40x.example&b=TOKEN"
    call = await one.send("POST /people", member_form(name="Ann", email=ANN), FORM)
    sent = (b"Location", f"/view?id=1&email={call.form['email']}".encode())
    answer = await call.answer(302, b"", (sent,))
    assert answer.headers == ((b"Location", b"/view?id=1&email=Ann%40x.example"),)


@table(
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


PAGED = (
    "{match: GET /page, read: p, query: {email: {field: email}}, "
    "response: {restore: html, carriers: [href]}}"
)


@table(
    ("tag", "wanted"),
    [
        ('<a href="?email=TOKEN&amp;page=2">', '<a href="?email=VALUE&amp;page=2">'),
        ("<a href='/page?page=2&email=TOKEN'>", "<a href='/page?page=2&email=VALUE'>"),
        ("<form method=get action=/page?email=TOKEN>", "<form method=get action=/page?email=VALUE>"),
        ('<a href="/people?email=TOKEN#top">', '<a href="/people?email=VALUE#top">'),
        ('<a href="/page?other=TOKEN">', None),
        ('<a href="https://evil.example/page?email=TOKEN">', None),
        ('<a href="&#47;page?email=TOKEN">', None),
        ('<a href="/page?email=TOKEN&copy;=1&amp;x=1">', None),
        ('<a onclick="go(\'/page?email=TOKEN\')">', None),
        ('<img src="/page?email=TOKEN">', None),
        ('<script>"<a href=\\"/page?email=TOKEN\\">"</script>', None),
        ('<!-- <a href="/page?email=TOKEN"> -->', None),
    ],
)  # fmt: skip
async def test_links_of_a_page_show_what_the_caller_searched_for(tag, wanted):
    one = await people(PAGED)
    call = await one.send(f"GET /page?email={ANN}")
    token = call.sent.target.partition(b"=")[2].decode()
    body = f"<p>none</p>{tag}next</a>".replace("TOKEN", token).encode()
    answer = await call.answer(200, body, HTML)
    got = answer.body.decode().replace(token, "TOKEN").replace("Ann%40x.example", "VALUE")
    if wanted is None and "<!--" in tag:  # a comment shows values, and leads nowhere
        assert "VALUE" not in got
        return
    assert got == f"<p>none</p>{wanted or tag}next</a>"


async def test_the_next_page_that_such_a_link_leads_to_knows_the_value():
    one = await people(PAGED)
    box = b'<input name="email" value="%b"><a href="?email=%b&amp;page=3">'
    call = await one.send("GET /page?email=Ann%40x.example&page=2")
    token = call.sent.target.partition(b"=")[2].partition(b"&")[0]
    answer = await call.answer(200, box % (token.replace(b"%40", b"@"), token), HTML)
    assert answer.body == (
        b'<input name="email" value="Ann&#64;x&#46;example">'
        b'<a href="?email=Ann%40x.example&amp;page=3">'
    )


async def test_links_show_nobody_elses_value():
    one = await people(PAGED)
    stored = await one.create({"name": "Bo", "email": "bo@x.example"})
    body = f'<a href="/page?email={stored["email"]}">next</a>'.encode()
    answer = await (await one.send(f"GET /page?email={ANN}")).answer(200, body, HTML)
    assert answer.body == body
    with pytest.raises(VaultError, match="1 fault"):
        await people(PAGED.replace("restore: html", 'each: "$[*]", id: $.id'))


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


@table(
    ("field", "wanted"),
    [
        ("attachment; filename=\"TOKEN.pdf\"; filename*=UTF-8''TOKEN.pdf", "attachment; BOTH"),
        ("inline; filename*=utf-8'de'TOKEN.pdf; filename=\"x.pdf\"", "inline; BOTH"),
        ("attachment; filename=\"=?UTF-8?Q?TOKEN?=\"; filename*=UTF-8''TOKEN%2Epdf", "attachment; BOTH"),
        ("ATTACHMENT;FILENAME=TOKEN.pdf;size=10", "ATTACHMENT; BOTH;size=10"),
        ("attachment; filename*=iso-8859-1''%C5_TOKEN.pdf", "attachment; filename=\"__Ann _.pdf\"; filename*=UTF-8''%C3%85_Ann%20%C3%85.pdf"),
        ("attachment; filename=\"Å\\\"TOKEN.pdf\"", "attachment; filename=\"__Ann _.pdf\"; filename*=UTF-8''%C3%85_Ann%20%C3%85.pdf"),
        ("attachment; filename=\"TOKEN.pdf", None),
        ("attachment; filename*=utf-16''TOKEN.pdf", None),
        ("attachment; x-filename=\"TOKEN.pdf\"", None),
    ],
)  # fmt: skip
async def test_the_name_of_a_file_is_found_under_each_of_its_names_and_beside_others(field, wanted):
    """Rails, Spring and ASP.NET write both of them."""
    one = await people()
    token = (await one.create({"name": "Ann Å", "email": ANN}))["name"]
    sent = field.replace("TOKEN", token).encode()
    call = await one.send("GET /people/1/file")
    answer = await call.answer(200, b"x", ((b"Content-Disposition", sent),))
    both = "filename=\"Ann _.pdf\"; filename*=UTF-8''Ann%20%C3%85.pdf"
    shown = answer.headers[0][1].decode().replace(token, "TOKEN")
    assert shown == (wanted or field).replace("BOTH", both)


# ---------------------------------------------------------------------- cookies

LOGIN = '{match: POST /login, read: p, request: {form: {email: email}}, response: {carriers: ["cookie last_email email"]}}'
SHOWN = '{match: "GET /people/{id}/cookie", read: p, response: {carriers: ["cookie email", "cookie last_email email"]}}'
ATTRIBUTES = "; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"


async def cookies(one: Desk, *values: str, match: str = "GET /people/1/cookie") -> list[str]:
    """The fields of an answer with these cookies as the caller sees them."""
    form = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
    body = f"email={ANN}".encode() if match.startswith("POST") else b""
    call = await one.send(match, body, form if body else ())
    token = call.form["email"] if body else ""
    sent = [(b"Set-Cookie", value.replace("TOKEN", token).encode()) for value in values]
    answer = await call.answer(200, b"{}", (*JSON, *sent))
    assert one.idle
    return [value.decode() for name, value in answer.headers if name == b"Set-Cookie"]


async def sent_back(one: Desk, value: str) -> str:
    """The cookies of any request to the endpoint as the application gets them."""
    (endpoint,) = one.runtime.rules.endpoints
    headers = ((b"Cookie", value.encode()),)
    fields = await VaultRules(one.runtime).redact_headers(endpoint, "app", headers)
    return b"".join(line for _, line in fields).decode()


@table(
    ("written", "seen"),
    [("TOKEN", ANN), ('"TOKEN"', f'"{ANN}"'), ("%-TOKEN", "Ann%40x.example")],
)
async def test_a_cookie_shows_what_the_caller_sent_and_comes_back_as_its_token(written, seen):
    one = await desk(*USUAL[:1], LOGIN, fields=FIELDS)
    token = (await one.create({"name": "Ann", "email": ANN}))["email"]
    raw = written.replace("%-TOKEN", token.replace("@", "%40")).replace("TOKEN", token)
    value = f"last_email={raw}{ATTRIBUTES}"
    assert await cookies(one, value, match="POST /login") == [f"last_email={seen}{ATTRIBUTES}"]
    assert await sent_back(one, f"a=b; last_email={seen}; c=d") == f"a=b; last_email={raw}; c=d"
    assert await sent_back(one, f"last_email={raw}") == f"last_email={raw}"


async def test_a_cookie_shows_a_value_of_the_record_that_the_request_names_and_of_no_other():
    one = await desk(*USUAL[:1], SHOWN, fields=FIELDS)
    ann = await one.create({"name": "Ann", "email": ANN})
    bo = await one.create({"name": "Bo", "email": "bo@x.example"}, 2)
    lines = (
        f"email={ann['email']}", f"last_email={ann['email']}", f"last_email={bo['email']}", f"other={ann['email']}",
        f"email={ann['name']}", f"email={ann['email']}.c2lnbmVk", "email=", "email",
    )  # fmt: skip
    wanted = [f"email={ANN}", f"last_email={ANN}", *lines[2:]]
    assert await cookies(one, *lines) == wanted


async def test_what_a_script_wrote_into_the_cookie_does_not_leave_in_clear():
    one = await desk(*USUAL[:1], LOGIN, fields=FIELDS)
    for value in ("eve@x.example", "Eve%40x.example", '"eve@x.example"'):
        sent = await sent_back(one, f"last_email={value}")
        assert "eve@x.example" not in unquote(sent).lower()
        assert sent.startswith("last_email=")
    assert await sent_back(one, "a=b; last_email=%FF") == "a=b"


async def test_a_value_without_a_token_is_left_out_and_counted():
    fields = ("name: {kind: name}", "email: {kind: uuid, token: {shape: uuid, same: true}}")
    one = await desk(*USUAL[:1], SHOWN, fields=fields)
    one.store.fail("by_tokens", lambda: VaultError(Code.CANNOT_OPEN, "no"))
    other = "123e4567-e89b-42d3-a456-426614174000"
    assert await sent_back(one, f"email={other}; b=c") == "b=c"
    assert one.events["cookie_dropped"] == 1


@table(
    "cookie",
    [
        "last_email=%FF; b=c", 'b=c; last_email="x; y ann@x.example', "b=c; d=e,last_email=ann@x.example",
        "b=c; last%5Femail=ann@x.example", "b=c; last.email=ann@x.example", 'b=c; "last_email"=ann@x.example',
    ],
)  # fmt: skip
async def test_a_cookie_that_cannot_be_read_or_that_a_lenient_reader_sees_is_counted_too(cookie):
    one = await desk(*USUAL[:1], LOGIN, fields=FIELDS)
    assert await sent_back(one, cookie) == "b=c"
    assert one.events["cookie_dropped"] == 1


async def test_answers_without_success_and_other_operations_leave_cookies_alone():
    one = await desk(*USUAL[:1], *USUAL[2:3], SHOWN, fields=FIELDS)
    token = (await one.create({"name": "Ann", "email": ANN}))["email"]
    line = (b"Set-Cookie", f"email={token}".encode())
    for match, status in (("GET /people/1/cookie", 404), ("GET /p/1", 200)):
        answer = await (await one.send(match)).answer(status, b"{}", (*JSON, line))
        assert line in answer.headers


async def test_callers_who_do_not_see_the_field_get_its_token():
    views = "views: [{who: [a], p: mask}, {who: [b], p: token}, {who: [c], p: clear}]"
    one = await desk(*USUAL[:1], SHOWN, fields=FIELDS, more=views)
    call = await one.send("POST /p", {"name": "Ann", "email": ANN}, view=one.view("c"))
    await call.answer(201, {"id": 1})
    line = (b"Set-Cookie", f"email={call.json['email']}".encode())
    for role, seen in (("a", line), ("b", line), ("c", (b"Set-Cookie", f"email={ANN}".encode()))):
        read = await one.send("GET /people/1/cookie", view=one.view(role))
        if read.exchange.must_buffer(200, (*JSON, line)):
            assert seen in (await read.answer(200, b"{}", (*JSON, line))).headers
        else:
            assert seen is line
            await read.exchange.settled(200, ())


async def test_a_cookie_of_records_among_others_goes_by_the_field_it_is_kept_as():
    kept = (*FIELDS[:1], FIELDS[1].replace("find: [exact]", "keep_as: key3"))
    one = await desk(*USUAL[:1], SHOWN, fields=kept, hosted=True)
    token = (await one.create({"name": "Ann", "email": ANN}))["email"]
    assert await cookies(one, f"email={token}") == [f"email={ANN}"]
    assert await sent_back(one, f"email={ANN}") == f"email={token}"


async def test_a_request_with_the_cookie_takes_no_fast_path():
    one = await desk(*USUAL, SHOWN, fields=FIELDS)
    rules = VaultRules(one.runtime)
    _, match = rules.match("GET", "app", b"/p/1", ())
    assert isinstance(match, Match)
    assert cookies_in(match.operation.endpoint, ((b"Cookie", b"a=b; email=x"),))
    assert not cookies_in(match.operation.endpoint, ((b"Cookie", b"a=b"), (b"X", b"email=x")))
    assert rules.fast_path(match, ((b"Cookie", b"email=x"),)) is None


async def test_rules_that_came_meanwhile_let_no_cookie_of_earlier_ones_pass():
    before = await desk(*USUAL[:1], SHOWN, fields=FIELDS)
    after = await desk(
        "{match: POST /q, create: q}", entities=("  q: {fields: {a: {kind: text}}}",)
    )
    (endpoint,) = before.runtime.rules.endpoints
    object.__setattr__(after.runtime, "collections", {})
    headers = ((b"Cookie", b"email=x@y.example; a=b"),)
    assert await VaultRules(after.runtime).redact_headers(endpoint, "app", headers) == [
        (b"Cookie", b"a=b")
    ]


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
    ann = await one.create({"name": f"really {bo['email']}", "email": ANN})
    seen = await (await one.send("GET /s")).seen(200, {"p": [{"id": 1, "name": ann["name"]}]})
    assert seen == {"p": [{"id": 1, "name": f"really {bo['email']}"}]}


async def test_a_scanned_list_shows_the_values_of_the_entity_in_one_more_read():
    one = await people(GREETED)
    ann = await one.create({"name": "Ann", "email": ANN})
    body = {"p": [{"id": 1, "name": ann["name"]}] * 50, "top": f"best: {ann['name']}"}
    seen = await (await one.send("GET /s")).seen(200, body)
    assert seen == {"p": [{"id": 1, "name": "Ann"}] * 50, "top": "best: Ann"}
    written = await (await one.send(f"GET /s?q={ann['name']}")).seen(200, body)
    assert written["top"] == body["top"]


SCRIPT: RawHeaders = ((b"Content-Type", b"text/javascript; charset=utf-8"),)


@table(
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


@table("before", ["alert(1);cb(", "cb(1,", "cb(x", "cb"])
async def test_a_script_that_is_more_than_the_call_of_a_function_shows_tokens(before):
    one = await people(GREETED)
    ann = await one.create({"name": "Ann", "email": ANN})
    raw = f'{before}{{"items": [{{"id": 1, "name": "{ann["name"]}"}}]}});'.encode()
    assert (await (await one.send("GET /people")).answer(200, raw, SCRIPT)).body == raw
    assert one.events["unreadable_answer"] == 1
    assert (await (await one.send("GET /s")).answer(422, raw, SCRIPT)).body == raw

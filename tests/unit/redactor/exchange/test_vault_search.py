"""Searches whose rule says more than which field a parameter holds, over a vault in memory."""

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.matcher import carries
from tests.support.exchanges import USUAL, Desk, desk

SEARCHES = (
    USUAL[0],
    (
        '{match: GET /p, read: p, query: {email: {field: email, split: ","}, sort: {refuse: [name]}, phones: '
        '{field: mobile, split: ",", send: {param: ids, repeat: true}}}, response: {each: "$[*]", id: $.id}}'
    ),
    '{match: "GET /by/{email}", read: p, path: {email: email}}',
    '{match: "PUT /by/{email}/{id}", update: p, path: {email: {field: email}}}',
    (
        "{match: POST /find, read: p, request: {values: {$.q: email, $.any: {refuse: always}}}, response: "
        '{each: "$[*]", id: $.id}}'
    ),
)
FIELDS = (
    "name: {kind: name}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "mobile: {kind: phone, token: {shape: numeric, same: true}}",
)
ANN = {"name": "Zorbina", "email": "Ann@x.example", "mobile": "+46701234567"}


@pytest.fixture
async def office() -> Desk:
    return await desk(*SEARCHES, fields=FIELDS)


async def test_each_value_of_a_list_finds_its_record(office):
    stored = await office.create(ANN)
    call = await office.send("GET /p?email=bob@x.example,ann@x.example&page=2")
    assert call.sent.target.endswith(
        b"," + stored["email"].encode().replace(b"@", b"%40") + b"&page=2"
    )
    assert b"x.example" not in call.sent.target
    assert await call.seen(200, [stored]) == [{**ANN, "id": 1}]
    repeated = await office.send("GET /p?phones=%2B46701234567,%2B46700000000")
    assert repeated.sent.target.count(b"ids=") == 2
    assert stored["mobile"].encode().replace(b"+", b"%2B") in repeated.sent.target


async def test_a_token_that_comes_back_stays(office):
    stored = await office.create(ANN)
    target = f"/by/{stored['email']}".encode()
    assert (await office.send(f"GET {target.decode()}")).sent.target == target


async def test_a_value_in_the_path_is_swapped_and_stored_with_others(office):
    stored = await office.create(ANN)
    call = await office.send("GET /by/ann%40X.example?x=1")
    assert call.sent.target == f"/by/{stored['email']}?x=1".encode()
    assert (await call.seen(200, stored))["name"] == "Zorbina"
    call = await office.send("PUT /by/ann@x.example/1", {"name": "Quibble"})
    assert call.sent.target == f"/by/{stored['email']}/1".encode()
    await call.answer(200, {**stored, **call.json})
    assert (await office.shown({**stored, **call.json}, "GET /by/ann@x.example"))[
        "name"
    ] == "Quibble"


async def test_an_error_shows_what_the_caller_sent(office):
    call = await office.send("GET /by/nobody@x.example")
    token = call.sent.target.rpartition(b"/")[2].decode()
    assert "nobody" not in token
    seen = await call.seen(404, {"error": f"no {token}"})
    assert seen == {"error": "no nobody@x.example"}
    assert call.exchange.missed


async def test_places_of_a_body(office):
    stored = await office.create(ANN)
    call = await office.send("POST /find", {"q": "ann@x.example", "page": 1})
    assert call.json == {"q": stored["email"], "page": 1}
    assert await call.seen(200, [stored]) == [{**ANN, "id": 1}]


@pytest.mark.parametrize("match", ["GET /p?sort=-name", "GET /p?sort=id,NAME"])
async def test_a_sort_by_what_is_kept_here_is_refused_before_anything_is_sent(office, match):
    with pytest.raises(VaultError) as caught:
        await office.send(match)
    assert caught.value.code is Code.SEARCH_REFUSED


async def test_a_value_that_fits_no_token_is_told_by_its_place(office):
    with pytest.raises(VaultError) as caught:
        await office.send("GET /p?phones=none")
    assert caught.value.code is Code.VALUE_UNFIT
    assert caught.value.details[0].source == "phones"
    assert "else: opaque" in caught.value.message
    assert "none" not in caught.value.details[0].text


@pytest.mark.parametrize(
    ("address", "left"),
    [
        (b"http://app/by/ann@x.example?y=1", b"http://app/by/%b?y=1"),
        (b"http://app/p?email=ann@x.example,&x=1", b"http://app/p?email=%b,&x=1"),
        (b"http://app/p?phones=1,2&x=1", b"http://app/p"),
        (b"http://app/by/a%252Fb", b"http://app/"),
        (b"http://app/p?email=%FF&x=1", b"http://app/p"),
    ],
)
async def test_addresses_in_headers_hold_tokens_too(office, address, left):
    stored = await office.create(ANN)
    token = stored["email"].encode()
    if b"email=" in left:
        token = token.replace(b"@", b"%40")
    ((_, value),) = await office.runtime.readdress_referer("app", ((b"Referer", address),))
    assert value == (left % token if b"%b" in left else left)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (b"http://app/p?email=ann@x.example", b"http://app/p?email=%b"),  # HX-Current-URL
        (b"/p?email=ann@x.example&x=1", b"/p?email=%b&x=1"),  # X-Up-Location, Next-Url
        (b"http://APP/p?phones=1,2", b"http://APP/p"),
        (b"https://user@app:8443/p?email=ann@x.example", b"https://user@app:8443/p?email=%b"),
        (b"http://other/q?email=ann@x.example", None),  # another site
        (b"/nowhere?email=ann@x.example", None),
        (b"?email=ann@x.example", None),
        (b"*/*;q=0.8, text/p?email=1", None),
        (b"p?email=ann@x.example", b"p?email=%b"),  # relative ones
        (b"../p?email=ann@x.example&x=1", b"../p?email=%b&x=1"),
        (b'"/p?email=ann@x.example&x=1"', b'"/p?email=%b&x=1"'),
        (b"http:/p?email=ann@x.example", b"http:/p?email=%b"),
        (b"./p?phones=1,2", b"./p"),
        (b'"etag?email=ann@x.example"', None),
    ],
)
async def test_so_do_addresses_in_any_field_and_those_of_other_sites_pass(office, value, left):
    stored = await office.create(ANN)
    token = stored["email"].replace("@", "%40").encode()
    headers = ((b"HX-Current-URL", value), (b"X-Other", b"a/b"))
    changed = await office.runtime.readdress_referer("app", headers)
    expected = value if left is None else left % token if b"%b" in left else left
    assert changed == ((b"HX-Current-URL", expected), headers[1])


@pytest.mark.parametrize("method", ["POST", "QUERY", "GET|POST"])
@pytest.mark.parametrize("searched", ["email", "{field: email}", '{field: email, split: ","}'])
async def test_a_page_that_answers_a_search_by_another_method_tells_its_address_too(
    method, searched
):
    """It is shown at the address of the form, and its pictures and scripts name that."""
    rules = (
        f'{{match: "{method} /find", read: p, query: {{email: {searched}}}}}',
        '{match: "GET /{page}", pass: true}',
    )
    one = await desk(*rules, fields=FIELDS)
    address = b"http://app/find?email=ann@x.example&a=1"
    ((_, value),) = await one.runtime.readdress_referer("app", ((b"Referer", address),))
    before, _, token = value.removesuffix(b"&a=1").partition(b"email=")
    assert before == b"http://app/find?"
    assert token.endswith(b"%40example.org")


async def test_so_does_the_form_of_a_change_that_is_shown_again():
    one = await desk(
        '{match: "POST /by/{email}/{id}", update: p, path: {email: email}}', fields=FIELDS
    )
    fields = ((b"Referer", b"http://app/by/ann@x.example/17"),)
    ((_, value),) = await one.runtime.readdress_referer("app", fields)
    assert b"ann@x.example" not in value
    assert value.endswith(b"@example.org/17")


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        (b"Referer", b"http://app/p?email=ann@x.example&x=1", b"http://app/p"),
        (b"Referer", b"http://app/by/ann@x.example?x=1", b"http://app/"),
        (b"HX-Current-URL", b"p?email=ann@x.example", b"p"),
        (b"Referer", b"http://other/q?email=ann@x.example", None),
        (b"Referer", b"http://app/else?page=2", None),
        (b"Accept", b"*/*;q=0.8, text/p?a=1", None),
    ],
)
async def test_addresses_without_what_they_search_for(office, name, value, left):
    """For callers who may not search: not even the token of a guess reaches the application."""
    (field,) = office.runtime.bare_addresses("app", ((name, value),))
    assert field == (name, value if left is None else left)


PAGE_STATE = (b"Next-Router-State-Tree", b"%5B%22__PAGE__%3F%7B%5C%22email%5C%22%3A%5C%22a%22%5D")


@pytest.mark.parametrize(
    ("rules", "field", "leaves"),
    [
        (SEARCHES, PAGE_STATE, False),
        (SEARCHES, (b"next-router-STATE-tree", b"%5B%22by%22%5D"), False),  # paths hold values
        (SEARCHES[:2], PAGE_STATE, False),
        (SEARCHES[:2], (PAGE_STATE[0], b'["__PAGE__?{}"]'), False),
        (SEARCHES[:2], (PAGE_STATE[0], b"%5B%22%22%2C%7B%7D%5D"), True),
        (SEARCHES[:2], (b"Next-Router-State-Yard", PAGE_STATE[1]), True),
    ],
)
async def test_the_state_of_a_page_stays_here_where_it_may_hold_values(rules, field, leaves):
    office = await desk(*rules, fields=FIELDS)
    headers = ((b"RSC", b"1"), field)
    assert carries(headers, office.runtime.sign) is not leaves
    changed = await office.runtime.readdress_referer("app", headers)
    assert changed == (headers if leaves else headers[:1])


MIXED = (
    USUAL[0],
    (
        '{match: GET /p, read: p, query: {email: {field: email, split: ",", mixed: true}, phones: {field: mobile, send: '
        '{param: ids, repeat: true}, mixed: true}, mail: {field: email, split: ","}}, response: {each: "$[*]", id: $.id}}'
    ),
    (
        "{match: POST /find, read: p, request: {values: {$.q: {field: email, send: {repeat: true}, mixed: true}}}, "
        'response: {each: "$[*]", id: $.id}}'
    ),
)


async def test_a_mixed_parameter_sends_the_value_beside_its_token_and_no_other_does():
    office = await desk(*MIXED, fields=FIELDS)
    stored = await office.create(ANN)
    token = stored["email"].replace("@", "%40").encode()
    call = await office.send("GET /p?email=ann@x.example")
    assert call.sent.target == b"/p?email=" + token + b"%2Cann%40x.example"
    clear = {"id": 2, "email": "ann@x.example"}
    assert await call.seen(200, [stored, clear]) == [{**ANN, "id": 1}, clear]
    call = await office.send("GET /p?phones=%2B46701234567")
    mobile = stored["mobile"].replace("+", "%2B").encode()
    assert call.sent.target == b"/p?ids=" + mobile + b"&ids=%2B46701234567"
    call = await office.send("POST /find", {"q": "Ann@x.example"})
    assert call.json == {"q": [stored["email"], "Ann@x.example"]}
    # a token that comes back is no value, and what another parameter looks for stays inside
    assert (await office.send(f"GET /p?email={stored['email']}")).sent.target.count(b"%40") == 0
    assert b"x.example" not in (await office.send("GET /p?mail=ann@x.example")).sent.target
    with pytest.raises(VaultError) as caught:  # the guard looks for it wherever it may not be
        await office.send("GET /p?mail=zorbina@x.example&note=zorbina@x.example")
    assert caught.value.code is Code.VALUE_ELSEWHERE


async def test_an_earlier_address_shows_no_value_of_a_mixed_parameter():
    office = await desk(*MIXED, fields=FIELDS)
    for target in ("/p?email=ann@x.example", "/p?phones=%2B46701234567"):
        referer = b"http://app" + target.encode()
        ((_, told),) = await office.runtime.readdress_referer("app", ((b"Referer", referer),))
        assert b"x.example" not in told
        assert b"46701234567" not in told


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("?sort=name:ASC", ""),
        ("?page=1&sort=name%3AASC&size=%31%30", "?page=1&size=%31%30"),
        ("?sort=-name&page=1", "?page=1"),
        ("?page=1&sort=name&sort=other.mobile", "?page=1"),
        ("?page=1&sort=created:desc&sort=", "?page=1&sort=created:desc&sort="),
        ("?any=created&page=1&", "?page=1&"),
    ],
)
async def test_an_order_that_is_dropped_is_left_out_and_every_other_byte_stays(asked, sent):
    rule = (
        "{match: GET /p, read: p, query: {sort: {drop: [name, mobile]}, any: {drop: always}, "
        'page: {pass: true}}, response: {each: "$[*]", id: $.id}}'
    )
    shop = await desk(USUAL[0], rule, fields=FIELDS)
    call = await shop.send(f"GET /p{asked}")
    assert call.sent.target == f"/p{sent}".encode()


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ("ann@x.example", "email"),
        ("ann\uff20x.example", "email"),
        ("ann", "nick"),
        ("007", "nick"),
    ],
)
async def test_a_box_for_an_address_or_a_name_takes_each_for_its_own(sent, field):
    nick = "nick: {kind: name, token: {shape: lower, same: true}}"
    rule = "{match: POST /in, read: p, request: {values: {$.who: {field: email, else: nick}}}}"
    shop = await desk(USUAL[0], rule, fields=(*FIELDS, nick))
    stored = await shop.create({"email": "ann@x.example", "nick": sent if field == "nick" else "z"})
    call = await shop.send("POST /in", {"who": sent})
    if "\uff20" in sent:
        assert call.json["who"] not in (sent, stored["nick"])
    else:
        assert call.json == {"who": stored[field]}


@pytest.mark.parametrize(("sent", "passes"), [("ann", True), ("Ann@x.example", False)])
async def test_a_name_passes_where_the_rule_says_so(sent, passes):
    rule = "{match: POST /in, read: p, request: {form: {who: {field: email, else: pass}}}}"
    shop = await desk(USUAL[0], rule, fields=FIELDS)
    form = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
    call = await shop.send("POST /in", b"who=" + sent.encode() + b"&password=x", form)
    assert (call.sent.body == b"who=" + sent.encode() + b"&password=x") is passes
    assert call.sent.body.endswith(b"&password=x")

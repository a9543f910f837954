import asyncio
import json

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.event_stream import MessageExchange
from tests.support.exchanges import USUAL, Desk, desk
from tests.support.table import table

FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
)  # fmt: skip
#: Fields whose values all may be searched for.
SEARCHED = (
    FIELDS[1],
    'tags: {kind: text, at: "$.tags[*]", token: {shape: opaque, same: true}, find: [exact]}',
)
LIVE = "{match: GET /live, read: p, response: {websocket: $.p, id: $.id}}"
ASKS = (
    "{match: GET /asks, read: p, request: {fields: {email: $.search.email}, other_kinds: pass}, "
    "response: {websocket: $.p, id: $.id}}"
)
CHAT = (
    "{match: GET /chat, read: p, request: {values: {$..who.name: {pass: true}, $.deep: {pass: true}}}, "
    "response: {websocket: $.p}}"
)
ROOM = (
    "{match: GET /room, read: p, query: {email: email}, request: {fields: {email: $.search.email}, "
    "values: {$.who.name: {pass: true}}}, response: {websocket: $.p}}"
)
ANN = {"name": "Ann Q", "email": "Ann@x.example"}


async def opened(match: str) -> tuple[Desk, MessageExchange]:
    one = await desk(*USUAL, LIVE, ASKS, CHAT, ROOM, fields=FIELDS)
    call = await one.send(match, headers=((b"Sec-WebSocket-Extensions", b"x"), (b"A", b"b")))
    assert call.sent.headers == ((b"A", b"b"), (b"Accept-Encoding", b"identity"))
    stream = await call.exchange.stream(101, ())
    assert isinstance(stream, MessageExchange)
    assert await call.exchange.stream(200, ()) is None
    return one, stream


async def test_messages_of_the_application_are_restored():
    one, stream = await opened("GET /live")
    stored = await one.create(ANN)
    message = json.dumps({"type": "new", "p": stored}).encode()
    wanted = {"type": "new", "p": {**ANN, "id": 1}}
    assert json.loads(await stream.restore(message)) == wanted
    assert await stream.restore(b"not json") == b"not json"
    assert await stream.restore(b"") == b""
    assert one.events["unreadable_answer"] == 1
    await stream.end()
    assert one.idle


async def test_messages_of_the_caller_search_by_tokens():
    one, stream = await opened("GET /asks")
    stored = await one.create(ANN)
    message = {"type": "follow", "search": {"email": "Ann@x.example"}}
    sent = json.loads(await stream.redact(json.dumps(message).encode()))
    assert sent == {"type": "follow", "search": {"email": stored["email"]}}
    for said in (b'{"type": "ping"}', b'{"p": {"id": 1, "email": null}, "search": {"email": ""}}'):
        assert await stream.redact(said) == said
    assert await stream.redact(b"") == b""
    assert stream.passes_binary


async def test_members_of_messages_that_no_rule_names_are_reported():
    one, stream = await opened("GET /room")
    for said in ("zorbina@x.example", "zorbina@y.example"):
        message = {
            "search": {"email": "ann@x.example"},
            "who": {"name": said},
            "to": [{"mail": said}],
        }
        await stream.redact(json.dumps(message).encode())
        await asyncio.sleep(0)  # it is looked at after the message has gone on
    met = one.metrics.samples("domicile_unnamed_parameters_total")
    assert met == [(("app", "GET /room", "body", "$.to[*].mail"), 2)]


@table(
    ("match", "message", "code"),
    [
        ("GET /live", b'{"any": {"email": "ann@x.example"}}', Code.OPERATION_DENIED),
        ("GET /live", b"ann@x.example", Code.MALFORMED_JSON),
        ("GET /asks", b'{"search": {"Email": "ann@x.example"}}', Code.AMBIGUOUS_JSON),
        ("GET /asks", b'{"search": {"e-mail": "ann@x.example"}}', Code.AMBIGUOUS_JSON),
        ("GET /live", b'{"any": {"eMail": "ann@x.example"}}', Code.AMBIGUOUS_JSON),
        ("GET /asks", b'{"search": "ann@x.example"}', Code.VALUE_UNFIT),
        ("GET /asks", b'{"email": "ann@x.example"}', Code.OPERATION_DENIED),
        ("GET /asks", b'{"p": {"id": 1, "name": "Ann"}}', Code.OPERATION_DENIED),
        ("GET /asks", b'{"do": [{"Email": "ann@x.example"}]}', Code.AMBIGUOUS_JSON),
        (
            "GET /asks",
            b'{"search": {"email": "ann@x.example"}, "save": {"name": "Ann"}}',
            Code.OPERATION_DENIED,
        ),
        ("GET /chat", b'{"chat": {"name": "Ann"}}', Code.OPERATION_DENIED),
        ("GET /chat", b'{"chat": {"note": "", "email": "Ann"}}', Code.OPERATION_DENIED),
        ("GET /chat", b'{"who": {"name": "Pat", "Name": "Ann"}}', Code.AMBIGUOUS_JSON),
        ("GET /asks", b'{"search": {"email": "a"}', Code.MALFORMED_JSON),
        (
            "GET /asks",
            b'{"search": {"email": "ann@x.example"}, "log": "ann@x.example asks"}',
            Code.VALUE_ELSEWHERE,
        ),
    ],
)
async def test_a_message_that_could_carry_a_value_elsewhere_is_refused(match, message, code):
    _, stream = await opened(match)
    with pytest.raises(VaultError) as fault:
        await stream.redact(message)
    assert fault.value.code is code
    assert "ann@" not in fault.value.message


@table(
    ("match", "said"),
    [
        ("GET /chat", {"who": {"name": "Ann"}, "to": [{"who": {"name": "A"}}, {"name": {}}]}),
        ("GET /chat", {"deep": {"name": {"email": "ann@x.example"}}}),
        ("GET /room", {"who": {"name": "ann@x.example"}, "search": {"email": ""}}),
    ],
)
async def test_a_place_of_messages_passes_where_the_rule_says_so(match, said):
    _, stream = await opened(match)
    message = json.dumps(said).encode()
    assert await stream.redact(message) == message


async def test_a_refused_message_tells_its_place_and_what_to_write():
    _, stream = await opened("GET /room")
    for message, place in (
        (b'{"save": {"name": "Ann"}}', "$.save.name"),
        (b'{"ann@x.example": [{"name": ["Ann"]}]}', "$.{word}[*].name"),
        (b'{"search": {"email": "ann@x.example"}, "name": {"first": 1}}', "$.name"),
    ):
        with pytest.raises(VaultError) as fault:
            await stream.redact(message)
        assert fault.value.details[0].source == place
        assert f"values: {{{place}: {{pass: true}}}}" in fault.value.message


async def test_a_value_swapped_in_one_message_leaves_in_no_later_one():
    one, stream = await opened("GET /room")
    stored = await one.create(ANN)
    asks = b'{"search": {"email": "Ann@x.example"}}'
    later = b'{"log": "Ann@x.example asked"}', b'{"code": "QW5uQHguZXhhbXBsZQ=="}'
    for message in later:
        assert await stream.redact(message) == message
    assert json.loads(await stream.redact(asks)) == {"search": {"email": stored["email"]}}
    assert await stream.redact(asks) != asks
    for message in (
        json.dumps({"log": stored["email"]}).encode(),
        b'{"who": {"name": "Ann@x.example"}}',
    ):
        assert await stream.redact(message) == message
    for message in later:
        with pytest.raises(VaultError) as fault:
            await stream.redact(message)
        assert fault.value.code is Code.VALUE_ELSEWHERE
    _, other = await opened("GET /room")
    assert await other.redact(later[0]) == later[0]


async def test_a_value_swapped_in_the_handshake_leaves_in_no_message():
    one, _ = await opened("GET /room")
    call = await one.send("GET /room?email=Ann@x.example")
    assert b"x.example" not in call.sent.target
    stream = await call.exchange.stream(101, ())
    assert isinstance(stream, MessageExchange)
    with pytest.raises(VaultError) as fault:
        await stream.redact(b'{"log": "Ann@x.example asked"}')
    assert fault.value.code is Code.VALUE_ELSEWHERE


async def test_the_latest_values_of_a_socket_are_remembered_and_no_more():
    _, stream = await opened("GET /room")
    for number in range(600):
        await stream.redact(json.dumps({"search": {"email": f"ann{number}@x.example"}}).encode())
    with pytest.raises(VaultError):
        await stream.redact(b'{"log": "ann599@x.example"}')
    assert await stream.redact(b'{"log": "ann0@x.example"}')


async def test_the_bounds_are_those_of_the_rule():
    _, stream = await opened("GET /live")
    assert (stream.longest, stream.passes_binary) == (2 * 1024 * 1024, False)


@table(
    ("places", "messages"),
    [
        ("object: $", [{"email": "{}"}, {"tags": ["a", "{}"]}]),
        ("object: $.d", [{"d": {"email": "{}"}}, {"d": [{"email": "a"}, {"tags": ["{}"]}]}]),
        ('each: "$.items[*]"', [{"items": [{"email": "{}"}, {"email": "{}"}]}]),
        ("fields: {email: $.q.mail}", [{"q": {"mail": "{}"}}]),
        ("object: $.d, fields: {email: $.q.mail}", [{"d": {"tags": ["{}"]}, "q": {"mail": "a"}}]),
        ("websocket: $.s", [{"s": {"email": "{}"}}, {"s": {"tags": ["{}", "{}"]}}]),
        *(
            (places, [])
            for places in (
                "values: {$.q: {field: email}}",
                'values: {"$.q[*]": {field: email, split: ","}}',
                "values: {$.t: {json: {$.e: email}}}",
                "object: $, values: {$.t: {json: {$.e: email}}}",
                "form: {m: email}",
                "multipart: {m: email}",
                "csv: {m: email}",
                "patch: json",
            )
        ),
    ],
)
async def test_a_place_that_a_rule_may_name_in_messages_is_swapped(places, messages):
    rule = f"{{match: GET /s, read: p, request: {{{places}}}, response: {{websocket: $.p}}}}"
    if not messages:
        with pytest.raises(VaultError):
            await desk(*USUAL[:1], rule, fields=SEARCHED)
        return
    one = await desk(*USUAL[:1], rule, fields=SEARCHED)
    stream = await (await one.send("GET /s")).exchange.stream(101, ())
    assert isinstance(stream, MessageExchange)
    for message in messages:
        said = json.dumps(message).replace("{}", "ann@x.example").encode()
        sent = await stream.redact(said)
        assert b"ann@x.example" not in sent
        assert [*json.loads(sent)] == [*message]

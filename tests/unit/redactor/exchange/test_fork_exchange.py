import pytest

from proxy.errors import Code, VaultError
from tests.support.exchanges import desk

OPERATIONS = (
    (
        "{match: POST /rpc, when: {$.do: add}, create: p, request: {object: $.p}, "
        "response: {object: $.p}}"
    ),
    "{match: POST /rpc, when: {$.do: show}, read: p, response: {object: $.p, id: $.id}}",
    "{match: POST /rpc, when: {$.do: ping}, pass: true}",
    '{match: GET /p, read: p, response: {each: "$[*]", id: $.id}}',
)


async def test_the_body_chooses_the_operation_of_both_directions():
    one = await desk(*OPERATIONS)
    call = await one.send("POST /rpc", {"do": "add", "p": {"name": "Ann Wexlomere", "vip": True}})
    stored = {**call.json["p"], "id": 1}
    assert stored["name"] != "Ann Wexlomere"
    assert (await call.seen(201, {"p": stored}))["p"]["name"] == "Ann Wexlomere"
    call = await one.send("POST /rpc", {"do": "show", "id": 1})
    assert (await call.seen(200, {"p": stored}))["p"]["name"] == "Ann Wexlomere"
    assert not call.exchange.missed
    assert one.idle


async def test_what_passes_is_left_alone():
    one = await desk(*OPERATIONS)
    call = await one.send("POST /rpc", {"do": "ping", "p": {"name": "x"}})
    assert call.json == {"do": "ping", "p": {"name": "x"}}
    assert call.exchange.mark() == b""
    assert call.exchange.stream(200, ()) is None
    assert not call.exchange.must_buffer(200, ((b"Content-Type", b"application/json"),))
    assert (await call.answer(200, {"pong": 1})).body == b'{"pong": 1}'
    await call.exchange.failed(True)
    assert await one.counts() == (0, 0, 0)


async def test_what_fits_none_is_refused_and_nothing_stays_of_what_was_not_sent():
    one = await desk(*OPERATIONS)
    with pytest.raises(VaultError) as caught:
        await one.send("POST /rpc", {"do": "drop", "p": {"name": "secret"}})
    assert caught.value.code is Code.OPERATION_DENIED
    call = await one.send("POST /rpc", {"do": "add", "p": {"name": "Ann"}})
    await call.exchange.failed(False)
    assert await one.counts() == (0, 0, 0)
    assert one.idle

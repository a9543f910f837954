import asyncio
import contextlib
import json
import sys
from types import FrameType
from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import USUAL, Desk, desk
from tests.support.table import table

LINES = '{match: GET /lines, read: p, response: {each: "$", stream: ndjson, id: $.id}}'
EVENTS = "{match: GET /events, read: p, response: {object: $.p, stream: sse, id: $.id}}"
ONE = '{match: "GET /one/{id}", read: p, response: {object: $, stream: ndjson}}'
NDJSON: RawHeaders = ((b"Content-Type", b"application/x-ndjson"),)
SSE: RawHeaders = ((b"Content-Type", b"text/event-stream"),)
ANN = {"name": "Ann Q", "email": "Ann@x.example", "phone": "+46 70 1", "born": "1931-02-27"}
EVE = {"name": "Eve R", "email": "eve@x.example", "phone": "+46 70 2", "born": "1931-02-28"}


async def people(*more: str, rules: str = "") -> tuple[Desk, list[dict[str, Any]]]:
    one = await desk(*USUAL, LINES, EVENTS, ONE, *more, more=rules)
    return one, [await one.create(ANN, 1), await one.create(EVE, 2)]


async def streamed(one: Desk, match: str, pieces: list[bytes], headers: RawHeaders) -> list[bytes]:
    """What the caller gets for each piece, and at the end."""
    call = await one.send(match)
    stream = await call.exchange.stream(200, headers)
    assert stream is not None
    try:
        return [*[await stream.restore(piece) for piece in pieces], await stream.rest()]
    finally:
        await stream.end()
        assert one.idle


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


async def test_each_line_is_restored_and_all_else_stays():
    one, (ann, eve) = await people()
    body = b" " + line(ann) + b"\n{not json}\r\n" + line(eve)[:-1]
    got = b"".join(await streamed(one, "GET /lines", [body], NDJSON))
    wanted = b" " + line({**ANN, "id": 1}) + b"\n{not json}\r\n" + line({**EVE, "id": 2})[:-1]
    assert got == wanted
    assert one.events["unreadable_answer"] == 1


@table("member", ["na-me", "Name", "name_", "na.me", "_name"])
async def test_a_line_with_a_near_match_of_a_name_shows_it_as_it_came_and_the_next_is_restored(
    member: str,
):
    one, (ann, eve) = await people()
    near = {"id": 1, member: ann["name"]}
    (first, second, _) = await streamed(one, "GET /lines", [line(near), line(eve)], NDJSON)
    assert json.loads(first) == near
    assert json.loads(second) == {**EVE, "id": 2}


async def test_each_line_comes_as_soon_as_it_is_whole():
    one, (ann, eve) = await people()
    pieces = [line(ann) + line(eve)[:9], line(eve)[9:], b'{"id": 3}']
    got = await streamed(one, "GET /lines", pieces, NDJSON)
    assert got == [line({**ANN, "id": 1}), line({**EVE, "id": 2}), b"", b'{"id": 3}']


async def test_what_came_together_costs_one_read_of_the_vault():
    one, (ann, eve) = await people()
    one.store.calls.clear()
    await streamed(one, "GET /lines", [line(ann) + line(eve)], NDJSON)
    together = len(one.store.calls)
    one.store.calls.clear()
    await streamed(one, "GET /lines", [(line(ann) + line(eve)) * 20], NDJSON)
    assert len(one.store.calls) == together
    reveals = [entry for entry in one.audit.lines if entry["event"] == "reveal"]
    assert [entry["count"] for entry in reveals] == [2, 40]


async def test_data_over_several_lines_comments_and_ids_keep_their_bytes():
    one, (ann, _) = await people()
    text = json.dumps({"type": "new", "p": ann}, indent=1).encode().split(b"\n")
    event = b": c\nid: 4\nretry: 5\n%b\r\n\n" % b"\n".join(b"data: " + part for part in text)
    (got, rest) = await streamed(one, "GET /events", [event], SSE)
    wanted = event
    for name, value in ANN.items():
        wanted = wanted.replace(json.dumps(ann[name]).encode(), json.dumps(value).encode())
    assert (got, rest) == (wanted, b"")
    assert b"Ann Q" in got


async def test_a_small_token_is_resolved_by_the_id_in_the_path():
    one, (ann, eve) = await people()
    bare = {"born": ann["born"]}
    got = b"".join(await streamed(one, "GET /one/1", [line(bare) * 2], NDJSON))
    assert got == line({"born": ANN["born"]}) * 2
    other = b"".join(await streamed(one, "GET /one/2", [line(bare)], NDJSON))
    assert (other == line(bare)) or ann["born"] == eve["born"]


async def test_the_answer_is_asked_for_in_no_coding():
    one, _ = await people()
    call = await one.send("GET /lines", headers=((b"accept-Encoding", b"gzip"), (b"X", b"y")))
    assert call.sent.headers == ((b"X", b"y"), (b"Accept-Encoding", b"identity"))


async def test_other_answers_are_no_streams():
    one, _ = await people()
    call = await one.send("GET /events")
    assert await call.exchange.stream(404, SSE) is None
    assert await call.exchange.stream(200, ((b"Content-Type", b"text/html"),)) is None
    assert await call.exchange.stream(200, (*SSE, (b"Content-Encoding", b"gzip"))) is None
    head = await one.send("HEAD /events")
    assert await head.exchange.stream(200, SSE) is None
    usual = await one.send("GET /p")
    assert await usual.exchange.stream(200, NDJSON) is None


async def test_a_json_answer_of_an_operation_with_events_is_restored_whole():
    one, (ann, _) = await people()
    call = await one.send("GET /events")
    assert await call.seen(200, {"p": ann}) == {"p": {**ANN, "id": 1}}


async def test_without_the_vault_a_stream_breaks_off_unless_the_rules_want_tokens():
    failing = ("rows", "by_keys", "by_tokens")
    one, (ann, _) = await people()
    for verb in failing:
        one.store.fail(verb)
    with pytest.raises(VaultError) as refused:
        await streamed(one, "GET /lines", [line(ann)], NDJSON)
    assert refused.value.code == "vault_down"
    one, (ann, _) = await people(rules="on_error: {vault_down: {read: tokens}}")
    for verb in failing:
        one.store.fail(verb)
    got = b"".join(await streamed(one, "GET /lines", [line(ann)], NDJSON))
    assert got == line(ann)
    assert one.events["unrestored"] == 1


async def test_an_unreadable_event_is_refused_where_the_rule_says_so():
    one, _ = await people(rules="on_error: {unreadable_answer: 502}")
    with pytest.raises(VaultError) as refused:
        await streamed(one, "GET /lines", [b"{broken\n"], NDJSON)
    assert refused.value.code == "unreadable_answer"
    call = await one.send("GET /lines")
    with pytest.raises(VaultError):
        await call.answer(200, b"\x1f", (*NDJSON, (b"Content-Encoding", b"gzip")))


async def test_who_searched_and_was_shown_nothing_has_missed():
    search = (
        "{match: POST /s, read: p, request: {form: {email: email}}, "
        'response: {each: "$", stream: ndjson, id: $.id}}'
    )
    one, (ann, _) = await people(search)
    for body, missed in ((line(ann), False), (b"{}\n", True)):
        call = await one.send(
            "POST /s",
            b"email=Ann%40x.example",
            ((b"Content-Type", b"application/x-www-form-urlencoded"),),
        )
        stream = await call.exchange.stream(200, NDJSON)
        assert stream is not None
        await stream.restore(body)
        await stream.end()
        assert call.exchange.missed is missed


async def longest_turn(one: Desk, body: bytes) -> int:
    """The most calls of functions between two turns of the loop while a stream passes."""
    turns = [0]

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        turns[-1] += event in ("call", "c_call")

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(0)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    pieces = [body[at : at + 262_144] for at in range(0, len(body), 262_144)]
    sys.setprofile(called)
    try:
        await streamed(one, "GET /lines", pieces, NDJSON)
    finally:
        sys.setprofile(None)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return max(turns)


@table("record", ["person", "nothing"])
async def test_no_turn_of_the_loop_takes_long(record):
    one, (ann, eve) = await people()
    lines = line(ann) + line(eve) if record == "person" else b"{}\n"
    body = lines * (100_000 // len(lines))
    # all of it takes eighty thousand calls, or 300,000: about 20 ms are ten thousand
    assert 1_000 < await longest_turn(one, body) < 12_000

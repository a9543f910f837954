"""Exchanges by way of a front and the owner of its vault, over a real socket."""

import asyncio
import json
import socket
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.frame_connection import FrameConnection
from proxy.redactor.exchange.owner_protocol import (
    PROTOCOL,
    CloseStream,
    Hello,
    OpenStream,
    PartDirection,
    Redact,
    RestoreAnswer,
    Settle,
    StreamPart,
)
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders, Request, Response
from proxy.redactor.rules import Match
from tests.support.exchanges import JSON, USUAL, Call, Desk, desk, rule_text
from tests.support.fronts import Fronted, fronted
from tests.support.patience import PATIENCE, until
from tests.support.table import table

ANN: dict[str, Any] = {"name": "Ann", "email": "ann@x.example", "phone": "+46 70 123 45 67"}


async def test_a_create_a_read_and_a_search_go_as_with_a_vault_here():
    async with fronted(await desk()) as one:
        call = await one.send("POST /p", ANN)
        assert call.json["name"] != "Ann"
        stored = {**call.json, "id": 1}
        assert await call.seen(201, stored) == {**ANN, "id": 1}
        assert call.exchange.timing.stage > 0
        assert call.exchange.timing.settle > 0
        read = await one.send("GET /p/1")
        assert await read.seen(200, stored) == {**ANN, "id": 1}
        search = await one.send("GET /p?email=ann@x.example")
        assert stored["email"].encode().replace(b"@", b"%40") in search.sent.target
        assert await search.seen(200, [stored]) == [{**ANN, "id": 1}]
        assert not search.exchange.missed
        nobody = await one.send("GET /p?email=eve@x.example")
        await nobody.answer(200, [])
        assert nobody.exchange.missed
        assert one.desk.idle


async def test_beside_its_owner_a_plain_read_is_asked_for_once_with_its_answer(monkeypatch):
    place = await desk()
    async with fronted(place, clock=place.clock) as one:
        asked: list[Redact] = []
        exchange = one.owner.exchange

        def begun(job: Redact) -> Any:
            asked.append(job)
            return exchange(job)

        monkeypatch.setattr(one.owner, "exchange", begun)
        call = await one.send("POST /p", ANN)
        stored = {**call.json, "id": 1}
        await call.answer(201, stored)
        asked.clear()
        read = await one.send("GET /p/1")
        assert asked == []
        assert await read.seen(200, stored) == {**ANN, "id": 1}
        assert [job.answer is not None for job in asked] == [True]
        for target in ("/p", "/p?page=2", "/p?page=2&first=5"):
            asked.clear()
            both = await one.send(f"GET {target}")
            assert asked == []  # it searches by nothing
            assert await both.seen(200, [stored]) == [{**ANN, "id": 1}]
            assert [job.answer is not None for job in asked] == [True]
        asked.clear()
        sought = await one.send("GET /p?page=2&email=ann@x.example")
        assert [job.answer for job in asked] == [None]
        assert await sought.seen(200, [stored]) == [{**ANN, "id": 1}]
        with pytest.raises(VaultError, match="'#'"):  # before the application is asked
            await one.send("GET /p?page=2#email=ann@x.example")
        nobody = await one.send("GET /p/2")  # is told of as well
        assert await nobody.seen(404, {"no": 2}) == {"no": 2}
        assert nobody.exchange.missed
        unread = await one.send("GET /p/1")
        assert (await unread.answer(304)).body == b""
        broken = await one.send("GET /p/1")
        await broken.exchange.failed(True)
        one.up = False
        late = await one.send("GET /p/1")
        await one.lost()
        assert await late.seen(200, stored) == stored  # tokens
        assert one.desk.idle


@table("body", [{"no": 1}, b""])
async def test_the_owner_knows_when_a_read_began_that_it_hears_of_later(body: object):
    place = await desk()
    async with fronted(place, clock=place.clock) as one:
        call = await one.send("POST /p", ANN)
        await call.answer(201, {**call.json, "id": 1})
        read = await one.send("GET /p/1")
        place.clock.advance(10)
        delete = await one.send("DELETE /p/1")
        await delete.exchange.failed(True)  # nobody knows whether the application did it
        place.clock.advance(10)
        await read.answer(404, body)  # of before: that decides nothing
        assert await place.counts() == (1, 0, 1)
        after = await one.send("GET /p/1")
        place.clock.advance(10)
        await after.answer(404, body)
        assert await place.counts() == (0, 0, 0)
        assert place.idle


async def test_refusals_of_rules_and_application_are_told_and_leave_nothing():
    async with fronted(await desk()) as one:
        with pytest.raises(VaultError) as caught:
            await one.send("POST /p", b'{"name": "Ann", "name": "Eve"}')
        assert caught.value.code is Code.AMBIGUOUS_JSON
        call = await one.send("POST /p", ANN)
        await call.answer(422, {"no": call.json["name"]})
        assert await one.desk.counts() == (0, 0, 0)
        call = await one.send("POST /p", ANN)
        await call.exchange.failed(False)
        assert await one.desk.counts() == (0, 0, 0)
        assert one.desk.idle


async def test_a_refusal_with_200_leaves_a_change_in_doubt():
    several = '{match: POST /remove, delete: p, id: "$.ids[*]"}'
    async with fronted(await desk(*USUAL, several)) as one:
        stored = await one.desk.create({"name": "Ann"}, 1)
        await (await one.send("PATCH /p/1", {"name": "Bo"})).answer(200, {"errors": ["no"]})
        await (await one.send("POST /remove", {"ids": [1]})).answer(200, {"ok": False})
        await (await one.send("DELETE /p/1")).answer(200, {"success": False})
        one.desk.clock.advance(30 * 86_400_000)
        await one.desk.vault.maintain()
        assert (await one.desk.shown(stored))["name"] == "Ann"
        assert await one.desk.counts() == (1, 0, 0)


async def test_an_answer_that_is_not_read_passes_or_not_as_the_rule_says():
    async with fronted(await desk()) as one:
        call = await one.send("POST /p", ANN)
        assert not call.exchange.must_buffer(204, ())
        await call.answer(204)
        assert await one.desk.counts() == (1, 0, 0)
    refusing = "on_error: {unreadable_answer: 502}"
    async with fronted(await desk(more=refusing)) as one:
        call = await one.send("POST /p", ANN)
        with pytest.raises(VaultError) as caught:
            await call.answer(201, b"\xff", ((b"Content-Type", b"application/json"),))
        assert caught.value.code is Code.UNREADABLE_ANSWER


async def test_marks_come_with_answers_that_have_a_tag():
    fields = (
        "born: {kind: date, token: {shape: fixed, value: '2000-01-01'}}",
        "name: {kind: name}",
    )
    async with fronted(
        await desk("{match: POST /p, create: p}", '{match: "GET /p/{id}", read: p}', fields=fields)
    ) as one:
        call = await one.send("POST /p", {"born": "1931-02-27"})
        await call.answer(201, {**call.json, "id": 1})
        read = await one.send("GET /p/1")
        await read.answer(200, {**call.json, "id": 1}, (*JSON, (b"ETag", b'"1"')))
        assert read.exchange.mark() != b""


async def test_a_view_is_the_same_at_both_ends():
    views = "views: [{who: [sales], p: clear, except: {name: token}}]"
    async with fronted(await desk(more=views)) as one:
        call = await one.send("POST /p", ANN)
        stored = {**call.json, "id": 1}
        await call.answer(201, stored)
        seen = await (await one.send("GET /p/1", view=one.desk.view("sales"))).seen(200, stored)
        assert seen == {**ANN, "name": stored["name"], "id": 1}


async def test_a_front_that_is_gone_leaves_what_it_has_begun_in_doubt():
    async with fronted(await desk()) as one:
        call = await one.send("POST /p", ANN)
        await one.lost()
        with pytest.raises(VaultError) as caught:
            await call.answer(201, {**call.json, "id": 1})
        assert caught.value.code is Code.VAULT_DOWN
        stored = {**call.json, "id": 1}
        assert await (await one.send("GET /p/1")).seen(200, stored) == {**ANN, "id": 1}
        assert await one.desk.counts() == (1, 0, 0)


async def test_who_gives_up_before_it_is_redacted_leaves_nothing():
    async with fronted(await desk()) as one:
        stored = await one.desk.create({"name": "Ann"})
        holder = await one.send("PATCH /p/1", {"name": "Bo"})
        waiting = asyncio.create_task(one.send("PATCH /p/1", {"name": "Cy"}))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await holder.answer(200, {**stored, **holder.json})
        last = await one.send("PATCH /p/1", {"name": "Di"})
        assert (await last.seen(200, {**stored, **last.json}))["name"] == "Di"
        assert one.desk.idle


async def test_without_the_owner_writes_are_refused_and_plain_reads_show_tokens():
    async with fronted(await desk(), patience=0.1) as one:
        stored = await one.desk.create(ANN)
        one.up = False
        await one.lost()
        for match, body in (("POST /p", ANN), ("GET /p?email=ann@x.example", b"")):
            with pytest.raises(VaultError) as caught:
                await one.send(match, body)
            assert (caught.value.code, caught.value.retry_after) == (Code.VAULT_DOWN, 1)
        assert await (await one.send("GET /p/1")).seen(200, stored) == stored
        assert await one.rules.check() is not None
        one.up = True
        async with asyncio.timeout(PATIENCE):
            while await one.rules.check() is not None:  # noqa: ASYNC110  # the link is tried again
                await asyncio.sleep(0.05)
        assert await (await one.send("GET /p/1")).seen(200, stored) == {**ANN, "id": 1}


async def test_a_rule_may_refuse_reads_then():
    rule = "on_error: {vault_down: {read: 503}}"
    async with fronted(await desk(more=rule), patience=0.1) as one:
        stored = await one.desk.create(ANN)
        one.up = False
        await one.lost()
        call = await one.send("GET /p/1")
        with pytest.raises(VaultError):
            await call.answer(200, stored)


async def test_other_rules_are_told_and_adopted_once_the_owner_has_them():
    async with fronted(await desk()) as one:
        text = rule_text("{match: POST /p, create: p}", "{match: POST /q, create: p}")
        fresh = load_text(text)
        with pytest.raises(VaultError, match="has other rules"):
            await one.rules.adopt(fresh)
        after = await desk("{match: POST /p, create: p}", "{match: POST /q, create: p}")
        adopting = asyncio.create_task(one.rules.adopt(after.runtime.rules))
        await asyncio.sleep(0)  # it asks before the owner has read the same files
        before, one.in_force.runtime = one.in_force.runtime, after.runtime
        one.rules.runtime = await adopting
        assert (await one.send("POST /q", {"name": "Ann"})).json["name"] != "Ann"
        one.in_force.runtime = before
        assert await one.rules.check() is None, "those of a moment ago still count"


async def test_addresses_in_fields_are_swapped_or_left_out():
    async with fronted(await desk(), patience=0.1) as one:
        stored = await one.desk.create(ANN)
        fields = ((b"Referer", b"http://app/p?email=ann@x.example"), (b"A", b"b"))
        (_, address), other = await one.rules.redact_headers(
            one.desk.runtime.rules.endpoints[0], "app", fields
        )
        assert stored["email"].encode().replace(b"@", b"%40") in address
        assert other == (b"A", b"b")
        assert (
            await one.rules.redact_headers(one.desk.runtime.rules.endpoints[0], "app", fields[1:])
            == fields[1:]
        )
        one.up = False
        await one.lost()
        assert await one.rules.redact_headers(
            one.desk.runtime.rules.endpoints[0], "app", fields
        ) == [(b"A", b"b")]


async def test_cookies_that_rules_name_are_swapped_or_left_out():
    shown = '{match: "GET /c/{id}", read: p, response: {carriers: [cookie email]}}'
    async with fronted(await desk(*USUAL, shown), patience=0.1) as one:
        stored = await one.desk.create(ANN)
        (endpoint,) = one.desk.runtime.rules.endpoints
        fields = ((b"Cookie", b"a=b; email=ann@x.example"), (b"Referer", b"http://app/p?email=x"))
        cookie, referer = await one.rules.redact_headers(endpoint, "app", fields)
        assert cookie == (b"Cookie", b"a=b; email=" + stored["email"].encode())
        assert referer != fields[1]
        other = ((b"Cookie", b"a=b"),)
        assert await one.rules.redact_headers(endpoint, "app", other) is other
        one.up = False
        await one.lost()
        assert await one.rules.redact_headers(endpoint, "app", fields) == [(b"Cookie", b"a=b")]


LINES = '{match: GET /lines, read: p, response: {each: "$", stream: ndjson, id: $.id}}'
EXPORT = (
    "{match: GET /export, read: p, response: {restore: csv, columns: {Name: name}, id: column ID}}"
)
LIVE = (
    "{match: GET /live, read: p, request: {fields: {email: $.email}}, "
    "response: {websocket: $.p, id: $.id}}"
)
NDJSON = ((b"Content-Type", b"application/x-ndjson"),)
CSV = ((b"Content-Type", b"text/csv; charset=utf-8"),)


async def part_by_part(call: Call, status: int, headers: RawHeaders) -> Any:
    """What restores its answer."""
    return await call.exchange.stream(status, headers)


async def streaming(more: str = "") -> Desk:
    return await desk(*USUAL, LINES, EXPORT, LIVE, more=more)


async def test_answers_come_part_by_part_as_with_a_vault_here():
    async with fronted(await streaming()) as one:
        stored = await one.desk.create(ANN)
        line = json.dumps(stored).encode() + b"\n"
        call = await one.send("GET /lines")
        stream = await part_by_part(call, 200, NDJSON)
        assert (
            await stream.restore(line + line[:9]) == json.dumps({**ANN, "id": 1}).encode() + b"\n"
        )
        assert json.loads(await stream.restore(line[9:-1]) + await stream.rest())["name"] == "Ann"
        await stream.end()
        assert not call.exchange.missed
        call = await one.send("GET /export")
        stream = await part_by_part(call, 200, CSV)
        assert (
            await stream.restore(f"ID,Name\n1,{stored['name']}\n".encode()) == b"ID,Name\n1,Ann\n"
        )
        await stream.end()
        call = await one.send("GET /lines")
        assert await call.exchange.stream(404, NDJSON) is None
        await call.answer(404)
        assert one.desk.idle


async def test_messages_go_both_ways_as_with_a_vault_here():
    async with fronted(await streaming()) as one:
        stored = await one.desk.create(ANN)
        stream = await part_by_part(await one.send("GET /live"), 101, ())
        assert (stream.longest, stream.passes_binary) == (2 << 20, False)
        asked = json.loads(await stream.redact(b'{"email": "ann@x.example"}'))
        assert asked == {"email": stored["email"]}
        shown = await stream.restore(json.dumps({"p": stored}).encode())
        assert json.loads(shown) == {"p": {**ANN, "id": 1}}
        with pytest.raises(VaultError):
            await stream.redact(b'{"Email": "ann@x.example"}')
        await stream.end()
        plain = await one.send("GET /live")
        assert await plain.exchange.stream(101, ()) is not None
        assert await plain.exchange.stream(426, ()) is None
        await plain.answer(426)
        assert one.desk.idle


async def test_an_owner_that_goes_away_breaks_parts_off_or_leaves_tokens():
    rules = "on_error: {vault_down: {read: tokens}}"
    async with fronted(await streaming(rules), patience=0.1) as one:
        stored = await one.desk.create(ANN)
        line = json.dumps(stored).encode() + b"\n"
        broken = await one.send("GET /lines")
        stream = await part_by_part(broken, 200, NDJSON)
        await stream.restore(line[:9])
        before, live = await one.send("GET /lines"), await one.send("GET /live")
        one.up = False
        await one.lost()
        await until(lambda: one.desk.idle)  # the owner holds nothing of it
        with pytest.raises(VaultError) as caught:
            await stream.restore(line[9:])
        assert caught.value.code is Code.VAULT_DOWN
        await stream.end()
        for call in (before, await one.send("GET /lines")):
            stream = await part_by_part(call, 200, NDJSON)
            assert await stream.restore(line) + await stream.rest() == line
            await stream.end()
        coded = (*NDJSON, (b"Content-Encoding", b"gzip"))
        assert await (await one.send("GET /lines")).exchange.stream(200, coded) is None
        with pytest.raises(VaultError):
            await live.exchange.stream(101, ())


async def test_without_its_owner_no_stream_begins_unless_the_rules_want_tokens():
    async with fronted(await streaming(), patience=0.1) as one:
        call = await one.send("GET /lines")
        one.up = False
        await one.lost()
        with pytest.raises(VaultError) as caught:
            await part_by_part(call, 200, NDJSON)
        assert caught.value.code is Code.VAULT_DOWN


async def test_a_search_whose_caller_leaves_before_the_end_counts_as_missed():
    lines = (
        "{match: GET /found, read: p, query: {email: {field: email}}, "
        'response: {each: "$", stream: ndjson, id: $.id}}'
    )
    async with fronted(await desk(*USUAL, lines)) as one:
        call = await one.send("GET /found?email=eve@x.example")
        stream = await part_by_part(call, 200, NDJSON)
        await stream.end()
        assert call.exchange.missed


@table(
    "message",
    [
        RestoreAnswer(7, Response(200, (), b"")), Settle(7, 200, ()), OpenStream(7, 200, ()), CloseStream(7),
        StreamPart(7, 8, PartDirection.RESTORE, b"{}"),
    ],
)  # fmt: skip
async def test_what_was_never_begun_ends_the_connection_and_nothing_else(message):
    async with fronted(await desk()) as one:
        line = await one.link.channel()
        line.connection.send(message)
        async with asyncio.timeout(PATIENCE):
            await line.ended.wait()
        assert (await one.send("POST /p", ANN)).json["name"] != "Ann", "another connection"
        assert one.connections == 2


async def test_a_number_that_is_in_use_ends_the_connection():
    async with fronted(await desk()) as one:
        line = await one.link.channel()
        request = Request("GET", b"/p/1", (), b"")
        begin = Redact(9, one.desk.runtime.rules.version, 1, {"id": "1"}, 0, request, ())
        for _ in range(2):
            line.connection.send(begin)
        async with asyncio.timeout(PATIENCE):
            await line.ended.wait()


async def test_a_front_that_hangs_or_is_cut_off_holds_no_record_for_ever(monkeypatch):
    monkeypatch.setattr("proxy.redactor.exchange.frame_connection.LOOK", 0.03)
    monkeypatch.setattr("proxy.redactor.exchange.front_link._LOOK", 0.03)
    async with fronted(await desk()) as one:
        await one.desk.create(ANN)
        got: list[bytes] = []
        hung = FrameConnection(got.append, lambda: got.append(b""))
        await one.connect(lambda: hung)
        hung.send(Hello(PROTOCOL, "0"))
        request = Request("PATCH", b"/p/1", JSON, b'{"name": "Eve"}')
        version, number = one.desk.runtime.rules.version, changing(one)
        hung.send(Redact(1, version, number, {"id": "1"}, 0, request, ()))
        async with asyncio.timeout(PATIENCE):
            while len(got) < 2:  # noqa: ASYNC110  # the greeting, and what it may send on
                await asyncio.sleep(0.01)
            call = await one.send("PATCH /p/1", {"name": "Ann Other"})
            await call.answer(200, {**call.json, "id": 1})
        assert got[-1] == b"", "its connection was ended"
        assert one.connections == 2, "the one that speaks keeps its connection"


def changing(one: Fronted) -> int:
    """The number of the operation that changes a record."""
    _, match = one.rules.match("PATCH", "app", b"/p/1", ())
    assert isinstance(match, Match)
    return one.desk.runtime.rules.operations.index(match.operation)


async def test_a_connection_that_takes_long_to_open_is_watched_as_well(monkeypatch):
    monkeypatch.setattr("proxy.redactor.exchange.frame_connection.LOOK", 0.01)
    here, there = socket.socketpair()
    made = FrameConnection(lambda _: None, lambda: None, lambda _: True)
    await asyncio.sleep(0.05)  # as a slow handshake of TLS
    await asyncio.get_running_loop().create_unix_connection(lambda: made, sock=there)
    reader, writer = await asyncio.open_unix_connection(sock=here)
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b"", "who says nothing is let go"
    writer.close()

"""Ordinary exchanges between a caller, the vault and an application, each on a real socket."""

import asyncio
import json
import socket
import sqlite3
import struct
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from proxy.crypto.keyset import Keyset
from proxy.gateway.bodies import BodyBudgets
from proxy.gateway.forwarded import CallerFields, Correlation, ForwardedHeaders
from proxy.net.client_address import Trusted
from proxy.net.memory_budget import MemoryBudget
from proxy.net.server import ON_ITS_WAY
from tests.support.gateway import keyed
from tests.support.native import compiled, use
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message
from tests.support.twoways import JSON, Even, House, house
from tests.support.unavailable import Unavailable

ANN = {"name": "Ann Lee", "email": "ann@example.com", "phone": "+46701234567", "note": "tea"}


def sent(target: str = "/p", method: str = "POST", **more: str) -> bytes:
    return post(target, json.dumps({**ANN, **more}).encode(), JSON, method=method)


@pytest.fixture
async def native(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unavailable: Unavailable
) -> AsyncIterator[House]:
    """A house with native code, in which longer bodies are ordinary; in the end no room is taken."""
    use(compiled(unavailable), monkeypatch)
    rooms: list[MemoryBudget] = []
    divided = BodyBudgets.of

    def noted(*of: Any) -> BodyBudgets:
        budgets = divided(*of)
        rooms.extend(budgets)
        return budgets

    monkeypatch.setattr(BodyBudgets, "of", noted)
    async with house(tmp_path, Keyset.create("test"), fast_path=True) as made:
        yield made
        await until(lambda: not any(room.taken for room in rooms))
    assert len(rooms) == 2


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path, Keyset.create("test"), fast_path=True) as made:
        async with RawClient(made.port) as client:
            for number in range(6):  # objects that come again are looked at by patterns
                assert (await client.ask(sent(name=f"Bo {number}"))).status == 201
                assert (await client.ask(sent("/p/1", "PUT", name="Bo 0"))).status == 200
                assert (await client.ask(get("/p/1"))).status == 200
        made.fast_path.clear()
        made.spelling, made.dice = b"", Even()
        yield made


async def until_idle(one: House) -> None:
    for _ in range(int(PATIENCE / 0.01)):
        if (await one.counts())["busy"] == (0, 0):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("somebody is still under way")


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.001)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


async def test_all_three_verbs_take_the_fast_path(one: House) -> None:
    async with RawClient(one.port) as client:
        made = json.loads((await client.ask(sent())).body)
        assert made == {**ANN, "id": 7}
        for request in (sent("/p/7", "PUT"), sent("/p/7", "PUT", name="Bo Ek"), get("/p/7")):
            answer = await client.ask(request)
            assert json.loads(answer.body)["email"] == ANN["email"]
            assert b"private" in answer.head
    assert one.fast_path == {"fast_path": 4}


async def test_each_line_has_the_id_of_its_own_request(tmp_path: Path) -> None:
    loopback = Trusted((ip_network("127.0.0.0/8"),))
    fields = CallerFields(ForwardedHeaders(), loopback, Correlation(ids=True, sample=None))
    async with house(tmp_path, Keyset.create("test"), fast_path=True, fields=fields) as made:

        async def asked(number: int) -> Message:
            text = post("/p", sent().partition(b"\r\n\r\n")[2], JSON, f"X-Request-Id: a{number}")
            async with RawClient(made.port) as client:
                return await client.ask(text)

        for number in range(4):  # objects that come again are looked at by patterns
            await asked(number)
        made.fast_path.clear()
        made.seen.clear()
        made.audit.lines.clear()
        made.spelling, made.dice = b"", Even()
        answers = await asyncio.gather(*map(asked, range(10, 20)))
        named = [f"a{number}" for number in range(10, 20)]
        assert [answer.one("X-Request-Id") for answer in answers] == [one.encode() for one in named]
        assert sorted(line["request"] for line in made.audit.lines) == named
        assert all(one.count(b"X-Request-Id: a") == 1 for one in made.seen)
        assert made.fast_path["fast_path"] >= 5, "of ten at once some find no connection that waits"


@pytest.mark.parametrize("nothing", [None, ""])
async def test_fields_that_are_empty_leave_the_record_on_its_way(
    one: House, nothing: str | None
) -> None:
    some = {**ANN, "phone": nothing, "note": None}
    async with RawClient(one.port) as client:
        for number in range(4):  # objects that come again are looked at by patterns
            await client.ask(
                post("/p", json.dumps({**some, "name": f"Bo {number}"}).encode(), JSON)
            )
        one.fast_path.clear()
        made = json.loads((await client.ask(post("/p", json.dumps(some).encode(), JSON))).body)
        assert made == {**some, "id": 11}
        again = json.dumps({**some, "name": "Bo Ek"}).encode()
        told = json.loads((await client.ask(post("/p/11", again, JSON, method="PUT"))).body)
        assert told == {**some, "name": "Bo Ek", "id": 11}
        assert json.loads((await client.ask(get("/p/11"))).body) == told
        assert one.fast_path["fast_path"] == 3
        assert one.fast_path["handed over"] == (0 if nothing is None else 2)
        lines = [line["fields"] for line in one.audit.lines[-3:]]
        assert [sorted(names) for names in lines] == [sorted(ANN)] * 2 + [["email", "name"]]
        one.fast_path.clear()
        filled = json.dumps({**ANN, "name": "Bo Ek"}).encode()
        told = json.loads((await client.ask(post("/p/11", filled, JSON, method="PUT"))).body)
        assert told == {**ANN, "name": "Bo Ek", "id": 11}
        assert one.fast_path == {"fast_path": 1}
        await client.ask(post("/p/11", again, JSON, method="PUT"))
        assert one.fast_path["general"] == 1, "what is erased is settled with care"
        row = await one.stored("11")
        assert isinstance(row, tuple)
        assert sorted(row[-1][0]) == ["email", "name"]


def tag_of(answer: Message) -> str:
    return answer.head.partition(b"ETag: ")[2].partition(b"\r\n")[0].decode()


@pytest.mark.parametrize("act", ["take", "split", "chunks", "close"])
async def test_answers_with_tags_and_in_pieces_take_the_fast_path(one: House, act: str) -> None:
    one.spelling = b'ETag: W/"6b-x"\r\nVary: Accept-Encoding\r\n'
    tags = []
    async with RawClient(one.port) as client:
        for request in (sent("/p/1", "PUT", name="Bo Ek"), sent("/p/1", "PUT"), get("/p/1")):
            one.script.append(act)
            answer = await client.ask(request)
            tags.append(tag_of(answer))
            digest = keyed(b"\0" + answer.body).hex()
            assert tags[-1].startswith(f'W/"6b-x-domicile.w{digest}.')
    assert tags[1] == tags[2] != tags[0]
    if act != "close":  # behind which there is no connection at once
        assert one.fast_path == {"fast_path": 3}


@pytest.mark.parametrize("act", ["take", "split"])
async def test_a_caller_who_has_the_answer_gets_no_body(one: House, act: str) -> None:
    one.spelling = b'ETag: "v1"\r\nContent-Language: sv\r\nLast-Modified: then\r\n'
    async with RawClient(one.port) as client:
        tag = tag_of(await client.ask(get("/p/1")))
        one.audit.lines.clear()
        one.script.append(act)
        answer = await client.ask(get("/p/1", f'If-None-Match: "v1", W/{tag}'))
        assert (answer.status, answer.body) == (304, b"")
        assert answer.head.split(b"\r\n")[1:-2] == [
            b"ETag: " + tag.encode(),
            b"Last-Modified: then",
            b"Cache-Control: private",
        ]
        assert len(one.audit.lines) == 1, "what was looked at is told all the same"
        for other in ("*", '"v1"', tag.replace("v1", "v2"), f'{tag[:-1]}0"'):
            answer = await client.ask(get("/p/1", f"If-None-Match: {other}"))
            assert json.loads(answer.body)["name"] == "Bo 0"
        assert (await client.ask(sent("/p/1", "PUT", name="Bo Ek"))).status == 200
        answer = await client.ask(get("/p/1", f"If-None-Match: {tag}"))
        assert json.loads(answer.body)["name"] == "Bo Ek", "behind the same tokens"
    assert set(one.fast_path) == {"fast_path"}


async def test_an_update_that_expects_an_older_record_is_refused(one: House) -> None:
    one.spelling = b'ETag: "v1"\r\n'
    async with RawClient(one.port) as client:
        tag = tag_of(await client.ask(sent("/p/1", "PUT")))
        expected = f"{JSON}\r\nIf-Match: {tag}"
        same = post("/p/1", json.dumps(ANN).encode(), expected, method="PUT")
        assert (await client.ask(same)).status == 200
        assert b'If-Match: "v1"\r\n' in one.seen[-1]
        assert one.fast_path == {"fast_path": 2}
        # the application cannot tell these from each other
        assert (await client.ask(sent("/p/1", "PUT", email="ANN@example.com"))).status == 200
        assert (await client.ask(same)).status == 412


@pytest.mark.parametrize("act", ["cut", "cut chunks", "bad chunks"])
@pytest.mark.parametrize("verb", ["GET", "PUT"])
async def test_an_answer_that_breaks_off_is_told_as_ever(one: House, act: str, verb: str) -> None:
    async with RawClient(one.port) as client:
        one.script.append(act)
        answer = await client.ask(get("/p/1") if verb == "GET" else sent("/p/1", "PUT", name="Bo"))
        assert answer.status == 502
        assert json.loads((await client.ask(get("/p/1"))).body)["email"] == ANN["email"]
    await until_idle(one)


def long_one(count: int = 380, **more: str) -> bytes:
    """A create of 100 KB, or more with few escapes, in few members."""
    orders = [{"id": n, "lines": [{"title": "Café"}], "text": "x" * 200} for n in range(count)]
    text = json.dumps({**ANN, **more, "orders": orders}, ensure_ascii=count == 380)
    return post("/p", text.encode(), JSON)


@pytest.mark.parametrize("act", ["take", "null"])
async def test_a_long_body_in_pieces_takes_the_fast_path_when_it_is_there(
    one: House, act: str
) -> None:
    data, general = long_one(name="Li Long"), -1
    for _ in range(5):  # whose pieces a machine that stands still delays goes the general way
        if one.fast_path["general"] == general:
            break
        general = one.fast_path["general"]
        one.script.append(act)
        async with RawClient(one.port) as client:
            for start in range(0, len(data), 30_000):
                await client.send(data[start : start + 30_000])
                await asyncio.sleep(0.005)
            answer = await client.answer("POST")
            assert json.loads(answer.body)["name"] == "Li Long"
            assert (await client.ask(sent())).status == 201  # the connection goes on
    assert one.fast_path["general"] == general
    assert one.fast_path["fast_path"] == 2 + general
    assert b"Li Long" not in one.seen[-2]


async def test_a_body_that_is_slow_to_come_goes_the_general_way(one: House) -> None:
    data = long_one(name="Lo Slow")
    async with RawClient(one.port) as client:
        await client.send(data[:50_000])
        await asyncio.sleep(2 * ON_ITS_WAY)
        await client.send(data[50_000:])
        assert json.loads((await client.answer("POST")).body)["name"] == "Lo Slow"
    assert one.fast_path["fast_path"] == 0


@pytest.mark.parametrize("wait", [0.0, 2 * ON_ITS_WAY])
async def test_nothing_is_left_of_a_caller_that_goes_before_its_body_is_there(
    one: House, wait: float
) -> None:
    before, tasks = len(one.seen), len(asyncio.all_tasks())
    async with RawClient(one.port) as client:
        await client.send(long_one()[:50_000])
        await asyncio.sleep(wait or 0.01)
        reset(client)
    await until_idle(one)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert len(one.seen) == before


@pytest.mark.parametrize("piece", [700, 30_000, 1 << 20])
async def test_with_native_code_a_body_of_nearly_a_megabyte_takes_the_fast_path(
    native: House, piece: int
) -> None:
    data = long_one(3_600, name="Li Long")
    assert 900_000 < len(data) < 1 << 20
    tries, general = 0, -1
    while tries < 5 and native.fast_path["general"] > general:  # of a machine that stands still
        tries, general = tries + 1, native.fast_path["general"]
        async with RawClient(native.port) as client:
            for start in range(0, len(data), piece):
                await client.send(data[start : start + piece])
            assert json.loads((await client.answer("POST")).body)["name"] == "Li Long"
            assert (await client.ask(sent())).status == 201  # the connection goes on
            for number in range(3):  # and nothing of its room is taken
                assert (await client.ask(long_one(3_600, name=f"Li {number}"))).status == 201
        if piece == 700:
            break  # which may take longer to come
    assert native.fast_path["fast_path"] + native.fast_path["general"] == 5 * tries
    assert native.fast_path["general"] <= general + (piece == 700)
    assert b"Li Long" not in native.seen[0]
    assert len(native.seen[0]) > 900_000
    await until_idle(native)


async def test_with_native_code_a_slow_long_body_goes_the_general_way(native: House) -> None:
    data = long_one(3_600, name="Lo Slow")
    async with RawClient(native.port) as client:
        await client.send(data[:500_000])
        await asyncio.sleep(2 * ON_ITS_WAY)
        await client.send(data[500_000:])
        assert json.loads((await client.answer("POST")).body)["name"] == "Lo Slow"
        assert native.fast_path["fast_path"] == 0
        assert (await client.ask(long_one(3_600, name="Li Long"))).status == 201
    assert native.fast_path["fast_path"] == 1
    await until_idle(native)


async def test_with_native_code_nothing_is_left_of_a_caller_that_goes(native: House) -> None:
    async with RawClient(native.port) as client:
        assert (await client.ask(sent())).status == 201
    native.seen.clear()
    for wait in (0.01, 2 * ON_ITS_WAY):
        async with RawClient(native.port) as client:
            await client.send(long_one(3_600)[:500_000])
            await asyncio.sleep(wait)
            reset(client)
        await until_idle(native)
    assert not native.seen


@pytest.mark.parametrize("remark", ["of Ann Lee, who called", "QW5uIExlZQ", r"line\n" * 20_000])
async def test_with_native_code_a_very_long_body_is_searched_for_values(
    native: House, remark: str
) -> None:
    async with RawClient(native.port) as client:
        answer = await client.ask(long_one(3_000, name="Ann Leeward", remark=remark))
        refused = remark.startswith("QW5") or "Ann" in remark
        assert answer.status == (422 if refused and "Leeward" in remark else 201)
        answer = await client.ask(long_one(3_000, remark=remark))
        assert answer.status == (422 if refused else 201)
    assert native.fast_path["fast_path"] == (1 if refused else 0)


async def test_a_value_elsewhere_in_a_long_body_is_refused(one: House) -> None:
    async with RawClient(one.port) as client:
        answer = await client.ask(long_one(remark="of Ann Lee, who called"))
        assert answer.status == 422
        assert b"value_elsewhere" in answer.body


async def test_pipelined_requests_are_answered_in_their_order(one: House) -> None:
    async with RawClient(one.port) as client:
        await client.send(b"".join(sent(name=f"Pia {number}") for number in range(5)))
        names = [json.loads((await client.answer("POST")).body)["name"] for _ in range(5)]
    assert names == [f"Pia {number}" for number in range(5)]
    assert one.fast_path["fast_path"] == 5


@pytest.mark.parametrize(("act", "left"), [("split", 7), ("refused", 6), ("hang up", 7)])
async def test_it_is_brought_to_its_end_when_its_caller_has_gone(
    one: House, act: str, left: int
) -> None:
    before = len(one.seen)
    one.script.append(act)
    client = RawClient(one.port)
    async with client:
        await client.send(sent(name="Gone Girl"))
        if act != "refused":
            await until(lambda: len(one.seen) > before)
    await until(lambda: len(one.seen) > before)
    await until_idle(one)
    rows = (await one.counts())["rows"]
    assert rows == (left, int(act == "hang up"), 0)


@pytest.mark.parametrize("act", ["refused", "hang up", "no id", "zipped", "take"])
@pytest.mark.parametrize("verb", ["PUT", "POST"])
async def test_whatever_the_answer_is_a_caller_that_broke_off_leaves_nobody_waiting(
    one: House, act: str, verb: str
) -> None:
    answer = one.answer

    def slow(head: bytes, body: bytes, act: str) -> list[bytes]:
        return [b""] * 60 + answer(head, body, act)

    one.answer = slow  # type: ignore[method-assign]  # the application takes its time
    one.script.append(act)
    asked = len(one.seen)
    async with RawClient(one.port) as client:
        await client.send(sent("/p/1" if verb == "PUT" else "/p", verb, name="Gone Girl"))
        await until(lambda: len(one.seen) > asked)
        reset(client)
    await until_idle(one)
    one.answer = answer  # type: ignore[method-assign]  # as before
    async with RawClient(one.port) as client:  # nobody holds the record
        assert (await client.ask(sent("/p/1", "PUT", name="Bo Ek"))).status == 200


def reset(client: RawClient) -> None:
    """Break the connection off, as a program that is killed with unread bytes does."""
    transport = client.writer.transport
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def test_two_updates_of_one_record_take_turns(one: House) -> None:
    async def update(number: int) -> str:
        async with RawClient(one.port) as client:
            answer = await client.ask(sent("/p/1", "PUT", name=f"Name {number}"))
            return str(json.loads(answer.body)["name"])

    names = await asyncio.gather(*map(update, range(8)))
    assert names == [f"Name {number}" for number in range(8)]
    await until_idle(one)


@pytest.mark.parametrize("kind", ["Insert", "Bind", "StageRow", "Replace"])
async def test_a_store_that_fails_is_told_as_ever(one: House, kind: str) -> None:
    update = kind in ("StageRow", "Replace")
    one.fault = kind
    async with RawClient(one.port) as client:
        request = sent("/p/1", "PUT", name="Nil") if update else sent()
        status = (await client.ask(request)).status
    one.fault = ""
    assert status == (503 if kind in ("Insert", "StageRow") else 200 if update else 201)
    await one.vault.maintain()
    await until_idle(one)


@pytest.mark.parametrize("column", ["salt", "body", "key_sealed"])
async def test_a_row_that_somebody_overwrote_is_told_as_ever(
    one: House, tmp_path: Path, column: str
) -> None:
    with sqlite3.connect(tmp_path / "vault.db") as database:
        database.execute(f"UPDATE r_r1_test SET {column} = 7")
    database.close()
    async with RawClient(one.port) as client:  # another one is begun behind an answer
        await client.send(sent(name="Pia") + sent("/p/1", "PUT", name="Pia"))
        assert [(await client.answer("PUT")).status for _ in range(2)] == [201, 500]
    await until_idle(one)


async def test_nothing_is_shown_that_the_audit_log_was_not_told_of(one: House) -> None:
    async with RawClient(one.port) as client:
        one.script.append("two writes")
        await client.send(get("/p/1"))
        await until(lambda: one.seen[-1].startswith(b"GET"))
        one.audit.down = True
        answer = await client.answer()
        assert b"Bo 0" not in answer.body
        assert answer.status == 200
        assert (await client.ask(sent())).status == 503
        one.audit.down = False
        assert json.loads((await client.ask(get("/p/1"))).body)["name"] == "Bo 0"


async def test_a_caller_that_takes_nothing_is_waited_for(one: House) -> None:
    async with RawClient(one.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream
        requests = get("/p/1") * 600
        await client.send(requests)
        await asyncio.sleep(0.3)
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        for _ in range(600):
            assert json.loads((await client.answer()).body)["name"] == "Bo 0"

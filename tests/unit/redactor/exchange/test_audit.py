"""What the audit log is told of exchanges, seen at whole exchanges over a vault in memory."""

import pytest

from proxy.audit.services import Honeytoken, record_ids
from proxy.errors import Code, VaultError
from proxy.redactor.exchange import audit
from tests.support.audit import MAC
from tests.support.exchanges import HTML, USUAL, Desk, desk

ASTRID = {"name": "Astrid Lind", "email": "astrid@example.com"}
MARK = record_ids(MAC)


def lines(one: Desk) -> list[tuple[object, ...]]:
    """(event, operation, status, count, records, fields, revealed) of each line; then they are
    forgotten.
    """
    names = ("event", "operation", "status", "count", "records", "fields", "revealed")
    found = [tuple(line.get(name) for name in names) for line in one.audit.lines]
    assert all(
        (line["via"], line["environment"], line["endpoint"]) == ("proxy", "test", "app")
        for line in one.audit.lines
    )
    told = b"".join(one.audit.raw)
    assert [value for value in ASTRID.values() if value.encode() in told] == []
    one.audit.lines.clear()
    return found


def mark(key: str) -> str:
    return MARK("test", "p", key)


async def test_each_exchange_that_writes_or_reveals_has_one_line():
    one = await desk()
    stored = await one.create(ASTRID)
    assert lines(one) == [("write", "POST /p", 201, 1, [mark("1")], ["email", "name"], None)]
    assert (await one.shown(stored))["name"] == "Astrid Lind"
    assert lines(one) == [("reveal", "GET /p/{id}", 200, 1, [mark("1")], ["email", "name"], None)]
    call = await one.send("PATCH /p/1", {"name": "Astrid Ek"})
    await call.answer(200, {**stored, **call.json, "id": 1})
    assert lines(one) == [
        ("write", "PATCH /p/{id}", 200, 1, [mark("1")], ["name"], ["email", "name"])
    ]
    await (await one.send("DELETE /p/1")).answer(204)
    assert lines(one) == [("delete", "DELETE /p/{id}", 204, 1, [mark("1")], None, None)]


async def test_what_reveals_and_changes_nothing_has_no_line():
    one = await desk()
    stored = await one.create(ASTRID)
    lines(one)
    await (await one.send("GET /p?email=astrid@example.com")).seen(200, [])
    await (await one.send("GET /p/2")).seen(200, {"id": 2, "name": "nobody"})
    await (await one.send("POST /p", ASTRID)).answer(422, {"error": "no"})
    await (await one.send("DELETE /p/7")).answer(204)
    assert lines(one) == []
    found = await (await one.send("GET /p?email=astrid@example.com")).seen(200, [stored])
    assert found[0]["name"] == "Astrid Lind"
    ((event, _, _, count, records, _, _),) = lines(one)
    assert (event, count, records) == ("reveal", 1, [mark("1")])


async def test_a_list_has_one_line_for_all_of_its_records():
    one = await desk()
    stored = [
        await one.create({**ASTRID, "email": f"a{number}@example.com"}, number)
        for number in range(1, 6)
    ]
    lines(one)
    await (await one.send("GET /p")).seen(200, stored)
    ((event, _, _, count, records, fields, _),) = lines(one)
    assert (event, count, fields) == ("reveal", 5, ["email", "name"])
    assert records == [mark(str(number)) for number in range(1, 6)]


async def test_an_object_without_an_id_is_told_by_what_its_tokens_carry():
    one = await desk()
    stored = await one.create(ASTRID)
    lines(one)
    del stored["id"]
    await (await one.send("GET /p")).seen(200, [stored])
    ((_, _, _, count, records, _, _),) = lines(one)
    assert (count, records) == (1, [mark("1")])


async def test_what_nobody_knows_the_end_of_says_so():
    one = await desk()
    await (await one.send("POST /p", ASTRID)).exchange.failed(True)
    await (await one.send("POST /p", ASTRID)).answer(500, b"")
    await (await one.send("POST /p", ASTRID)).exchange.failed(False)
    reasons = [line["reason"] for line in one.audit.lines]
    assert len(reasons) == 2
    assert all("nobody knows" in reason for reason in reasons)
    one.audit.down = True
    await (await unready(one, "POST /p")).exchange.failed(True)


async def unready(one: Desk, match: str):
    """An exchange that began while the log could be written."""
    one.audit.down = False
    call = await one.send(match, ASTRID if match.startswith("POST") else b"")
    one.audit.down = True
    return call


async def test_tokens_in_a_refusal_page_are_told_of():
    one = await desk()
    stored = await one.create(ASTRID)
    lines(one)
    page = f"<p>{stored['name']}</p>".encode()
    answer = await (await one.send("GET /p/1")).answer(422, page, HTML)
    assert b"Astrid&#32;Lind" in answer.body
    ((event, _, status, _, records, _, _),) = lines(one)
    assert (event, status, records) == ("reveal", 422, [mark("1")])
    call = await unready(one, "GET /p/1")
    assert (await call.answer(422, page, HTML)).body == page


async def test_while_the_log_cannot_be_written_writes_are_refused_before_anything_is_kept():
    one = await desk()
    one.audit.down = True
    for match, body in (("POST /p", ASTRID), ("PATCH /p/1", ASTRID), ("DELETE /p/1", b"")):
        with pytest.raises(VaultError) as raised:
            await one.send(match, body)
        assert raised.value.code is Code.AUDIT_DOWN
    assert await one.counts() == (0, 0, 0)
    assert one.idle


async def test_while_the_log_cannot_be_written_reads_keep_their_tokens_or_are_refused():
    one = await desk()
    stored = await one.create(ASTRID)
    one.audit.down = True
    assert await one.shown(stored) == stored
    strict = await desk(*USUAL, more="on_error: {vault_down: {read: 503}}")
    stored = await strict.create(ASTRID)
    strict.audit.down = True
    with pytest.raises(VaultError) as raised:
        await strict.send("GET /p/1")
    assert raised.value.code is Code.AUDIT_DOWN
    call = await unready(strict, "GET /p/1")
    with pytest.raises(VaultError):
        await call.seen(200, stored)


async def test_a_write_whose_line_fails_is_not_answered_as_done():
    one = await desk()
    call = await unready(one, "POST /p")
    with pytest.raises(VaultError) as raised:
        await call.answer(201, {**call.json, "id": 1})
    assert raised.value.code is Code.AUDIT_DOWN
    assert one.idle


async def test_where_lines_are_flushed_the_answer_waits(monkeypatch):
    one = await desk()
    waited: list[bool] = []

    async def flushed() -> None:
        waited.append(True)

    monkeypatch.setattr(one.audit, "flushes", True)
    monkeypatch.setattr(one.audit, "flushed", flushed)
    await one.shown(await one.create(ASTRID))
    assert len(waited) == 2


async def test_a_bait_raises_an_alarm_wherever_its_values_are_shown():
    one = await desk()
    stored = await one.create(ASTRID)
    other = await one.create({"name": "Bo"}, 2)
    rows = await one.people.by_key(["1"])
    await one.honeytokens.add(Honeytoken(mark("1"), "test", "p", rows["1"].rid))
    lines(one)
    await one.shown(other, "GET /p/2")
    assert (one.alarms, [event for event, *_ in lines(one)]) == ([], ["reveal"])
    await one.shown(stored)
    assert (one.alarms, [event for event, *_ in lines(one)]) == (["bait"], ["reveal", "alarm"])
    # its token, copied elsewhere
    await (await one.send("GET /p/2")).seen(200, {"id": 2, "name": stored["name"]})
    alarm = one.audit.lines[-1]
    assert (alarm["event"], alarm["records"]) == ("alarm", [mark("1")])
    call = await one.send("PATCH /p/1", {"name": "Astrid Ek"})
    await call.answer(200, {**stored, **call.json})
    assert one.alarms == ["bait", "bait", "bait"]


async def test_the_texts_of_fields_are_kept_within_a_bound(monkeypatch):
    monkeypatch.setattr(audit, "_CAPACITY", 1)
    one = await desk()
    await one.shown(await one.create(ASTRID))
    await one.shown(await one.create({"name": "Bo"}, 2), "GET /p/2")
    assert [fields for *_, fields, _ in lines(one)] == [
        ["email", "name"],
        ["email", "name"],
        ["name"],
        ["name"],
    ]


async def test_searches_and_reads_that_show_nothing_are_counted_once_a_turn():
    one = await desk()
    stored = await one.create(ASTRID)
    lines(one)
    for _ in range(3):
        call = await one.send("GET /p?email=nobody@example.com")
        await call.answer(200, [])
        assert call.exchange.missed
    await (await one.send("GET /p/2")).answer(404, {"error": "no"})
    hit = await one.send("GET /p?email=astrid@example.com")
    await hit.answer(200, [stored])
    for match, status in (("GET /p", 200), ("GET /p/1", 200), ("GET /p/1", 500)):
        call = await one.send(match)
        await call.answer(status, [] if match == "GET /p" else {"id": 1})
        assert not call.exchange.missed
    unmodified = await one.send("GET /p?email=astrid@example.com")
    await unmodified.answer(304)
    assert (hit.exchange.missed, unmodified.exchange.missed) == (False, False)
    lines(one)
    one.misses.flush()
    assert lines(one) == [
        ("miss", "GET /p", None, 3, None, None, None),
        ("miss", "GET /p/{id}", None, 1, None, None, None),
    ]
    one.misses.flush()
    assert lines(one) == []


async def test_a_write_that_finds_nothing_is_no_search():
    one = await desk()
    call = await one.send("DELETE /p/7")
    await call.answer(404)
    assert not call.exchange.missed

import asyncio
import time
import tracemalloc
from html import unescape
from sys import getsizeof

import pytest

from proxy.crypto.prf import Digest
from proxy.storage.rows import Row, RowState
from proxy.vault import table_state as room
from proxy.vault.proxied import PageRun, open_page
from proxy.vault.proxied.deletes import deleted
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import promote, stage_creates, stage_deletes, stage_updates
from proxy.vault.seal import Sealer
from proxy.vault.table_state import (
    SUPERSEDED_MILLISECONDS,
    OpenedRecords,
    PageRecord,
    Retired,
    TableState,
    opening_of,
    recalled,
)
from tests.support.exchanges import FIELDS, FORM, HTML, PLAIN, USUAL, Call, desk, member_form
from tests.support.patience import until
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench


def row(rid: int, version: int, size: int = 10) -> Row:
    return Row(rid, None, None, RowState.LIVE, version, 0, 0, None, b"s" * 16, b"b" * size)


def versions(retired: Retired, rid: int, began: int) -> list[int]:
    return [one.version for one in retired.since(rid, began)]


def test_only_who_asked_before_the_change_finds_what_it_replaced():
    retired = Retired()
    retired.keep(row(1, 1), 10)
    retired.keep(row(1, 2), 20)
    retired.keep(row(2, 1), 20)
    assert versions(retired, 1, 5) == [2, 1]
    assert versions(retired, 1, 9) == [2, 1]
    assert versions(retired, 1, 10) == [2, 1]  # asked in the very millisecond: it may show it
    assert versions(retired, 1, 11) == versions(retired, 1, 20) == [2]
    assert versions(retired, 1, 21) == versions(retired, 3, 0) == []


def test_it_is_bounded_in_time():
    retired = Retired()
    retired.keep(row(1, 1), 1)
    retired.keep(row(2, 1), 1 + SUPERSEDED_MILLISECONDS)
    assert len(retired) == 2
    retired.keep(row(2, 2), 2 + SUPERSEDED_MILLISECONDS)
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([], [2, 1])


def test_what_is_forgotten_of_a_record_is_gone_and_later_versions_stay():
    retired = Retired(bound=100)
    retired.keep(row(1, 1, 20), 1)
    retired.keep(row(2, 1, 20), 1)
    retired.forget(1)
    retired.forget(3)
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([], [1])
    retired.keep(row(1, 2, 80), 2)
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([2], [1])
    retired.keep(row(2, 2, 101), 3 + SUPERSEDED_MILLISECONDS)
    assert len(retired) == 0
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([], [])


def test_versions_of_a_record_that_became_a_part_of_another_are_those_of_that_one():
    retired = Retired(bound=100)
    for number, rid, version in ((1, 1, 1), (2, 2, 5), (3, 1, 2)):
        retired.keep(row(rid, version, 20), number)
    retired.join(1, 2)
    retired.join(3, 2)
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([], [2, 5, 1])
    assert versions(retired, 2, 3) == [2]
    retired.keep(row(4, 1, 70), 4)
    assert versions(retired, 2, 0) == [2]
    retired.forget(2)
    assert versions(retired, 2, 0) == []


def test_it_is_bounded_in_bytes():
    retired = Retired(bound=100)
    for version in range(50):
        retired.keep(row(version % 3, version, 20), 1)
    assert len(retired) == 5
    assert sorted(version for rid in range(3) for version in versions(retired, rid, 0)) == [
        45,
        46,
        47,
        48,
        49,
    ]
    retired.keep(row(9, 1, 101), 1)
    assert len(retired) == 0


PERSON = {"name": "Ann", "email": "ann@x.example", "born": "1950-01-01"}


@table("many", [True, False])
async def test_an_answer_that_a_change_overtook_shows_people_as_they_were(many):
    one = await desk()
    before = await one.create(PERSON, 1)
    slow = await one.send("GET /p" if many else "GET /p/1")
    one.clock.advance(1000)
    changed = await one.send(
        "PATCH /p/1", {"name": "Anna", "email": "anna@x.example", "born": "1960-06-06"}
    )
    after = {**changed.json, "id": 1}
    assert (await changed.seen(200, after))["name"] == "Anna"
    shown = await slow.seen(200, [before] if many else before)
    assert shown == ([{**PERSON, "id": 1}] if many else {**PERSON, "id": 1})
    assert (await one.shown(after))["name"] == "Anna"


PAGES = {
    "/card/1": "{restore: html}",
    "/text/1": "{restore: text}",
    "/form/1": "{restore: html, form: {email: email}}",
    "/pages": "{restore: anywhere}",
    "/cards": "{restore: html}",
    "/file": "{restore: anywhere}",
    "/scan": "{scan: true}",
}


@table("target", PAGES)
async def test_a_page_that_a_change_overtook_shows_people_as_they_were(target):
    rules = [
        f'{{match: "GET {at.replace("1", "{id}")}", read: p, response: {rule}}}'
        for at, rule in PAGES.items()
    ]
    edit = "{match: 'POST /p/{id}/edit', update: p, request: {form: {name: name, email: email}}, "
    edit += "response: {success: [303], complete: true}}"
    one = await desk(*USUAL, edit, *rules, fields=FIELDS[:2])
    before = await one.create({name: PERSON[name] for name in ("name", "email")}, 1)
    kinds = {"/text/1": PLAIN, "/file": ((b"Content-Type", b"text/csv"),), "/scan": PLAIN}
    page = f"<b>{before['name']}</b><input name=email value='{before['email']}'>".encode()
    if target == "/file":
        page = f"name,mail\r\n{before['name']},{before['email']}\r\n".encode()

    async def seen(call: Call) -> str:
        return unescape((await call.answer(200, page, kinds.get(target, HTML))).body.decode())

    one.clock.advance(1)
    slow, slower = [await one.send(f"GET {target}") for _ in range(2)]
    one.clock.advance(1000)
    form = member_form(name="Anna", email="anna@x.example")
    await (await one.send("POST /p/1/edit", form, FORM)).answer(303)
    shown = page.decode().replace(before["name"], "Ann").replace(before["email"], PERSON["email"])
    assert await seen(slow) == shown
    one.clock.advance(1)
    assert await seen(await one.send(f"GET {target}")) == page.decode()
    await (await one.send("DELETE /p/1")).answer(204)
    assert await seen(slower) == page.decode()
    assert one.idle


async def test_who_asks_after_the_change_does_not_see_what_it_replaced():
    one = await desk()
    before = await one.create(PERSON, 1)
    await (await one.send("PATCH /p/1", {"name": "Anna"})).answer(200, {"id": 1})
    one.clock.advance(1)
    assert (await one.shown(before))["name"] == before["name"]


async def test_of_a_record_that_was_deleted_nothing_is_shown():
    one = await desk()
    before = await one.create(PERSON, 1)
    slow = await one.send("GET /p/1")
    one.clock.advance(1)
    await (await one.send("PATCH /p/1", {"name": "Anna"})).answer(200, {"id": 1})
    await (await one.send("DELETE /p/1")).answer(204)
    assert await slow.seen(200, before) == before


# What lists have shown lately is used again while its row is the same, and forgotten in time.


def test_ids_that_were_deleted_are_remembered_the_latest_ones():
    state = TableState()
    for number in range(10_002):
        state.end(b"%d" % number, number)
    state.end(b"5", 20_000)
    state.end(b"new", 20_001)
    assert len(state.ended) == 10_000
    assert (state.ended[b"5"], state.ended[b"new"]) == (20_000, 20_001)
    assert b"2" not in state.ended


class Office:
    """Two people, the list that shows them, and how often a row was opened for it."""

    def __init__(self, bench: Bench, run: PageRun, opens: list[int]) -> None:
        self.bench, self.run, self.opens = bench, run, opens

    @property
    def memory(self) -> OpenedRecords:
        return self.bench.people.opened

    async def shown(self) -> list[list[str] | None]:
        records = await open_page(self.bench.people, [self.run])
        return [one.texts if one is not None else None for one in records]

    def remembered(self) -> list[int]:
        """The records in memory, whoever remembers them."""
        halves = self.memory._young, self.memory._old
        return sorted({rid for half in halves for some in half.values() for rid in some})


@pytest.fixture
async def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    bench, opens = await make_bench(), list[int]()
    opening = Sealer.open_page

    def counted(self, rows, *, named):
        opens.extend(row.rid for row in rows)
        return opening(self, rows, named=named)

    monkeypatch.setattr(Sealer, "open_page", counted)
    drafts = [draft(name=name, email=f"{name}@example.com") for name in ("Ann", "Bo")]
    held = await stage_creates(bench.people, drafts, [None, None])
    await bind(bench.people, [(one, str(number)) for number, one in enumerate(held)])
    texts = [tuple(one.tokens[name][0].token for name in ("name", "email")) for one in held]
    return Office(bench, PageRun(("name", "email"), (False, False), ["0", "1"], texts), opens)


PEOPLE = [["Ann", "Ann@example.com"], ["Bo", "Bo@example.com"]]


async def test_a_record_is_opened_once_while_its_row_is_the_same(office):
    assert [await office.shown() for _ in range(3)] == [PEOPLE] * 3
    assert len(office.opens) == 2


async def test_it_is_asked_for_anew_in_other_places_or_under_another_id(office):
    await office.shown()
    first = office.run
    office.run = first._replace(fields=first.fields[:1], bare=(False,), texts=[
        texts[:1] for texts in first.texts
    ])  # fmt: skip
    assert await office.shown() == [["Ann"], ["Bo"]]
    office.run = first._replace(ids=["1", "0"])
    assert await office.shown() == [None, None]
    office.run = first._replace(texts=first.texts[::-1])
    assert await office.shown() == [None, None]
    office.run = first
    assert await office.shown() == PEOPLE


async def test_no_row_that_a_foreign_program_touched_is_taken_for_the_one_before(office):
    await office.shown()
    rows = office.bench.store._tables[office.bench.people.table].rows
    rid = min(rows)
    whole = rows[rid]
    for changes in (
        {"body": whole.body[:-1] + bytes([whole.body[-1] ^ 1])},
        {"salt": bytes(16)},
        {"version": 7},
        {"created_at": 1},
        {"key_sealed": None},
    ):
        rows[rid] = whole._replace(**changes)
        assert await office.shown() == [None, PEOPLE[1]], changes
    rows[rid] = whole
    assert await office.shown() == PEOPLE


async def test_a_change_of_the_record_ends_what_is_remembered_of_it(office):
    await office.shown()
    (held,) = await stage_updates(office.bench.people, [("0", draft(name="Eve"))])
    assert await office.shown() == [None, PEOPLE[1]]  # in doubt: the general code tells
    assert len(office.remembered()) == 2
    await promote(office.bench.people, held, {"name": (held.tokens["name"][0].token,)})
    assert office.remembered() != [held.rid]
    assert len(office.remembered()) == 1
    email = office.run.texts[0][1]
    office.run = office.run._replace(
        texts=[(held.tokens["name"][0].token, email), office.run.texts[1]]
    )
    assert await office.shown() == [["Eve", "Ann@example.com"], PEOPLE[1]]


async def test_a_deleted_record_is_forgotten(office):
    await office.shown()
    assert len(office.remembered()) == 2
    held = await stage_deletes(office.bench.people, ["0"])
    await deleted(office.bench.people, held)
    assert len(office.remembered()) == 1
    assert await office.shown() == [None, PEOPLE[1]]


async def test_nothing_is_remembered_beyond_the_keys(office):
    await office.shown()
    keyset = office.bench.vault.keyset
    keyset.adopt(keyset.rotated())
    assert await office.shown() == PEOPLE
    assert len(office.opens) == 4


async def test_it_is_forgotten_soon_after_it_was_last_shown(office, monkeypatch):
    monkeypatch.setattr(room, "LASTING", 2.0)
    await office.shown()
    longest, last, end = 0.0, time.monotonic(), time.monotonic() + 2.5
    while (now := time.monotonic()) < end:
        longest, last = max(longest, now - last), now
        await asyncio.sleep(0.05)
        await office.shown()
    assert len(office.opens) == 2 or max(longest, now - last) > 1, "unless the machine paused"
    before = len(office.opens)
    await until(lambda: office.remembered() == [])
    await office.shown()
    assert len(office.opens) == before + 2


async def test_with_no_room_nothing_is_remembered(office):
    office.bench.people.opened = OpenedRecords(0)
    assert [await office.shown() for _ in range(2)] == [PEOPLE] * 2
    assert len(office.opens) == 4
    assert office.remembered() == []


async def test_it_takes_no_more_memory_than_it_may(office):
    await office.shown()
    (row,) = (await office.bench.people.by_key(["0"])).values()
    edition, memory = object(), OpenedRecords(2**20)
    memory.openings(office, edition)
    tracemalloc.start()
    try:
        for number in range(5000):
            own = type(row)._make(
                bytes(bytearray(one)) if isinstance(one, bytes) else one for one in row
            )
            texts = [f"Ann Lindqvist {number} {place}" for place in range(5)]
            tokens = tuple(f"{text} in place" for text in texts)
            record = PageRecord(2**40 + number, str(number), texts)
            own = own._replace(rid=2**40 + number)
            size = sum(map(getsizeof, texts))
            opening = opening_of(own, ((), str(number), tokens), record, size)
            memory.remember(office, edition, [opening])
        assert 2**19 < tracemalloc.get_traced_memory()[0] < 1.1 * 2**20
    finally:
        tracemalloc.stop()


async def test_environments_and_rules_have_their_own(office):
    other = await make_bench()
    assert other.people.opened is not office.memory
    await office.shown()
    assert office.memory.openings(other.people, office.bench.people.sealer.edition) == ({}, {})


def test_what_was_asked_for_before_is_not_worked_out_again():
    asked: list[list[str]] = []

    def lengths(texts: list[str]) -> list[int | None]:
        asked.append(texts)
        return [len(text) or None for text in texts]

    earlier: dict[str | None, int] = {}
    assert recalled(earlier, ["a", "bb", None, "a", ""], lengths) == [1, 2, None, 1, None]
    assert recalled(earlier, ["bb", "ccc", "a"], lengths) == [2, 3, 1]
    assert recalled(earlier, ["a", "bb"], lengths) == [1, 2]
    assert asked == [["a", "bb", ""], ["ccc"]]
    assert set(earlier) == {"a", "bb", "ccc"}


def test_it_is_remembered_of_short_texts_and_of_so_many():
    earlier: dict[str | None, int] = {}
    long = "x" * 200
    assert recalled(earlier, [long], lambda texts: [1]) == [1]
    assert earlier == {}
    for number in range(3):
        texts = [f"{number} {index}" for index in range(4000)]
        assert recalled(earlier, texts, lambda some: [1] * len(some)) == [1] * 4000
        assert len(earlier) <= 8192


async def test_hashes_of_a_list_are_those_of_the_present_root(office):
    people, keyset = office.bench.people, office.bench.vault.keyset
    before = people.key_hashes(["0", None, "1"])
    assert before == [people.key_hash("0"), None, people.key_hash("1")]
    keyset.adopt(keyset.with_hash_root())
    after = people.key_hashes(["0", None, "1"])
    assert after == [people.key_hash("0"), None, people.key_hash("1")]
    assert [type(one) for one in after] == [Digest, type(None), Digest]
    assert [type(one) for one in before] == [bytes, type(None), bytes]

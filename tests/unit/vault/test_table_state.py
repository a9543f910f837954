import pytest

from proxy.storage.rows import Row, RowState
from proxy.vault.table_state import SUPERSEDED_MILLISECONDS, Retired
from tests.support.exchanges import desk


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
    assert versions(retired, 1, 10) == versions(retired, 1, 19) == [2]
    assert versions(retired, 1, 20) == versions(retired, 3, 0) == []


def test_it_is_bounded_in_time():
    retired = Retired()
    retired.keep(row(1, 1), 1)
    retired.keep(row(2, 1), 1 + SUPERSEDED_MILLISECONDS)
    assert len(retired) == 2
    retired.keep(row(2, 2), 2 + SUPERSEDED_MILLISECONDS)
    assert (versions(retired, 1, 0), versions(retired, 2, 0)) == ([], [2, 1])


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


@pytest.mark.parametrize("many", [True, False])
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

import threading

import pytest

from proxy import offload
from proxy.vault.collection import LONG
from proxy.vault.proxied import open_rows as room
from proxy.vault.proxied.binding import bind
from proxy.vault.proxied.open_rows import open_rows
from proxy.vault.proxied.staging import stage_creates, stage_updates
from tests.support.vaults import Bench, draft, make_bench


async def people(bench: Bench, *tags: list[str]) -> list[int]:
    """The ids of records with these tags."""
    held = await stage_creates(
        bench.people, [draft(name="Ann", tags=some) for some in tags], [None] * len(tags)
    )
    await bind(bench.people, [(one, str(number)) for number, one in enumerate(held)])
    return [one.rid for one in held]


async def test_rows_open_with_what_is_staged_beside_them():
    bench = await make_bench()
    rids = await people(bench, ["a"], ["b"])
    (held,) = await stage_updates(bench.people, [("0", draft(name="Bo"))])

    found = await open_rows(bench.people, rids, ())

    assert set(found) == set(rids)
    assert [staged.sid for staged, _ in found[rids[0]].staged] == [held.sid]
    assert found[rids[0]].values["name", held.given["name"][0].token].text == "Bo"
    assert found[rids[1]].staged == []


async def test_a_row_that_does_not_open_is_left_out_and_counted():
    bench = await make_bench()
    rids = await people(bench, ["a"], ["b"])
    rows = await bench.store.rows(bench.people.table, rids)
    broken = rows[rids[0]]._replace(body=b"\x01" * 64)

    found = await open_rows(bench.people, (), [broken, rows[rids[1]]])

    assert list(found) == [rids[1]]
    assert bench.events["unopenable"] == 1


@pytest.mark.parametrize(("tags", "elsewhere"), [(["a"], False), (["x" * LONG], True)])
async def test_a_long_row_is_opened_on_another_thread(monkeypatch, tags, elsewhere):
    bench = await make_bench()
    (rid,) = await people(bench, tags)
    threads: list[int] = []
    opening = room._open_row

    def opened(*arguments):
        threads.append(threading.get_ident())
        return opening(*arguments)

    monkeypatch.setattr(room, "_open_row", opened)
    found = await open_rows(bench.people, [rid], ())

    assert [kept.text for kept in found[rid].live.fields["tags"]] == tags
    assert [thread != threading.get_ident() for thread in threads] == [elsewhere]


async def test_many_rows_are_all_opened(monkeypatch):
    monkeypatch.setattr(offload, "SLICE", 0.0)
    bench = await make_bench()
    rids = await people(bench, *[[str(number)] for number in range(600)])

    found = await open_rows(bench.people, rids, ())

    assert list(found) == rids

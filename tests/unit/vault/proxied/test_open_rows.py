import threading

import pytest

from proxy import offload
from proxy.vault.collection import LONG
from proxy.vault.proxied import open_rows as room
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject, open_current, open_with_staged
from proxy.vault.proxied.staging import stage_creates, stage_updates
from tests.support.exchanges import FIELDS, USUAL, desk_of, rule_text
from tests.support.vaults import Bench, draft, make_bench, token


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

    found = await open_with_staged(bench.people, rids, ())

    assert set(found) == set(rids)
    assert [staged.sid for staged, _ in found[rids[0]].staged] == [held.sid]
    assert found[rids[0]].values["name", held.tokens["name"][0].token].text == "Bo"
    assert found[rids[1]].staged == []


async def test_a_row_that_does_not_open_is_left_out_and_counted():
    bench = await make_bench()
    rids = await people(bench, ["a"], ["b"])
    rows = await bench.store.rows(bench.people.table, rids)
    broken = rows[rids[0]]._replace(body=b"\x01" * 64)

    found = await open_with_staged(bench.people, (), [broken, rows[rids[1]]])

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
    found = await open_with_staged(bench.people, [rid], ())

    assert [kept.text for kept in found[rid].live.values["tags"]] == tags
    assert [thread != threading.get_ident() for thread in threads] == [elsewhere]


async def test_many_rows_are_all_opened(monkeypatch):
    monkeypatch.setattr(offload, "SLICE", 0.0)
    bench = await make_bench()
    rids = await people(bench, *[[str(number)] for number in range(600)])

    found = await open_with_staged(bench.people, rids, ())

    assert list(found) == rids


async def two(bench: Bench) -> list[AnswerObject]:
    """What an application shows of two records that have one date in common."""
    drafts = [
        draft(name=name, email=f"{name}@example.com", born="1987-04-05") for name in ("Ann", "Bo")
    ]
    held = await stage_creates(bench.people, drafts, [None, None])
    await bind(bench.people, [(one, str(number)) for number, one in enumerate(held)])
    fields = ("name", "email", "born")
    return [
        AnswerObject(str(number), tuple((field, token(one, field)) for field in fields))
        for number, one in enumerate(held)
    ]


async def texts(bench: Bench, shown: list[AnswerObject]) -> list[list[str] | None]:
    current = await open_current(bench.people, shown)
    return [one and [value.text for value in one[1] if value] for one in current]


async def test_objects_that_show_their_records_are_opened_by_one_look_up():
    bench = await make_bench()
    shown = await two(bench)
    values = [["Ann", "Ann@example.com", "1987-04-05"], ["Bo", "Bo@example.com", "1987-04-05"]]
    calls = bench.verbs()
    assert await texts(bench, shown) == values
    assert calls == ["by_keys"]
    assert await texts(bench, [AnswerObject(None, one.places) for one in shown]) == values
    assert calls == ["by_keys", "rows"]


async def test_an_object_is_current_only_in_the_order_and_the_fields_of_its_record():
    bench = await make_bench()
    ann, bo = await two(bench)
    (_, token_of_ann), email, born = ann.places

    assert (
        await texts(
            bench,
            [
                AnswerObject("0", (("email", token_of_ann), email, born)),  # in another field
                AnswerObject("0", (*ann.places, born)),  # more than there is
                AnswerObject("0", (bo.places[0], email, born)),  # of another record
                AnswerObject("0", (("name", "Ann"),)),  # no token
                AnswerObject("7", ann.places),  # no record of this name
                AnswerObject("0", ()),
            ],
        )
        == [None] * 6
    )
    await stage_updates(bench.people, [("1", draft(name="Bea"))])
    assert await texts(bench, [ann, bo]) == [["Ann", "Ann@example.com", "1987-04-05"], None]


async def test_small_tokens_open_only_the_record_whose_sealed_name_the_object_has():
    bench = await make_bench()
    shown = await two(bench)
    dates = [AnswerObject(one.id, one.places[2:]) for one in shown]
    assert dates[0].places != dates[1].places
    assert await texts(bench, dates) == [["1987-04-05"], ["1987-04-05"]]

    rows = bench.people.store._tables[bench.people.table].rows  # type: ignore[attr-defined]  # the engine is the one in memory
    one, other = sorted(rows)
    rows[one], rows[other] = (
        rows[one]._replace(key=rows[other].key),
        rows[other]._replace(key=rows[one].key),
    )
    swapped = [AnswerObject("0", dates[1].places), AnswerObject("1", dates[0].places)]
    assert await texts(bench, swapped) == [None, None]


async def test_values_of_an_earlier_version_that_have_one_token_are_shown_in_their_order():
    """Spellings of one address in a list, of a create whose answer got lost, beside later updates."""
    field = 'mails: {kind: email, token: {shape: email, same: true}, at: "$.mails[*]"}'
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, field)))
    phone, mails = "08-123 456 78", ["bo@example.se", "Bo@Example.se", "cy@example.se"]
    create = await one.send("POST /p", {"phone": phone, "mails": mails})
    await create.exchange.failed(True)
    stored = {"id": 1, **create.json}
    read = await one.send("GET /p/1")
    for body in ({"phone": "08-9"}, {"name": "Bo"}):
        change = await one.send("PATCH /p/1", body)
        stored |= change.json
        await change.answer(200, {"id": 1, **change.json})
        if "phone" in body:
            await read.answer(200, stored)  # older than the change: both are one record
    assert await one.shown(stored) == {"id": 1, "phone": "08-9", "mails": mails, "name": "Bo"}

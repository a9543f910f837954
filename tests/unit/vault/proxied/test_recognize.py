import asyncio

from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import stage_creates
from tests.support.exchanges import FIELDS, USUAL, desk, desk_of, rule_text
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, token

SHARED = "ann@example.com"


async def person(bench: Bench, key: str, name: str, **more: str) -> StagedWrite:
    write = (await stage_creates(bench.people, [draft(name=name, **more)], [None]))[0]
    await bind(bench.people, [(write, key)])
    return write


async def test_same_value_and_numeric_tokens_resolve_without_any_id() -> None:
    bench = await make_bench()
    held = await person(bench, "1", "A", email="ann@example.com", phone="+46 70 123 45 67")
    shown = [AnswerObject(None, (("email", token(held, "email")), ("phone", token(held, "phone"))))]
    assert [
        value and value.text for value in (await reveal_objects(bench.people, shown)).values[0]
    ] == [
        "ann@example.com",
        "+46 70 123 45 67",
    ]


async def test_a_token_that_only_one_record_has_tells_it_among_those_that_share_another() -> None:
    bench = await make_bench()
    one = await person(bench, "1", "Ann", email=SHARED, phone="+46 70 123 45 67")
    await person(bench, "2", "Ann", email=SHARED, phone="+46 70 765 43 21")
    both = (("email", token(one, "email")), ("phone", token(one, "phone")))
    (record,) = (await reveal_objects(bench.people, [AnswerObject(None, both)])).rows
    assert record is not None
    assert record.row.rid == one.rid


async def test_what_several_records_share_tells_none_of_them() -> None:
    bench = await make_bench()
    one = await person(bench, "1", "Ann", email=SHARED)
    await person(bench, "2", "Ann", email=SHARED)
    item = AnswerObject(None, (("email", token(one, "email")),))
    revealed = await reveal_objects(bench.people, [item])
    assert revealed.rows == [None]
    assert [value and value.text for value in revealed.values[0]] == [SHARED]


@table("own", [{}, {"pin": "4"}])
@table("copied", [False, True])
async def test_what_a_record_has_of_a_lost_upsert_is_told_by_a_token_of_equal_values(
    own: dict[str, str],
    copied: bool,
) -> None:
    """A date by itself tells no record, and people would believe its token."""
    fixed = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, fixed)))
    before = {"name": "Ann", "email": "ann@example.se", "born": "1950-05-05", "pin": "1"}
    sent = {"name": "Cy", "email": "cy@example.se", "born": "1960-06-06", "pin": "2"}
    stored = await one.create(before)
    lost = await one.send("POST /p", sent)
    await lost.exchange.failed(True)
    one.clock.advance(1)
    update = await one.send("PATCH /p/1", {"name": "Bo", **own})
    names = ["email"] if copied else ["email", "born", "pin"]
    held = {**stored, **{name: lost.json[name] for name in names}, **update.json}
    wanted = {"id": 1, **before, **{name: sent[name] for name in names}, "name": "Bo", **own}
    seen = await update.seen(200, held)
    assert {**seen, "pin": wanted["pin"]} == wanted  # an update knows its own record first
    one.clock.advance(1)
    assert await one.shown(held) == wanted


@table("led", ["email", "name"])
@table("answered", [False, True])
async def test_what_is_left_of_a_lost_upsert_is_told_once_later_changes_have_replaced_what_led_to_it(
    led: str, answered: bool
) -> None:
    """Of its date alone no token tells: an answer before has put it in doubt of the record."""
    one = await desk_of(rule_text(*USUAL, fields=FIELDS))
    stored = await one.create({"name": "Ann", "email": "ann@example.se", "born": "1950-05-05"})
    lost = await one.send("POST /p", {"name": "Cy", "email": "cy@example.se", "born": "1960-06-06"})
    if answered:
        await lost.exchange.failed(True)
    one.clock.advance(1)
    other = "name" if led == "email" else "email"
    changes = [{other: "Bo" if other == "name" else "bo@example.se"}, {led: "dy@example.se"}]
    wanted = {"born": "1960-06-06", led: "cy@example.se" if led == "email" else "Cy"}
    held = {**stored, **lost.json}
    for change in changes:
        update = await one.send("PATCH /p/1", change)
        held, wanted = {**held, **update.json}, {**wanted, **change}
        assert await update.seen(200, held) == {"id": 1, **wanted}
        one.clock.advance(1)
    if not answered:
        await lost.exchange.failed(False)
    one.clock.advance(1)
    assert await one.shown(held) == {"id": 1, **wanted}


@table("nearer", ["email", "email, born"])
async def test_of_two_lost_creates_with_an_equal_value_the_object_is_that_which_explains_more(
    nearer: str,
) -> None:
    one = await desk_of(rule_text(*USUAL, fields=FIELDS))
    earlier = await one.send("POST /p", {"email": "cy@example.se", "phone": "08-123 456 78"})
    await earlier.exchange.failed(True)
    before = {"name": "Ann", "email": "ann@example.se", "born": "1950-05-05"}
    stored = await one.create(before)
    lost = await one.send("POST /p", {"name": "Cy", "email": "cy@example.se", "born": "1960-06-06"})
    await lost.exchange.failed(True)
    one.clock.advance(1)
    names = nearer.split(", ")
    held = {**stored, **{name: lost.json[name] for name in names}}
    sent = {"email": "cy@example.se", "born": "1960-06-06"}
    assert await one.shown(held) == {"id": 1, **before, **{name: sent[name] for name in names}}


async def test_a_record_that_becomes_a_part_of_another_while_it_is_looked_up_is_found_there() -> (
    None
):
    """The index had led to it when its row was gone: the answer showed tokens."""
    one = await desk()
    await one.create({"name": "Ann", "born": "1950-05-05"})
    sent = {"name": "Anna", "phone": "08-123 456 78", "born": "1951-01-01"}
    lost, again = await one.send("POST /p", sent), await one.send("POST /p", {"name": "Bo"})
    await lost.exchange.failed(True)
    held = {"id": 1, **lost.json}
    read, gate = await one.send("GET /p/1"), one.store.pause("by_tokens", late=True)
    shown = asyncio.ensure_future(
        read.seen(200, {name: held[name] for name in held if name != "name"})
    )
    await gate.reached()
    await again.answer(201, {"id": 1, **again.json})  # it gets the id of the first
    one.clock.advance(1)
    assert (await one.shown(held))["name"] == "Anna"
    assert (await one.counts())[0] == 1
    gate.open()
    assert await shown == {"id": 1, "phone": "08-123 456 78", "born": "1951-01-01"}

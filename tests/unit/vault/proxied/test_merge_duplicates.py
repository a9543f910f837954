"""One record of the application that the vault came to know twice."""

import pytest

from proxy.errors import VaultError
from proxy.storage.changes import Reindex
from proxy.storage.rows import TOKEN_RIDS
from proxy.tokenization import SHAPES
from proxy.vault.collection import TableSpec
from proxy.vault.expiry import reap
from proxy.vault.proxied.anywhere import reveal_anywhere
from proxy.vault.proxied.binding import RECONCILE_GRACE, StagedWrite, accept
from proxy.vault.proxied.merge_duplicates import keep
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_updates
from tests.support.exchanges import JSON, USUAL, desk_of, rule_text
from tests.support.memory import MemoryStore
from tests.support.stores import FailingStore
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person, token

WEEK = 7 * 86_400_000
PIN = "pin: {kind: text, token: {shape: fixed, value: hidden}}"
ANN = {"name": "Ann", "email": "ann@example.com", "phone": "+46 70 123 45 67", "born": "1931-02-27"}


async def show(bench: Bench, key: str | None, *tokens: tuple[str, str]) -> list[str | None]:
    """An answer with this object arrives a moment later; the values that its caller sees."""
    bench.clock.advance(1)
    shown = [AnswerObject(key, tokens)]
    revealed = await reveal_objects(bench.people, shown)
    await reconcile_objects(bench.people, shown, revealed, bench.clock())
    return [value.text if value else None for value in revealed.values[0]]


async def states(bench: Bench) -> tuple[int, int, int]:
    return await bench.store.count(bench.people.table)


async def lost_create(bench: Bench, **values: str) -> StagedWrite:
    """A create whose answer never came."""
    held = (await stage_creates(bench.people, [draft(**(values or ANN))], [None]))[0]
    await doubt(bench.people, [held], answered=False)
    bench.clock.advance(1)
    return held


async def change(bench: Bench, key: str, **values: str) -> StagedWrite:
    """An update by id that the application took."""
    held = (await stage_updates(bench.people, [(key, draft(**values))]))[0]
    if held.row is None:
        await bind(bench.people, [(held, key)])
    else:
        await promote(bench.people, held, {})
    bench.clock.advance(1)
    return held


def all_of(*held: StagedWrite) -> list[tuple[str, str]]:
    """The object as the application has it: the tokens of the latest."""
    latest = {name: token(one, name) for one in held for name in one.tokens}
    return list(latest.items())


async def after_a_week(bench: Bench) -> None:
    bench.clock.advance(WEEK + 1)
    await reap(bench.people, WEEK)


async def test_a_record_that_was_changed_before_it_was_shown_is_one() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    second = await change(bench, "17", name="Anna")
    assert await states(bench) == (2, 1, 0)
    stored = all_of(first, second)
    assert await show(bench, "17", *stored) == ["Anna", *list(ANN.values())[1:]]
    assert await states(bench) == (1, 0, 0)
    await after_a_week(bench)
    assert await show(bench, "17", *stored) == ["Anna", *list(ANN.values())[1:]]
    row = (await bench.people.by_key(["17"]))["17"]
    assert row.rid == second.rid


async def test_a_field_that_was_cleared_before_its_record_was_shown_stays_cleared() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    (cleared,) = await stage_updates(bench.people, [("17", draft(phone=[]))])
    await bind(bench.people, [(cleared, "17")])
    stored = [(name, text) for name, text in all_of(first) if name != "phone"]
    assert await show(bench, "17", *stored) == ["Ann", "ann@example.com", "1931-02-27"]
    row = (await bench.people.by_key(["17"]))["17"]
    assert not bench.people.sealer.open(row).values.get("phone")
    # another change that tells nothing of the field clears nothing
    other = await lost_create(bench, name="Bo", email="bo@example.com", phone=ANN["phone"])
    changed = await change(bench, "18", born="1950-01-01")
    shown = [(name, text) for name, text in all_of(other, changed) if name != "phone"]
    assert await show(bench, "18", *shown) == ["Bo", "bo@example.com", "1950-01-01"]
    row = (await bench.people.by_key(["18"]))["18"]
    assert bench.people.sealer.open(row).values["phone"][0].text == ANN["phone"]


async def test_its_tokens_resolve_without_its_name_too() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    await change(bench, "17", born="1932-01-01")
    await show(bench, "17", ("name", token(first, "name")))
    assert await states(bench) == (1, 0, 1)
    found = [(name, token(first, name)) for name in ("name", "email", "phone")]
    assert await show(bench, None, *found) == [ANN["name"], ANN["email"], ANN["phone"]]


async def test_a_value_of_both_that_no_answer_has_shown_yet_is_in_doubt() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    second = await change(bench, "17", name="Anna")
    assert await show(bench, "17", ("phone", token(first, "phone"))) == [ANN["phone"]]
    assert await states(bench) == (1, 0, 1)
    for one, name in ((first, "Ann"), (second, "Anna")):
        shown = AnswerObject("17", (("name", token(one, "name")),))
        value = (await reveal_objects(bench.people, [shown])).values[0][0]
        assert value is not None
        assert value.text == name
    assert await show(bench, "17", ("name", token(first, "name"))) == ["Ann"], (
        "the application had kept the older"
    )
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", ("name", token(second, "name"))) == [None]


async def test_the_older_value_is_taken_at_once_where_it_is_shown() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    await change(bench, "17", name="Anna", phone="+46 70 000 00 00")
    await show(bench, "17", ("name", token(first, "name")), ("phone", token(first, "phone")))
    assert await states(bench) == (1, 0, 0)


async def test_later_changes_keep_and_know_its_tokens() -> None:
    bench = await make_bench()
    first = await lost_create(bench)
    second = await change(bench, "17", name="Anna")
    await show(bench, "17", *all_of(first, second))
    third = (
        await stage_updates(
            bench.people, [("17", draft(email=token(first, "email"), phone=ANN["phone"]))]
        )
    )[0]
    assert token(third, "email") == token(first, "email"), (
        "an own token that comes back stands for its value"
    )
    assert token(third, "phone") == token(first, "phone")
    assert third.live is not None
    assert len({kept.number for values in third.live.values.values() for kept in values}) == len(
        ANN
    )


async def test_a_record_without_a_name_that_is_shown_by_an_id_of_nobody_gets_it() -> None:
    bench = await make_bench()
    held = await lost_create(bench, phone="+46 70 123 45 67")
    assert await show(bench, "17", ("phone", token(held, "phone"))) == ["+46 70 123 45 67"]
    assert (await bench.people.by_key(["17"]))["17"].rid == held.rid


async def test_a_record_that_is_shown_without_any_id_is_kept_for_good() -> None:
    bench = await make_bench()
    held = await lost_create(bench)
    unsettled = (await stage_creates(bench.people, [draft(name="Bo")], [None]))[0]
    assert await show(bench, None, ("name", token(held, "name"))) == ["Ann"]
    await show(bench, None, ("name", token(unsettled, "name")))
    assert await states(bench) == (2, 1, 0), "what is under way is left to its own answer"
    await after_a_week(bench)
    assert await show(bench, None, ("name", token(held, "name"))) == ["Ann"]


async def test_an_answer_to_an_older_request_keeps_nothing() -> None:
    bench = await make_bench()
    began = bench.clock()
    bench.clock.advance(1)
    held = await lost_create(bench)
    anywhere = await reveal_anywhere(bench.people, [token(held, "name")])
    await keep(bench.people, anywhere.loose, began)
    assert await states(bench) == (1, 1, 0)
    await keep(bench.people, anywhere.loose, bench.clock())
    assert await states(bench) == (1, 0, 0)


async def test_a_same_value_token_names_a_record_only_where_it_has_nothing_better() -> None:
    bench = await make_bench()
    better = await lost_create(bench, name="Ann", email="ann@example.com")
    assert await show(bench, "17", ("email", token(better, "email"))) == ["ann@example.com"]
    assert await bench.people.by_key(["17"]) == {}, "others may have the same address"
    bench = await make_bench()
    bare = await lost_create(bench, email="ann@example.com")
    await show(bench, "17", ("email", token(bare, "email")))
    assert (await bench.people.by_key(["17"]))["17"].rid == bare.rid


async def test_a_name_that_passed_on_to_a_new_record_leaves_the_old_one_as_a_version() -> None:
    bench = await make_bench()
    old = await change(bench, "17", name="Old", email="old@example.com")
    new = await lost_create(bench)
    await show(bench, "17", *all_of(new))
    assert (await bench.people.by_key(["17"]))["17"].rid == new.rid
    assert await states(bench) == (1, 0, 1)
    assert await show(bench, None, ("name", token(old, "name"))) == ["Old"]
    await show(bench, "17", *all_of(new))
    assert await states(bench) == (1, 0, 0)


async def test_a_newer_record_without_a_name_is_joined_where_the_object_shows_both() -> None:
    bench = await make_bench()
    named = await change(bench, "17", **ANN)
    extra = (await stage_creates(bench.people, [draft(name="Anna")], [None]))[0]
    await accept(bench.people, [extra])
    stored = all_of(named, extra)
    await show(bench, "17", *stored)
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", *stored) == ["Anna", *list(ANN.values())[1:]]
    assert (await bench.people.by_key(["17"]))["17"].rid == named.rid


@table("ago", [0, 9])
@table("keeps", [False, True])
async def test_a_create_that_gets_its_name_between_two_looks_is_not_taken_for_two(
    ago: int, keeps: bool
) -> None:
    """The first look finds it without a name, the second under its id: joined with itself it would
    be gone.
    """
    bench = await make_bench(recipe=person()._replace(keeps=keeps))
    held = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    shown = [AnswerObject("1", tuple(all_of(held)))]
    bench.clock.advance(1)
    revealed = await reveal_objects(bench.people, shown)
    await bind(bench.people, [(held, "1")])
    bench.clock.advance(5)
    await reconcile_objects(bench.people, shown, revealed, bench.clock() - ago)
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "1", *all_of(held)) == list(ANN.values())


async def test_what_is_under_way_is_left_alone_and_what_is_shown_of_it_is_copied() -> None:
    bench = await make_bench()
    first = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    await change(bench, "17", name="Anna")
    phone = "phone", token(first, "phone")
    for staged in (1, 0):  # the second answer decides
        assert await show(bench, "17", phone) == [ANN["phone"]]
        assert await states(bench) == (2, 1, staged)
    await doubt(bench.people, [first], answered=True)
    update = (await stage_updates(bench.people, [("17", draft(name="Annika"))]))[0]
    await show(bench, "17", phone)
    assert await states(bench) == (2, 1, 1)
    await promote(bench.people, update, {})
    await show(bench, "17", phone, ("name", token(update, "name")))
    assert await states(bench) == (2, 1, 0)
    bench.clock.advance(8 * 86_400_000)
    await reap(bench.people, 7 * 86_400_000)
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", phone) == [ANN["phone"]]


@table("late", [False, True])
async def test_a_join_that_is_cut_off_loses_nothing(late: bool) -> None:
    store = FailingStore(MemoryStore())
    bench = await make_bench(store)
    first = await lost_create(bench)
    second = await change(bench, "17", name="Anna")
    stored = all_of(first, second)
    store.fail("commit", change=Reindex, times=1, late=late)
    with pytest.raises(VaultError):
        await show(bench, "17", *stored)
    for _ in range(2):
        assert await show(bench, "17", *stored) == ["Anna", *list(ANN.values())[1:]]
    assert await states(bench) == (1, 0, 0)


async def test_an_answer_read_before_the_last_change_joins_nothing() -> None:
    bench = await make_bench()
    began = bench.clock()
    bench.clock.advance(1)
    first = await lost_create(bench, name="Ann", email="ann@example.com")
    second = await change(bench, "17", name="Bo", email="bo@example.com")
    stale = [AnswerObject("17", tuple(all_of(first)))]
    for _ in range(2):
        revealed = await reveal_objects(bench.people, stale)
        assert [value.text for value in revealed.values[0] if value] == ["Ann", "ann@example.com"]
        await reconcile_objects(bench.people, stale, revealed, began)
    assert (await bench.people.by_key(["17"]))["17"].rid == second.rid
    assert await show(bench, "17", *all_of(second)) == ["Bo", "bo@example.com"]


@table("create_first", [True, False])
async def test_a_change_that_meets_the_create_of_its_record_loses_nothing_of_either(
    create_first: bool,
) -> None:
    bench = await make_bench()
    first = (await stage_creates(bench.people, [draft(**ANN)], [None]))[0]
    second = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    for held in (first, second) if create_first else (second, first):
        await bind(bench.people, [(held, "17")])
    assert not bench.people.state.named, "nothing is under way any more"
    await after_a_week(bench)
    assert (await bench.people.by_key(["17"]))["17"].rid == second.rid
    assert await show(bench, "17", *all_of(first, second)) == ["Anna", *list(ANN.values())[1:]]
    assert await states(bench) == (1, 0, 0)


@table(("create_first", "named"), [(a, b) for a in (True, False) for b in (True, False)])
async def test_of_values_of_both_that_have_one_token_the_later_one_counts(
    create_first: bool, named: bool
) -> None:
    usual = person()
    constant = usual._replace(
        shapes={**usual.shapes, "born": SHAPES["fixed"]({"value": "1900-01-01"})}
    )
    bench = await make_bench(recipe=constant)
    first = await lost_create(bench) if create_first else None
    second = await change(bench, "17", born="1990-05-05", **({"name": "Anna"} if named else {}))
    first = first or await lost_create(bench)
    stored = all_of(first, second)
    wanted = "1990-05-05" if create_first or named else ANN["born"]  # what is shown beside it tells
    for _ in range(2):
        assert (await show(bench, "17", *stored))[3] == wanted
        assert (await states(bench))[:2] == (1, 0)


def weak() -> TableSpec:
    """Persons of whom only the e-mail address is found by its token, and others may have the same."""
    usual = person()
    shapes = {"name": SHAPES["fixed"]({"value": "X"}), "phone": SHAPES["numeric"]({"same": True})}
    return usual._replace(shapes={**usual.shapes, **shapes})


async def nameless(bench: Bench, **values: str) -> StagedWrite:
    """A create that the application took without telling an id."""
    held = (await stage_creates(bench.people, [draft(**values)], [None]))[0]
    await accept(bench.people, [held])
    bench.clock.advance(1)
    return held


MOTHER = {"name": "Mother", "email": "family@example.com", "born": "1970-01-01"}
CHILD = {"name": "Child", "email": "Family@Example.com", "born": "2015-05-05"}


@table("phones", [False, True])
@table("order", [(0, 1), (1, 0)])
async def test_two_without_a_name_that_share_a_token_are_told_by_what_contradicts(
    order: tuple[int, ...], phones: bool
) -> None:
    bench = await make_bench(recipe=weak())
    people = [dict(MOTHER), dict(CHILD)]
    for number, one in enumerate(people if phones else ()):
        one["phone"] = f"070111111{number}"
    held = [await nameless(bench, **one) for one in people]
    for _ in range(2):
        for at in order:
            assert await show(bench, str(at), *all_of(held[at])) == list(people[at].values())
    rows = await bench.people.by_key(["0", "1"])
    assert [rows[key].rid for key in ("0", "1")] == [one.rid for one in held]


async def test_a_list_that_shows_both_binds_each_to_its_own() -> None:
    bench = await make_bench(recipe=weak())
    held = [await nameless(bench, **one) for one in (MOTHER, CHILD)]
    shown = [AnswerObject("2", tuple(all_of(held[1]))), AnswerObject("1", tuple(all_of(held[0])))]
    revealed = await reveal_objects(bench.people, shown)
    assert [[value and value.text for value in values] for values in revealed.values] == [
        list(CHILD.values()),
        list(MOTHER.values()),
    ]
    await reconcile_objects(bench.people, shown, revealed, bench.clock())
    rows = await bench.people.by_key(["1", "2"])
    assert [rows[key].rid for key in ("1", "2")] == [one.rid for one in held]


@table("key", ["2", None])
async def test_of_several_without_a_name_that_fit_equally_none_is_bound_or_shown(
    key: str | None,
) -> None:
    bench = await make_bench(recipe=weak())
    values = [{name: one[name] for name in ("name", "email")} for one in (MOTHER, CHILD)]
    held = [await nameless(bench, **one) for one in values]
    assert (await show(bench, key, *all_of(held[1])))[0] is None
    assert await bench.people.by_key(["2"]) == {}
    await after_a_week(bench)
    assert await states(bench) == (2, 0, 0), "both are kept"
    await bind(bench.people, [(held[0], "1")])
    assert await show(bench, "2", *all_of(held[1])) == list(values[1].values()), (
        "the one that is left"
    )


async def test_one_without_a_name_that_fits_several_objects_is_none_of_them() -> None:
    bench = await make_bench(recipe=weak())
    held = await nameless(bench, name="Ann", email="ann@example.com")
    shown = [AnswerObject(key, tuple(all_of(held))) for key in ("1", "2")]
    revealed = await reveal_objects(bench.people, shown)
    assert [values[0] for values in revealed.values] == [None, None]
    await reconcile_objects(bench.people, shown, revealed, bench.clock())
    assert await bench.people.by_key(["1", "2"]) == {}


async def test_an_object_with_a_token_of_another_is_not_the_one_without_it() -> None:
    bench = await make_bench(recipe=weak())
    first = await nameless(bench, name="Mother", email="family@example.com")
    second = await nameless(bench, name="Child", email="family@example.com", phone="0702222222")
    assert await show(bench, "2", *all_of(second)) == ["Child", "family@example.com", "0702222222"]
    assert await show(bench, "1", *all_of(first)) == ["Mother", "family@example.com"]


async def test_a_token_that_too_many_share_leads_to_none() -> None:
    bench = await make_bench(recipe=weak())
    for number in range(TOKEN_RIDS):
        await change(bench, f"n{number}", name=f"N{number}", email="all@example.com")
    held = await nameless(bench, name="Ann", email="all@example.com")
    assert (await show(bench, "1", *all_of(held)))[0] is None
    assert await bench.people.by_key(["1"]) == {}


@table("by", ["the same key", "another key", "other values"])
@table("ends", ["failed", "killed", "late"])
async def test_a_create_that_is_sent_again_under_one_key_keeps_what_the_first_one_stored(by, ends):
    """The application has the tokens of the first, and answers the repetition with the id alone: they
    were dropped after a week without a reader.
    """
    one = await desk_of(rule_text(*USUAL))
    key = (*JSON, (b"Idempotency-Key", b"order-1"))
    first = await one.send("POST /p", ANN, key)
    if ends == "failed":
        await first.exchange.failed(True)
    if ends == "killed":
        one = await desk_of(rule_text(*USUAL), one)
    other = (*JSON, (b"idempotency-key", b"order-2")) if by == "another key" else key
    again = await one.send("POST /p", {**ANN, "name": "Bo"} if by == "other values" else ANN, other)
    await again.answer(201, {"id": 1})
    if ends == "late":
        await first.exchange.failed(True)
    for _ in range(2):
        one.clock.advance(RECONCILE_GRACE + 2 * WEEK)
        await reap(one.people, WEEK)
    assert (await one.counts())[:2] == (1, 0)
    shown = await one.shown({"id": 1, **first.json})
    assert (shown == {"id": 1, **ANN}) is (by == "the same key")
    await (await one.send("DELETE /p/1")).answer(204)
    assert await one.counts() == (0, 0, 0)


@table("doubtful", [False, True])
async def test_a_value_that_no_token_tells_is_of_the_create_that_was_taken_for_a_change(doubtful):
    """Its answer got lost, and it has two of the three fields. An earlier change of the record is in
    doubt, or not: the value of before was shown beside the new name.
    """
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}", PIN)
    one = await desk_of(rule_text(USUAL[0], *USUAL[2:], fields=fields))
    ann = {"name": "Ann", "phone": "+46 70 123 45 67", "pin": "1111", "id": 1}
    create = await one.send("POST /p", ann)
    await create.answer(201, {**create.json, "id": 1})
    if doubtful:
        update = await one.send("PATCH /p/1", {**ann, "name": "Bo", "pin": "2222"})
        await update.exchange.failed(True)
    lost = await one.send("POST /p", {"name": "Cy", "pin": "3333"})
    await lost.exchange.failed(True)
    for _ in range(3):
        shown = await one.shown({**create.json, **lost.json, "id": 1})
        assert shown == {**ann, "name": "Cy", "pin": "3333"}
        one.clock.advance(RECONCILE_GRACE + 1)


@table("under_way", [False, True])
@table(
    ("then", "last", "pin"),
    [
        ({"phone": "+46 70 765 43 21"}, False, "3333"),
        ({"phone": "+46 70 765 43 21", "pin": "4444"}, False, "4444"),
        ({"pin": "1111"}, False, "1111"),
        ({"name": "Di", "pin": "4444"}, False, "4444"),
        ({"name": "Di", "pin": "4444"}, True, "3333"),  # its name tells that it came behind
    ],
)
async def test_a_change_behind_a_lost_create_counts_where_no_token_tells(
    then: dict[str, str], last: bool, pin: str, under_way: bool
) -> None:
    """The application took the create for a change of the record, and then a change by its id that
    was acknowledged: the value of the create was shown for that. ``last``: in the other order.
    """
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}", PIN)
    one = await desk_of(rule_text(USUAL[0], *USUAL[2:], fields=fields))
    ann = {"name": "Ann", "phone": "+46 70 123 45 67", "pin": "1111", "id": 1}
    create = await one.send("POST /p", ann)
    await create.answer(201, {**create.json, "id": 1})
    lost = await one.send("POST /p", {"name": "Cy", "pin": "3333"})
    await lost.exchange.failed(True)
    change = await one.send("PATCH /p/1", then)
    stored = {**create.json, **lost.json, **change.json, "id": 1}
    await change.answer(200, stored)
    if under_way:
        other = await one.send("PATCH /p/1", {"phone": "+46 70 999 99 99"})
        await other.exchange.failed(True)
    stored |= lost.json if last else {}
    for _ in range(3):
        shown = await one.shown(stored)
        assert shown == {
            **ann,
            "name": "Cy",
            **then,
            **({"name": "Cy"} if last else {}),
            "pin": pin,
        }
        one.clock.advance(RECONCILE_GRACE + 1)


async def test_a_create_that_is_answered_with_a_changed_record_has_its_value_that_no_token_tells():
    """The change got no answer. Its value was replaced by the one of before."""
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}", PIN)
    one = await desk_of(rule_text(USUAL[0], *USUAL[2:], fields=fields))
    ann = {"name": "Ann", "phone": "+46 70 123 45 67", "pin": "1111", "id": 1}
    stored = (await one.create({name: ann[name] for name in ("name", "phone", "pin")})) | {"id": 1}
    lost = await one.send("PATCH /p/1", {"name": "Bo", "pin": "2222"})
    await lost.exchange.failed(True)
    again = await one.send("POST /p", {"name": "Cy", "phone": "+46 70 765 43 21"})
    stored |= lost.json
    for shown in (await again.seen(201, stored), await one.shown(stored), await one.shown(stored)):
        assert shown == {**ann, "name": "Bo", "pin": "2222"}
        one.clock.advance(RECONCILE_GRACE + 1)


async def test_of_two_changes_that_no_token_tells_apart_the_one_that_is_shown_counts():
    """The first got no answer, and might have come behind the second. A create then is answered late
    with the record as it had been between: the value of the first was shown beside the second's name.
    """
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}", PIN)
    one = await desk_of(rule_text(USUAL[0], *USUAL[2:], fields=fields))
    ann = {"name": "Ann", "phone": "+46 70 123 45 67"}
    await one.create(ann)
    lost = await one.send("PATCH /p/1", {"name": "Bo", "pin": "2222"})
    await lost.exchange.failed(True)
    late = await one.send("POST /p", {"name": "Cy", "phone": "+46 70 765 43 21"})
    changes = {"name": "Di", "phone": "+46 70 888 88 88", "pin": "4444"}
    change = await one.send("PATCH /p/1", changes)
    stored = {"id": 1, **change.json}
    await change.answer(200, stored)
    for refused in ({"name": "Ed"}, {"phone": "+46 70 999 99 99"}):  # both have some of it, too
        await (await one.send("PATCH /p/1", refused)).exchange.failed(True)
    await late.answer(201, {"id": 1, **late.json})
    for _ in range(3):
        one.clock.advance(1)
        assert await one.shown(stored) == {"id": 1, **changes}
        one.clock.advance(RECONCILE_GRACE)


@table("by", ["bind", "answer"])
async def test_an_answer_under_way_is_told_by_what_has_become_a_part_of_another_record(
    by: str,
) -> None:
    """Two creates got one id, and a change came after. The tokens of the first were shown."""
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}")
    one = await desk_of(rule_text(*USUAL[:1], *USUAL[2:], fields=fields))
    first, second, change = (
        {"name": name, "phone": f"+46 70 123 45 {name}"} for name in ("11", "22", "33")
    )
    lost = await one.send("POST /p", first)
    reader = await one.send("GET /p/1")
    if by == "bind":
        await lost.answer(201, {"id": 1, **lost.json})
    again = await one.send("POST /p", second)
    await again.answer(201, {"id": 1, **again.json})
    if by == "answer":
        await lost.exchange.failed(True)
        assert await one.shown({"id": 1, **lost.json}) == {"id": 1, **first}
    update = await one.send("PATCH /p/1", change)
    await update.answer(200, {"id": 1, **update.json})
    assert await reader.seen(200, {"id": 1, **lost.json}) == {"id": 1, **first}
    assert await one.shown({"id": 1, **update.json}) == {"id": 1, **change}


async def test_a_create_that_is_answered_with_what_another_has_brought_has_that_ones_value():
    """The answer to the other one comes later. The value of the last was shown for its."""
    fields = ("name: {kind: name}", "phone: {kind: phone, token: {shape: numeric}}", PIN)
    one = await desk_of(rule_text(USUAL[0], *USUAL[2:], fields=fields))
    ann, lost, last = (
        {"name": name, "phone": f"+46 70 123 45 {name}", "pin": name} for name in ("11", "22", "33")
    )
    await one.create(ann)
    other = await one.send("POST /p", lost)
    again = await one.send("POST /p", last)
    stored = {"id": 1, **other.json}
    assert await again.seen(201, stored) == {"id": 1, **lost}
    await other.answer(201, {"id": 1})
    for _ in range(3):
        assert await one.shown(stored) == {"id": 1, **lost}
        one.clock.advance(RECONCILE_GRACE + 1)

from proxy.storage.rows import RowState
from proxy.vault.expiry import reap
from proxy.vault.proxied.binding import RECONCILE_GRACE, StagedWrite, forget_staged
from proxy.vault.proxied.deletes import deleted, reconcile_gone
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_deletes, stage_updates
from tests.support.exchanges import desk
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, token


async def ann(bench: Bench) -> StagedWrite:
    held = (
        await stage_creates(bench.people, [draft(name="Ann", email="ann@example.com")], [None])
    )[0]
    await bind(bench.people, [(held, "17")])
    return held


async def show(
    bench: Bench, key: str | None, began: int | None = None, **tokens: str
) -> list[str | None]:
    """An answer with this object arrives; the values that its caller sees."""
    bench.clock.advance(1)
    shown = [AnswerObject(key, tuple(tokens.items()))]
    revealed = await reveal_objects(bench.people, shown)
    await reconcile_objects(
        bench.people, shown, revealed, bench.clock() if began is None else began
    )
    return [value.text if value else None for value in revealed.values[0]]


async def states(bench: Bench) -> tuple[int, int, int]:
    return await bench.store.count(bench.people.table)


async def test_an_answer_that_shows_a_pending_record_with_its_id_binds_it() -> None:
    bench = await make_bench()
    held = (await stage_creates(bench.people, [draft(name="Ann")], [None]))[0]
    await doubt(bench.people, [held], answered=False)
    assert await show(bench, "17", name=token(held, "name")) == ["Ann"]
    row = (await bench.people.by_key(["17"]))["17"]
    assert (row.rid, row.state) == (held.rid, RowState.LIVE)


async def test_a_record_whose_own_request_is_still_under_way_is_left_to_it() -> None:
    bench = await make_bench()
    held = (await stage_creates(bench.people, [draft(name="Ann")], [None]))[0]
    await show(bench, "17", name=token(held, "name"))
    assert await bench.people.by_key(["17"]) == {}


async def test_a_list_that_a_change_overtook_keeps_no_other_record_with_the_same_value() -> None:
    """The application refused its create with an error, and never had it."""
    bench = await make_bench()
    shown = await ann(bench)
    tokens = {name: token(shown, name) for name in ("name", "email")}
    (refused,) = await stage_creates(
        bench.people, [draft(name="Anna", email="ann@example.com")], [None]
    )
    await doubt(bench.people, [refused], answered=True)
    bench.clock.advance(1)
    began = bench.clock()
    bench.clock.advance(1)
    (change,) = await stage_updates(bench.people, [("17", draft(email="other@example.com"))])
    await promote(bench.people, change, {})
    assert await show(bench, "17", began, **tokens) == ["Ann", "ann@example.com"]
    assert await states(bench) == (2, 1, 0), "nothing has shown it"
    bench.clock.advance(1)
    assert await show(bench, "18", email=token(refused, "email")) == ["ann@example.com"]
    assert await states(bench) == (2, 0, 0), "some record has the value"


async def test_a_list_that_a_delete_overtook_keeps_no_other_record_with_the_same_value() -> None:
    """The application refused the create of one with an error, and may have the other."""
    bench = await make_bench()
    shown = await ann(bench)
    drafts = [draft(name=name, email="ann@example.com") for name in ("Anna", "Anne")]
    refused, made = await stage_creates(bench.people, drafts, [None, None])
    await doubt(bench.people, [refused, made], answered=True)
    bench.clock.advance(1)
    began = bench.clock()
    await deleted(bench.people, await stage_deletes(bench.people, ["17"]))
    assert await states(bench) == (2, 2, 0)
    await show(bench, "17", began, name=token(shown, "name"), email=token(shown, "email"))
    assert await states(bench) == (2, 2, 0), "nothing has shown either"
    await show(bench, "18", began, name=token(made, "name"), email=token(made, "email"))
    assert (await bench.people.by_key(["18"]))["18"].rid == made.rid
    bench.clock.advance(1)
    await show(bench, "17", name=token(refused, "name"), email=token(refused, "email"))
    assert await states(bench) == (2, 0, 0), "the id is given again"


async def test_new_tokens_promote_a_doubtful_update() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    assert await show(bench, "17", name=token(new, "name")) == ["Anna"]
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", name=token(old, "name")) == [None]
    assert await show(bench, "17", email=token(old, "email")) == ["ann@example.com"]


async def test_old_tokens_drop_an_update_that_the_application_answered_with_an_error() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=True)
    assert await show(bench, "17", name=token(old, "name")) == ["Ann"]
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", name=token(new, "name")) == [None]


async def test_old_tokens_do_not_drop_an_update_that_may_still_be_at_work() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    await show(bench, "17", name=token(old, "name"))
    assert await show(bench, "17", name=token(new, "name")) == ["Anna"], (
        "the application was only slow"
    )


async def test_after_the_grace_old_tokens_drop_it() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    bench.clock.advance(RECONCILE_GRACE + 1)
    await show(bench, "17", name=token(old, "name"))
    assert await states(bench) == (1, 0, 0)


async def test_an_answer_asked_for_before_the_doubt_decides_nothing() -> None:
    bench = await make_bench()
    old = await ann(bench)
    began = bench.clock()
    bench.clock.advance(10)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=True)
    await show(bench, "17", began, name=token(old, "name"))
    assert (await states(bench))[2] == 1


async def test_a_field_that_is_not_shown_stays_undecided() -> None:
    bench = await make_bench()
    old = await ann(bench)
    new = (
        await stage_updates(bench.people, [("17", draft(name="Anna", email="anna@example.com"))])
    )[0]
    await doubt(bench.people, [new], answered=True)
    await show(bench, "17", name=token(new, "name"))
    assert (await states(bench))[2] == 1, "nobody has seen the e-mail address yet"
    for side, value in ((old, "ann@example.com"), (new, "anna@example.com")):
        assert (
            await reveal_objects(
                bench.people, [AnswerObject("17", (("email", token(side, "email")),))]
            )
        ).values[0][0].text == value  # type: ignore[union-attr]  # both versions resolve
    await show(bench, "17", name=token(new, "name"), email=token(new, "email"))
    assert await states(bench) == (1, 0, 0)


async def test_what_another_process_left_in_flight_is_doubtful_to_the_next_one() -> None:
    first = await make_bench()
    keyset = first.people.context.keyset
    old = await ann(first)
    new = (await stage_updates(first.people, [("17", draft(name="Anna"))]))[0]
    first.clock.advance(5)
    second = await make_bench(first.store, keyset)
    second.clock.now = first.clock.now + 5
    assert await show(second, "17", name=token(new, "name")) == ["Anna"]
    assert await states(second) == (1, 0, 0)
    assert await show(second, "17", name=token(old, "name")) == [None]


async def test_a_delete_in_doubt_is_settled_by_a_404_and_undone_by_a_showing() -> None:
    bench = await make_bench()
    held = await ann(bench)
    for answer in ("shown", "gone"):
        doomed = await stage_deletes(bench.people, ["17"])
        await doubt(bench.people, doomed, answered=True)
        if answer == "shown":
            assert await show(bench, "17", name=token(held, "name")) == ["Ann"]
            assert await states(bench) == (1, 0, 0)
    bench.clock.advance(1)
    await reconcile_gone(bench.people, ["17"], bench.clock())
    assert await states(bench) == (0, 0, 0)


async def test_a_404_without_a_delete_in_doubt_deletes_nothing() -> None:
    bench = await make_bench()
    await ann(bench)
    await reconcile_gone(bench.people, ["17"], bench.clock())
    assert await states(bench) == (1, 0, 0)


async def test_an_update_that_succeeds_beside_a_doubtful_one_does_not_lose_either() -> None:
    bench = await make_bench()
    old = await ann(bench)
    first = (await stage_updates(bench.people, [("17", draft(email="new@example.com"))]))[0]
    await doubt(bench.people, [first], answered=True)
    second = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await promote(bench.people, second, {})
    forget_staged(bench.people, [second])
    shown = await show(bench, "17", name=token(second, "name"), email=token(first, "email"))
    assert shown == ["Anna", "new@example.com"]
    assert await states(bench) == (1, 0, 0)
    assert await show(bench, "17", email=token(old, "email")) == [None]


async def test_a_value_put_back_beside_a_doubtful_one_survives_the_promotion_of_that_one() -> None:
    bench = await make_bench()
    await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    back = (await stage_updates(bench.people, [("17", draft(name="Ann"))]))[0]
    assert await show(bench, "17", name=token(new, "name")) == ["Anna"]
    await promote(bench.people, back, {"name": (token(back, "name"),)})
    assert await show(bench, "17", name=token(back, "name")) == ["Ann"]
    assert await states(bench) == (1, 0, 0)


async def test_an_answer_that_was_asked_for_before_the_last_update_promotes_nothing() -> None:
    bench = await make_bench()
    await ann(bench)
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    await doubt(bench.people, [new], answered=False)
    asked = bench.clock()
    bench.clock.advance(1)
    back = (await stage_updates(bench.people, [("17", draft(name="Ann"))]))[0]
    await promote(bench.people, back, {})
    assert await show(bench, "17", asked, name=token(new, "name")) == ["Anna"]
    assert await show(bench, "17", name=token(back, "name")) == ["Ann"]


@table("keeps_new", [True, False])
async def test_a_read_that_began_in_the_millisecond_of_a_doubt_decides_nothing(keeps_new):
    """It may have been answered before the request whose outcome is in doubt was carried out."""
    one = await desk()
    before = await one.create({"name": "Ann Ek", "born": "1950-05-05"})
    update = await one.send("PATCH /p/1", {"name": "Ann Alm"})
    read = await one.send("GET /p/1")
    await update.answer(500, {"error": "late"})
    after = {**before, **update.json}
    first, then = (before, after) if keeps_new else (after, before)
    names = {before["name"]: "Ann Ek", after["name"]: "Ann Alm"}
    assert (await read.seen(200, first))["name"] == names[first["name"]]
    for _ in range(2):
        assert (await one.shown(then))["name"] == names[then["name"]]
        await reap(one.people, 0)


async def test_a_read_that_began_in_the_millisecond_of_a_change_shows_what_that_replaced():
    one = await desk()
    before = await one.create({"name": "Ann Ek"})
    update = await one.send("PATCH /p/1", {"name": "Ann Alm"})
    read = await one.send("GET /p/1")
    await update.answer(200, {**before, **update.json})
    assert (await read.seen(200, before))["name"] == "Ann Ek"

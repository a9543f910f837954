"""What an update that was taken leaves of the record and of versions in doubt."""

import asyncio
from threading import get_ident
from typing import Any

from msgspec.structs import replace

from proxy.offload import FEW
from proxy.storage.changes import Remove
from proxy.storage.rows import Row
from proxy.tokenization import SHAPES
from proxy.vault.body import RecordBody, TokenizedFields, TokenizedValue
from proxy.vault.proxied.binding import RECONCILE_GRACE, StagedWrite
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reconcile import reconcile_objects
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import doubt, promote, stage_creates, stage_updates
from tests.support.exchanges import FIELDS, USUAL, desk_of, rule_text
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, person, token


async def constant() -> Bench:
    """A record ``17`` with a date whose token is the same whatever it is."""
    usual = person()
    recipe = usual._replace(
        shapes={**usual.shapes, "born": SHAPES["fixed"]({"value": "1900-01-01"})}
    )
    bench = await make_bench(recipe=recipe)
    (held,) = await stage_creates(
        bench.people, [draft(name="Ann", born="1987-04-12", tags=["a", "b"])], [None]
    )
    await bind(bench.people, [(held, "17")])
    return bench


async def stage(bench: Bench, **values: str | list[str]) -> StagedWrite:
    bench.clock.advance(1)
    return (await stage_updates(bench.people, [("17", draft(**values))]))[0]


async def live(bench: Bench) -> tuple[Row, RecordBody]:
    (row,) = (await bench.people.by_key(["17"])).values()
    return row, bench.people.sealer.open(row)


async def texts(bench: Bench, name: str) -> list[str]:
    return [kept.text for kept in (await live(bench))[1].values[name]]


@table("shown", [{}, {"born": ("1900-01-01",)}])
async def test_a_value_that_has_the_token_of_the_one_before_is_taken(
    shown: dict[str, tuple[str, ...]],
) -> None:
    bench = await constant()
    held = await stage(bench, born="1990-05-05")
    await promote(bench.people, held, shown)
    assert await texts(bench, "born") == ["1990-05-05"]


@table(
    ("sent", "shown", "kept", "before_stays"),
    [
        (["c"], (0, 1), ["c"], True),
        (["c"], (1, 0), ["c"], True),
        (["c"], (2, 0), ["c", "a"], False),
        (["a", "c"], (0,), ["a", "c"], False),
        (["b", "a"], (0, 1), ["b", "a"], True),
        (["b", "a"], (1, 0), ["b", "a"], False),
        (["b"], (1,), ["b"], False),
        (["b"], (1, 0), ["b"], True),
    ],
)
async def test_what_an_answer_shows_of_a_list_stays_and_all_of_before_where_it_shows_that_alone(
    sent: list[str], shown: tuple[int, ...], kept: list[str], before_stays: bool
) -> None:
    bench = await constant()
    before = [one.token for one in (await live(bench))[1].values["tags"]]
    held = await stage(bench, tags=sent)
    tokens = [*before, *[one.token for one in held.tokens["tags"] if one.token not in before]]
    await promote(bench.people, held, {"tags": tuple(tokens[index] for index in shown)})
    assert await texts(bench, "tags") == kept
    assert (await live(bench))[0].staged == before_stays


@table("later", ["1995-01-01", "1987-04-12"])
@table("name", ["", "Bo"])
async def test_what_was_acknowledged_decides_versions_in_doubt(later: str, name: str) -> None:
    bench = await constant()
    doubtful = await stage(bench, born="1990-05-05", **({"name": name} if name else {}))
    await doubt(bench.people, [doubtful], answered=False)
    held = await stage(bench, born=later)
    await promote(bench.people, held, {})
    row, _ = await live(bench)
    assert await texts(bench, "born") == [later]
    assert row.staged == (1 if name else 0)
    if name:
        bench.clock.advance(1)
        shown = [AnswerObject("17", (("name", token(doubtful, "name")), ("born", "1900-01-01")))]
        for _ in range(2):
            revealed = await reveal_objects(bench.people, shown)
            assert [value.text for value in revealed.values[0] if value] == ["Bo", later]
            await reconcile_objects(bench.people, shown, revealed, bench.clock())
            bench.clock.advance(1)
        assert (await live(bench))[0].staged == 0


class Watched(dict[str, tuple[TokenizedValue, ...]]):
    """Values of a version that remember which threads have looked at them."""

    def __init__(self, values: TokenizedFields) -> None:
        super().__init__(values)
        self.threads: set[int] = set()

    def items(self) -> Any:
        self.threads.add(get_ident())
        return super().items()

    def get(self, name: str, otherwise: Any = None) -> Any:
        self.threads.add(get_ident())
        return super().get(name, otherwise)


@table("count", [1, FEW + 1])
async def test_versions_of_many_values_are_compared_on_another_thread(count: int) -> None:
    bench = await constant()
    held = await stage(bench, tags=[f"tag {number}" for number in range(count)])
    assert held.live is not None
    values = Watched(held.live.values)
    held.live = replace(held.live, values=values)
    await promote(bench.people, held, {"tags": tuple(one.token for one in held.tokens["tags"])})
    assert len(await texts(bench, "tags")) == count
    assert (get_ident() in values.threads) == (count == 1)


async def test_a_version_that_is_under_way_is_left_alone() -> None:
    bench = await constant()
    other = await stage(bench, born="1990-05-05")
    held = await stage(bench, born="1995-01-01")
    await promote(bench.people, held, {})
    await promote(bench.people, other, {})
    assert await texts(bench, "born") == ["1990-05-05"]


async def test_nothing_is_made_of_a_record_that_is_gone() -> None:
    bench = await constant()
    held = await stage(bench, born="1990-05-05")
    await bench.store.commit(bench.people.table, [Remove(held.rid)])
    await promote(bench.people, held, {})
    assert await bench.store.count(bench.people.table) == (0, 0, 0)


PIN = "pin: {kind: text, token: {shape: fixed, value: hidden}}"


def card(number: int) -> dict[str, str]:
    return {"name": f"Person Number {number}", "pin": f"pin-{number}"}


@table("late", [True, False])
async def test_what_no_token_tells_follows_the_tokens_of_an_update_that_came_later(
    late: bool,
) -> None:
    """An update whose answer got lost may be carried out behind one that was acknowledged."""
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, PIN)))
    stored = await one.create(card(1))
    lost = await one.send("PATCH /p/1", card(2))
    await lost.exchange.failed(True)
    one.clock.advance(1)
    taken = await one.send("PATCH /p/1", card(3))
    await taken.answer(200, {**stored, **taken.json})
    for _ in range(2):
        one.clock.advance(1)
        shown = await one.shown({**stored, **(lost if late else taken).json})
        assert shown == {"id": 1, **card(2 if late else 3)}


async def test_a_create_that_is_joined_to_another_one_is_kept_where_that_shows_the_record_before() -> (
    None
):
    """Three creates got one id. The last took place; the answer of one shows the first of them."""
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, PIN)))
    before = await one.create(card(1))
    last, other = await one.send("POST /p", card(2)), await one.send("POST /p", card(3))
    gate = one.store.pause("by_keys")
    answered = asyncio.ensure_future(other.answer(200, before))
    await gate.reached()
    assert await last.seen(200, {"id": 1, **last.json}) == {"id": 1, **card(2)}
    gate.open()
    await answered
    for _ in range(2):
        one.clock.advance(RECONCILE_GRACE + 1)
        assert await one.shown({"id": 1, **last.json}) == {"id": 1, **card(2)}


async def test_a_create_that_shares_its_id_with_one_that_is_just_getting_it_outlives_that() -> None:
    """It was made a part of that record, which had no id yet, and went with it a week later."""
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, PIN)))
    await one.create(card(1))
    last, other = await one.send("POST /p", card(2)), await one.send("POST /p", card(3))
    gate = one.store.pause("by_keys")
    answered = asyncio.ensure_future(other.answer(200, {"id": 1, **other.json}))
    await gate.reached()
    assert await last.seen(200, {"id": 1, **last.json}) == {"id": 1, **card(2)}
    answered.cancel()  # its process is killed
    gate.open()
    one = await desk_of(rule_text(*USUAL, fields=(*FIELDS, PIN)), one)
    for _ in range(2):
        one.clock.advance(RECONCILE_GRACE + 14 * 86_400_000)
        await one.vault.maintain()
    assert await one.shown({"id": 1, **last.json}) == {"id": 1, **card(2)}

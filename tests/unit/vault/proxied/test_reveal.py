import asyncio

from proxy.model.schema import Value
from proxy.storage.changes import Insert, Remove
from proxy.vault.proxied.binding import StagedWrite
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.open_rows import AnswerObject
from proxy.vault.proxied.reveal import reveal_objects
from proxy.vault.proxied.staging import promote, stage_creates, stage_updates
from tests.support.memory import MemoryStore
from tests.support.stores import FailingStore
from tests.support.table import table
from tests.support.vaults import Bench, draft, make_bench, token


async def person(bench: Bench, key: str, name: str, **more: str) -> StagedWrite:
    held = (await stage_creates(bench.people, [draft(name=name, **more)], [None]))[0]
    await bind(bench.people, [(held, key)])
    return held


async def test_a_list_is_one_look_up_however_long() -> None:
    bench = await make_bench()
    held = [
        await person(bench, str(number), f"P{number}", email=f"p{number}@example.com")
        for number in range(50)
    ]
    calls = bench.verbs()
    shown = [AnswerObject(None, (("name", token(item, "name")),)) for item in held]
    revealed = await reveal_objects(bench.people, shown)
    assert [values[0].text for values in revealed.values if values[0]] == [
        f"P{number}" for number in range(50)
    ]
    assert calls == ["rows"]


async def test_same_value_tokens_resolve_to_the_spelling_of_the_record_at_hand() -> None:
    bench = await make_bench()
    upper = await person(bench, "1", "A", email="Ann@Example.com")
    lower = await person(bench, "2", "B", email="ann@example.com")
    assert token(upper, "email") == token(lower, "email")
    shown = [AnswerObject(key, (("email", token(upper, "email")),)) for key in ("1", "2")]
    revealed = await reveal_objects(bench.people, shown)
    assert [row[0] and row[0].text for row in revealed.values] == [
        "Ann@Example.com",
        "ann@example.com",
    ]


async def test_look_alikes_and_other_text_stay_what_they_are() -> None:
    bench = await make_bench()
    held = await person(bench, "1", "Ann")
    real = token(held, "name")
    fake = real[:-1] + ("A" if real[-1] != "A" else "B")
    revealed = await reveal_objects(
        bench.people,
        [AnswerObject("1", (("name", fake), ("name", "plain"), ("email", "x@example.org")))],
    )
    assert revealed.values == [[None, None, None]]


@table("field", ["name", "email", "phone", "born"])
@table("ident", ["1", None, "2"])
async def test_a_token_opens_in_no_other_field_of_its_schema(field: str, ident: str | None) -> None:
    bench = await make_bench()
    held = await person(
        bench, "1", "Ann", email="ann@example.com", phone="+46 70 123 45 67", born="1987-04-12"
    )
    await person(bench, "2", "Bo")
    text = token(held, field)
    others = [name for name in ("name", "email", "phone", "born", "tags") if name != field]
    assert (
        await reveal_objects(
            bench.people, [AnswerObject(ident, tuple((name, text) for name in others))]
        )
    ).values == [[None] * 4]
    at_home = (await reveal_objects(bench.people, [AnswerObject("1", ((field, text),))])).values[0][
        0
    ]
    assert at_home == held.tokens[field][0].value


async def test_a_token_outside_of_its_field_does_not_tell_whose_the_small_ones_beside_it_are() -> (
    None
):
    bench = await make_bench()
    held = await person(bench, "1", "Ann", born="1987-04-12")
    born = ("born", token(held, "born"))
    assert (
        await reveal_objects(
            bench.people, [AnswerObject(None, (("tags", token(held, "name")), born))]
        )
    ).values == [[None, None]]
    beside = (
        await reveal_objects(
            bench.people, [AnswerObject(None, (("name", token(held, "name")), born))]
        )
    ).values[0]
    assert [value and value.text for value in beside] == ["Ann", "1987-04-12"]


async def test_a_damaged_row_fails_alone() -> None:
    bench = await make_bench()
    good = await person(bench, "1", "Ann")
    bad = await person(bench, "2", "Bo")
    table = bench.people.table
    row = (await bench.store.rows(table, [bad.rid]))[bad.rid]
    broken = row._replace(body=row.body[:-1] + bytes([row.body[-1] ^ 1]), version=row.version + 1)
    from proxy.storage.changes import Replace

    await bench.store.commit(table, [Replace(broken, row.version)])
    revealed = await reveal_objects(
        bench.people,
        [
            AnswerObject("1", (("name", token(good, "name")),)),
            AnswerObject("2", (("name", token(bad, "name")),)),
        ],
    )
    assert [row[0] and row[0].text for row in revealed.values] == ["Ann", None]
    assert bench.events["unopenable"] >= 1


async def test_a_row_under_the_key_of_another_record_is_not_that_record() -> None:
    bench = await make_bench()
    await person(bench, "7", "Ann")
    await person(bench, "8", "Bo")
    table, rows = bench.people.table, await bench.people.by_key(("7", "8"))
    one, other = rows["7"], rows["8"]
    await bench.store.commit(table, [Remove(one.rid), Remove(other.rid)])
    await bench.store.commit(
        table, [Insert(one._replace(key=other.key)), Insert(other._replace(key=one.key))]
    )
    assert await bench.people.by_key(("7", "8")) == {}
    assert bench.events["tampered"] == 2


async def test_swapped_bodies_do_not_open() -> None:
    bench = await make_bench()
    one, two = await person(bench, "1", "Ann"), await person(bench, "2", "Bo")
    from proxy.storage.changes import Replace

    rows = await bench.store.rows(bench.people.table, [one.rid, two.rid])
    swapped = rows[one.rid]._replace(body=rows[two.rid].body, salt=rows[two.rid].salt)
    await bench.store.commit(bench.people.table, [Replace(swapped, swapped.version)])
    assert (
        await reveal_objects(bench.people, [AnswerObject("1", (("name", token(one, "name")),))])
    ).values == [[None]]


async def test_a_version_that_is_settled_between_two_reads_is_not_overlooked() -> None:
    store = FailingStore(MemoryStore())
    bench = await make_bench(store)
    await person(bench, "17", "Ann")
    new = (await stage_updates(bench.people, [("17", draft(name="Anna"))]))[0]
    gate = store.pause("staged")
    reading = asyncio.create_task(
        reveal_objects(bench.people, [AnswerObject("17", (("name", token(new, "name")),))])
    )
    await gate.reached()
    await promote(bench.people, new, {})
    gate.open()
    assert (await reading).values == [[Value("Anna")]]

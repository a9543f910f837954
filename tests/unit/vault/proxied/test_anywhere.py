from proxy.vault.proxied.anywhere import own, reveal_anywhere
from proxy.vault.proxied.naming import bind
from proxy.vault.proxied.staging import stage_creates
from tests.support.vaults import draft, make_bench, token


async def test_only_same_value_tokens_beyond_chance_are_known_as_own() -> None:
    bench = await make_bench()
    held = (
        await stage_creates(
            bench.people,
            [draft(name="A", email="ann@example.com", phone="+46 70 123 45 67")],
            [None],
        )
    )[0]
    await bind(bench.people, [(held, "1")])
    places = [(name, token(held, name)) for name in ("name", "email", "phone")]
    assert await own(
        bench.people, [*places, ("email", "someone@example.org"), ("name", token(held, "email"))]
    ) == {("email", token(held, "email"))}


async def test_tokens_in_running_text_stand_for_the_values_of_their_own_fields() -> None:
    bench = await make_bench()
    held = (
        await stage_creates(bench.people, [draft(name="Ann", email="ann@example.com")], [None])
    )[0]
    found = await reveal_anywhere(
        bench.people, [token(held, "name"), token(held, "email"), "plain"]
    )
    assert {text: (name, value.text) for text, (name, value) in found.values.items()} == {
        token(held, "name"): ("name", "Ann"),
        token(held, "email"): ("email", "ann@example.com"),
    }
    assert [one.row.rid for one in found.loose] == [held.rid]

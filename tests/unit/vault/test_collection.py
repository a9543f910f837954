from typing import Any, cast

from proxy.model.schema import Value
from proxy.storage.rows import RowState
from proxy.vault.body import RecordBody, TokenizedValue
from proxy.vault.table_state import Sequencer
from tests.support.clock import ManualClock
from tests.support.vaults import make_bench, person


def kept(text: str, token: str) -> TokenizedValue:
    return TokenizedValue(1, text, False, token, False)


async def test_cells_hold_a_hash_of_the_normal_form_or_the_plain_value() -> None:
    bench = await make_bench()
    rows = [
        bench.people.new_row(
            RecordBody({"email": (kept(mail, "t"),), "born": (kept("12.04.1987", "d"),)}),
            rid,
            b"s" * 16,
        )
        for rid, mail in ((1, "Ann@Example.com "), (2, "ann@example.COM"), (3, "bo@example.com"))
    ]
    hashes = [row.cells[0] for row in rows]
    assert hashes[0] == hashes[1] != hashes[2]
    assert isinstance(hashes[0], bytes)
    assert len(hashes[0]) == 16
    assert rows[0].cells[1] == "1987-04-12"


async def test_a_new_row_is_pending_without_a_key_and_the_next_one_counts_on() -> None:
    bench = await make_bench(recipe=person(expires=1000))
    row = bench.people.new_row(RecordBody({}), 5, b"s" * 16)
    assert (row.state, row.key, row.version, row.expires_at) == (
        RowState.PENDING,
        None,
        1,
        bench.clock() + 1000,
    )
    bench.clock.advance(10)
    following = bench.people.next_row(row, RecordBody({}))
    assert (following.version, following.updated_at, following.expires_at) == (
        2,
        bench.clock(),
        bench.clock() + 1000,
    )
    assert following.created_at == row.created_at


async def test_beside_other_owners_a_replaced_version_shows_no_field_that_the_live_one_lacks() -> (
    None
):
    """Another owner may have taken the value away, and tells nobody."""
    bench = await make_bench()
    people, began = bench.people, bench.clock()
    before = RecordBody({"name": (kept("Ann", "t"),), "email": (kept("a@x.org", "u"),)})
    live = RecordBody({"name": (kept("Bo", "v"),)})
    row = people.new_row(before, 5, b"s" * 16)
    bench.clock.advance(1)
    people.next_row(row, live)
    assert [one.values for one in people.past(5, began, live)] == [before.values]
    people.state.replicas = cast(Any, object())
    assert [one.values for one in people.past(5, began, live)] == [{"name": before.values["name"]}]
    assert [one.values for one in people.past(5, began, before)] == [before.values]


async def test_a_replaced_version_whose_key_has_gone_is_none_that_an_answer_may_show() -> None:
    """A page that is slower than a save and two rotations failed: the rest of it is shown."""
    bench = await make_bench()
    people, keyset, began = bench.people, bench.vault.keyset, bench.clock()
    row = people.new_row(RecordBody({"name": (kept("Ann", "t"),)}), 5, b"s" * 16)
    bench.clock.advance(1)
    people.next_row(row, RecordBody({}))
    assert [one.values["name"][0].text for one in people.past(5, began)] == ["Ann"]
    for _ in range(2):
        keyset.adopt(keyset.rotated())
        keyset.forget(keyset.without(keyset.data_keys[:-1]))
    assert list(people.past(5, began)) == []


async def test_every_field_has_its_own_key_space() -> None:
    bench = await make_bench()
    assert bench.people.token_hash("name", "t") != bench.people.token_hash("tags", "t")
    assert bench.people.key_hash("17") != bench.people.key_hash("18")


async def test_only_tokens_that_need_it_are_indexed_and_random_ones_are_unique() -> None:
    bench = await make_bench()
    mint = bench.people.mint(1)
    fields = {
        name: (TokenizedValue(1, text, False, mint(name, Value(text), 1).text, False),)
        for name, text in {
            "name": "Ann",
            "email": "a@example.com",
            "phone": "0701234567",
            "born": "1987-04-12",
        }.items()
    }
    hashes, unique = await bench.people.index_entries(fields)
    assert hashes == {
        bench.people.token_hash(name, fields[name][0].token) for name in ("email", "phone")
    }
    assert unique == {bench.people.token_hash("phone", fields["phone"][0].token)}
    before = {"phone": fields["phone"]}
    assert await bench.people.index_entries(fields, before) == (hashes - unique, set())


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str(self) == other

    def __hash__(self) -> int:
        return hash(str(self))


async def test_what_an_update_adds_is_told_with_few_comparisons() -> None:
    bench = await make_bench()

    def several(first: int, end: int) -> tuple[TokenizedValue, ...]:
        return tuple(
            TokenizedValue(number, "text", False, Counted(10**10 + number), False)
            for number in range(first, end)
        )

    values, stored = several(500, 1500), several(0, 1000)
    Counted.compared = 0

    hashes, unique = await bench.people.index_entries({"phone": values}, {"phone": stored})
    assert (
        unique
        == hashes
        == {bench.people.token_hash("phone", str(one.token)) for one in values[500:]}
    )
    assert Counted.compared <= 3 * len(values)


async def test_identify_knows_the_record_of_a_token_in_any_field() -> None:
    bench = await make_bench()
    token = bench.people.mint(77)("name", Value("Ann"), 3).text
    assert bench.people.identify("name", token) == 77
    assert bench.people.identify("born", token) == 77
    assert bench.people.identify("name", "Ann") is None


def test_ids_grow_with_time_and_within_a_millisecond_and_never_shrink() -> None:
    clock = ManualClock()
    sequence = Sequencer(clock)
    ids = [sequence(), sequence()]
    clock.advance(1)
    ids.append(sequence())
    clock.advance(-1000)
    ids.append(sequence())
    assert ids == sorted(set(ids))
    assert 0 < ids[0] < 2**63


def test_several_ids_are_as_many_single_ones() -> None:
    clock = ManualClock()
    one, several = Sequencer(clock), Sequencer(clock)
    assert list(several.several(3, clock())) == [one(), one(), one()]
    assert list(several.several(0, clock())) == []
    assert several() == one()
    clock.advance(1)
    assert [*several.several(1, clock()), several()] == [one(), one()]

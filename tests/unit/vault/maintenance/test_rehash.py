from functools import partial
from typing import Any

import msgspec
import pytest

from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.changes import AddVersion, Change, Conflict, Insert
from proxy.storage.rows import Past
from proxy.vault.maintenance import rehash as module
from proxy.vault.maintenance.rehash import (
    MOST_OLD,
    Rehash,
    RehashedRecord,
    rehash_profiles,
    resolve_rehashed,
)
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.merge import merge_records
from proxy.vault.records.update import change_records
from tests.support.contacts import Contacts
from tests.support.memory import MemoryStore
from tests.support.rehashing import OTHER_DTK, make_records, plan, record


async def run(held: Contacts, how: Rehash, *keys: str, most: int = 100) -> list[RehashedRecord]:
    return await rehash_profiles(held.records, how, keys, most, lambda _: ())


async def told(held: Contacts, *tokens: str) -> list[tuple[str, str | None, str, str]]:
    return [
        (one.token, one.record.key, one.name, one.newest)
        for one in await resolve_rehashed(held.records, tokens)
    ]


async def test_the_records_of_the_profile_keys_get_new_tokens_and_nothing_else_changes() -> None:
    held = await make_records()
    body = '{"email": "Ann@x.se", "age": 41}'
    await held.add(
        record("a", profile_key="p", key1="Ann", range_key1=7, body=body),
        record("b", profile_key="q", key1="Bo"),
        record("c", profile_key="p", key1=None),
        record("d"),
    )
    before = [await held.row(key) for key in "abcd"]
    how = plan(held, key1="alphaNumeric", email="emailPersistent", age="numeric", range_key1="zero")
    first, second = await run(held, how, "p", "none")
    assert (first.record.key, second.record.key) == ("a", "c")
    assert first.fields.keys() == {"key1", "email", "age", "range_key1"}
    assert second.fields == {"key1": None, "email": None, "age": None, "range_key1": None}
    assert first.fields["range_key1"] == 0
    assert isinstance(first.fields["age"], int)
    assert first.fields["key1"] != "Ann"
    assert "Ann@x.se" not in str(first.fields)
    after = [await held.row(key) for key in "abcd"]
    assert [row == other for row, other in zip(before, after, strict=True)] == [
        False,
        True,
        True,
        True,
    ]
    changed, kept = after[0], before[0]
    assert changed is not None
    assert kept is not None
    assert changed._replace(body=b"") == kept._replace(body=b"")
    opened = await held.get("a")
    assert opened is not None
    assert opened.fields["body"] == body
    assert held.events["rehashed"] == 2


async def test_large_tokens_lead_back_and_old_ones_to_the_newest() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann", key2="1980-02-28"))
    how = plan(held, key1="alphaNumeric", key2="date")
    tokens = [(await run(held, how, "p"))[0].fields for _ in range(3)]
    first, second, third = (one["key1"] for one in tokens)
    assert len({first, second, third}) == 3
    assert await told(held, third, first, "nothing", second) == [
        (third, "a", "key1", third),
        (first, "a", "key1", third),
        (second, "a", "key1", third),
    ]
    assert await told(held, *(one["key2"] for one in tokens)) == []


async def test_a_token_of_equal_values_leads_to_all_of_them() -> None:
    held = await make_records()
    await held.add(
        record("a", profile_key="p", key1="Ann"), record("b", profile_key="p", key1=" Ann ")
    )
    first, second = await run(held, plan(held, key1="alphaNumericPersistent"), "p")
    assert first.fields == second.fields
    token = first.fields["key1"]
    assert await told(held, token) == [(token, "a", "key1", token), (token, "b", "key1", token)]


async def test_persistent_tokens_are_made_alike_by_every_process() -> None:
    keyset = Keyset.create("test")
    held = await make_records(keyset=keyset)
    await held.add(record("a", profile_key="p", key1="Ann"))
    (first,) = await run(held, plan(held, key1="alphaNumericPersistent"), "p")
    other = await make_records(keyset=keyset)
    await other.add(record("z", profile_key="p", key1="Ann"))
    (second,) = await run(other, plan(other, key1="alphaNumericPersistent"), "p")
    (third,) = await run(other, plan(other, OTHER_DTK, key1="alphaNumericPersistent"), "p")
    assert second.fields == first.fields
    assert third.fields != first.fields


async def test_a_repetition_that_makes_the_same_writes_nothing() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"))
    how = plan(held, key1="alphaNumericPersistent")
    await run(held, how, "p")
    before = await held.row("a")
    await run(held, how, "p")
    assert await held.row("a") == before


async def test_a_token_counts_for_its_value_alone() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann", key2="Lee"))
    (made,) = await run(held, plan(held, key1="alphaNumeric", key2="alphaNumeric"), "p")
    one, two = made.fields["key1"], made.fields["key2"]
    await change_records(held.records, [record("a", key1="Eva", body="x")], "changer", no_changes)
    assert await told(held, one, two) == [(two, "a", "key2", two)]
    await change_records(held.records, [record("a", key1="Ann")], "changer", no_changes)
    assert await told(held, one) == [(one, "a", "key1", one)]
    await change_records(held.records, [record("a", key1="Eva")], "changer", no_changes)
    await run(held, plan(held, key1="alphaNumeric"), "p")
    await change_records(held.records, [record("a", key1="Ann")], "changer", no_changes)
    assert await told(held, one) == []


async def test_overwriting_and_migrating_a_record_keeps_the_tokens_of_the_values_that_stay() -> (
    None
):
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"), record("b", key1="Bo"))
    (made,) = await run(held, plan(held, key1="alphaNumeric"), "p")
    token = made.fields["key1"]
    await store_records(
        held.records,
        [record("a", key1="Ann", key2="new")],
        "writer",
        no_changes,
        on_existing="update",
    )
    assert await told(held, token) == [(token, "a", "key1", token)]
    await merge_records(held.records, "a", "b", "mover", no_changes)
    assert await told(held, token) == [(token, "b", "key1", token)]


async def test_tokens_end_with_their_record() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"))
    row = await held.row("a")
    assert row is not None
    (made,) = await run(held, plan(held, key1="alphaNumeric"), "p")
    expired = msgspec.structs.replace(record("a", key1="Ann"), expires_at=held.clock() + 10)
    await change_records(held.records, [expired], "changer", no_changes)
    held.clock.advance(11)
    assert await told(held, made.fields["key1"]) == []


async def test_values_that_do_not_fit_are_told_by_their_rules_and_nothing_is_written() -> None:
    held = await make_records()
    await held.add(
        record("a", profile_key="p", key1="1980-02-28"),
        record("b", profile_key="p", key1="Zäzilie"),
    )
    before = await held.row("a")
    with pytest.raises(VaultError) as caught:
        await run(held, plan(held, key1="date"), "p")
    assert caught.value.code is Code.VALUE_UNFIT
    assert [detail.source for detail in caught.value.details] == ["/rules/key1"]
    assert "Zäzilie" not in str(caught.value) + str(caught.value.details)
    assert await held.row("a") == before


async def test_more_records_than_are_allowed_are_refused() -> None:
    held = await make_records()
    await held.add(*(record(f"r{number}", profile_key="p", key1="x") for number in range(4)))
    assert len(await run(held, plan(held, key1="alphaNumeric"), "p", most=4)) == 4
    with pytest.raises(VaultError) as caught:
        await run(held, plan(held, key1="alphaNumeric"), "p", most=3)
    assert caught.value.code is Code.UNPROCESSABLE


async def test_old_tokens_have_a_bound() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"))
    how = plan(held, key1="alphaNumeric")
    made = [(await run(held, how, "p"))[0].fields["key1"] for _ in range(MOST_OLD + 1)]
    assert len(await told(held, *made)) == MOST_OLD + 1
    with pytest.raises(VaultError) as caught:
        await run(held, how, "p")
    assert caught.value.code is Code.UNPROCESSABLE


async def test_what_a_caller_wants_in_the_commit_is_in_it_or_nothing_is() -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"))
    row = await held.row("a")
    assert row is not None

    def twice(made: Any) -> list[Change]:
        assert [one.record.key for one in made] == ["a"]
        past = AddVersion(Past(row.rid, 9, b"k", 1, row.salt, row.body))
        return [past, past]

    with pytest.raises(VaultError) as caught:
        await rehash_profiles(held.records, plan(held, key1="alphaNumeric"), ["p"], 10, twice)
    assert caught.value.code is Code.CONFLICT
    assert await held.row("a") == row


async def test_a_record_that_changed_meanwhile_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = await make_records()
    await held.add(record("a", profile_key="p", key1="Ann"))
    tries = 0
    commit = MemoryStore.commit

    async def refuse_once(self: Any, table: str, changes: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Conflict(changes[0])
        await commit(self, table, changes)

    monkeypatch.setattr(held.vault.both_roots, "commit", partial(refuse_once, held.store))
    (made,) = await run(held, plan(held, key1="alphaNumeric"), "p")
    assert tries == 2
    assert await told(held, made.fields["key1"]) != []


async def test_records_that_match_no_more_when_their_turn_comes_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = await make_records()
    await held.add(
        record("a", profile_key="p", key1="Ann"), record("b", profile_key="p", key1="Bo")
    )
    matching = module._matching  # between this and the locks others may write

    async def then_changed(*given: Any) -> Any:
        found = await matching(*given)
        await change_records(
            held.records, [record("a", profile_key="other")], "changer", no_changes
        )
        return found

    monkeypatch.setattr(module, "_matching", then_changed)
    assert [one.record.key for one in await run(held, plan(held, key1="alphaNumeric"), "p")] == [
        "b"
    ]


async def test_records_that_the_proxy_has_collected_are_left_out() -> None:
    held = await make_records()
    await held.add(record("b", profile_key="p", key1="Bo"))
    collected = record("rules:contact/17", profile_key="p", key1="Ann")
    collection = held.records.collection
    row = held.records.new_row(
        str(collected.key), collected.fields, collection.context.sequence(), "", None
    )
    await held.store.commit(collection.table, [Insert(row)])
    assert [one.record.key for one in await run(held, plan(held, key1="alphaNumeric"), "p")] == [
        "b"
    ]

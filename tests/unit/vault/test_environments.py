import contextlib
from collections.abc import Awaitable, Callable

import pytest

from proxy.crypto.keyset import Keyset
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.model.schema import Field, Schema
from proxy.storage.base import Store
from proxy.storage.notes import ROOT, Agreement
from proxy.vault.environments import (
    MOST_ENVIRONMENTS,
    Environments,
    accept_notes,
    keyset_note,
    load_keyset,
    make_keyset,
    make_root,
    read_root,
)
from proxy.vault.schema_store import place_schema
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.stores import FailingStore
from tests.support.table import table

MASTER = MasterKey(bytes(range(32)))


async def opened(store: Store, master: MasterKey = MASTER) -> Environments:
    """The book as a process finds it that starts now; ``master``: what the key source holds by
    then.
    """
    book = Environments(
        store, await make_keyset(store, MASTER, "default"), lambda: master, ManualClock()
    )
    await book.load()
    return book


def ids(book: Environments) -> list[str]:
    return [found.id for found in book.listed()]


async def furnished(book: Environments, store: Store) -> None:
    """An environment with a table and a note of its own."""
    await book.create("acme", "Acme AB")
    await place_schema(store, "acme", Schema("contact", (Field("city"),)))
    await store.put_note("clients/1:acme", b"sealed", None)


async def test_a_new_vault_has_one_environment_and_the_next_process_finds_what_was_made() -> None:
    store = MemoryStore()
    book = await opened(store)
    assert ids(book) == ["default"]
    made = await book.create("acme", "Acme AB")
    other = await book.create(None, "Other")
    again = await opened(store)
    assert ids(again) == ["default", "acme", other.id]
    assert (again.find("acme"), again.find("nobody")) == (made, None)
    assert made.name == "Acme AB"


async def test_keys_of_a_creation_that_was_killed_are_no_obstacle_also_under_another_master_key() -> (
    None
):
    store = MemoryStore()
    book = await opened(store)
    await make_keyset(store, MASTER, "acme")
    await make_keyset(store, MasterKey(bytes(32)), "other")
    for ident in ("acme", "other"):
        assert (await book.create(ident, ident)).id == ident
    again = await opened(store)
    assert ids(again) == ["default", "acme", "other"]
    hashes = {(await one.keyset("other")).hasher("key", "x")(b"same") for one in (book, again)}
    assert len(hashes) == 1


async def test_each_has_keys_of_its_own() -> None:
    store = MemoryStore()
    book = await opened(store)
    for ident in ("acme", "other"):
        await book.create(ident, ident)
    hashes = {(await book.keyset(ident)).hasher("key", "contact")(b"same") for ident in ids(book)}
    assert len(hashes) == 3


async def test_nothing_of_the_book_lies_in_the_clear() -> None:
    store = MemoryStore()
    await (await opened(store)).create("acme", "Very Secret Merger")
    assert b"Merger" not in b"".join(store._notes.values())


@table(
    ("ident", "name", "places"),
    [
        ("Acme", "x", ["/environment_id"]), ("a:b", "", ["/environment_id", "/name"]), ("", "x", ["/environment_id"]),
        (None, " ", ["/name"]), (None, "x" * 129, ["/name"]), (None, "a\nb", ["/name"]),
    ],
)  # fmt: skip
async def test_what_cannot_be_an_environment_is_refused_with_every_fault(
    ident, name, places
) -> None:
    book = await opened(MemoryStore())
    with pytest.raises(VaultError) as caught:
        await book.create(ident, name)
    assert caught.value.code is Code.INVALID_INPUT
    assert [detail.source for detail in caught.value.details] == places
    assert ids(book) == ["default"]


async def test_an_id_is_given_once_also_when_its_environment_is_gone() -> None:
    store = MemoryStore()
    book = await opened(store)
    await furnished(book, store)
    for _ in range(2):
        with pytest.raises(VaultError) as caught:
            await book.create("acme", "Again")
        assert caught.value.code is Code.CONFLICT
        if book.find("acme"):
            await book.end("acme")
            await book.erase("acme")
            book = await opened(store)


async def test_there_is_a_most() -> None:
    book = await opened(MemoryStore())
    for number in range(1, MOST_ENVIRONMENTS):
        await book.create(None, f"shop {number}")
    with pytest.raises(VaultError) as caught:
        await book.create(None, "one more")
    assert caught.value.code is Code.UNPROCESSABLE


async def test_keys_are_under_the_master_key_in_use_where_the_key_file_still_has_it_as_the_next() -> (
    None
):
    store, before = MemoryStore(), MasterKey(bytes(range(1, 33)), [MASTER])
    book = await opened(store, before)
    await book.create("acme", "Acme AB")
    wrapped = await store.note(keyset_note("acme"))
    assert wrapped is not None
    assert Keyset.wrapper(wrapped) == MASTER.id != before.id


async def test_a_master_key_of_another_vault_makes_no_keys() -> None:
    store = MemoryStore()
    book = await opened(store, MasterKey(bytes(range(1, 33))))
    before = dict(store._notes)
    with pytest.raises(VaultError) as caught:
        await book.create("acme", "Acme AB")
    assert caught.value.code is Code.BAD_KEYS
    assert store._notes == before


async def test_keys_that_are_lost_are_told_and_not_replaced() -> None:
    store = MemoryStore()
    await (await opened(store)).create("acme", "Acme AB")
    await store.drop_notes(keyset_note("acme"))
    with pytest.raises(VaultError, match="restore the store") as caught:
        await (await opened(store)).keyset("acme")
    assert caught.value.code is Code.BAD_KEYS


async def test_default_stays_and_who_is_not_there_cannot_go() -> None:
    book = await opened(MemoryStore())
    for ident, code in (("default", Code.CONFLICT), ("nobody", Code.NOT_FOUND)):
        with pytest.raises(VaultError) as caught:
            book.removable(ident)
        assert caught.value.code is code


async def test_the_end_leaves_nothing_and_touches_nobody_else() -> None:
    store = MemoryStore()
    book = await opened(store)
    await place_schema(store, "default", Schema("acme", (Field("city"),)))
    await store.put_note("migration/acme:default", b"here", None)
    before = dict(store._notes)
    await furnished(book, store)
    assert await book.records("acme") == 0
    await book.end("acme")
    assert await store.note(keyset_note("acme")) is None
    await book.erase("acme")
    assert {name for name, content in store._notes.items() if before.get(name) != content} == {
        "environments:default"
    }
    assert list(store._tables) == ["r1_default"]
    assert book.doomed() == []


async def test_one_whose_mark_another_replica_takes_away_does_not_end() -> None:
    store = MemoryStore()
    book = await opened(store)
    await furnished(book, store)
    await book.mark("acme", 5)
    other = await opened(store)
    await other.mark("acme", 0)
    await book.load()
    with pytest.raises(VaultError) as caught:
        await book.end("acme", Agreement("environments:default", 1))
    assert caught.value.code is Code.SCHEMA_BUSY
    assert book.find("acme") is not None
    assert await store.note(keyset_note("acme")) is not None


async def _begin(book: Environments) -> None:
    await book.create("acme", "Acme AB")


async def _end(book: Environments) -> None:
    await book.end("acme")
    await book.erase("acme")


@table("late", [False, True])
@table("skip", range(5))
@table(
    ("verb", "step"),
    [("put_note", _begin), ("put_note", _end), ("drop_notes", _end), ("drop", _end)],
)
async def test_interrupted_anywhere_it_is_there_whole_or_goes_on_to_its_end(
    verb: str, step: Callable[[Environments], Awaitable[None]], skip: int, late: bool
) -> None:
    inner = MemoryStore()
    book = await opened(inner)
    if step is _end:
        await furnished(book, inner)
    store = FailingStore(inner)
    broken = await opened(store)
    store.fail(verb, skip=skip, late=late)
    with contextlib.suppress(VaultError):
        await step(broken)
    after = await opened(inner)
    if after.find("acme") is not None:
        await after.keyset("acme")
        assert step is _begin or inner._notes.keys() >= {"clients/1:acme", "schemas:acme"}
        return
    for ident in after.doomed():
        await after.erase(ident)
    if step is _end:
        assert [name for name in inner._notes if name.endswith(":acme")] == []
        assert inner._tables == {}
    else:  # nobody was told of it: the same can be made again
        await after.create("acme", "Acme AB")


async def test_a_book_that_was_changed_is_told() -> None:
    store = MemoryStore()
    await opened(store)
    store._notes["environments:default"] = bytes(100)
    with pytest.raises(VaultError) as caught:
        await opened(store)
    assert caught.value.code is Code.CANNOT_OPEN


async def test_a_vault_of_an_earlier_version_gets_a_root_over_its_notes_once_and_misses_it_then():
    store = MemoryStore()
    keyset = await make_keyset(store, MASTER, "default")
    await store.put_note("clients/1:default", b"sealed", None)
    assert not await read_root(store, keyset)
    await make_root(store, MASTER, keyset)
    again = MemoryStore()
    again._notes = dict(store._notes)
    assert await read_root(again, await load_keyset(again, MASTER, "default"))
    assert await again.check_notes() == set()
    again._notes["clients/1:default"] = b"older"
    assert await again.check_notes() == {"clients/1:default"}
    await accept_notes(again, keyset)
    assert await again.note("clients/1:default") == b"older"
    without = MemoryStore()
    without._notes = {name: note for name, note in store._notes.items() if name != ROOT}
    with pytest.raises(VaultError, match="The note root of the store"):
        await read_root(without, await load_keyset(without, MASTER, "default"))

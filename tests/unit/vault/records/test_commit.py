import asyncio

import pytest

from proxy.errors import Code, VaultError
from proxy.storage.changes import Accept, Change, Conflict, Insert, Remember
from proxy.storage.rows import StoredReply
from proxy.vault.records.commit import attempt, locked, no_changes, overtaken, refuse_of_rules
from proxy.vault.records.repository import Records
from tests.support.contacts import contact, make_contacts
from tests.support.memory import MemoryStore
from tests.support.vaults import make_bench


class Refusing(MemoryStore):
    """Refuses each commit because of one of its changes."""

    def __init__(self, culprit: Change) -> None:
        super().__init__()
        self.culprit = culprit

    async def commit(self, table: str, changes: object) -> None:
        raise Conflict(self.culprit)


async def test_a_commit_that_others_overtook_is_to_be_tried_again() -> None:
    contacts = await make_contacts()
    await contacts.add(contact("a"))
    row = await contacts.row("a")
    assert row is not None
    assert not await attempt(contacts.records, [Insert(row)])
    assert await attempt(contacts.records, [Accept(row.rid, 1)])


async def test_an_answer_that_was_given_already_is_not_given_twice() -> None:
    contacts = await make_contacts(Refusing(Remember(StoredReply(b"", 1, b"", b""), 1)))
    with pytest.raises(VaultError) as caught:
        await attempt(contacts.records, [])
    assert caught.value.code is Code.IDEMPOTENCY_CHECK_FAILED


async def test_locked_records_wait_for_each_other_and_are_free_again_after_a_fault() -> None:
    contacts = await make_contacts()
    order: list[str] = []

    async def first() -> None:
        async with locked(contacts.records, (b"a",)):
            await asyncio.sleep(0)
            order.append("first")
            raise ZeroDivisionError

    async def second() -> None:
        async with locked(contacts.records, (b"b", b"a")):
            order.append("second")

    failed, _ = await asyncio.gather(first(), second(), return_exceptions=True)
    assert isinstance(failed, ZeroDivisionError)
    assert order == ["first", "second"]
    assert not len(contacts.records.collection.state.locks)


async def test_records_of_rules_are_not_written_here() -> None:
    bench = await make_bench()
    with pytest.raises(VaultError) as caught:
        refuse_of_rules(Records(bench.people))
    assert caught.value.code is Code.SCHEMA_OF_RULES
    contacts = await make_contacts()
    refuse_of_rules(contacts.records)
    assert overtaken(contacts.records).code is Code.CONFLICT
    assert list(no_changes([])) == []

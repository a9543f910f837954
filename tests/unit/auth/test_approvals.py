import asyncio

import pytest

from proxy.auth.approvals import MOST_OF_ONE, ApprovalRequest, Approvals
from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.keyset import Keyset
from proxy.errors import Code, VaultError
from proxy.storage.base import Store
from tests.support.clock import ManualClock
from tests.support.memory import MemoryStore
from tests.support.table import table

KEYSET = Keyset.create("default")
HOUR = 3_600_000
ROTATE = ApprovalRequest("rotate_key", "default", "ann", b'{"content":{"key":"data"}}')


async def opened(store: Store, clock: ManualClock) -> Approvals:
    """As a process that starts opens them."""
    note = SealedNote(store, KEYSET.aead(), "default", "approvals")
    approvals = Approvals(note, clock, frozenset(("keys",)), HOUR)
    await approvals.load()
    return approvals


@pytest.fixture
async def approvals() -> Approvals:
    return await opened(MemoryStore(), ManualClock())


async def test_the_same_request_waits_once_and_another_one_for_itself(approvals):
    first = await approvals.ask(ROTATE, lasts=False)
    assert (await approvals.ask(ROTATE, lasts=False)).id == first.id
    for other in (
        ROTATE._replace(client="bo"),
        ROTATE._replace(operation="put_policy"),
        ROTATE._replace(environment="acme"),
        ROTATE._replace(request=b'{"content":{"key":"master"}}'),
    ):
        assert (await approvals.ask(other, lasts=False)).id != first.id


async def test_an_approval_is_used_up_by_its_request_unless_it_lasts(approvals):
    for lasts, states in ((False, ["approved", "pending"]), (True, ["approved", "approved"])):
        waits = await approvals.ask(ROTATE, lasts=lasts)
        await approvals.decide(waits.id, "bo", approve=True)
        assert [(await approvals.ask(ROTATE, lasts=lasts)).state for _ in range(2)] == states
        await asyncio.gather(
            *(
                approvals.decide(one.id, "bo", approve=False)
                for one in approvals.listed()
                if one.state == "pending"
            )
        )
        approvals._clock.advance(HOUR)


async def test_ten_at_once_use_an_approval_once(approvals):
    await approvals.decide((await approvals.ask(ROTATE, lasts=False)).id, "bo", approve=True)
    asked = await asyncio.gather(*(approvals.ask(ROTATE, lasts=False) for _ in range(10)))
    assert [one.state for one in asked].count("approved") == 1


@table("approve", [True, False, None])
async def test_whatever_was_decided_ends_and_a_restart_does_not_lengthen_it(approve):
    store, clock = MemoryStore(), ManualClock()
    before = await opened(store, clock)
    waits = await before.ask(ROTATE, lasts=True)
    if approve is not None:
        await before.decide(waits.id, "bo", approve=approve)
    clock.advance(HOUR - 1)
    after = await opened(store, clock)
    assert [one.id for one in after.listed()] == [waits.id]
    clock.advance(1)
    for approvals in (after, await opened(store, clock)):
        assert approvals.listed() == []
        with pytest.raises(VaultError) as refused:
            await approvals.decide(waits.id, "bo", approve=True)
        assert refused.value.code is Code.NOT_FOUND
    fresh = await after.ask(ROTATE, lasts=True)
    assert (fresh.id != waits.id, fresh.state) == (True, "pending")


async def test_a_decision_is_made_once(approvals):
    waits = await approvals.ask(ROTATE, lasts=False)
    await approvals.decide(waits.id, "bo", approve=False)
    with pytest.raises(VaultError) as refused:
        await approvals.decide(waits.id, "bo", approve=True)
    assert refused.value.code is Code.CONFLICT
    assert (await approvals.ask(ROTATE, lasts=False)).state == "refused"


async def test_two_processes_undo_nothing_of_each_other():
    store, clock = MemoryStore(), ManualClock()
    one, other = await opened(store, clock), await opened(store, clock)
    first = await one.ask(ROTATE, lasts=False)
    second = await other.ask(ROTATE._replace(client="bo"), lasts=False)
    assert {item.id for item in (await opened(store, clock)).listed()} == {first.id, second.id}


async def test_one_client_fills_no_queue(approvals):
    for number in range(MOST_OF_ONE):
        await approvals.ask(ROTATE._replace(request=b"%d" % number), lasts=False)
    with pytest.raises(VaultError) as refused:
        await approvals.ask(ROTATE, lasts=False)
    assert refused.value.code is Code.TOO_MANY_REQUESTS
    assert (await approvals.ask(ROTATE._replace(client="bo"), lasts=False)).state == "pending"

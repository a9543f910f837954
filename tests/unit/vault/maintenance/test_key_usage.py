import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from socket import gethostname

import pytest

from proxy.auth.sealed_notes import SealedNote
from proxy.crypto.aead import sealed_prefix
from proxy.crypto.master_key import MasterKey
from proxy.errors import Code, VaultError
from proxy.storage.changes import (
    AddVersion,
    Attach,
    Bind,
    Change,
    Conflict,
    Insert,
    Remember,
    Remove,
    Replace,
    ReplaceCiphertext,
    SealedPart,
    StageRow,
    UpdateFile,
)
from proxy.storage.notes import Agreement
from proxy.storage.postgres.store import PostgresStore
from proxy.storage.rows import (
    File,
    Past,
    Row,
    RowState,
    Staged,
    StagedKind,
    StoredReply,
    TableLayout,
)
from proxy.vault.job import JobState
from proxy.vault.maintenance.key_rotation import drop_keys, follow_keyset
from proxy.vault.maintenance.key_usage import (
    USAGE_KINDS,
    RetiredKeyGuard,
    key_guard_of,
    scan_key_usage,
)
from proxy.vault.maintenance.reencryption import ReencryptionRun
from tests.support.memory import MemoryStore
from tests.support.memory_objects import MemoryObjects
from tests.support.patience import until
from tests.support.postgres import fresh_address
from tests.support.replicas import kill, link_of, open_replica
from tests.support.resealing import CONTENTS, Desk, Slow, opened
from tests.support.table import table


@pytest.fixture
async def desk():
    return await opened(Slow(), MemoryObjects(), MasterKey(os.urandom(32)))


async def test_each_key_is_told_with_everything_that_it_has_sealed(desk):
    now = desk.contacts.clock()
    await desk.fill(3)
    await desk.answered(b"kept", now + 70)
    await desk.answered(b"longer", now + 90)
    await desk.answered(b"over", now)
    note = SealedNote(desk.store, desk.vault.keyset.aead(), "test", "clients/1")
    await note.write(b"[]")
    await desk.store.put_note(
        "plain:test", b'{"that": "is not sealed, and is longer than a salt"}', None
    )
    (row, *_) = await desk.store.scan(desk.table, 0, 1)
    sealer = desk.contacts.records.collection.sealer
    staged = Staged(9, row.rid, StagedKind.UPDATE, now, None, False, sealer.row_again(row)[0])
    gone = Staged(10, row.rid, StagedKind.DELETE, now, None, False, b"")
    await desk.store.commit(desk.table, [StageRow(staged), StageRow(gone)])
    use = await scan_key_usage(desk.vault)
    (first,) = desk.vault.keyset.data_keys
    files = len(CONTENTS)
    assert dict(use.of(first)) == dict(zip(USAGE_KINDS, (3, 3, 1, files, files, 2, 2), strict=True))
    assert use.until == {first: now + 90}
    await desk.rotate()
    second = desk.vault.keyset.data_keys[-1]
    await note.write(b"[1]")
    use = await scan_key_usage(desk.vault)
    assert (use.of(first)["notes"], dict(use.of(second))) == (1, {"notes": 1})
    assert dict(use.of("00000000")) == {}


async def test_tables_that_nobody_declares_any_more_count(desk):
    await desk.fill(2)
    other = await opened(desk.store, desk.objects, desk.master)
    desk.store._tables[desk.table].relay(TableLayout(desk.table, ()))
    assert (await scan_key_usage(other.vault)).of(desk.vault.keyset.data_keys[0])["records"] == 2


async def test_a_row_of_which_two_keys_have_sealed_a_part_counts_for_both(desk):
    await desk.fill(1)
    held = desk.store._tables[desk.table].rows
    (rid,) = held
    sealer = desk.contacts.records.collection.sealer
    name = sealer.record(rid, held[rid].salt).key("r0", held[rid].updated_at)
    await desk.rotate()
    (row,) = (await desk.store.rows(desk.table, [rid])).values()
    body, _ = sealer.row_again(row)
    held[rid] = held[rid]._replace(body=body, key_sealed=name)
    use = await scan_key_usage(desk.vault)
    assert [use.of(key)["records"] for key in desk.vault.keyset.data_keys] == [1, 1]


async def test_a_content_that_is_missing_counts_for_every_older_key_and_a_deleted_file_for_none(
    desk,
):
    await desk.fill(1)
    await desk.rotate()
    await desk.rotate()
    name = next(iter(desk.objects.objects))
    del desk.objects.objects[name]
    use = await scan_key_usage(desk.vault)
    counts = [use.of(key)["contents"] for key in desk.vault.keyset.data_keys]
    assert counts == [len(CONTENTS), 1, 0]
    desk.vault.contents = None  # there is no place for files at all
    use = await scan_key_usage(desk.vault)
    assert [use.of(key)["contents"] for key in desk.vault.keyset.data_keys] == [2, 2, 0]


# ---- fence


OLD, NEW = "0a0b0c0d", "01020304"


def body(key: str) -> bytes:
    return sealed_prefix(key) + b"nonce and the rest"


def changes(key: str, sealed: bytes | None = None):
    """Every change that brings something sealed, one by one."""
    sealed = sealed or body(key)
    row = Row(1, None, None, RowState.PENDING, 1, 0, 0, None, b"", sealed)
    other = row._replace(body=body(NEW), key_sealed=sealed)
    file = File(b"", 1, b"", "", 0, 0, 0, sealed)
    return [
        Insert(row),
        Insert(other),
        Replace(row, 1),
        Bind(1, b"", sealed, 0),
        StageRow(Staged(1, 1, StagedKind.UPDATE, 0, None, False, sealed)),
        AddVersion(Past(1, 1, b"", 0, b"", sealed)),
        Attach(file),
        UpdateFile(file, 1),
        Remember(StoredReply(b"", 0, b"", bytes(16) + sealed), 0),
        ReplaceCiphertext(SealedPart.ROW, (1,), (b"", None), (body(NEW), sealed)),
    ]


@table("change", changes(OLD))
def test_whatever_brings_bytes_of_a_key_is_noticed_while_it_is_watched_and_refused_once_it_is_gone(
    change,
):
    fence = RetiredKeyGuard()
    fence([change])
    assert not fence.has_sealed(OLD)
    fence.watch([OLD])
    fence([Remove(1), change])
    assert (fence.has_sealed(OLD), fence.has_sealed(NEW)) == (True, False)
    fence.watch([OLD])
    assert not fence.has_sealed(OLD)
    fence.ease([OLD])
    fence([change])
    assert not fence.has_sealed(OLD)
    fence.refuse([OLD])
    with pytest.raises(Conflict) as caught:
        fence([Remove(1), change])
    assert caught.value.change is change


def test_what_the_key_of_now_has_sealed_is_nobodys_business():
    fence = RetiredKeyGuard()
    fence.watch([OLD])
    fence.refuse([OLD])
    fence([*changes(NEW), Remove(1)])
    assert not fence.has_sealed(OLD)


def test_a_store_has_one_fence_which_is_there_when_it_is_needed():
    store = MemoryStore()
    assert store.guard is None
    assert key_guard_of(store) is key_guard_of(store) is store.guard


COUNT = 120


def run_of(desk: Desk) -> ReencryptionRun:
    """How far it is."""
    assert desk.work.run is not None
    return desk.work.run


class Watched(PostgresStore):
    """A store of one of several owners, which tests hold up."""

    def __init__(self, made: PostgresStore) -> None:
        self.__dict__.update(made.__dict__)
        self.stuck = asyncio.Event()
        self.sticks = False  #: whether nothing is sealed anew any more
        self.late: list[tuple[PostgresStore, str, Past]] = []  #: what others write behind a pass

    async def commit(self, table: str, changes: Sequence[Change]) -> None:
        if self.sticks and isinstance(changes[0], ReplaceCiphertext):
            self.stuck.set()
            await asyncio.Event().wait()
        await super().commit(table, changes)

    async def past_scan(self, table: str, after: tuple[int, int], limit: int) -> list[Past]:
        found = await super().past_scan(table, after, limit)
        if not found and self.late:
            other, table, past = self.late.pop()
            await other.commit(table, [AddVersion(past)])
        return found


@pytest.fixture
async def both() -> AsyncIterator[tuple[Desk, Desk]]:
    """Two owners of one vault with records under an older key; the first one leads."""
    uri, objects, master = (
        fresh_address(replicas="true"),
        MemoryObjects(),
        MasterKey(os.urandom(32)),
    )
    leader = await opened(Watched(await open_replica(uri)), objects, master)
    await leader.fill(COUNT)
    await leader.rotate()
    other = await opened(Watched(await open_replica(uri)), objects, master)
    leader.uri = uri
    yield leader, other
    for one in (leader, other):
        await one.close()
        await one.store.close()


async def read_before(desk: Desk, count: int) -> list[Past]:
    """What a request of this owner writes as past versions of records that it has just read."""
    rows = await desk.store.scan(desk.table, 0, count)
    return [desk.contacts.records.outlived(row) for row in rows]


async def test_one_of_two_owners_seals_everything_anew_while_both_serve(both):
    leader, other = both
    older, current = await leader.stored()
    first, second = await read_before(other, 2)
    leader.store.late = [(other.store, other.table, first)]
    await other.work.follow_up()
    assert other.work.state is JobState.NONE, "it is not for this one to do"

    await leader.whole()
    assert (run_of(leader).state, run_of(leader).round) == (JobState.DONE, 2), "it was noticed"
    assert await leader.sealing() == {current}
    assert (run_of(leader).used, leader.retired) == ({older: {}}, [])
    await other.work.follow_up()
    assert run_of(other) == run_of(leader), "the other one tells the same"
    # a request that took longer than all of that
    with pytest.raises(Conflict):  # it reads again, and then has data under the current key
        await other.store.commit(other.table, [AddVersion(second)])
    for _ in range(2):  # it agrees itself, and looks when all have
        await leader.work.follow_up()
        await leader.done()
    assert (leader.reported, other.reported, list(leader.work.blockers)) == ([], [], [])
    assert (await leader.stored(), leader.retired, run_of(leader).used) == ((current,), [older], {})
    await follow_keyset(other.store, other.master, other.vault.keyset)
    assert other.vault.keyset.data_keys == (current,)
    await other.work.follow_up()
    assert list(other.work.blockers) == []


async def test_an_owner_that_stays_silent_makes_nobody_look_again_and_again(both):
    leader, other = both
    older, current = await leader.stored()
    await leader.whole()
    for advanced in (60_000, 60_000):
        leader.contacts.clock.advance(advanced)
        await leader.work.follow_up()
        await leader.done()
    ended = run_of(leader)
    leader.contacts.clock.advance(600_000)
    await leader.work.follow_up()
    assert run_of(leader) is not ended
    assert (run_of(leader), await leader.stored()) == (ended, (older, current))
    await other.store.close()  # and as soon as one is alone
    await leader.work.follow_up()
    await leader.done()
    assert (await leader.stored(), leader.retired, run_of(leader).used) == ((current,), [older], {})


async def test_what_came_before_an_owner_agreed_is_found_and_all_have_to_agree_anew(both):
    leader, other = both
    older, current = await leader.stored()
    (late,) = await read_before(other, 1)
    await leader.whole()
    proposed = run_of(leader).proposal
    assert (run_of(leader).retiring, leader.retired) == ((older,), [])
    await other.store.commit(other.table, [AddVersion(late)])
    for one in (leader, other, leader):  # who agrees, and who looks once all have
        await one.work.follow_up()
        await one.done()
    assert (await leader.sealing(), leader.retired) == ({current}, []), "sealed anew"
    assert run_of(leader).proposal not in (0, proposed)
    for one in (leader, other, leader):
        await one.work.follow_up()
        await one.done()
    assert (await leader.stored(), leader.retired) == ((current,), [older])


async def test_who_does_not_agree_keeps_the_key_until_it_is_gone_and_can_write_no_more(both):
    """One that stands still, one of an earlier version: neither says a word."""
    leader, other = both
    older, current = await leader.stored()
    (late,) = await read_before(other, 1)
    await leader.whole()
    for _ in range(3):
        await leader.work.follow_up()
        await leader.done()
    (blocker,) = leader.work.blockers
    assert blocker == f"instance 1 ({gethostname()}, process {os.getpid()})"
    await link_of(leader.store).fetch("UPDATE writers SET label = NULL WHERE slot = 1")
    assert await leader.work.ask_blockers() == [
        "instance 1 (of an earlier version, which cannot agree)"
    ]
    agreement = Agreement("reseal:test", run_of(leader).proposal)
    with pytest.raises(VaultError) as caught:
        await drop_keys(leader.store, leader.master, leader.vault.keyset, [older], agreement)
    assert caught.value.code is Code.REPLICAS_RUNNING
    assert (await leader.stored(), leader.vault.keyset.data_keys) == ((older, current),) * 2
    # what becomes of one that does not look at the others for long
    await link_of(leader.store).fetch("DELETE FROM writers WHERE slot = 1")
    await leader.work.follow_up()
    await leader.done()
    assert (await leader.stored(), leader.retired) == ((current,), [older])
    with pytest.raises(VaultError, match="taken over"):
        await other.store.commit(other.table, [AddVersion(late)])
    assert await leader.sealing() == {current}


async def test_one_that_starts_between_proposal_and_end_has_to_agree_too(both):
    leader, other = both
    older, current = await leader.stored()
    await leader.whole()
    for one in (leader, other):
        await one.work.follow_up()
    assert await leader.work.ask_blockers() == []
    third = await opened(await open_replica(leader.uri), leader.objects, leader.master)
    await leader.work.follow_up()
    await leader.done()
    assert (await leader.stored(), leader.retired) == ((older, current), [])
    await third.work.follow_up()
    await leader.work.follow_up()
    await leader.done()
    assert (await leader.stored(), leader.retired) == ((current,), [older])
    await third.close()
    await third.store.close()


async def test_a_leader_that_dies_after_all_agreed_is_followed_by_one_that_drops_the_key(both):
    leader, other = both
    older, current = await leader.stored()
    await leader.whole()
    for one in (leader, other):
        await one.work.follow_up()
    await kill(leader.store, other.store)
    await until(other.store.replicas.leads)
    await other.work.follow_up()
    await other.done()
    assert (await other.stored(), other.retired, other.reported) == ((current,), [older], [])
    await other.judge(COUNT)


async def test_two_leaders_at_once_drop_the_key_and_nothing_else(both, monkeypatch):
    leader, other = both
    older, current = await leader.stored()
    await leader.whole()
    for one in (leader, other):
        await one.work.follow_up()
    monkeypatch.setattr(type(other.store.replicas), "leads", lambda _self: True)
    ways = (leader.work.follow_up(), other.work.follow_up())
    for ended in await asyncio.gather(*ways, return_exceptions=True):
        assert ended is None or (isinstance(ended, VaultError) and ended.code is Code.CONFLICT)
    for one in (leader, other):
        await one.done()
        assert one.reported == []
    assert [*leader.retired, *other.retired] == [older]
    assert await leader.stored() == (current,)
    for one in (leader, other):
        await follow_keyset(one.store, one.master, one.vault.keyset)
        await one.work.follow_up()
        await one.done()
        assert one.vault.keyset.data_keys == (current,)
        await one.judge(COUNT)


async def test_the_other_owner_goes_on_where_the_one_that_led_has_died(both):
    leader, other = both
    leader.store.sticks = True
    await leader.work.begin()
    await leader.store.stuck.wait()
    await other.work.follow_up()
    assert (other.work.state, other.work._busy) == (JobState.RUNNING, False)
    await kill(leader.store, other.store)
    await until(other.store.replicas.leads)
    await other.work.follow_up()
    await other.done()
    assert (run_of(other).state, other.reported) == (JobState.DONE, [])
    assert await other.stored() == tuple(await other.sealing())
    await other.judge(COUNT)


async def test_of_two_owners_that_both_believe_to_lead_one_goes_on(both, monkeypatch):
    leader, other = both
    note = SealedNote(leader.store, leader.vault.keyset.aead(), "test", "columns")
    said = await note.read()
    leader.store.sticks = True
    await leader.work.begin()
    await leader.store.stuck.wait()
    monkeypatch.setattr(type(other.store.replicas), "leads", lambda _self: True)
    await other.work.follow_up()
    await other.done()
    assert (run_of(other).state, other.reported) == (JobState.DONE, [])
    leader.store.sticks = False
    await leader.close()  # as if its page had just come to its end
    leader.work._go()
    await leader.done()
    assert (leader.reported, run_of(leader).state) == ([], JobState.RUNNING)
    await leader.work.follow_up()
    assert run_of(leader) == run_of(other)
    await other.store.close()
    await note.write(
        said or b""
    )  # which the other one has sealed anew, though it may not change it

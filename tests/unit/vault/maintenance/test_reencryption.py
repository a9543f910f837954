import asyncio
import os
from collections.abc import AsyncIterator

import msgspec
import pytest

from proxy.crypto.master_key import MasterKey
from proxy.storage.changes import AddVersion, Conflict
from proxy.vault.job import JobState
from proxy.vault.maintenance import reencryption
from proxy.vault.maintenance.key_usage import scan_key_usage
from proxy.vault.maintenance.reencryption import ReencryptionJob, ReencryptionRun, ReencryptionStage
from tests.support.memory_objects import MemoryObjects
from tests.support.patience import PATIENCE
from tests.support.resealing import CONTENTS, Desk, Slow, opened

COUNT = 120


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = await opened(Slow(), MemoryObjects(), MasterKey(os.urandom(32)))
    yield made
    await made.close()


async def next_process(desk: Desk) -> Desk:
    """Another process, after the first one has died."""
    await desk.close()
    return await opened(desk.store, desk.objects, desk.master)


def run_of(desk: Desk) -> ReencryptionRun:
    """How far it is."""
    assert desk.work.run is not None
    return desk.work.run


async def test_where_there_is_one_key_nothing_is_done(desk):
    await desk.fill(3)
    assert (desk.work.state, desk.work.run, len(desk.vault.keyset.data_keys)) == (
        JobState.NONE,
        None,
        1,
    )


async def test_everything_is_sealed_anew_and_keeps_versions_times_and_salts_and_the_older_key_goes(
    desk,
):
    await desk.fill(COUNT)
    (first,) = desk.vault.keyset.data_keys
    rows = [
        row._replace(body=b"", key_sealed=b"") for row in await desk.store.scan(desk.table, 0, 1000)
    ]
    pasts = [
        past._replace(body=b"") for past in await desk.store.past_scan(desk.table, (0, 0), 1000)
    ]
    objects = set(await desk.files.names())
    await desk.rotate()
    assert await desk.sealing() == {first}
    await desk.whole()
    run, (second,) = run_of(desk), desk.vault.keyset.data_keys
    assert (run.state, run.done, run.versions, run.contents, run.unreadable, run.used, run.again) == (
        JobState.DONE, COUNT, COUNT, len(CONTENTS), 0, {}, 0,
    )  # fmt: skip
    assert (await desk.sealing(), desk.retired, await desk.stored()) == (
        {second},
        [first],
        (second,),
    )
    assert [
        row._replace(body=b"", key_sealed=b"") for row in await desk.store.scan(desk.table, 0, 1000)
    ] == rows
    assert [
        past._replace(body=b"") for past in await desk.store.past_scan(desk.table, (0, 0), 1000)
    ] == pasts
    # contents are other objects now, and those before go
    assert set(await desk.store.doomed(100)) == objects
    await desk.judge(COUNT)
    await (again := await next_process(desk)).judge(COUNT)
    assert again.work.state is JobState.DONE


@pytest.mark.parametrize(
    "stage",
    [
        ReencryptionStage.RECORDS,
        ReencryptionStage.VERSIONS,
        ReencryptionStage.CONTENTS,
        ReencryptionStage.NOTES,
        ReencryptionStage.LOOK,
    ],
)
async def test_the_next_process_goes_on_with_the_stage_that_was_under_way(desk, stage, monkeypatch):
    await desk.fill(COUNT)
    await desk.rotate()
    died = asyncio.Event()

    async def here(run: ReencryptionRun) -> None:
        if run.stage is stage and (
            run.after or stage in (ReencryptionStage.NOTES, ReencryptionStage.LOOK)
        ):
            died.set()
            await asyncio.Event().wait()
        await real(desk.work, run)

    real = ReencryptionJob._save
    monkeypatch.setattr(reencryption, "_NOTED", 1)
    monkeypatch.setattr(desk.work, "_save", here)
    await desk.work.begin()
    async with asyncio.timeout(PATIENCE):
        await died.wait()
    assert desk.retired == []
    again = await next_process(desk)
    await again.done()
    assert (again.work.state, len(await again.stored())) == (JobState.DONE, 1)
    run = run_of(again)
    assert (run.done, run.versions, run.contents) == (COUNT, COUNT, len(CONTENTS))
    assert await again.sealing() == set(await again.stored())
    await again.judge(COUNT)
    await again.close()


async def test_it_is_stopped_and_goes_on_where_it_was(desk):
    await desk.fill(COUNT)
    await desk.rotate()
    desk.store.gate.clear()
    await desk.work.begin()
    await desk.store.waiting.wait()
    await desk.work.stop()
    assert desk.work.state is JobState.STOPPED
    desk.store.gate.set()
    assert len(await desk.sealing()) == 1
    stopped = await next_process(desk)
    assert stopped.work.state is JobState.STOPPED  # somebody wanted that
    await stopped.whole()
    assert (stopped.work.state, len(await stopped.stored())) == (JobState.DONE, 1)
    await stopped.judge(COUNT)
    await stopped.close()


async def test_a_rotation_that_nobody_followed_up_is_followed_up_by_the_next_process(desk):
    await desk.fill(5)
    await desk.rotate()
    again = await next_process(desk)
    await again.done()
    assert (again.work.state, len(await again.stored())) == (JobState.DONE, 1)
    await again.close()


async def test_what_a_version_without_stages_has_left_is_taken_up(desk):
    await desk.fill(5)
    await desk.rotate()
    old = {
        "key": desk.vault.keyset.data_keys[-1],
        "state": "done",
        "done": 5,
        "unreadable": 0,
        "tables": [desk.table],
    }
    await desk.store.put_note("reseal:test", msgspec.json.encode(old), None)
    again = await next_process(desk)
    await again.done()
    assert (run_of(again).versions, len(await again.stored())) == (5, 1)
    await again.close()


async def test_another_rotation_in_the_middle_begins_anew_and_both_older_keys_go(desk):
    await desk.fill(COUNT)
    await desk.rotate()
    desk.store.gate.clear()
    await desk.work.begin()
    await desk.store.waiting.wait()
    await desk.rotate()
    await desk.work.begin()
    desk.store.gate.set()
    await desk.done()
    assert (desk.work.state, len(desk.retired), await desk.sealing()) == (
        JobState.DONE,
        2,
        set(await desk.stored()),
    )
    await desk.judge(COUNT)


async def test_what_does_not_open_keeps_its_key_and_that_is_told(desk):
    await desk.fill(3)
    held = desk.store._tables[desk.table].rows
    broken = max(held)
    held[broken] = held[broken]._replace(body=held[broken].body[:-1] + b"x")
    await desk.rotate()
    await desk.whole()
    run, (first, second) = run_of(desk), desk.vault.keyset.data_keys
    assert (run.state, run.done, run.unreadable, run.used) == (
        JobState.DONE,
        3,
        1,
        {first: {"records": 1}},
    )
    assert (desk.retired, await desk.stored()) == ([], (first, second))
    # and it is tried again the next day
    held[broken] = held[broken]._replace(body=held[broken].body[:-1])
    await desk.work.follow_up()
    assert run_of(desk).state is JobState.DONE
    desk.contacts.clock.advance(86_400_000)
    await desk.work.follow_up()
    assert run_of(desk).state is JobState.RUNNING
    await desk.done()
    assert run_of(desk).used == {first: {"records": 1}}


async def test_a_content_that_is_missing_keeps_older_keys_since_it_may_come_back(desk):
    await desk.fill(1)
    objects = desk.objects.objects
    gone = {name: objects.pop(name) for name in list(objects)[:1]}
    await desk.rotate()
    await desk.whole()
    (first, _) = desk.vault.keyset.data_keys
    assert (run_of(desk).unreadable, run_of(desk).used) == (1, {first: {"contents": 1}})
    objects |= gone
    desk.contacts.clock.advance(86_400_000)
    await desk.work.follow_up()
    await desk.done()
    assert (run_of(desk).used, len(await desk.stored())) == ({}, 1)
    await desk.judge(1)


async def test_kept_answers_keep_their_key_until_they_expire(desk):
    now = desk.contacts.clock()
    await desk.answered(b"one", now + 50)
    await desk.answered(b"two", now + 90)
    await desk.rotate()
    await desk.whole()
    (first, _) = desk.vault.keyset.data_keys
    assert (run_of(desk).used, run_of(desk).again, desk.retired) == (
        {first: {"replies": 2}},
        now + 91,
        [],
    )
    desk.contacts.clock.advance(90)
    await desk.work.follow_up()
    assert desk.retired == []
    desk.contacts.clock.advance(1)
    await desk.work.follow_up()
    await desk.done()
    assert (run_of(desk).used, desk.retired, len(await desk.stored())) == ({}, [first], 1)


async def test_an_upload_that_began_before_is_waited_for_and_sealed_anew(desk, monkeypatch):
    monkeypatch.setattr(reencryption, "_UPLOADS", 0.001)
    await desk.fill(1)
    half, rest = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 200_000
        half.set()
        await rest.wait()
        yield b"y"

    async def upload() -> None:
        async with desk.files.contents.sealed(bytes(16), b"scope", slow()):
            pass

    uploading = asyncio.create_task(upload())
    await half.wait()
    await desk.rotate()
    looked = asyncio.Event()

    async def waits() -> None:
        looked.set()
        await real()

    real = desk.work._uploaded
    monkeypatch.setattr(desk.work, "_uploaded", waits)
    await desk.work.begin()
    async with asyncio.timeout(PATIENCE):
        await looked.wait()
    assert (run_of(desk).stage, desk.retired) == (ReencryptionStage.LOOK, [])
    rest.set()
    await uploading
    await desk.done()
    assert len(desk.retired) == 1


async def test_what_comes_while_everything_is_looked_at_is_noticed_and_sealed_anew(desk):
    await desk.fill(3)
    (row,) = (await desk.store.scan(desk.table, 0, 1))[:1]
    # somebody has read it before, and writes it only now
    taken = desk.contacts.records.outlived(row)
    await desk.rotate()
    looks = 0

    async def late() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:  # the first time it is the stage of the versions
            await desk.store.commit(desk.table, [AddVersion(taken)])

    desk.store.scanned = late
    await desk.whole()
    assert (run_of(desk).round, run_of(desk).versions, desk.retired) == (2, 4, [desk.retired[0]])
    assert await desk.sealing() == set(await desk.stored())


async def test_once_a_key_is_gone_nothing_comes_that_it_has_sealed(desk):
    await desk.fill(3)
    (row,) = (await desk.store.scan(desk.table, 0, 1))[:1]
    taken = desk.contacts.records.outlived(row)
    await desk.rotate()
    await desk.whole()
    with pytest.raises(Conflict):
        await desk.store.commit(desk.table, [AddVersion(taken)])
    assert (await scan_key_usage(desk.vault)).counted.keys() == set(await desk.stored())
    # who has read it before may still show it
    assert desk.contacts.records.collection.sealer.open(taken).fields


async def test_a_store_that_fails_is_reported_and_tried_again(desk, monkeypatch):
    monkeypatch.setattr("proxy.vault.job._RETRY", 0.001)
    await desk.fill(3)
    await desk.rotate()
    desk.store.fails = True
    await desk.work.begin()
    async with asyncio.timeout(PATIENCE):
        while not desk.reported:  # noqa: ASYNC110  # the run reports by itself
            await asyncio.sleep(0.001)
    desk.store.fails = False
    await desk.done()
    assert (desk.work.state, len(await desk.stored())) == (JobState.DONE, 1)


async def test_a_schema_that_is_removed_meanwhile_is_none_of_its_business(desk):
    await desk.fill(COUNT)
    await desk.rotate()
    desk.store.gate.clear()
    await desk.work.begin()
    await desk.store.waiting.wait()
    await desk.vault.drop(desk.table)
    desk.store.gate.set()
    await desk.done()
    assert (desk.reported, len(await desk.stored())) == ([], 1)


async def test_who_cancels_it_while_it_writes_down_how_far_it_is_can_go_on(desk):
    await desk.fill(3)
    await desk.rotate()
    await desk.work.begin()
    for turns in range(120):  # at each turn of the loop that a run takes
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        await desk.work.begin()
    await desk.done()
    assert (desk.work.state, desk.reported, len(await desk.stored())) == (
        JobState.DONE,
        [],
        1,
    )

"""The embedded store under what happens to processes and disks: SIGKILL at any moment, a file that
may not grow.
"""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.storage import open_store
from tests.support.rows import LAYOUT, TABLE, h

#: Writes from the id it is given until it is killed, and prints each id once its commit has
#: returned. The log is moved into the database every few commits, so that many a kill falls into
#: that as well.
WRITER = """
import asyncio, sys
from proxy.storage import open_store
from proxy.storage.changes import AddVersion, Attach, Bind, Detach, Release, Remember, Replace
from proxy.storage.rows import File, Past, StoredReply
from proxy.storage.sqlite import file as database
from tests.support.rows import LAYOUT, TABLE, h, insert, row

database._WRITING += ("PRAGMA wal_autocheckpoint = 20",)

async def main(uri, first):
    store = await open_store(uri)
    await store.ensure(LAYOUT)
    async def write(number):
        for rid in range(first + number, first + 10**6, 16):
            await store.commit(TABLE, [insert(rid, hashes=(h("s"),), unique=(h(rid),))])
            past = AddVersion(Past(rid, 1, h("k"), rid, h("s"), b"body"))
            await store.commit(TABLE, [Release(h("k"), rid, rid), Bind(rid, h("k"), b"sealed", rid), past])
            file = File(h(f"f{rid}"), rid, h("name"), f"object {rid}", 1, rid, rid, b"")
            reply = Remember(StoredReply(h(f"i{rid}"), 2**62, b"", b""), 1)
            await store.commit(TABLE, [Replace(row(rid)._replace(version=2), 1), Attach(file), reply])
            if rid % 2:
                await store.commit(TABLE, [Detach(rid, file.file_id)])
            print(rid, flush=True)
    await asyncio.gather(*(write(number) for number in range(16)))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

#: Writes under a limit on the size of files, then without it; prints what became of each commit.
LIMITED = """
import asyncio, resource, sys
from proxy.errors import VaultError
from proxy.storage import open_store
from proxy.storage.changes import Insert
from tests.support.rows import LAYOUT, TABLE, row

async def attempt(store, rid):
    try:
        await store.commit(TABLE, [Insert(row(rid, body=b"x" * 20000))])
    except VaultError as error:
        return error.code.value
    return "stored"

async def main(uri):
    store = await open_store(uri)
    await store.ensure(LAYOUT)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    results = [(rid, await attempt(store, rid)) for rid in range(1, 41)]
    seen = len(await store.rows(TABLE, range(1, 41)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    results += [(rid, await attempt(store, rid)) for rid in range(41, 46)]
    await store.close()
    print(seen, *(f"{rid}={result}" for rid, result in results))

asyncio.run(main(sys.argv[1]))
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return str(answer)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path, chance = tmp_path / "vault.db", random.Random(20)
    acknowledged: set[int] = set()
    for _ in range(20):
        child = start(WRITER, f"sqlite:///{path}", str(max(acknowledged, default=0) + 1000))
        assert child.stdout is not None
        wanted = chance.randrange(1, 60)
        lines = [child.stdout.readline() for _ in range(wanted)]
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
        child.stdout.close()
        assert child.wait(60) == -signal.SIGKILL
        whole = ("".join(lines) + rest).splitlines(keepends=True)
        acknowledged |= {int(line) for line in whole if line.endswith("\n")}
        asyncio.run(everything_is_there(path, acknowledged))
    assert integrity(path) == "ok"
    assert len(acknowledged) >= 20


async def everything_is_there(path: Path, acknowledged: set[int]) -> None:
    store = await open_store(f"sqlite:///{path}")
    await store.ensure(LAYOUT)
    rids = sorted(acknowledged)
    assert (await store.rows(TABLE, rids)).keys() == acknowledged
    assert await store.by_tokens(TABLE, [h(rid) for rid in rids]) == {
        h(rid): (rid,) for rid in rids
    }
    for rid in rids:
        assert await store.reply(TABLE, h(f"i{rid}"), 0) is not None
    past, total = await store.past(TABLE, h("k"), 10**6, 0)
    assert acknowledged <= {one.rid for one in past}
    assert total == len(past)
    changed = {one.rid for one in await store.scan(TABLE, 0, 10**6) if one.version == 2}
    held = {file.rid for file in await store.file_scan(TABLE, b"", 10**6)}
    doomed = {int(name.split()[1]) for name in await store.doomed(10**6)}
    assert held | doomed == changed, (
        "a file comes with the change it belongs to, and goes into the list of doomed ones"
    )
    assert held & doomed == set()
    assert {rid for rid in acknowledged if rid % 2} <= doomed
    holder = (await store.by_keys(TABLE, [h("k")]))[h("k")]
    rows, pending, _ = await store.count(TABLE)
    assert rows - pending == 1, (
        "one row holds the key, every other one lost it in the same transaction"
    )
    assert rows >= len(acknowledged)
    assert holder.rid > 0
    await store.close()


def test_a_disk_without_room_refuses_whole_commits_and_mends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "vault.db"
    child = start(LIMITED, f"sqlite:///{path}")
    answer, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    seen, *results = answer.split()
    told = {int(rid): result for rid, _, result in (part.partition("=") for part in results)}
    stored = {rid for rid, result in told.items() if result == "stored"}
    assert set(told.values()) == {"stored", "vault_down"}
    assert 1 in stored
    assert told[40] == "vault_down"
    assert {41, 42, 43, 44, 45} <= stored
    assert int(seen) == len(stored) - 5
    assert integrity(path) == "ok"
    connection = sqlite3.connect(path)
    assert {rid for (rid,) in connection.execute(f"SELECT rid FROM r_{TABLE}")} == stored
    connection.close()

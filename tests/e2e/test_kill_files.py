"""kill -9 during uploads, moves and deletions of attachments: what was answered is there, and
nothing half of anything.
"""

import json
from pathlib import Path

import aiohttp
import pytest

from proxy.clock import system_clock
from proxy.config import load_settings
from tests.support.attached import everything
from tests.support.effort import rounds
from tests.support.filecrowd import MARKER, FileCrowd
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules

#: Deaths in all; a release is tried with 200.
ROUNDS = rounds(4)


async def swept(data: Path) -> None:
    """Remove what the deaths left, as a running instance does an hour later."""
    from proxy.bootstrap.offline import stopped_vault
    from proxy.objectstore.base import SHARDS
    from proxy.vault.attachments.sweep import SWEEP_GRACE, ObjectSweep

    settings = load_settings(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(data)})
    async with stopped_vault(settings) as (vault, contents):
        sweep = ObjectSweep(
            contents,
            vault.store,
            lambda: ("default",),
            lambda: system_clock() + SWEEP_GRACE + 60_000,
        )
        await sweep.doomed()
        for shard in SHARDS:
            await sweep.orphans(shard)
        await contents.objects.clear(system_clock() + 60_000)


@pytest.mark.slow
async def test_attachments_survive_every_death_whole_or_not_at_all(tmp_path: Path) -> None:
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
        crowd = FileCrowd(caller, Installation(cradle, tmp_path))
        crowd.installation.rules.mkdir()
        (crowd.installation.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        await crowd.prepare()
        for _ in range(ROUNDS):
            await crowd.arrive(quick=True)
            await crowd.look()
            await crowd.installation.kill_at_work(map(crowd.work, crowd.people), crowd.counts, 30)
        await crowd.arrive(quick=True)
        await crowd.look()
        assert await crowd.installation.stop() == 0
        assert await crowd.installation.run("store", "verify", "--json") == 0, (
            crowd.installation.output
        )
        before = json.loads(crowd.installation.output)
        await swept(crowd.installation.data)
        assert await crowd.installation.run("store", "verify", "--json") == 0, (
            crowd.installation.output
        )
        after = json.loads(crowd.installation.output)
    files = sum(len(files) for worker in crowd.people for files in worker.state.values())
    assert (before["attachments"], after["attachments"]) == (files, files)
    assert after["left"] == {"doomed": 0, "orphaned": 0}
    kept = [path for path in (crowd.installation.data / "files").rglob("*") if path.is_file()]
    assert len(kept) == files + 2, "an object each, the mark and the lock"
    assert MARKER.lower() not in everything(tmp_path).lower()
    assert crowd.counts["upload 201"], crowd.counts

"""kill -9 during uploads, moves and deletions of attachments: what was answered is there, and
nothing half of anything.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGTERM

import aiohttp
import pytest

from proxy.clock import system_clock
from proxy.config import load_settings
from proxy.objectstore.s3 import parse_bucket_address
from tests.support.attached import everything
from tests.support.bucket import BUCKET, CREDENTIALS, Server, fresh_files, shared
from tests.support.clients import CONTACTS, FILE_MARKER, FileCrowd
from tests.support.effort import rounds
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules

#: Deaths in all; a release is tried with 200.
ROUNDS = rounds(4)


async def swept(installation: Installation) -> None:
    """Remove what the deaths left, as a running instance does an hour later."""
    from proxy.bootstrap.offline import stopped_vaults
    from proxy.objectstore.base import SHARDS
    from proxy.vault.attachments.object_cleanup import ORPHAN_AGE, ObjectCleanup

    data = {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(installation.data)}
    settings = load_settings(None, {**data, **installation.environment})
    async with stopped_vaults(settings) as [(vault, contents)]:
        sweep = ObjectCleanup(
            contents,
            vault.store,
            lambda: ("default",),
            lambda: system_clock() + ORPHAN_AGE + 60_000,
        )
        await sweep.doomed()
        for shard in SHARDS:
            await sweep.orphans(shard)
        await contents.objects.clear(system_clock() + 60_000)


@pytest.fixture(params=["a folder", "a bucket"])
def files(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of where the contents are kept."""
    in_bucket = request.param == "a bucket"
    return {"DOMICILE__FILES": fresh_files(), **CREDENTIALS} if in_bucket else {}


def objects(installation: Installation) -> list[bytes]:
    """The contents of all objects that are there, but for the mark of the vault."""
    if address := installation.environment.get("DOMICILE__FILES"):
        prefix, client = parse_bucket_address(address).prefix, shared().client()
        names = [name for name in shared().names(prefix) if not name.endswith("/owner")]
        return [client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in names]
    paths = (installation.data / "files").rglob("??/*")
    return [path.read_bytes() for path in paths if path.is_file()]


@pytest.mark.slow
async def test_attachments_survive_every_death_whole_or_not_at_all(
    tmp_path: Path, files: dict[str, str]
) -> None:
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
        crowd = FileCrowd(caller, Installation(cradle, tmp_path, files))
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
        await swept(crowd.installation)
        assert await crowd.installation.run("store", "verify", "--json") == 0, (
            crowd.installation.output
        )
        after = json.loads(crowd.installation.output)
    count = sum(len(named) for worker in crowd.people for named in worker.state.values())
    assert (before["attachments"], after["attachments"]) == (count, count)
    assert after["left"] == {"doomed": 0, "orphaned": 0}
    stored = objects(crowd.installation)
    assert len(stored) == count
    assert FILE_MARKER.lower() not in b"".join([everything(tmp_path), *stored]).lower()
    assert crowd.counts["upload 201"], crowd.counts


async def test_while_the_object_store_is_away_records_go_on_and_files_say_so(
    tmp_path: Path,
) -> None:
    server = Server()
    timeout = aiohttp.ClientTimeout(PATIENCE)
    settings = {"DOMICILE__FILES": server.address("x", timeout="4"), **CREDENTIALS}
    try:
        async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
            crowd = FileCrowd(caller, Installation(cradle, tmp_path, settings))
            crowd.installation.rules.mkdir()
            (crowd.installation.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
            await crowd.prepare()
            await crowd.arrive(quick=True)
            assert (await crowd.ask("POST", CONTACTS, {"id": "p0"}))[0] == 201
            server.freeze()
            refused = await crowd.send("POST", "p0", "x.txt", b"content")
            assert (refused[0], refused[1]["code"]) == (503, "files_unavailable")
            assert (await crowd.ask("POST", CONTACTS, {"id": "q0"}))[0] == 201
            server.thaw()
            assert (await crowd.send("POST", "p0", "x.txt", b"content"))[0] == 201
            assert await crowd.installation.stop() == 0
    finally:
        server.kill()


async def test_an_upload_under_way_at_sigterm_is_stored(tmp_path: Path) -> None:
    timeout = aiohttp.ClientTimeout(PATIENCE)
    async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
        crowd = FileCrowd(caller, Installation(cradle, tmp_path))
        crowd.installation.rules.mkdir()
        (crowd.installation.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        await crowd.prepare()
        await crowd.arrive(quick=True)
        assert (await crowd.ask("POST", CONTACTS, {"id": "p0"}))[0] == 201
        begun = asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            begun.set()
            for _ in range(30):  # longer than whatever else ends takes
                yield b"piece"
                await asyncio.sleep(0.1)

        sent = asyncio.create_task(crowd.send("POST", "p0", "slow", pieces()))
        await begun.wait()
        await asyncio.sleep(0.2)
        crowd.installation.send(SIGTERM)
        status, told = await sent
        assert status == 201, told
        assert told["size"] == 150
        assert await crowd.installation.ended() == 0
        assert not crowd.installation.events("a request to the vault failed")
        assert await crowd.installation.run("store", "verify", "--json") == 0
        assert json.loads(crowd.installation.output)["attachments"] == 1


async def test_check_names_the_bucket_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    async with nursery() as cradle:
        good = {"DOMICILE__FILES": fresh_files(), **CREDENTIALS}
        installation = Installation(cradle, tmp_path, good)
        assert await installation.run("check") == 0, installation.log
        assert b"files at s3://vault-files/" in installation.output
        bad = {"DOMICILE__FILES": shared().address("x", bucket="no-such-bucket"), **CREDENTIALS}
        installation = Installation(cradle, tmp_path, bad)
        assert await installation.run("check") == 1
        assert b"no such bucket" in installation.output + installation.log

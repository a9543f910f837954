"""What docs/operations.md tells an operator to do works."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.e2e.conftest import World
from tests.support.people import ANN


def copy(source: Path, target: Path) -> None:
    """As ``.backup`` of the sqlite3 program does it."""
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as made:
        live.backup(made)


async def test_a_copy_made_while_it_serves_restores_everybody(world: World, tmp_path: Path) -> None:
    created = await world.call("POST", "/people", 201, json=ANN)
    database = world.instance.data / "vault.db"
    copy(database, tmp_path / "backup.db")
    await world.call("POST", "/people", 201, json={**ANN, "name": "Bo"})
    await world.instance.kill()
    for name in ("vault.db", "vault.db-wal", "vault.db-shm"):
        (world.instance.data / name).unlink(missing_ok=True)
    (tmp_path / "backup.db").rename(database)
    await world.instance.start()
    assert await world.call("GET", "/people/1", 200) == created
    later = await world.call("GET", "/people/2", 200)
    assert later["name"] == world.application.records[2]["name"], (
        "written after the backup: the token is all there is"
    )


async def test_after_a_stop_the_file_alone_is_complete(world: World, tmp_path: Path) -> None:
    created = await world.call("POST", "/people", 201, json=ANN)
    assert await world.instance.stop() == 0
    content = (world.instance.data / "vault.db").read_bytes()
    for path in world.instance.data.glob("vault.db*"):
        path.unlink()
    (world.instance.data / "vault.db").write_bytes(content)
    await world.instance.start()
    assert await world.call("GET", "/people/1", 200) == created

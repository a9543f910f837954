"""What a move refuses, and what it does where it was killed; ``tests/e2e/test_migrate.py`` moves a
vault under load.
"""

import resource
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.migrate import Move
from proxy.bootstrap.offline import open_offline, stopped_vaults
from proxy.cli import main
from proxy.config import Settings, embedded_files, embedded_store, load_settings
from proxy.errors import Code, VaultError
from proxy.objectstore import open_objects
from proxy.storage import open_store
from proxy.storage.notes import NoteWrite
from proxy.storage.transfer import INCOMING, MOVED
from proxy.vault.collection import TableSpec
from proxy.vault.maintenance import verify_vault
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.records.repository import Records
from tests.support.contacts import CONTACT, contact


def silent(_what: str, _count: int) -> None:
    """Nobody looks."""


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """The settings of a vault that is there."""
    environ = {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    made = load_settings(None, environ)
    await prepare_instance(made)
    return made


def to(settings: Settings, folder: Path, **changes: Any) -> Move:
    made = replace(settings, **changes)
    return Move(made, embedded_store(folder / "vault.db"), embedded_files(folder / "files"))


async def notes(uri: str) -> dict[str, bytes]:
    store = await open_store(uri)
    try:
        return await store.read_notes()
    finally:
        await store.close()


async def test_a_finished_move_leaves_one_vault(settings, tmp_path):
    target = tmp_path / "new"
    copied = await to(settings, target).copy(silent)
    assert not copied.finished
    result = await to(settings, target).finish(silent)
    assert result.finished
    moved = replace(
        settings, store=embedded_store(target / "vault.db"), files=embedded_files(target / "files")
    )
    with pytest.raises(
        VaultError, match=f"has moved to {target}/vault.db: name that one"
    ) as refused:
        async with open_offline(settings):
            pass
    assert refused.value.code is Code.BAD_STORE
    async with open_offline(moved) as (store, _, _):
        assert await store.check_notes() == set()
    objects = await open_objects(settings.files.uri)
    assert await objects.owner() is None
    await objects.close()


async def test_nothing_starts_on_a_copy_that_is_not_finished(settings, tmp_path):
    await to(settings, tmp_path / "new").copy(silent)
    half = replace(settings, store=embedded_store(tmp_path / "new/vault.db"))
    with pytest.raises(VaultError, match="is still being copied from"):
        async with open_offline(half):
            pass


async def test_a_finish_that_was_killed_behind_its_last_note_is_finished(settings, tmp_path):
    target = tmp_path / "new"
    await to(settings, target).finish(silent)
    uri, mine = f"sqlite:///{target}/vault.db", settings.store.label.encode()
    store = await open_store(uri)
    await store.write_notes([NoteWrite(INCOMING, mine, None)])  # as if it had not come so far
    await store.close()
    assert (await to(settings, target).finish(silent)).rows == 0
    assert INCOMING not in await notes(uri)
    assert (await notes(settings.store.uri))[MOVED] == f"{target}/vault.db".encode()
    assert (await to(settings, target).finish(silent)).finished
    with pytest.raises(VaultError, match="has moved to"):
        await to(settings, tmp_path / "third").finish(silent)


async def test_an_attachment_that_was_copied_in_part_is_copied_again(settings, tmp_path):
    async def content() -> AsyncIterator[list[bytes]]:
        yield [b"sealed"]

    name, target = "ab" + "0" * 46, tmp_path / "new"
    objects = await open_objects(settings.files.uri)
    await objects.put(name, content())
    await objects.close()
    (target / "files/incoming").mkdir(parents=True)
    (target / "files/incoming" / name).write_bytes(b"sea")  # as a killed copy leaves it
    result = await to(settings, target).finish(silent)
    assert (result.attachments, result.objects, result.samples) == (1, 1, 1)
    assert (target / "files/ab" / name[2:]).read_bytes() == b"sealed"


async def test_a_target_without_room_is_named_and_the_move_goes_on_once_there_is_some(
    settings, tmp_path
):
    async def content() -> AsyncIterator[list[bytes]]:
        for _ in range(5):
            yield [bytes(1_000_000)]

    objects = await open_objects(settings.files.uri)
    await objects.put("ab" + "0" * 46, content())
    await objects.close()
    move, limits = to(settings, tmp_path / "new"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, limits[1]))
    try:
        with pytest.raises(
            VaultError, match=r"The copy to .*/new/files stopped.*ulimit"
        ) as refused:
            await move.finish(silent)
        assert refused.value.code is Code.FILES_UNAVAILABLE
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (await move.finish(silent)).attachments == 1


async def test_what_is_there_is_never_overwritten(settings, tmp_path):
    other = replace(settings, data=tmp_path / "o", store=embedded_store(tmp_path / "o/vault.db"))
    other = replace(other, files=embedded_files(tmp_path / "o/files"))
    await prepare_instance(other)
    with pytest.raises(VaultError, match="a move overwrites nothing") as refused:
        await to(settings, tmp_path / "o").copy(silent)
    assert refused.value.code is Code.BAD_STORE
    objects = await open_objects(f"file://{tmp_path}/p/files")
    await objects.claim("another")
    await objects.close()
    with pytest.raises(VaultError, match="attachments of another vault"):
        await to(settings, tmp_path / "p").copy(silent)


async def test_a_running_instance_is_copied_from_and_not_cut_over(settings, tmp_path):
    owner = await open_store(settings.store.uri)
    try:
        await to(settings, tmp_path / "new").copy(silent)
        with pytest.raises(VaultError) as refused:
            await to(settings, tmp_path / "new").finish(silent)
        assert refused.value.code is Code.STORE_BUSY
    finally:
        await owner.close()


async def test_the_snapshot_of_a_move_that_was_killed_goes_with_the_next_one(settings, tmp_path):
    left = settings.data / ".domicile-migrate-killed"
    left.mkdir()
    (left / "lock").touch()
    (left / "vault.db").write_bytes(b"as large as the vault")
    await to(settings, tmp_path / "new").copy(silent)
    assert not list(settings.data.glob(".domicile-migrate-*"))


async def test_a_move_to_where_the_vault_is_is_refused(settings, tmp_path):
    with pytest.raises(VaultError) as refused:
        to(settings, settings.data)
    assert "is at" in refused.value.details[0].text


async def test_the_sums_over_rows_go_along(settings, tmp_path):
    async with stopped_vaults(settings) as [(vault, _)]:
        spec = TableSpec(CONTACT, {}, None, addressed=False)
        await store_records(Records(await vault.collection(spec)), [contact("a")], "t", no_changes)
        assert await vault.altered() == []
    target = tmp_path / "new"
    await to(settings, target).finish(silent)
    moved = replace(
        settings, store=embedded_store(target / "vault.db"), files=embedded_files(target / "files")
    )
    assert await altered(moved) == []
    with sqlite3.connect(target / "vault.db") as database:
        database.execute("UPDATE tables SET tally = NULL")
    database.close()
    assert await altered(moved) == ["contact"]


async def altered(settings: Settings) -> list[str]:
    async with stopped_vaults(settings) as vaults:
        findings = await verify_vault(vaults, lambda _kind, _count: None)
    return [fault.schema for fault in findings.faults]


async def test_without_a_vault_there_is_nothing_to_move(settings, tmp_path):
    none = replace(settings, store=embedded_store(tmp_path / "none.db"))
    with pytest.raises(VaultError, match="There is no vault"):
        await to(none, tmp_path / "x").copy(silent)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--to", "mysql://x"], "--to: the store is a SQLite file or a PostgreSQL database"),
        (["--to", "sqlite:///x.db", "--files", "ftp://x"], "--files: files are kept in a folder"),
    ],
)
def test_an_address_that_cannot_be_is_told_with_its_option(arguments, fault, capsys, monkeypatch):
    monkeypatch.setenv("DOMICILE__COUNTRY", "se")
    assert main(["store", "migrate", *arguments]) == 1
    captured = capsys.readouterr()
    assert fault in captured.out + captured.err

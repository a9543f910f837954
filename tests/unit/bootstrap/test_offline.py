import asyncio
import contextlib
import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.offline import (
    OfflineChanges,
    open_offline,
    recorded,
    sealed_with,
    stopped_clients,
    stopped_environments,
    stopped_keys,
    stopped_vault,
    stopped_vaults,
)
from proxy.cli import main
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.model.record import KeyKind, RecordDraft
from proxy.model.schema_document import read_definition
from proxy.vault.job import JobState
from proxy.vault.maintenance.verify import verify_vault
from proxy.vault.records.commit import nothing
from proxy.vault.records.create import store_records
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import open_catalog


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    made = load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )
    await prepare_instance(made)
    async with stopped_environments(made) as environments:
        await environments.book.create("acme", "Acme AB")
    return made


async def written(settings: Settings, environment: str) -> None:
    """A record in that environment."""
    async with stopped_vault(settings, environment) as (vault, _):
        catalog = await open_catalog(vault, lambda error: None)
        await catalog.apply(
            read_definition("contact", {"fields": {"id": {"type": "primary_key"}}}), Origin.API
        )
        await store_records(
            catalog.records("contact"), [RecordDraft("k", {"id": "k"})], "somebody", nothing
        )
        await catalog.close()


async def test_clients_of_every_environment_are_administered(settings):
    async with stopped_clients(settings) as clients:
        made = await clients.create("crm", "acme")
    async with stopped_clients(settings) as clients:
        assert [client.environment for client in clients.listed()] == ["acme"]
        assert clients.find(made.client.id) == made.client


async def test_an_environment_that_is_not_there_is_told_with_those_that_are(settings):
    with pytest.raises(VaultError, match="there is default, acme") as caught:
        async with stopped_vault(settings, "nobody"):
            pass
    assert caught.value.code is Code.NOT_FOUND


async def test_a_check_of_the_store_looks_at_all_environments(settings):
    for environment in ("default", "acme"):
        await written(settings, environment)
    async with stopped_vaults(settings) as vaults:
        assert (await verify_vault(vaults, lambda *_: None)).counts["records"] == 2


async def test_records_keep_an_environment_unless_they_are_to_go_too(settings):
    await written(settings, "acme")
    async with stopped_environments(settings) as environments:
        with pytest.raises(VaultError) as caught:
            await environments.remove("acme", records=False)
        assert caught.value.code is Code.ENVIRONMENT_IN_USE
        assert await environments.remove("acme", records=True) == 1
        assert [found.id for found in environments.book.listed()] == ["default"]
        with pytest.raises(VaultError) as caught:
            await environments.remove("acme", records=True)
        assert caught.value.code is Code.NOT_FOUND


async def test_a_removal_that_was_interrupted_is_brought_to_its_end(settings):
    async with stopped_environments(settings) as environments:
        await environments.book.end("acme")
    async with stopped_environments(settings) as environments:
        assert environments.book.doomed() == ["acme"]
        await environments.remove("acme", records=False)
        assert environments.book.doomed() == []


Told = Callable[..., Any]
SCHEMA = {
    "name": "contact",
    "fields": {"id": {"type": "primary_key"}, "note": {"type": "string", "storage": "encrypted"}},
}
POLICY = {"name": "readers", "schema": "contact", "actions": ["read"], "fields": {"note": "hidden"}}


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Told:
    """What a command prints, in a folder of its own with a vault in it."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))

    def told(*command: str, status: int = 0) -> Any:
        assert main([*command, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return told


def lines() -> list[dict[str, Any]]:
    """Every line of the log."""
    files = sorted(Path("data/audit").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def done() -> list[tuple[Any, ...]]:
    """What commands have done, as the log has it."""
    return [
        tuple(
            line.get(name)
            for name in ("event", "by", "environment", "operation", "subject", "code")
        )
        for line in lines()
        if line.get("via") == "command"
    ]


def test_each_command_that_changes_rights_or_keys_leaves_its_line(told: Told) -> None:
    Path("contact.json").write_text(json.dumps(SCHEMA))
    Path("readers.json").write_text(json.dumps(POLICY))
    user = str(os.geteuid())
    with contextlib.suppress(KeyError):  # in a container it may have no name
        user = pwd.getpwuid(os.geteuid()).pw_name
    first = told("init")["client_id"]
    told("environment", "create", "Acme", "--id", "acme")
    made = told("client", "create", "shop", "--environment", "acme")["client_id"]
    told("client", "rotate-secret", made)
    told("client", "disable", made)
    told("schema", "apply", "contact.json")
    told("policy", "apply", "readers.json")
    for key in ("data", "master", "signing"):
        told("keys", "rotate", key)
    told("environment", "delete", "acme")
    assert done() == [
        ("admin", user, environment, operation, subject, None)
        for environment, operation, subject in (
            ("default", "create_client", first),
            ("default", "create_environment", "acme"),
            ("acme", "create_client", made),
            ("acme", "rotate_client_secret", made),
            ("acme", "disable_client", made),
            ("default", "put_schema", "contact"),
            ("default", "put_policy", "readers"),
            ("default", "rotate_key", "data"),
            ("default", "rotate_key", "master"),
            ("default", "rotate_key", "signing"),
            ("default", "remove_environment", "acme"),
        )
    ]
    assert told("audit", "verify")["ok"]
    count = len(lines())
    assert count == 3 * len(done())  # between a start and an end each
    for command in (
        ("client", "list"),
        ("keys", "list"),
        ("keys", "verify"),
        ("init",),
        ("policy", "list"),
        ("schema", "list"),
    ):
        told(*command)
    assert told("schema", "apply", "contact.json", "--dry-run")
    assert len(lines()) == count
    text = "".join(path.read_text() for path in Path("data/audit").glob("*.jsonl"))
    assert "secret" not in text.replace("rotate_client_secret", "")


def test_what_comes_to_nothing_is_told_as_refused(told: Told) -> None:
    told("client", "disable", "nobody", status=1)
    told("keys", "rotate", "data", "--environment", "nowhere", status=1)
    assert [(line[0], line[3], line[5]) for line in done()] == [
        ("refused", "disable_client", "not_found"),
        ("refused", "rotate_key", "not_found"),
    ]
    assert told("audit", "verify")["ok"]


def test_where_no_line_can_be_written_nothing_is_changed(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [one["keys"] for one in told("keys", "list")["data"]]
    Path("data/audit").write_text("no folder")
    assert told("keys", "rotate", "data", status=1)["code"] == "not_writable"
    assert (
        told("client", "create", "shop", "--environment", "default", status=1)["code"]
        == "not_writable"
    )
    Path("data/audit").unlink()
    with monkeypatch.context() as patched:
        patched.setattr("proxy.audit.files.LogSegment.append", _full)
        assert told("keys", "rotate", "data", status=1)["code"] == "audit_down"
        assert (
            told("client", "create", "shop", "--environment", "default", status=1)["code"]
            == "audit_down"
        )
    assert [one["keys"] for one in told("keys", "list")["data"]] == before
    assert told("client", "list")["clients"] == []


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def test_what_was_done_and_could_not_be_told_is_a_fault(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    del told
    record, settings = OfflineChanges("rotate_key", "default"), _settings()
    async with open_offline(settings, record):
        await record.ready()
        await record.ready()  # it is open already
        monkeypatch.setattr("proxy.audit.files.LogSegment.append", _full)
        with pytest.raises(VaultError, match="This was done") as caught:
            record.did("data")
        assert caught.value.code is Code.AUDIT_DOWN
        # nobody can be told that any more
        record.refused(VaultError(Code.NOT_FOUND, "There is none."))


def _settings() -> Settings:
    return load_settings(None, {})


async def test_a_record_that_no_vault_is_open_for_is_a_mistake_of_the_program() -> None:
    record = OfflineChanges("rotate_key")
    with pytest.raises(TypeError):
        await record.ready()
    with pytest.raises(TypeError):
        record.did("data")
    record.refused(VaultError(Code.NOT_FOUND, "There is none."))
    async with recorded(None), recorded(record):
        pass


async def test_a_user_without_a_name_is_told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_001)
    assert OfflineChanges("rotate_key")._about["by"] == "4000000001"


@pytest.fixture
async def settings_stoppedkeys(tmp_path: Path) -> Settings:
    made = load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )
    await prepare_instance(made)
    return made


async def test_keys_of_a_stopped_vault_are_rotated_and_left_for_the_next_instance_to_seal_with(
    settings_stoppedkeys,
):
    async with stopped_keys(settings_stoppedkeys) as keys:
        before = await keys.listed()
        await keys.rotate(KeyKind.DATA)
        await keys.rotate(KeyKind.MASTER)
        after = await keys.listed()
    (one,) = after.environments
    assert (len(one.keys), one.reseal) == (2, JobState.NONE)
    assert after.master != before.master
    async with stopped_vault(settings_stoppedkeys) as (vault, _):
        assert vault.keyset.data_keys == one.keys
    found = (await sealed_with(settings_stoppedkeys))["default"]
    assert {key: set(kinds) for key, kinds in found.items()} == {one.keys[0]: {"notes"}}


async def test_where_there_is_no_vault_that_is_said(tmp_path):
    with pytest.raises(VaultError) as caught:
        async with stopped_keys(
            load_settings(
                None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "none")}
            )
        ):
            pass
    assert caught.value.code is Code.BAD_STORE

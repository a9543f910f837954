from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.offline import (
    OfflineChanges,
    open_offline,
    recorded,
    stopped_clients,
    stopped_vaults,
)
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.model.schema_document import read_definition
from proxy.vault.maintenance.verify import verify_vault
from proxy.vault.records.commit import no_changes
from proxy.vault.records.create import store_records
from proxy.vault.schema_store import Origin
from proxy.vault.schemas.catalog import open_catalog


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    made = load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )
    await prepare_instance(made)
    async with open_offline(made) as (_, book, _):
        await book.create("acme", "Acme AB")
    return made


async def written(settings: Settings, environment: str) -> None:
    """A record in that environment."""
    async with stopped_vaults(settings) as vaults:
        (vault,) = (vault for vault, _ in vaults if vault.environment == environment)
        catalog = await open_catalog(vault, lambda error: None)
        await catalog.apply(
            read_definition("contact", {"fields": {"id": {"type": "primary_key"}}}), Origin.API
        )
        await store_records(
            catalog.records("contact"), [RecordDraft("k", {"id": "k"})], "somebody", no_changes
        )
        await catalog.close()


async def test_clients_of_every_environment_are_administered(settings):
    async with stopped_clients(settings) as clients:
        made = await clients.create("crm", "acme")
    async with stopped_clients(settings) as clients:
        assert [client.environment for client in clients.listed()] == ["acme"]
        assert clients.find(made.client.id) == made.client


async def test_a_check_of_the_store_looks_at_all_environments(settings):
    for environment in ("default", "acme"):
        await written(settings, environment)
    async with stopped_vaults(settings) as vaults:
        assert (await verify_vault(vaults, lambda *_: None)).counts["records"] == 2


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def test_what_was_done_and_could_not_be_told_is_a_fault(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = OfflineChanges("rotate_key", "default")
    async with open_offline(settings, record):
        await record.ready()
        await record.ready()  # it is open already
        monkeypatch.setattr("proxy.audit.files.LogSegment.append", _full)
        with pytest.raises(VaultError, match="This was done") as caught:
            record.did("data")
        assert caught.value.code is Code.AUDIT_DOWN
        # nobody can be told that any more
        record.refused("not_found")


async def test_a_record_that_no_vault_is_open_for_is_a_mistake_of_the_program() -> None:
    record = OfflineChanges("rotate_key")
    with pytest.raises(TypeError):
        await record.ready()
    with pytest.raises(TypeError):
        record.did("data")
    record.refused("not_found")
    async with recorded(None), recorded(record):
        pass


async def test_a_user_without_a_name_is_told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_001)
    assert OfflineChanges("rotate_key")._about["by"] == "4000000001"

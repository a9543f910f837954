from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.offline import (
    stopped_clients,
    stopped_environments,
    stopped_vault,
    stopped_vaults,
)
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.model.record import RecordDraft
from proxy.model.schema_document import read_definition
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
        made = await clients.create("crm", "acme", admin=False)
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

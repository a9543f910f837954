from pathlib import Path

import pytest

from proxy.bootstrap.storage import (
    key_source,
    open_environments,
    open_with_key,
    refuse_no_vault,
    unobserved,
    vault_options,
)
from proxy.config import Settings, load_settings
from proxy.crypto.key_sources import FileSource
from proxy.errors import Code, VaultError


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        None, {"DOMICILE__DATA": str(tmp_path / "data"), "DOMICILE__COUNTRY": "no"}
    )


async def test_the_first_opening_makes_store_and_key_and_the_second_nothing(settings):
    for made in (True, False):
        store, told = await open_with_key(settings)
        assert told is made
        await store.close()
    assert key_source(settings.keys).exists()


async def test_a_vault_that_is_not_there_is_not_made_by_asking(settings):
    with pytest.raises(VaultError, match="domicile init") as caught:
        refuse_no_vault(settings)
    assert caught.value.code is Code.BAD_STORE
    assert not settings.data.exists()


async def test_a_store_without_its_key_is_closed_again(settings, monkeypatch):
    store, _ = await open_with_key(settings)
    await open_environments(settings, store)
    await store.close()
    monkeypatch.setattr(FileSource, "exists", lambda _: False)
    for _ in range(2):  # a lock that was left would tell another fault the second time
        with pytest.raises(VaultError) as caught:
            await open_with_key(settings)
        assert caught.value.code is Code.BAD_KEYS


async def test_every_environment_is_opened_with_its_keys_and_default_comes_first(settings):
    store, _ = await open_with_key(settings)
    book, _ = await open_environments(settings, store)
    await book.create("acme", "Acme AB")
    await book.create("gone", "Gone")
    await book.end("gone")
    book, keysets = await open_environments(settings, store)
    assert [(ident, keyset.environment) for ident, keyset in keysets.items()] == [
        ("default",) * 2,
        ("acme",) * 2,
    ]
    assert book.doomed() == ["gone"]
    await store.close()


def test_the_settings_reach_the_vault_of_each_environment(settings):
    options = vault_options(settings, "acme")
    assert (options.environment, options.region, options.pending_keep) == (
        "acme",
        "NO",
        settings.pending.keep,
    )
    unobserved("staged", "person", 1)

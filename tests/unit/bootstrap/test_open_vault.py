import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance, running
from proxy.bootstrap.open_vault import (
    check_file_store,
    check_keys,
    check_store,
    country_of,
    key_source,
    open_environments,
    open_files,
    open_with_key,
    refuse_no_vault,
    unobserved,
    vault_options,
)
from proxy.config import Settings, embedded_store, load_settings
from proxy.crypto.key_sources import FileSource
from proxy.errors import Code, VaultError
from proxy.objectstore.files import object_path
from proxy.storage import open_store
from tests.support.contacts import make_contacts
from tests.support.postgres import fresh_address


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


async def test_what_a_lost_vault_has_left_gets_no_new_one(settings):
    await prepare_instance(settings)
    async with running(settings):
        pass
    content = object_path(settings.data / "files", 48 * "a")
    content.parent.mkdir()
    content.write_bytes(b"sealed")
    elsewhere = replace(settings, store=embedded_store(settings.data / "wrong" / "vault.db"))
    no_country = replace(elsewhere, country="")
    for attempt in (
        lambda: open_with_key(elsewhere),
        lambda: prepare_instance(elsewhere),
        lambda: asyncio.to_thread(check_store, elsewhere),
        lambda: asyncio.to_thread(country_of, no_country),  # not: domicile init --country se
    ):
        with pytest.raises(VaultError, match=r"(?s)one was in use here.*domicile restore") as fault:
            await attempt()
        assert fault.value.code is Code.BAD_STORE
        assert str(settings.audit.folder) in fault.value.message
    assert not (settings.data / "wrong").exists()
    settings.audit.folder.rename(settings.data / "audit.before")
    with pytest.raises(VaultError, match="its attachments at"):
        await prepare_instance(elsewhere)
    (settings.data / "files").rename(settings.data / "files.before")
    with pytest.raises(VaultError, match="its key at"):  # which a restore needs first
        await open_with_key(elsewhere)
    assert await prepare_instance(elsewhere)
    async with running(elsewhere):
        pass


async def test_a_key_that_was_rotated_is_that_of_a_vault(settings, tmp_path):
    outside = replace(settings, keys=replace(settings.keys, locator=str(tmp_path / "keys.json")))
    source = key_source(outside.keys)
    source.create()
    source.stage()
    with pytest.raises(VaultError, match=r"its key at .*/keys\.json"):
        await open_with_key(outside)
    (tmp_path / "keys.json").unlink()
    source.create()  # as an orchestrator mounts it
    store, made = await open_with_key(outside)
    await store.close()
    assert made


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


def settings_files(folder: Path, **more: str) -> Settings:
    return load_settings(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(folder), **more})


async def test_the_files_of_the_settings_are_opened_and_belong_to_the_vault(tmp_path):
    contacts = await make_contacts()
    told = settings_files(tmp_path, DOMICILE__LIMITS__UPLOAD="1KiB")
    await check_file_store(told, contacts.store)
    assert not (tmp_path / "files").exists(), "a check makes nothing"
    contents = await open_files(told, contacts.vault)
    assert contents.limit == 1024
    with pytest.raises(VaultError) as caught:
        await check_file_store(told, contacts.store)
    assert caught.value.code is Code.STORE_BUSY
    await contents.close()
    await check_file_store(told, contacts.store)


async def test_files_of_another_vault_are_refused_and_let_go(tmp_path):
    one, other = await make_contacts(), await make_contacts()
    await (await open_files(settings_files(tmp_path), one.vault)).close()
    await (await open_files(settings_files(tmp_path / "other"), other.vault)).close()
    for _ in range(2):
        with pytest.raises(VaultError, match="another vault") as caught:
            await open_files(settings_files(tmp_path), other.vault)
        assert caught.value.code is Code.BAD_STORE
    with pytest.raises(VaultError, match="another vault"):
        await check_file_store(settings_files(tmp_path), other.store)
    with pytest.raises(VaultError, match="mount their disk"):
        await check_file_store(
            settings_files(tmp_path, DOMICILE__FILES=f"file://{tmp_path}/elsewhere"), one.store
        )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3://bucket/../x", "a prefix has"), ("/var/files", "kept in a folder"),
        ("file:files", "three slashes"), ("file:///~/files", "whole"),
    ],
)  # fmt: skip
def test_other_places_are_refused_in_words(tmp_path, text, reason):
    with pytest.raises(VaultError) as caught:
        settings_files(tmp_path, DOMICILE__FILES=text)
    (detail,) = caught.value.details
    assert reason in detail.text
    assert "write file:///{data}/files" in detail.text


def test_a_folder_may_be_written_with_a_slash_at_its_end(tmp_path):
    assert (
        settings_files(tmp_path, DOMICILE__FILES="file:///srv/files/").files.uri
        == "file:///srv/files"
    )


# ---------------------------------------------------------------- on a server


def on_server(folder: Path, **environment: str) -> Settings:
    """Settings of a vault in PostgreSQL, with a password that must never be told."""
    address = fresh_address().replace("//postgres@", "//postgres:s3cret@")
    return load_settings(
        None,
        {
            "DOMICILE__DATA": str(folder / "data"),
            "DOMICILE__COUNTRY": "se",
            "DOMICILE__STORE": address,
            **environment,
        },
    )


def test_a_vault_on_a_server_is_checked_made_and_found_again(tmp_path):
    settings = on_server(tmp_path)
    assert "s3cret" not in repr(settings) + settings.store.label
    assert check_store(settings) == "made at the first start"
    check_keys(settings)
    with pytest.raises(VaultError, match="There is no vault at 127"):
        refuse_no_vault(settings)
    assert asyncio.run(prepare_instance(settings))
    assert not asyncio.run(prepare_instance(settings))
    assert check_store(settings) == ""
    assert country_of(replace(settings, country="")) == "se"
    with pytest.raises(VaultError, match="another country"):
        check_store(replace(settings, country="de"))
    (tmp_path / "data" / "keys.json").unlink()
    with pytest.raises(VaultError) as caught:
        check_keys(settings)
    assert caught.value.code is Code.BAD_KEYS
    with pytest.raises(VaultError, match="is missing: restore") as caught:
        check_store(settings)
    assert "s3cret" not in caught.value.message


async def test_a_vault_on_a_server_is_looked_at_beside_the_instance_that_owns_it(tmp_path):
    settings = on_server(tmp_path)
    await prepare_instance(settings)
    store = await open_store(settings.store.uri)
    told = await asyncio.to_thread(
        check_store,
        replace(settings, store=replace(settings.store, uri=settings.store.uri + "&wait=0")),
    )
    assert told.startswith("in use by a running instance")
    await store.close()


@pytest.mark.parametrize(("word", "kept"), [("true", True), ("false", False), ("auto", False)])
def test_a_server_sums_up_rows_where_it_is_told_to(tmp_path, word, kept):
    settings = on_server(tmp_path, DOMICILE__HISTORY__DETECT_ROLLBACK=word)
    assert vault_options(settings).detect_rollback is kept
    assert settings.store.file is None

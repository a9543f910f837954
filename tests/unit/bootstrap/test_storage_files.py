from pathlib import Path

import pytest

from proxy.bootstrap.storage import check_file_store, open_files
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from tests.support.contacts import make_contacts


def settings(folder: Path, **more: str) -> Settings:
    return load_settings(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(folder), **more})


async def test_the_files_of_the_settings_are_opened_and_belong_to_the_vault(tmp_path):
    contacts = await make_contacts()
    told = settings(tmp_path, DOMICILE__LIMITS__UPLOAD="1KiB")
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
    await (await open_files(settings(tmp_path), one.vault)).close()
    await (await open_files(settings(tmp_path / "other"), other.vault)).close()
    for _ in range(2):
        with pytest.raises(VaultError, match="another vault") as caught:
            await open_files(settings(tmp_path), other.vault)
        assert caught.value.code is Code.BAD_STORE
    with pytest.raises(VaultError, match="another vault"):
        await check_file_store(settings(tmp_path), other.store)
    with pytest.raises(VaultError, match="mount their disk"):
        await check_file_store(
            settings(tmp_path, DOMICILE__FILES=f"file://{tmp_path}/elsewhere"), one.store
        )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("s3://bucket/files", "S3 yet"),
        ("/var/files", "kept in a folder"),
        ("file:files", "three slashes"),
        ("file:///~/files", "whole"),
    ],
)
def test_other_places_are_refused_in_words(tmp_path, text, reason):
    with pytest.raises(VaultError) as caught:
        settings(tmp_path, DOMICILE__FILES=text)
    (detail,) = caught.value.details
    assert reason in detail.text
    assert "write file:///{data}/files" in detail.text


def test_a_folder_may_be_written_with_a_slash_at_its_end(tmp_path):
    assert settings(tmp_path, DOMICILE__FILES="file:///srv/files/").files.uri == "file:///srv/files"

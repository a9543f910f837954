from pathlib import Path

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.offline import sealed_with, stopped_keys, stopped_vault
from proxy.config import Settings, load_settings
from proxy.errors import Code, VaultError
from proxy.model.record import KeyKind
from proxy.vault.maintenance.reencryption import ReencryptionState


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    made = load_settings(
        None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")}
    )
    await prepare_instance(made)
    return made


async def test_keys_of_a_stopped_vault_are_rotated_and_left_for_the_next_instance_to_seal_with(
    settings,
):
    async with stopped_keys(settings) as keys:
        before = await keys.listed()
        await keys.rotate(KeyKind.DATA)
        await keys.rotate(KeyKind.MASTER)
        after = await keys.listed()
    (one,) = after.environments
    assert (len(one.keys), one.reseal) == (2, ReencryptionState.NONE)
    assert after.master != before.master
    async with stopped_vault(settings) as (vault, _):
        assert vault.keyset.data_keys == one.keys
    found = (await sealed_with(settings))["default"]
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

from pathlib import Path

import pytest

from proxy.bootstrap import prepare
from proxy.composition.stopped import stopped_vault
from proxy.composition.stoppedkeys import sealed_with, stopped_keys
from proxy.config import Settings, load
from proxy.errors import Code, VaultError
from proxy.model.keys import KeyKind
from proxy.vault.reseal import State


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    made = load(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "data")})
    await prepare(made)
    return made


async def test_keys_of_a_stopped_vault_are_rotated_and_left_for_the_next_instance_to_seal_with(settings):
    async with stopped_keys(settings) as keys:
        before = await keys.listed()
        await keys.rotate(KeyKind.DATA)
        await keys.rotate(KeyKind.MASTER)
        after = await keys.listed()
    (one,) = after.environments
    assert (len(one.keys), one.reseal) == (2, State.NONE)
    assert after.master != before.master
    async with stopped_vault(settings) as (vault, _):
        assert vault.keyset.data_keys == one.keys
    found = (await sealed_with(settings))["default"]
    assert {key: set(kinds) for key, kinds in found.items()} == {one.keys[0]: {"notes"}}


async def test_where_there_is_no_vault_that_is_said(tmp_path):
    with pytest.raises(VaultError) as caught:
        async with stopped_keys(load(None, {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "none")})):
            pass
    assert caught.value.code is Code.BAD_STORE

import argparse
import asyncio

import pytest

from proxy.cli import main
from proxy.cli.schemas import opened
from proxy.composition.stopped import stopped_vault
from proxy.config import load
from proxy.errors import Code, VaultError


async def test_a_vault_that_an_instance_runs_on_is_asked_by_its_address(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert await asyncio.to_thread(main, ["init"]) == 0
    settings = load(None, {})
    async with stopped_vault(settings):
        with pytest.raises(VaultError) as caught:
            async with opened(argparse.Namespace(url=None, environment="default"), settings):
                pytest.fail("the store is in use")
    assert caught.value.code is Code.STORE_BUSY
    assert "--url" in caught.value.message

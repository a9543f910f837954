"""The first client from a mounted secret, on a real process: a token for it, once and for ever."""

import asyncio
import contextlib

import pytest

from proxy.cli.remote import Remote
from proxy.errors import VaultError
from tests.support.instance import Instance, running

RULES = """\
version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:1"}
"""
SECRET = "Zm9yIHRlc3RzIGFsb25lLCBuZXZlciB1c2VkIGVsc2V3aGVyZQ=="


def names(instance: Instance) -> list[str]:
    with contextlib.closing(Remote(instance.vault, "first-administrator", SECRET)) as remote:
        return [client["name"] for client in remote.listed("/api/clients")]


async def test_an_instance_makes_its_first_administrator_of_a_secret_and_says_so_once(tmp_path):
    folder = tmp_path / "first-client"
    folder.mkdir()
    (folder / "id").write_text("first-administrator")
    (folder / "secret").write_text(SECRET)
    async with running(tmp_path / "a", RULES, DOMICILE__AUTH__FIRST_CLIENT=str(folder)) as instance:
        assert await asyncio.to_thread(names, instance) == ["first administrator"]
        await instance.stop()
        (folder / "secret").write_text("replaced")
        await instance.start()
        assert await asyncio.to_thread(names, instance) == ["first administrator"]
        log = bytes(instance.log).decode()
        assert log.count("the first client was made of what the settings mount") == 1
        assert SECRET not in log
        assert "no client can use" not in log


async def test_a_secret_that_could_be_guessed_ends_the_start_and_says_why(tmp_path):
    (tmp_path / "id").write_text("first-administrator")
    (tmp_path / "secret").write_text("changeme")
    instance = running(tmp_path / "a", RULES, DOMICILE__AUTH__FIRST_CLIENT=str(tmp_path))
    with pytest.raises(VaultError) as caught:
        async with instance:
            pass
    assert "the secret could be guessed" in caught.value.message
    assert "changeme" not in caught.value.message

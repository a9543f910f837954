"""Functions in a whole service, whose key came by an environment variable."""

import base64
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.functions import install
from tests.support.instance import Instance
from tests.support.tree import ROOT

#: What a function that was installed to spy would try, all of it.
SPY = """
import os, socket
def attempt(work):
    try:
        return str(work())
    except OSError as error:
        return os.strerror(error.errno)
service = os.getppid()
result = {
    "database": attempt(lambda: open(DATA + "/vault.db", "rb").read(1)),
    "folder": attempt(lambda: os.listdir(DATA)),
    "environment": attempt(lambda: open(f"/proc/{service}/environ").read()),
    "memory": attempt(lambda: open(f"/proc/{service}/mem", "rb")),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", PORT))),
    "signal": attempt(lambda: os.kill(service, 9)),
    "own": sorted(os.environ),
}
"""

DENIED, REFUSED = "Permission denied", "Operation not permitted"


@pytest.mark.usefixtures("landlock", "seccomp")
async def test_a_function_in_a_running_service_reaches_nothing_and_no_secret_stays_visible(
    tmp_path: Path,
) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    site = install(tmp_path / "site")
    environment = {
        "DOMICILE__KEYS": "env:VAULT_KEY",
        "VAULT_KEY": key,
        "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))),
    }
    instance = Instance(tmp_path, ("-m", "proxy", "serve"), environment)
    instance.rules.mkdir()
    first = await instance.command("init")
    await instance.start()
    try:
        assert instance.process is not None
        shown = environment_of(instance.process.pid)
        assert os.geteuid() != 0 or b"VAULT_KEY=" in shown
        assert key.encode() not in shown
        await instance.logged("resident functions have a layer of isolation", 2)
        layers = instance.events("resident functions have a layer of isolation")
        assert {"landlock", "seccomp"} <= {line["layer"] for line in layers}
        port = instance.vault.rpartition(":")[2]
        code = SPY.replace("DATA", repr(str(instance.data))).replace("PORT", port)
        outcome = await called(instance, first, {"code": code})
        assert outcome["result"].pop("own") == ["HOME", "TMPDIR"]
        assert outcome["result"] == {
            "database": DENIED,
            "folder": DENIED,
            "environment": DENIED,
            "memory": DENIED,
            "network": REFUSED,
            "signal": REFUSED,
        }
        assert await instance.stop() == 0
    finally:
        await instance.kill()


def environment_of(process: int) -> bytes:
    """What others see of it; nothing where only root may look."""
    try:
        return Path(f"/proc/{process}/environ").read_bytes()
    except PermissionError:
        return b""


async def called(instance: Instance, client: Any, arguments: Any) -> Any:
    async with aiohttp.ClientSession() as caller:
        form = {
            "grant_type": "client_credentials",
            "client_id": client["client_id"],
            "client_secret": client["client_secret"],
            "audience": instance.vault,
        }
        async with caller.post(f"{instance.vault}/oauth2/token", data=form) as answer:
            token = (await answer.json())["access_token"]
        async with caller.post(
            f"{instance.vault}/api/functions/attempt",
            json={"arguments": arguments},
            headers={"Authorization": f"Bearer {token}"},
        ) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["result"]

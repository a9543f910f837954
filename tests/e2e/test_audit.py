"""The audit log of a running instance: its disk runs full, or its folder goes away, and comes back;
nothing is revealed meanwhile.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support import lives
from tests.support.application import Application
from tests.support.audit import lines
from tests.support.crowd import MARKERS, body
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.serving import serving
from tests.support.unavailable import Unavailable


@dataclass
class Scene:
    """An instance with an application behind it, and how its log is broken and mended."""

    instance: Instance
    caller: aiohttp.ClientSession
    credentials: dict[str, str]
    folder: Path  #: of the log
    spoil: Callable[[], None]
    mend: Callable[[], None]

    async def ask(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        async with self.caller.request(method, url, **more) as answer:
            return answer.status, await answer.read()

    async def token(self) -> tuple[int, bytes]:
        proof = {name: self.credentials[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", "audience": self.instance.vault, **proof}
        return await self.ask("POST", self.instance.vault + "/oauth2/token", data=form)

    async def readiness(self, status: int) -> dict[str, str]:
        """Wait until the probe answers so; what it says of each check."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found, told = await self.ask("GET", self.instance.admin + "/readyz")
                if found == status:
                    checks: dict[str, str] = json.loads(told)["checks"]
                    return checks
                await asyncio.sleep(0.05)


async def command(instance: Instance, *words: str) -> tuple[int, Any]:
    """Exit status and JSON of a command."""
    status, said, _ = await lives.command(instance.folder, instance.settings(), *words, "--json")
    return status, json.loads(said)


@pytest.fixture(params=["full", "gone"])
async def scene(
    request: pytest.FixtureRequest, tmp_path: Path, unavailable: Unavailable
) -> AsyncIterator[Scene]:
    """``full``: a small disk of its own; ``gone``: the folder is taken away."""
    place = tmp_path / "disk"
    place.mkdir()
    folder, ballast, away = place / "audit", place / "ballast", place / "away"
    mounted = request.param == "full"
    if mounted and not mount(place):
        unavailable(
            "the audit log on a disk that runs full", "a test may not mount a disk of its own here"
        )

    def spoil() -> None:
        if mounted:
            fill(ballast)
        else:
            folder.rename(away)

    def mend() -> None:
        if mounted:
            ballast.unlink()
        else:
            away.rename(folder)

    application = Application()
    instance = Instance(tmp_path, environment={"DOMICILE__AUDIT__FOLDER": str(folder)})
    instance.rules.mkdir()
    try:
        async with serving(application.app()) as upstream, aiohttp.ClientSession() as caller:
            (instance.rules / "rules.yaml").write_text(rules(upstream))
            _, credentials = await command(instance, "init")
            await instance.start()
            yield Scene(instance, caller, credentials, folder, spoil, mend)
            await instance.kill()
    finally:
        await instance.kill()
        if mounted:
            unmount(place)


def mount(place: Path) -> bool:
    """A disk of 256 KiB; whether that is allowed."""
    order = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    return (
        shutil.which("mount") is not None
        and not subprocess.run(order, capture_output=True, check=False).returncode
    )


def unmount(place: Path) -> None:
    subprocess.run(["umount", place], check=True)


def fill(path: Path) -> None:
    """Take every byte that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def shows(answer: bytes) -> bool:
    return any(marker.encode() in answer for marker in MARKERS)


async def test_with_the_log_down_nothing_is_revealed_and_pass_through_goes_on(
    scene: Scene,
) -> None:
    proxy = scene.instance.proxy
    status, made = await scene.ask("POST", proxy + "/people", json=body(1))
    assert (status, shows(made)) == (201, True)
    one = f"{proxy}/people/{json.loads(made)['id']}"
    status, before = await scene.ask("GET", one)
    assert (status, shows(before)) == (200, True)

    scene.spoil()
    async with asyncio.timeout(PATIENCE):
        while shows((await scene.ask("GET", one))[1]):  # noqa: ASYNC110  # until the program has seen it
            await asyncio.sleep(0.05)
    assert "audit log cannot be written" in (await scene.readiness(503))["audit"]
    status, told = await scene.ask("GET", one)
    assert (status, shows(told)) == (200, False), "answers to reads pass with tokens"
    for method in ("POST", "PATCH", "DELETE"):
        url = proxy + "/people" if method == "POST" else one
        status, told = await scene.ask(method, url, json=body(2))
        assert (status, json.loads(told)["code"]) == (503, "audit_down")
    assert (await scene.token())[0] == 503
    assert (await scene.ask("GET", proxy + "/nobody/names/this"))[0] == 200, (
        "the application answers"
    )
    assert (await scene.ask("GET", scene.instance.vault + "/openapi.json"))[0] == 200

    scene.mend()
    assert (await scene.readiness(200))["audit"] == "ok"
    assert await scene.ask("GET", one) == (200, before)
    assert (await scene.token())[0] == 200
    assert (await scene.ask("PATCH", one, json=body(3)))[0] == 200


@pytest.mark.parametrize("scene", ["gone"], indirect=True)
async def test_the_log_of_an_instance_that_is_killed_is_whole_and_says_who_did_what(
    scene: Scene,
) -> None:
    _, made = await scene.ask("POST", scene.instance.proxy + "/people", json=body(1))
    assert (await scene.token())[0] == 200
    assert (await scene.ask("POST", scene.instance.vault + "/api/find", json={"schema": "person"}))[
        0
    ] == 401
    status, beside = await command(scene.instance, "audit", "verify")
    assert (status, beside["ok"]) == (0, True), beside
    key = str(json.loads(made)["id"])
    await scene.instance.kill()
    await scene.instance.start()
    await scene.ask("GET", f"{scene.instance.proxy}/people/{key}")
    await scene.instance.stop()
    status, after = await command(scene.instance, "audit", "verify")
    assert (status, after["ok"]) == (0, True), after
    told = [
        (line["event"], line.get("operation"))
        for line in lines(scene.folder)
        if line["event"] != "log"
    ]
    assert told == [
        ("admin", "create_client"),  # by init, before there was an instance
        ("write", "POST /people"),
        ("token", "token"),
        ("refused", "find_direct"),
        ("reveal", "GET /people/{id}"),
    ]
    content = b"".join(path.read_bytes() for path in scene.folder.glob("*.jsonl"))
    assert not shows(content)
    (path,) = scene.folder.glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    status, cut = await command(scene.instance, "audit", "verify")
    assert (status, len(cut["faults"])) == (1, 1)

"""kill -9 while an environment is removed: it is there whole, or it goes on to its end; in neither
case anybody else is hurt.
"""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.attached import everything
from tests.support.effort import EXPLORE
from tests.support.lives import Installation, Nursery, nursery
from tests.support.patience import PATIENCE
from tests.support.people import rules

CONTACT = {
    "fields": {"id": {"type": "primary_key"}, "city": {"type": "string", "storage": "indexed"}}
}

#: Steps of ``domicile environment delete`` in their order, and how often each is reached. What is
#: before one of them is what the one before it left, or nearly: it is tried where more is explored.
STEPS = [
    *[(f"note.{side}", nth) for nth in (1, 2, 3, 4, 5, 6) for side in ("before", "after")],
    *[(f"notes.{side}", nth) for nth in (1, 2, 3) for side in ("before", "after")],
    *[(f"drop.{side}", nth) for nth in (1, 2) for side in ("before", "after")],
]
STEPS = STEPS if EXPLORE else [one for one in STEPS if one[0].endswith("after") or one == STEPS[0]]


class Operator:
    """Somebody with an administrator's credentials, on an installation with one environment more."""

    def __init__(self, installation: Installation, caller: aiohttp.ClientSession) -> None:
        self.here = installation
        self.caller = caller
        self.credentials: dict[str, Any] = {}

    async def command(self, *argv: str) -> dict[str, Any]:
        """What a command says that goes well."""
        assert await self.here.run(*argv, "--json") == 0, self.here.output + self.here.log
        return json.loads(self.here.output)  # type: ignore[no-any-return]  # an object

    async def token(self, credentials: dict[str, Any]) -> str:
        proof = {name: credentials[name] for name in ("client_id", "client_secret")}
        form = {"grant_type": "client_credentials", **proof}
        async with self.caller.post(self.here.vault + "/oauth2/token", data=form) as answer:
            assert answer.status == 200, await answer.text()
            return str((await answer.json())["access_token"])

    async def ask(self, token: str, method: str, path: str, content: Any = None) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        form = content() if callable(content) else None
        sent: dict[str, Any] = (
            {"data": form} if form else {"json": content} if content is not None else {}
        )
        headers |= {"x-filename": "a.txt"} if form else {}
        async with self.caller.request(
            method, self.here.vault + path, headers=headers, **sent
        ) as answer:
            return answer.status

    async def furnish(self) -> None:
        """A record with a file in ``default`` and in ``acme``; then nobody runs."""
        self.credentials = await self.command("init")
        await self.command("environment", "create", "--id", "acme", "Acme AB")
        other = await self.command("client", "create", "--environment", "acme", "--admin", "crm")
        assert await self.here.start()
        for credentials in (self.credentials, other):
            token = await self.token(credentials)
            assert await self.ask(token, "PUT", "/api/schemas/contact", CONTACT) == 201
            assert (
                await self.ask(token, "POST", "/api/models/contact", {"id": "k", "city": "Lund"})
                == 201
            )
            assert await self.ask(token, "POST", "/api/models/contact/k/files", upload) == 201
        assert await self.here.stop() == 0

    async def verified(self) -> dict[str, Any]:
        return await self.command("store", "verify")

    async def environments(self) -> list[str]:
        listed = await self.command("environment", "list")
        return [item["environment_id"] for item in listed["environments"]]


def upload() -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("file", b"a page", filename="a.txt", content_type="text/plain")
    return form


@pytest.fixture
async def cradle() -> AsyncIterator[Nursery]:
    async with nursery() as made:
        yield made


@pytest.fixture
async def operator(cradle: Nursery, tmp_path: Path) -> AsyncIterator[Operator]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as caller:
        made = Operator(Installation(cradle, tmp_path), caller)
        made.here.rules.mkdir()
        (made.here.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
        await made.furnish()
        yield made
        await made.here.kill()


@pytest.mark.slow
async def test_killed_at_any_step_of_its_end_an_environment_is_whole_or_gone(
    operator: Operator, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(operator.here.data, whole)
    ends = set()
    for step, nth in STEPS:
        shutil.rmtree(operator.here.data)
        shutil.copytree(whole, operator.here.data)
        operator.here.armed.touch()
        status = await operator.here.run(
            "environment", "delete", "acme", "--records", kill_at=step, nth=nth
        )
        operator.here.armed.unlink()
        assert status == -9, (step, nth)
        there = "acme" in await operator.environments()
        ends.add(there)
        found = await operator.verified()
        assert (found["records"], found["attachments"]) == ((2, 2) if there else (1, 1)), (
            step,
            nth,
        )
        # one that has ended is not there, and what is left of it goes with the next command
        ended = await operator.here.run("environment", "delete", "acme", "--records")
        assert ended == (0 if there else 1), (step, nth, operator.here.log)
        assert await operator.here.run("environment", "delete", "acme", "--records") == 1
        assert (await operator.verified())["records"] == 1
        left = everything(operator.here.data)
        assert b":acme" not in left, (step, nth)
        assert b"_acme" not in left, (step, nth)
    assert ends == {True, False}


@pytest.mark.slow
async def test_an_instance_goes_on_with_a_removal_that_it_died_in(operator: Operator) -> None:
    operator.here.armed.touch()
    assert await operator.here.start(kill_at="drop.before")
    token = await operator.token(operator.credentials)
    assert await operator.ask(token, "DELETE", "/api/environments/acme") == 409
    try:
        assert await operator.ask(token, "DELETE", "/api/environments/acme?records=delete") == 204
    except aiohttp.ClientError:
        pass  # it died before it could answer
    assert await operator.here.ended() == -9
    operator.here.armed.unlink()
    assert await operator.here.start(quick=True, upkeep=0.05)
    token = await operator.token(operator.credentials)
    assert await operator.ask(token, "DELETE", "/api/environments/acme?records=delete") == 404
    seen = operator.here.rounds
    # what has ended goes first, then the objects that it let go
    while operator.here.rounds < seen + 4:
        assert await operator.ask(token, "GET", "/api/environments") == 200
    assert await operator.here.stop() == 0
    assert b"_acme" not in everything(operator.here.data)
    found = await operator.verified()
    assert (found["records"], found["left"]) == (1, {"doomed": 0, "orphaned": 0})

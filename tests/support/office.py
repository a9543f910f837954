"""An instance with its first client, as an operator and a program of somebody's own use it: by
commands, and over HTTP.
"""

import io
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from proxy.cli.remote import CLIENT_ID, CLIENT_SECRET
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.tree import ROOT


@dataclass
class Office:
    """One installation, and the credentials of its first client."""

    instance: Instance
    session: aiohttp.ClientSession
    variables: dict[str, str] = field(default_factory=dict)
    _token: str = ""

    async def command(self, *arguments: str, status: int = 0, **variables: str) -> Any:
        """What a command says, as JSON."""
        known = {**self.variables, **variables}
        return await self.instance.command(*arguments, status=status, **known)

    @property
    def environment(self) -> dict[str, str]:
        """What its commands find in their environment."""
        return {**os.environ, "PYTHONPATH": str(ROOT), **self.instance.settings(), **self.variables}

    async def ask(self, method: str, path: str, content: Any = None, *, status: int = 200) -> Any:
        """The JSON of an answer."""
        if not self._token:
            await self._renew()
        said, body = await self._once(method, path, content)
        if said == 401:
            await self._renew()
            said, body = await self._once(method, path, content)
        assert said == status, (said, body)
        return json.loads(body) if body else None

    async def _once(self, method: str, path: str, content: Any) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}"}
        body = None
        if content is not None:
            headers["Content-Type"], body = (
                "application/json",
                io.BytesIO(json.dumps(content).encode()),
            )
        async with self.session.request(
            method, self.instance.vault + path, headers=headers, data=body
        ) as answer:
            return answer.status, await answer.read()

    async def _renew(self) -> None:
        basic = aiohttp.encode_basic_auth(self.variables[CLIENT_ID], self.variables[CLIENT_SECRET])
        form = {"grant_type": "client_credentials", "scope": "default"}
        url = f"{self.instance.vault}/oauth2/token"
        async with self.session.post(url, data=form, headers={"Authorization": basic}) as answer:
            assert answer.status == 200, await answer.text()
            self._token = (await answer.json())["access_token"]


@asynccontextmanager
async def opened(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Office]:
    """An instance that runs, with rules that nobody uses."""
    instance = Instance(folder, environment=dict(settings))
    instance.rules.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as session:
        office = Office(instance, session)
        made = await office.command("init")
        office.variables.update(
            {CLIENT_ID: made["client_id"], CLIENT_SECRET: made["client_secret"]}
        )
        await instance.start()
        try:
            yield office
        finally:
            await instance.kill()

"""Requests that no rule names go out in the moment they come, and what was found out about them is
remembered: never for too long.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.bootstrap.instance import Running, running
from proxy.config import load_settings
from proxy.gateway.gateway import Gateway
from proxy.gateway.passthrough import PassthroughReply
from tests.e2e.test_attack_routes import BODY, JSON, NAME, OVERRIDES, PATHS
from tests.support.application import Application
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get, post
from tests.support.serving import serving

#: No operation has a query, or requests would have to be looked at for values in their addresses.
RULES = """\
version: 1
endpoint: {{name: people, upstream: "{upstream}"}}
entities:
  person: {{fields: {{name: {{kind: name}}}}}}
operations:
  - {{match: POST /people, create: person, request: {{object: $}}, response: {{object: $, id: $.id}}}}
  - {{match: "PUT|PATCH /people/{{id}}", update: person, request: {{object: $}}, response: {{object: $}}}}
"""
READ = '  - {match: "GET /people/{id}", read: person, response: {object: $}}\n'


@dataclass
class Place:
    """A running instance without a rule for reading, its application, and what was sent on at once."""

    application: Application
    instance: Running
    file: Path
    begun: list[bytes]

    @property
    def port(self) -> int:
        return int(self.instance.proxy.rpartition(":")[2])

    async def change(self, text: str) -> None:
        self.file.write_text(text)
        assert await self.instance.reloader.reload()


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Place]:
    application = Application()
    begun: list[bytes] = []
    begin = Gateway.begin

    def noted(self, incoming):
        quick = begin(self, incoming)
        if isinstance(quick, PassthroughReply):
            begun.append(incoming.target)
        return quick

    file = folder / "rules.yaml"
    settings = {
        "DOMICILE__COUNTRY": "se",
        "DOMICILE__DATA": str(folder / "data"),
        "DOMICILE__RULES": str(file),
        "DOMICILE__LISTEN__PROXY": "127.0.0.1:0",
        "DOMICILE__LISTEN__VAULT": "127.0.0.1:0",
        "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0",
        # longer than a machine stands still between two requests of a test
        "DOMICILE__UPSTREAM__KEEP": "60s",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gateway, "begin", noted)
        async with serving(application.app()) as upstream:
            file.write_text(RULES.format(upstream=upstream))
            async with running(load_settings(None, settings)) as instance:
                yield Place(application, instance, file, begun)


async def test_rules_that_change_count_for_the_next_request_with_the_very_same_head(tmp_path):
    async with started(tmp_path) as place, RawClient(place.port) as client:
        rules = place.file.read_text()
        ident = json.loads((await client.ask(post("/people", BODY, JSON))).body)["id"]
        request = get(f"/people/{ident}")

        async def name() -> str:
            return str(json.loads((await client.ask(request)).body)["name"])

        token = await name()
        assert token != NAME
        async with asyncio.timeout(PATIENCE):
            while not place.begun:  # the first answers of a shape are looked at
                assert await name() == token
        place.begun.clear()
        assert [await name() for _ in range(2)] == [token] * 2
        assert len(place.begun) == 2
        await place.change(rules + READ)
        assert [await name() for _ in range(2)] == [NAME] * 2
        await place.change(rules)
        assert [await name() for _ in range(2)] == [token] * 2
        await place.change(rules.replace("endpoint: {", "endpoint: {unmatched: deny, "))
        assert (await client.ask(request)).status == 403
        await place.change(rules.replace("endpoint: {", "endpoint: {host: other.test, "))
        assert (await client.ask(request)).status == 404
        assert len(place.begun) == 4


@pytest.mark.parametrize(
    "attempts",
    [
        [post(path, BODY, JSON) for path in PATHS],
        [post("/people/1", BODY, JSON, field) for field in OVERRIDES],
        [post("/people", BODY, JSON).replace(b"app.test", host) for host in (b"x", b"APP.test:80", b"app.test:", b"[::1]")],
    ],
    ids=["paths", "methods", "hosts"],
)  # fmt: skip
async def test_no_spelling_leads_past_a_rule_behind_what_was_sent_on_at_once(tmp_path, attempts):
    async with started(tmp_path) as place:
        async with RawClient(place.port) as client, asyncio.timeout(PATIENCE):
            while not place.begun:  # the first answers of a shape are looked at
                await client.ask(get("/other"))
        place.begun.clear()
        for attempt in attempts:
            # The same target and fields, but for what frames the body: nothing found out about one
            # may count for the other.
            alike = attempt.partition(b"\r\n\r\n")[0].replace(b"POST", b"GET", 1)
            alike = (
                b"\r\n".join(line for line in alike.split(b"\r\n") if b"Content-Length" not in line)
                + b"\r\n\r\n"
            )
            async with RawClient(place.port) as client, asyncio.timeout(PATIENCE):
                for _ in range(2):
                    await client.ask(get("/other"))
                await client.send(alike)
                await client.send(attempt)
                first = await client.answer()
                if first.status != 400:  # which ends the connection
                    await client.answer()
            assert not place.application.holds(NAME), attempt
            async with RawClient(place.port) as client:
                assert (await client.ask(get("/next"))).status == 200
        assert len(place.begun) >= len(attempts)

"""What the README tells to type works as it stands there."""

import asyncio
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
import yaml
from aiohttp import web

from proxy.bootstrap.instance import prepare_instance, running
from proxy.bootstrap.offline import first_client
from proxy.config import load_settings
from proxy.redactor.load import load_rule_set
from tests.support import guides
from tests.support.serving import serving
from tests.support.tree import ROOT

README = (ROOT / "README.md").read_text("utf-8")
OWN, RULE = "Put it before your own application", "Write a rule"


def block(heading: str, language: str) -> str:
    """The one block of that language below a heading."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return guides.clone(tmp_path)


def shell(clone: Path, script: str) -> str:
    """What the script prints, run as by somebody who has the environment of the clone activated; it
    must succeed.
    """
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=clone,
        env={**os.environ, "PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Contacts:
    """An application as the README has it in mind: contacts with a name and an e-mail address, and
    ids it gives.
    """

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    def app(self) -> web.Application:
        made = web.Application()
        made.add_routes([web.post("/contacts", self.create), web.get("/contacts/{id}", self.show)])
        return made

    async def create(self, request: web.Request) -> web.Response:
        number = str(len(self.stored) + 17)
        self.stored[number] = {**await request.json(), "id": int(number)}
        return web.json_response(self.stored[number], status=201)

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response(self.stored[request.match_info["id"]])


async def test_the_ten_lines_put_it_before_an_application(clone: Path) -> None:
    script, own = block(OWN, "sh"), Contacts()
    assert "http://127.0.0.1:3000" in script
    ann = {"name": "Ann Lindqvist", "email": "ann@example.com", "plan": "gold"}
    async with (
        serving(own.app()) as upstream,
        guides.proxy_started(clone, script.replace("http://127.0.0.1:3000", upstream)) as one,
        aiohttp.ClientSession(one.proxy) as caller,
    ):
        async with caller.post("/contacts", json=ann) as answer:
            assert (answer.status, await answer.json()) == (201, {**ann, "id": 17})
        async with caller.get("/contacts/17") as answer:
            assert await answer.json() == {**ann, "id": 17}
    stored = own.stored["17"]
    assert stored["plan"] == "gold"
    assert stored["name"] != ann["name"]
    assert re.fullmatch(r"[^@ ]+@[^@ ]+\.[a-z]+", stored["email"])
    assert stored["email"] != ann["email"]


def test_the_rules_of_the_ten_lines_are_in_order(clone: Path) -> None:
    text = block(OWN, "sh").split("<<'RULES'\n")[1].split("RULES\n")[0]
    (clone / "crm.yaml").write_text(text, "utf-8")
    said = shell(clone, "domicile rules check crm.yaml")
    assert "are in order: endpoints 1, entities 1, operations 5" in said
    assert "warning" not in said


def test_the_rule_that_explains_the_language_is_in_order(clone: Path) -> None:
    head = 'version: 1\nendpoint: {name: crm, upstream: "http://127.0.0.1:3000"}\n'
    path = clone / "crm.yaml"
    path.write_text(head + block(RULE, "yaml"), "utf-8")
    rules = load_rule_set(path)
    assert [operation.label for operation in rules.operations] == [
        "POST /contacts",
        "GET /contacts",
    ]
    assert [text for text in rules.warnings if "has the token shape date" not in text] == []
    shell(clone, "domicile rules check crm.yaml")


def test_every_command_about_rules_does_what_stands_beside_it(clone: Path) -> None:
    lines = block(RULE, "sh").splitlines()
    who = "-c user.name=t -c user.email=t@example.org"
    shell(clone, f"git init -qb main; git add rules; git {who} commit -qm Rules")
    check, test, explain, difference, _ = (shell(clone, line) for line in lines)
    assert difference.startswith("0 lose protection")
    assert "are in order" in check
    assert re.search(r"^[1-9]\d* tests, 0 failed$", test, re.MULTILINE)
    assert "POST /contacts" in explain
    assert "contact" in explain
    rules = yaml.safe_load((clone / "rules" / "contacts.yaml").read_text("utf-8"))
    jsonschema.Draft202012Validator(json.loads((clone / "rules.json").read_text("utf-8"))).validate(
        rules
    )


def test_what_the_readme_points_at_is_there() -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README)
    assert "docs/two-views.png" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", README, re.MULTILINE)) <= targets


def test_the_picture_is_small_enough_to_be_shown_and_wide_enough_to_be_read() -> None:
    picture = (ROOT / "docs" / "two-views.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(picture[16:20], "big") == 1280
    assert len(picture) < 250_000


async def test_the_talk_to_the_vault_goes_as_it_stands_there(tmp_path: Path) -> None:
    script = block("Talk to the vault", "sh")
    assert "vault=http://127.0.0.1:8081" in script
    settings = load_settings(None, {**guides.FREE, "DOMICILE__DATA": str(tmp_path / "data")})
    settings = replace(settings, country="se", rules=tmp_path)
    await prepare_instance(settings)
    client = await first_client(settings)
    assert client is not None
    async with running(settings) as instance:
        script = script.replace("127.0.0.1:8081", instance.interface)
        known = f"id={client.client.id}; secret={client.secret}\n"
        text = await asyncio.to_thread(shell, tmp_path, known + script)
    assert '"city":"Uppsala"' in text.splitlines()[-1].replace(" ", "")
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert "/rules.mine/" in ignored

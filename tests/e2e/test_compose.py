"""compose.yaml, as far as it can be judged without a container engine: what it names is there, the
settings are settings, and the sample application starts as it says.
"""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from proxy.cli import commands
from proxy.cli.command import parser
from proxy.config import load_settings
from proxy.redactor.load import load_rule_set
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.tree import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOMICILE = SERVICES["domicile"]


def environment() -> dict[str, str]:
    """The variables of the service as its container has them."""
    return {name: text.replace("$$", "$") for name, text in DOMICILE["environment"].items()}


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_is_there(name):
    service = SERVICES[name]
    assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(service.get("depends_on", ())) <= set(SERVICES)
    for volume in service.get("volumes", ()):
        source = volume.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
    for config in service.get("configs", ()):
        content = COMPOSE["configs"][config["source"]]
        assert "content" not in content or yaml.safe_load(content["content"])
        assert "file" not in content or (ROOT / content["file"]).is_file()
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:"), "open to this machine alone"


def test_the_settings_are_settings_and_fit_together(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("S3_KEY", "S3_SECRET"):
        monkeypatch.setenv(name, environment()[name])
    settings = load_settings(
        None, {name: text for name, text in environment().items() if name.startswith("DOMICILE")}
    )
    assert settings.store.label.startswith("postgresql:5432")
    listened = {settings.listen.proxy.port, settings.listen.vault.port}
    assert {int(port.rpartition(":")[2]) for port in DOMICILE["ports"]} == listened
    arguments = parser(commands("serve")).parse_args(DOMICILE["command"])
    assert arguments.upstream == "http://application:3000"
    (target,) = re.findall(r'targets: \["([^"]+)"\]', COMPOSE["configs"]["prometheus"]["content"])
    assert settings.listen.metrics is not None
    assert target == f"domicile:{settings.listen.metrics.port}"
    assert settings.listen.metrics.port not in listened


def test_database_and_bucket_are_those_that_the_settings_name():
    database = SERVICES["postgresql"]["environment"]
    assert environment()["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    wanted = f"{database['POSTGRES_USER']}@postgresql:5432/{database['POSTGRES_DB']}?"
    assert wanted in environment()["DOMICILE__STORE"]
    objects = SERVICES["objects"]["environment"]
    assert (environment()["S3_KEY"], environment()["S3_SECRET"]) == (
        objects["MINIO_ROOT_USER"],
        objects["MINIO_ROOT_PASSWORD"],
    )
    bucket = environment()["DOMICILE__FILES"].removeprefix("s3://").partition("/")[0]
    assert SERVICES["bucket"]["entrypoint"][-1].endswith(f"o/{bucket}")


def test_the_rules_are_those_of_the_sample_application(tmp_path):
    (mount,) = [one for one in DOMICILE["volumes"] if one.startswith("./")]
    rules = load_rule_set(ROOT / mount.partition(":")[0])
    assert {endpoint.name for endpoint in rules.endpoints} == {"contacts"}


async def test_the_sample_application_starts_as_it_says(tmp_path: Path) -> None:
    words = SERVICES["application"]["entrypoint"]
    assert words[:3] == ["python", "-m", "aiohttp.web"]
    with closed_port() as port:
        pass
    places = {
        "0.0.0.0": "127.0.0.1",
        "3000": str(port),
        "/data/contacts.json": f"{tmp_path}/c.json",
    }  # what it is told in a container
    process = await asyncio.create_subprocess_exec(
        sys.executable, *(places.get(word, word) for word in words[1:]), cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{port}/api/contacts") as answer:
                        assert (answer.status, (await answer.json())["total"]) == (200, 0)
                        break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)
    finally:
        process.kill()
        await process.wait()

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.bootstrap.offline import stopped_vault
from proxy.cli import main
from proxy.cli.backend import RemoteBackend, stopped, stopped_first
from proxy.cli.remote import Remote, RemoteAnswer
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from tests.support.table import table

NAMES = ("a", "b", "c", "d", "e")


class Instance(Remote):
    """It answers two at a time."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", "id", "secret")
        self.asked: list[str] = []

    def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> RemoteAnswer:
        self.asked.append(f"{method} {path}")
        place, _, offset = path.partition("?offset=")
        if offset:
            page = [{"name": name} for name in NAMES[int(offset) : int(offset) + 2]]
            return RemoteAnswer(200, {"data": page, "meta": {"total": len(NAMES)}})
        name = place.rpartition("/")[2]
        if name in NAMES:
            return RemoteAnswer(200, {"name": name})
        return RemoteAnswer(404, {"code": "not_found", "detail": "There is none.", "errors": []})


def served(instance: Any) -> RemoteBackend:
    return RemoteBackend(instance, "/api/things")


async def test_all_of_an_instance_are_those_of_all_its_pages():
    instance = Instance()
    assert [item["name"] for item in await served(instance).listed()] == [*NAMES]
    assert instance.asked == [f"GET /api/things?offset={at}" for at in (0, 2, 4)]


async def test_a_page_that_is_empty_before_the_end_ends_the_list():
    class Shrinking(Instance):
        def ask(self, method: str, path: str, *more: Any) -> RemoteAnswer:
            told = super().ask(method, path, *more)
            told.content["data"] = [] if "offset=2" in path else told.content["data"]
            return told

    assert [item["name"] for item in await served(Shrinking()).listed()] == ["a", "b"]


async def test_one_is_asked_for_by_its_name_and_a_refusal_is_told():
    instance = Instance()
    assert await served(instance).one("b") == {"name": "b"}
    with pytest.raises(VaultError) as caught:
        await served(instance).one("x/../b")
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "There is none.")
    assert instance.asked[1] == "GET /api/things/x%2F..%2Fb"


async def test_a_vault_that_an_instance_runs_on_is_asked_by_its_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert await asyncio.to_thread(main, ["init"]) == 0
    settings = load_settings(None, {})
    async with stopped_vault(settings):
        with pytest.raises(VaultError) as caught:
            async with stopped(argparse.Namespace(environment="default"), settings, "put_schema"):
                pytest.fail("the store is in use")
    assert caught.value.code is Code.STORE_BUSY
    assert "--url" in caught.value.message


async def test_the_environment_of_the_command_line_is_opened_with_its_schemas(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert await asyncio.to_thread(main, ["init"]) == 0
    settings = load_settings(None, {})
    async with stopped(argparse.Namespace(environment="default"), settings, "put_schema") as (
        vault,
        catalog,
        _,
    ):
        assert (vault.environment, [found.schema.name for found in catalog.schemas()]) == (
            "default",
            ["records"],
        )
    with pytest.raises(VaultError) as caught:
        async with stopped(argparse.Namespace(environment="acme"), settings, "put_schema"):
            pytest.fail("there is no such environment")
    assert caught.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8081", "ftp://a", "http://a/path", "http://:80", "http://a b"]
)
def test_an_instance_is_named_by_a_whole_address(url, capsys):
    assert main(["import", "--url", url, "--schema", "contact", "a.jsonl"]) == 2
    assert "write scheme, host and port alone" in capsys.readouterr().err


@pytest.mark.parametrize("noun", ["policy", "schema"])
def test_what_is_declared_stands_in_files(noun, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([noun, "apply"]) == 2
    assert "FILE" in capsys.readouterr().err
    assert main([noun, "apply", "--environment", "acme", "none.yaml"]) == 1
    assert "none.yaml" in capsys.readouterr().err


@table(
    ("code", "text"),
    [(Code.STORE_BUSY, "An instance runs on this vault: stop it."), (Code.BAD_STORE, "so")],
)
def test_only_of_an_instance_in_the_way_it_says_what_to_do(code, text):
    with pytest.raises(VaultError) as caught, stopped_first("stop it."):
        raise VaultError(code, "so")
    assert (caught.value.code, caught.value.message) == (code, text)

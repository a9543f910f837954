"""Commands on a stopped vault: each has the interface do it in its own process."""

import asyncio
import contextlib
import http.client
import json
import os
import pwd
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.bootstrap.offline import open_offline
from proxy.bootstrap.offline_interface import offline_interface
from proxy.cli import main
from proxy.config import load_settings
from proxy.errors import Code, VaultError
from tests.unit.bootstrap.test_offline import settings, written

__all__ = ("settings",)


async def test_records_keep_an_environment_unless_they_are_to_go_too(settings):
    await written(settings, "acme")
    async with offline_interface(settings) as offline:

        async def asked(path: str) -> int:
            send = partial(_sent, offline.connect, path)
            return await offline.answer(send, changes=True)

        assert await asked("/api/environments/acme") == 409
        assert await asked("/api/environments/acme?records=delete") == 204
        assert await asked("/api/environments/acme?records=delete") == 404
    async with open_offline(settings) as (_, book, _):
        assert [found.id for found in book.listed()] == ["default"]
        assert book.doomed() == []


def _sent(connect: Callable[[], socket.socket], path: str) -> int:
    with closing(http.client.HTTPConnection("localhost")) as connection:
        connection.sock = connect()
        connection.request("DELETE", path, headers={"Authorization": "Local default"})
        return connection.getresponse().status


async def test_a_removal_that_was_interrupted_is_brought_to_its_end(settings):
    async with open_offline(settings) as (_, book, _):
        await book.end("acme")
        assert book.doomed() == ["acme"]
    async with offline_interface(settings) as offline:
        await offline.answer(lambda: None, changes=True)
    async with open_offline(settings) as (_, book, _):
        assert book.doomed() == []


Told = Callable[..., Any]
SCHEMA = {
    "name": "contact",
    "fields": {"id": {"type": "primary_key"}, "note": {"type": "string", "storage": "encrypted"}},
}
POLICY = {"name": "readers", "schema": "contact", "actions": ["read"], "fields": {"note": "hidden"}}


@pytest.fixture
def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Told:
    """What a command prints, in a folder of its own with a vault in it."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))

    def told(*command: str, status: int = 0) -> Any:
        assert main([*command, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return told


def lines() -> list[dict[str, Any]]:
    """Every line of the log."""
    files = sorted(Path("data/audit").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def done() -> list[tuple[Any, ...]]:
    """What commands have done, as the log has it."""
    return [
        tuple(
            line.get(name)
            for name in ("event", "by", "environment", "operation", "subject", "code")
        )
        for line in lines()
        if line.get("via") == "command"
    ]


def test_each_command_that_changes_rights_or_keys_leaves_its_line(told: Told) -> None:
    Path("contact.json").write_text(json.dumps(SCHEMA))
    Path("readers.json").write_text(json.dumps(POLICY))
    user = str(os.geteuid())
    with contextlib.suppress(KeyError):  # in a container it may have no name
        user = pwd.getpwuid(os.geteuid()).pw_name
    first = told("init")["client_id"]
    told("environment", "create", "Acme", "--id", "acme")
    made = told("client", "create", "shop", "--environment", "acme")["client_id"]
    told("client", "rotate-secret", made)
    told("client", "disable", made)
    told("schema", "apply", "contact.json")
    told("policy", "apply", "readers.json")
    for key in ("data", "master", "signing"):
        told("keys", "rotate", key)
    told("environment", "delete", "acme")
    assert done() == [
        ("admin", user, environment, operation, subject, None)
        for environment, operation, subject in (
            ("default", "create_client", first),
            ("default", "create_environment", "acme"),
            ("acme", "create_client", made),
            ("acme", "rotate_client_secret", made),
            ("acme", "disable_client", made),
            ("default", "put_schema", "contact"),
            ("default", "put_policy", "readers"),
            ("default", "rotate_key", "data"),
            ("default", "rotate_key", "master"),
            ("default", "rotate_key", "signing"),
            ("default", "remove_environment", "acme"),
        )
    ]
    assert told("audit", "verify")["ok"]
    count = len(lines())
    assert count == 3 * len(done())  # between a start and an end each
    for command in (
        ("client", "list"),
        ("keys", "list"),
        ("keys", "verify"),
        ("init",),
        ("policy", "list"),
        ("schema", "list"),
    ):
        told(*command)
    assert told("schema", "apply", "contact.json", "--dry-run")
    assert len(lines()) == count
    text = "".join(path.read_text() for path in Path("data/audit").glob("*.jsonl"))
    assert "secret" not in text.replace("rotate_client_secret", "")


def test_what_comes_to_nothing_is_told_as_refused(told: Told) -> None:
    told("client", "disable", "nobody", status=1)
    told("keys", "rotate", "data", "--environment", "nowhere", status=1)
    assert [(line[0], line[3], line[5]) for line in done()] == [
        ("refused", "disable_client", "not_found"),
        ("refused", "rotate_key", "not_found"),
    ]
    assert told("audit", "verify")["ok"]


def test_where_no_line_can_be_written_nothing_is_changed(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [one["keys"] for one in told("keys", "list")["data"]]
    Path("data/audit").write_text("no folder")
    assert told("keys", "rotate", "data", status=1)["code"] == "not_writable"
    assert (
        told("client", "create", "shop", "--environment", "default", status=1)["code"]
        == "not_writable"
    )
    Path("data/audit").unlink()
    with monkeypatch.context() as patched:
        patched.setattr("proxy.audit.files.LogSegment.append", _full)
        assert told("keys", "rotate", "data", status=1)["code"] == "audit_down"
        assert (
            told("client", "create", "shop", "--environment", "default", status=1)["code"]
            == "audit_down"
        )
    assert [one["keys"] for one in told("keys", "list")["data"]] == before
    assert told("client", "list")["clients"] == []


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def test_where_there_is_no_vault_that_is_said(tmp_path):
    environment = {"DOMICILE__COUNTRY": "se", "DOMICILE__DATA": str(tmp_path / "none")}
    with pytest.raises(VaultError) as caught:
        async with offline_interface(load_settings(None, environment)):
            pass
    assert caught.value.code is Code.BAD_STORE

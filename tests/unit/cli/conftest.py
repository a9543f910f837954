import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.cli import http_client, main, remote
from proxy.config import load_settings
from tests.support.adopted import Adopted, adopted


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command waits long for a service that does not answer."""
    monkeypatch.setattr(http_client, "_WAITS", (0.0, 0.01))
    monkeypatch.setattr(remote, "_PATIENCE", 1.0)


@pytest.fixture
def client(hurried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is empty, and the environment has a client for commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOMICILE_CLIENT_ID", "client")
    monkeypatch.setenv("DOMICILE_CLIENT_SECRET", "secret")


@pytest.fixture
def office(hurried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adopted]:
    """An application with five people, and the current folder with rules for it."""
    monkeypatch.chdir(tmp_path)
    with adopted(5) as office:
        office.rules(tmp_path)
        yield office


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a vault as it is after its first start."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(prepare_instance(load_settings(None, {"DOMICILE__COUNTRY": "se"})))
    return tmp_path


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a command prints with ``--json``, where it ends with that status."""

    def told(*command: str, status: int = 0) -> Any:
        assert main([*command, "--json"]) == status
        return json.loads(capsys.readouterr().out)

    return told

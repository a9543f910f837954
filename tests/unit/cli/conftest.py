import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.bootstrap.instance import prepare_instance
from proxy.cli import main
from proxy.config import load_settings


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

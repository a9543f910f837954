"""The directions of imports: the contracts of pyproject.toml hold, and each of them can fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import PACKAGE, ROOT

#: Contract → files that break it: path in the package → code.
BREACHES: dict[str, list[tuple[str, str]]] = {
    "layers": [
        ("newroom/__init__.py", '"""A room without a place."""\n'),
        ("telemetry/upwards.py", "import proxy.model\n"),
        ("model/upwards.py", "from proxy.config import load\n"),
        ("config/sideways.py", "import proxy.cli\n"),
    ],
    "acyclic": [
        ("model/one.py", "import proxy.model.two\n"),
        ("clock.py", "import proxy.errors\n"),
    ],
    "door-http": [("model/breach.py", "import aiohttp\n"), ("cli/breach.py", "import httptools\n")],
    "door-cryptography": [
        ("model/breach.py", "from cryptography.hazmat.primitives import hashes\n")
    ],
    "door-sqlite": [("cli/breach.py", "import sqlite3\n")],
    "door-postgres": [("storage/breach.py", "import asyncpg\n")],
    "door-bucket": [("vault/breach.py", "import obstore\n")],
    "door-jsonpath": [("model/breach.py", "from jsonpath_ng.ext import parse\n")],
    "door-yaml": [("cli/breach.py", "import yaml\n")],
    "door-telemetry": [
        ("cli/breach.py", "import structlog\n"),
        ("config/breach.py", "import prometheus_client\n"),
    ],
    "door-phonenumbers": [("tokenization/breach.py", "import phonenumbers\n")],
    "pure-redactor": [
        ("redactor/breach.py", "import proxy.vault\n"),
        ("redactor/breach.py", "import asyncio\n"),
    ],
    "pure-below": [("redactor/breach.py", "import proxy.redactor.exchange\n")],
}

CASES = [(contract, *breach) for contract, breaches in BREACHES.items() for breach in breaches]


def lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_contract_holds():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("contract", "name", "code"), CASES)
def test_every_contract_can_fail(contract, name, code, tmp_path):
    shutil.copytree(
        PACKAGE, tmp_path / "proxy", ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    breach = tmp_path / "proxy" / name
    breach.parent.mkdir(exist_ok=True)
    breach.write_text(code)
    if contract == "acyclic":
        (tmp_path / "proxy/model/two.py").write_text("import proxy.model.one\n")
        (tmp_path / "proxy/errors.py").write_text("import proxy.clock\n")
    result = lint(tmp_path, "--contract", contract)
    assert result.returncode == 1, result.stdout
    assert "BROKEN" in result.stdout, result.stdout

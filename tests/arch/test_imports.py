"""The directions of imports: the contracts of pyproject.toml hold, and each of them can fail."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.support.tree import PACKAGE, ROOT

#: Contract → files that break it: path in the package → code.
BREACHES: dict[str, list[tuple[str, str]]] = {
    "layers": [
        ("newroom/__init__.py", '"""A room without a place."""\n'),
        ("telemetry/upwards.py", "import proxy.model\n"),
        ("model/upwards.py", "from proxy.config import load\n"),
        ("config/sideways.py", "import proxy.cli\n"),
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
    "door-tracing": [("gateway/breach.py", "import opentelemetry\n")],
    "door-checks": [
        ("model/breach.py", "import email_validator\n"),
        ("vault/breach.py", "import stdnum\n"),
        ("config/breach.py", "import re2\n"),
    ],
    "door-tokens": [("auth/breach.py", "import argon2\n"), ("api/breach.py", "import jwt\n")],
    "door-key-services": [("bootstrap/breach.py", "import botocore\n")],
    "door-limits": [("api/breach.py", "import throttled\n"), ("vault/breach.py", "import redis\n")],
    "door-countries": [("edge/breach.py", "import maxminddb\n")],
    "door-phonenumbers": [("tokenization/breach.py", "import phonenumbers\n")],
    "pure-redactor": [
        ("redactor/breach.py", "import proxy.vault\n"),
        ("redactor/breach.py", "import asyncio\n"),
    ],
    "pure-below": [("redactor/breach.py", "import proxy.redactor.exchange\n")],
}


def declared() -> list[dict[str, Any]]:
    """The contracts of pyproject.toml."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts: list[dict[str, Any]] = content["tool"]["importlinter"]["contracts"]
    return contracts


def copied(folder: Path) -> None:
    """A copy of the package and its contracts."""
    left_out = shutil.ignore_patterns("__pycache__", "static", "viewer")
    shutil.copytree(PACKAGE, folder / "proxy", ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", folder)


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


def test_every_contract_can_fail(tmp_path):
    """All breaches stand in one copy of the package, but for cycles: upward imports make others."""
    contracts = {one["id"]: one["name"] for one in declared()}
    assert set(BREACHES) | {"acyclic"} == set(contracts)
    copied(tmp_path)
    wanted: dict[str, list[str]] = {}
    for contract, breaches in BREACHES.items():
        for number, (name, code) in enumerate(breaches):
            # a file of its own for each contract
            own = name.replace("breach", f"{contract.replace('-', '_')}_{number}")
            breach = tmp_path / "proxy" / own
            assert breach.parent.exists() or breach.name == "__init__.py", breach
            breach.parent.mkdir(exist_ok=True)
            breach.write_text(code)
            module = own.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            wanted.setdefault(contracts[contract], []).append(f"- proxy.{module}\n")
    result = lint(tmp_path)
    assert result.returncode == 1, result.stdout
    # "- proxy.a.b -> proxy.c (l.1)" tells the module of a breach, "- proxy.b" that of a new room
    said = re.sub(r"^- +(\S+) -> .*$", r"- \1", result.stdout, flags=re.MULTILINE)
    for contract, lines in wanted.items():
        report = said.partition(f"\n{contract}\n---")[2].partition("\n")[2]
        report = re.split(r"\n.+\n-{5,}\n", report)[0]
        assert [line for line in lines if line not in report] == [], f"{contract}: {report}"


def test_cycles_are_found_at_any_depth(tmp_path):
    copied(tmp_path)
    for name, code in {
        "model/one.py": "import proxy.model.two\n",
        "model/two.py": "import proxy.model.one\n",
        "clock.py": "import proxy.errors\n",
        "errors.py": "import proxy.clock\n",
    }.items():
        (tmp_path / "proxy" / name).write_text(code)
    result = lint(tmp_path, "--contract", "acyclic")
    assert result.returncode == 1, result.stdout
    assert "No cycles are allowed in proxy.\n" in result.stdout
    assert "No cycles are allowed in proxy.model.\n" in result.stdout

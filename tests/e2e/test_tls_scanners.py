"""TLS scanners of others against the listeners of a real process: nothing is reported.

They live in an environment of their own.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.instance import Instance
from tests.support.people import rules
from tests.support.tree import ROOT
from tests.support.unavailable import Unavailable

SCANNERS = ROOT / ".venv-scan" / "bin"

#: cryptolyzer's library for certificates takes an OpenSSL of a two-digit patch level for none at
#: all.
CRYPTOLYZE = r"""
import re, sys
search = re.search
re.search = lambda pattern, *rest: search(pattern.replace(r"\d\.\d\.\d[", r"\d\.\d\.\d+[") if isinstance(pattern, str) else pattern, *rest)
from cryptolyzer.__main__ import main
sys.exit(main())
"""

NAMES = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1", "tls_1_2", "tls_1_3")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "tls"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture
async def instance(tmp_path: Path, authority: Authority) -> AsyncIterator[Instance]:
    pair = authority.issue("localhost")
    made = Instance(tmp_path)
    made.rules.mkdir()
    (made.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    made.environment |= {
        "DOMICILE__LISTEN__TLS__CERTIFICATE": str(pair.certificate),
        "DOMICILE__LISTEN__TLS__KEY": str(pair.key),
    }
    await made.start()
    yield made
    await made.kill()


def place(address: str) -> str:
    return f"localhost:{address.rpartition(':')[2]}"


async def scan(program: str, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(SCANNERS / program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(180):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.mark.slow
async def test_scanners_of_others_report_nothing(
    instance: Instance,
    authority: Authority,
    tmp_path: Path,
    unavailable: Unavailable,
) -> None:
    if not (SCANNERS / "sslyze").exists():
        unavailable("TLS scanners", "make .venv-scan/.installed puts them there")
    # without a choice it looks for everything, and holds it against Mozilla's profile
    found = tmp_path / "found.json"
    asked = ("--certinfo_ca_file", str(authority.certificate), "--json_out", str(found))
    status, text = await scan("sslyze", *asked, place(instance.proxy))
    assert status == 0, text
    assert "OK - Compliant" in text

    (server,) = json.loads(found.read_text())["server_scan_results"]
    told = {
        name: one["result"]
        for name, one in server["scan_result"].items()
        if one["result"] is not None
    }
    accepted = {
        name: bool(told[f"{name}_cipher_suites"]["accepted_cipher_suites"]) for name in NAMES
    }
    assert accepted == {name: name in ("tls_1_2", "tls_1_3") for name in NAMES}
    assert not told["tls_compression"]["supports_compression"]
    assert not told["heartbleed"]["is_vulnerable_to_heartbleed"]
    assert not told["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
    assert told["robot"]["robot_result"].startswith("NOT_VULNERABLE")
    assert not told["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]
    assert told["session_renegotiation"]["supports_secure_renegotiation"]
    assert told["tls_fallback_scsv"]["supports_fallback_scsv"]
    assert told["tls_extended_master_secret"]["supports_ems_extension"]

    await reports_nothing(instance)


async def reports_nothing(instance: Instance) -> None:
    """The other scanner, written without the first one's library."""
    status, text = await scan(
        "python",
        "-c",
        CRYPTOLYZE,
        "--output-format",
        "markdown",
        "tls",
        "vulns",
        place(instance.vault),
    )
    verdicts = dict(
        line.strip(" *").split(": ")
        for line in text.splitlines()
        if line.endswith((": yes", ": no"))
    )
    assert (status, len(verdicts)) == (0, 15), text
    assert set(verdicts.values()) == {"no"}, text

"""Schemathesis over the interface document, against a running interface: no server error, no answer
against the document.

The same requests each time, as many as fit into twenty-five seconds: examples, every boundary of every
schema, a few generated ones, and links followed from one answer to the next request.
``docs/interface.md`` names the command for a longer hunt.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.tree import ROOT

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "response_headers_conformance", "unsupported_method", "ignored_auth",
)  # fmt: skip


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, str]]:
    """Where the interface answers, and the token to send."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.api",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    place, token = line.decode().split()
    yield place, token
    process.kill()
    await process.wait()


@pytest.mark.slow
async def test_no_request_finds_an_error_of_the_server_or_an_answer_against_the_document(
    address, tmp_path: Path
):
    place, token = address
    command = [
        "run", f"{place}/openapi.json", "--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS),
        # a function that raises is 500 by design, and this one raises
        "--exclude-operation-id", "call_function",
        "--max-examples", "2", "--seed", "20", "--generation-deterministic", "--max-time", "25",
        "--request-timeout", "120", "--continue-on-failure", "--no-color",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "st",
        *command,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-8000:]
    assert b"Coverage" in output

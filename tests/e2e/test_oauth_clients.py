"""OAuth 2.0 clients by different hands, from the package index, get tokens of a running instance
and use them.

Authlib, the fourth, and joserfc are in ``tests/conformance/test_oauth_clients.py``.
"""

import asyncio
import json
from pathlib import Path

import pytest

from proxy.cli.remote import CLIENT_ID, CLIENT_SECRET
from tests.support.office import opened
from tests.support.patience import PATIENCE
from tests.support.real.installed import OAUTH_CLIENTS, environment

DRIVER = Path(__file__).parents[1] / "support/real/oauthdriver.txt"


@pytest.mark.slow
async def test_clients_of_others_get_tokens_and_use_them_in_both_spellings_of_basic(tmp_path):
    python = await asyncio.to_thread(environment, OAUTH_CLIENTS)
    async with opened(tmp_path, {}) as office:
        known = (
            office.instance.vault,
            office.variables[CLIENT_ID],
            office.variables[CLIENT_SECRET],
        )
        process = await asyncio.create_subprocess_exec(
            python, DRIVER, *known, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, told = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, told.decode()
    assert set(map(tuple, json.loads(out).values())) == {(300, 200)}
    assert len(json.loads(out)) == 7

"""A contacts application on a free port, and a client for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from proxy.demo.contacts import contacts_app
from tests.support.serving import serving


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "contacts.json"


@pytest.fixture
async def client(file: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Talks to a fresh application; redirects are followed only where a test says so."""
    async with serving(contacts_app(file)) as address, aiohttp.ClientSession(address) as session:
        yield session

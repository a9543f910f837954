"""The stores that the contracts are held against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.storage import ENGINES, open_store
from proxy.storage.base import Store
from tests.conformance.test_storage import PLACES
from tests.support.rows import LAYOUT


@pytest.fixture(params=ENGINES)
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return PLACES[request.param](tmp_path)


@pytest.fixture
async def store(uri: str) -> AsyncIterator[Store]:
    opened = await open_store(uri)
    await opened.ensure(LAYOUT)
    yield opened
    await opened.close()

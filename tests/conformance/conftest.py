"""The stores that the contracts are held against."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.storage import ENGINES, open_store
from proxy.storage.base import Store
from tests.conformance.test_storage import PLACES
from tests.support.postgres import fresh_address
from tests.support.replicas import open_alternating
from tests.support.rows import LAYOUT

#: Two owners of one database, of which each call goes to the other one than before.
REPLICAS = "replicas"
#: A database whose large tables are in parts.
PARTITIONS = "partitions"


@pytest.fixture(params=[*ENGINES, REPLICAS, PARTITIONS])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == REPLICAS:
        return fresh_address(replicas="true")
    if request.param == PARTITIONS:
        return fresh_address(partitions="3")
    return PLACES[request.param](tmp_path)


@pytest.fixture
async def store(uri: str) -> AsyncIterator[Store]:
    opened = await (open_alternating(uri) if "replicas=true" in uri else open_store(uri))
    await opened.ensure(LAYOUT)
    yield opened
    await opened.close()


@pytest.fixture
def ordered(uri: str) -> None:
    """Commits of one owner have the order of their calls; those of several have none."""
    if "replicas=true" in uri:
        pytest.skip("two owners call at the same moment")

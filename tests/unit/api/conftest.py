"""The whole interface over a vault of its own, with the schema of the examples."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.api import Interface, interface
from tests.support.examples import CONTACT, RECORDS


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Interface]:
    async with interface(tmp_path) as made:
        await made.declare("contact", CONTACT)
        yield made


@pytest.fixture
async def people(here: Interface) -> None:
    """With the records of the examples."""
    for record in RECORDS:
        here.clock.advance(1000)
        await here.client("POST", "/api/models/contact", json=record)

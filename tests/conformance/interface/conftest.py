from collections.abc import AsyncIterator

import pytest_asyncio

from tests.conformance.interface.kept import kept_records
from tests.conformance.interface.schema import asked
from tests.support.api import ENGINES, Interface


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def thing(request, tmp_path_factory) -> AsyncIterator[Interface]:
    """The records of ``schema`` on each engine, made once for the cases of a file: those that
    change something clean up.
    """
    async with asked(tmp_path_factory.mktemp("thing"), request.param) as here:
        yield here


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def kept(request, tmp_path_factory) -> AsyncIterator[Interface]:
    """The records of ``kept`` on each engine, in the same way."""
    async with kept_records(tmp_path_factory.mktemp("kept"), request.param) as here:
        yield here

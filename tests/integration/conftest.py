"""Whole gateways are tested on the event loop that the program runs on."""

from tests.unit.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]

"""Units are tested on the event loop that the program runs on, and their log may be read."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from proxy.telemetry import logs


def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The log lines until now."""
    stream = io.StringIO()
    logs.configure(logs.Style("info", "json"), stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logs.configure(logs.Style())

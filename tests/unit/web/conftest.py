"""The web room is tested on the event loop it runs on."""

import uvloop


def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}

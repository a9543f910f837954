"""Units are tested on the event loop that the program runs on."""

import uvloop


def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}

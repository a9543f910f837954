"""How long a test waits for what must come, on a machine that is shared, slow, and now and then
stands still.

A wait of a test is a guard against waiting for ever, never a measure: it ends as soon as what it
waits for is there. Where a requirement is a time, the test takes the best of several tries, since
one try may meet a pause of the machine.
"""

import asyncio
from collections.abc import Callable
from typing import Final

#: Seconds until a test gives up.
PATIENCE: Final = 60.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nothing tells of."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)

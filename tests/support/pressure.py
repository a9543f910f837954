"""Whether one who sends without end is stopped by one who does not read."""

import asyncio
from collections.abc import Callable
from typing import Final

from tests.support.patience import PATIENCE

#: Bytes that the kernel's buffers on the way may hold together: it grows them up to 32 MB each
#: where a machine is slow. A sender whom nobody stops passes this within seconds.
_MOST: Final = 256 << 20

#: So many looks in a row, each after the event loop had a turn, find nothing more sent: then the
#: sender stands still. They are counted, not timed, so that a pause of the whole machine is no
#: standstill.
_LOOKS: Final = 100
_PAUSE: Final = 0.01


async def stopped(sent: Callable[[], int]) -> int:
    """Wait until the number of bytes sent stands still, and give it.

    Fails if the sender is never stopped.
    """
    before, same = -1, 0
    async with asyncio.timeout(PATIENCE):
        while same < _LOOKS:
            await asyncio.sleep(_PAUSE)
            now = sent()
            assert now < _MOST, "nothing stops the sender"
            same = same + 1 if now == before else 0
            before = now
    return before

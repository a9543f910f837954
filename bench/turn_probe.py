"""``domicile`` with a clock on its event loop: what it is asked to do, and each turn that took
long, as lines of a file.

    python bench/turn_probe.py FILE serve --config …

A line is the monotonic time at which a turn ended, the seconds for which nobody else was served,
and the processor seconds that the loop's thread used of them: on a busy machine the rest is other
programs.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import TextIO

import uvloop

from proxy.cli import main

_BEAT = 0.001  #: seconds between two looks
_WORTH = 0.003  #: turns below this are nobody's concern


def watched(out: TextIO) -> asyncio.AbstractEventLoop:
    """A loop that is asked every millisecond whether it still turns."""
    loop = uvloop.new_event_loop()
    due, used = 0.0, 0.0

    def beat() -> None:
        nonlocal due, used
        now, processor = time.monotonic(), time.thread_time()
        late = now - due
        if late > _WORTH:
            out.write(f"{now:.6f} {late:.6f} {processor - used:.6f}\n")
            out.flush()
        due, used = time.monotonic() + _BEAT, time.thread_time()
        loop.call_later(_BEAT, beat)

    due = time.monotonic()
    loop.call_soon(beat)
    return loop


def run(path: Path, arguments: list[str]) -> int:
    """The command, on such a loop."""
    with path.open("w") as out:
        patched = asyncio.Runner

        def runner(**options: object) -> asyncio.Runner:
            del options
            return patched(loop_factory=lambda: watched(out))

        asyncio.Runner = runner  # type: ignore[assignment, misc]  # the command makes its own loop
        return main(arguments)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))

"""``domicile`` with a clock on its event loop: what it is asked to do, and each turn that took
long, as lines of a file.

    python bench/turn_probe.py FILE serve --config …

A line is the monotonic time at which a turn ended, the seconds for which nobody else was served,
and of them the processor seconds that the loop's thread used, and those for which it waited for a
processor (other programs). The rest it waited for another thread or the disk: for the interpreter's
lock, say, which a run of the cycle collector keeps until its end.
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


def used_and_delayed() -> tuple[float, float]:
    """Seconds for which this thread has run, and has waited for a processor (0 where no ``/proc``
    tells).
    """
    try:
        ran, delayed, _ = Path("/proc/thread-self/schedstat").read_bytes().split()
    except OSError:
        return time.thread_time(), 0.0
    return int(ran) / 1e9, int(delayed) / 1e9


def watched(out: TextIO) -> asyncio.AbstractEventLoop:
    """A loop that is asked every millisecond whether it still turns."""
    loop = uvloop.new_event_loop()
    due, before = 0.0, (0.0, 0.0)

    def beat() -> None:
        nonlocal due, before
        now, (used, delayed) = time.monotonic(), used_and_delayed()
        late = now - due
        if late > _WORTH:
            parts = f"{used - before[0]:.6f} {delayed - before[1]:.6f}"
            out.write(f"{now:.6f} {late:.6f} {parts}\n")
            out.flush()
        due, before = time.monotonic() + _BEAT, used_and_delayed()
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

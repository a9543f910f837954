"""Large groups of commits in a line before the writer's thread: it goes from one to the next without asking the event loop.

While the thread writes one batch, the loop seals the next ones: on two cores both are at work. That needs two things. The
thread must not wait for a turn of the loop between two groups, so what is ready stands in its queue, and all that stands there
shares one flush. And it must get the interpreter's lock soon: a busy loop gives it up only when it is asked to, after five
milliseconds as Python comes, and a group needs it a dozen times.
"""

import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from proxy.storage.sqlite_apply import Work

#: Changes of a commit from which on it is large: its statements take the thread longer than asking for it.
LARGE: Final = 50
#: Seconds after which a thread that wants the interpreter's lock asks for it, while large groups are under way.
BRISK: Final = 0.0001


class Handed(NamedTuple):
    """Commits whose statements the thread has to run."""

    group: list[Work]
    since: float  #: when the first of them was accepted


#: What the thread has to do next; ``None``: nothing any more.
Task = Callable[[], None] | Handed | None


def is_large(work: Work) -> bool:
    """Whether a commit is large."""
    return len(work[2]) >= LARGE


def joined(first: Handed, tasks: "SimpleQueue[Task]", most: int) -> tuple[Handed, list[Task]]:
    """What was handed and what was handed right behind it, until there are so many commits; and what else was taken, if anything."""
    group = list(first.group)
    while len(group) < most:
        try:
            task = tasks.get_nowait()
        except Empty:
            break
        if not isinstance(task, Handed):
            return Handed(group, first.since), [task]
        group += task.group
    return Handed(group, first.since), []


class Turns:
    """How soon a thread gets the interpreter's lock from another one: as Python has it, or briskly while somebody wants that."""

    def __init__(self) -> None:
        self._wanting = 0
        self._usual = 0.0

    def hasten(self) -> None:
        """Change turns briskly, until ``relax``. For the thread of the event loop alone."""
        if self._wanting == 0:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(min(BRISK, self._usual))
        self._wanting += 1

    def relax(self) -> None:
        """One less wants it."""
        self._wanting -= 1
        if self._wanting == 0:
            sys.setswitchinterval(self._usual)


#: Of this process, which may have several writers.
turns = Turns()

"""Large groups of commits in a line before the writer's thread: it goes from one to the next
without asking the event loop.

While the thread writes one batch, the loop seals the next ones: on two cores both are at work. That
needs two things. The thread must not wait for a turn of the loop between two groups, so ready
groups stand in its queue, and all of them share one flush. And it must get the interpreter's lock
soon: by default a busy loop releases it after five milliseconds, and a group needs it a dozen
times.
"""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from proxy.storage.changes import AddVersion, Change, Insert, Reindex, Replace, StageRow
from proxy.storage.sqlite.apply import Work

#: Changes of a commit from which on it is large: its statements take the thread longer than asking
#: for it.
LARGE_COMMIT: Final = 50
#: Entries of the token index, and bytes of a body, that take as long as one more change.
_ENTRIES: Final = 8
_BODY: Final = 16 * 1024


class LargeCommits(NamedTuple):
    """Commits whose statements the thread has to run."""

    group: list[Work]
    since: float  #: when the first of them was accepted


#: Next task of the thread; ``None``: end.
Task = Callable[[], None] | LargeCommits | None


def is_large_commit(changes: Sequence[Change]) -> bool:
    """Whether a commit is large: by its changes, and by what each of them brings with it."""
    weight = len(changes)
    if weight >= LARGE_COMMIT:
        return True
    for change in changes:  # most are a Release and a Bind, or one of the first two
        if isinstance(change, Insert):
            weight += len(change.row.body) // _BODY
            weight += (len(change.hashes) + len(change.unique)) // _ENTRIES
        elif isinstance(change, StageRow):
            weight += len(change.staged.body) // _BODY
            weight += (len(change.hashes) + len(change.unique)) // _ENTRIES
        elif isinstance(change, Replace):
            weight += len(change.row.body) // _BODY
        elif isinstance(change, AddVersion):
            weight += len(change.past.body) // _BODY
        elif isinstance(change, Reindex):
            weight += (len(change.add) + len(change.drop)) // _ENTRIES
    return weight >= LARGE_COMMIT


def joined_commits(
    first: LargeCommits, tasks: "SimpleQueue[Task]", most: int
) -> tuple[LargeCommits, list[Task]]:
    """Join the commits queued right behind ``first``, up to ``most``.

    Also returns the other task that was taken from the queue, if any.
    """
    group = list(first.group)
    while len(group) < most:
        try:
            task = tasks.get_nowait()
        except Empty:
            break
        if not isinstance(task, LargeCommits):
            return LargeCommits(group, first.since), [task]
        group += task.group
    return LargeCommits(group, first.since), []

"""What an engine tells of its writer, as plain callables: no engine knows the metrics of the program."""

from collections.abc import Callable


def _ignore(size: int, seconds: float) -> None:
    """Nobody listens."""


def _nothing() -> int:
    return 0


class Hooks:
    """Given to an engine when it opens; one object per store.

    ``on_batch(size, seconds)`` is called on the event loop for each durable group of commits: how many commits it
    held, and the seconds from handing over the oldest of them until all were durable. ``waiting()`` tells how many
    commits wait for the writer at this moment; the engine sets it.
    """

    __slots__ = ("on_batch", "waiting")

    def __init__(self, on_batch: Callable[[int, float], None] = _ignore) -> None:
        self.on_batch = on_batch
        self.waiting: Callable[[], int] = _nothing

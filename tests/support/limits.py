"""The time by which limits count, in the hands of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Clock:
    """Seconds; they pass where somebody says so."""

    def __init__(self) -> None:
        self.now = 1024.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def time_of_limits() -> Iterator[Clock]:
    """In this block buckets leak by a clock that stands still.

    The library takes none, it asks this function of its own.
    """
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("throttled.utils.now_mono_f", clock)
        yield clock

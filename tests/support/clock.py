"""Time as tests own it: a clock in place of ``proxy.clock.system_clock``."""


class ManualClock:
    """A clock that moves only when told to; milliseconds since the Unix epoch."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        """Move forward by so many milliseconds."""
        self.now += milliseconds

"""Progress of long work: a bar on a terminal, nothing where standard error is none (a job, a pipe)."""

import sys
from typing import Protocol, cast


class Progress(Protocol):
    """What work tells of itself; close it at the end, whatever that is."""

    def update(self, n: float = 1) -> bool | None:
        """So many more are done."""

    def close(self) -> None:
        """Leave the bar as it stands."""


def progress(title: str, total: int | None, unit: str, done: int = 0) -> Progress:
    """A bar for ``total`` units (``None``: nobody knows), of which ``done`` have been done before."""
    from tqdm import tqdm  # some 15 ms that `domicile health`, which probes call every few seconds, need not spend

    bar = tqdm(
        desc=title, total=total, unit=f" {unit}", initial=done, disable=not sys.stderr.isatty(), dynamic_ncols=True
    )
    return cast("Progress", bar)

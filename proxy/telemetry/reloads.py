"""State of reloads: after a failed one the previous version stays active and operators see it.

A failed reload never makes an instance unready: that would turn a typo into an outage. ``/readyz``
names the stale parts, the gauge ``domicile_reload_failed`` raises the alert, and a good version
clears both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from proxy.errors import VaultError
from proxy.telemetry.metrics import Metrics

#: Reloadable parts, as named by ``/readyz`` and the gauge.
RELOADED: Final = (
    "rules", "policies", "schemas", "certificates", "upstream_certificates", "remote_certificates",
    "countries", "notes", "keys", "clock",
)  # fmt: skip


#: Times that a folder is read until it was the same twice.
_TRIES: Final = 10

_Content = TypeVar("_Content")


def read_settled(path: Path, read: Callable[[Path], _Content]) -> _Content | None:
    """The content of a file, or of a folder once two readings in a row were equal; ``None`` if they
    never are.

    Half of one version of its files and half of the next may protect less than either.
    """
    before = read(path)
    if not path.is_dir():
        return before  # may be a pipe, which is read once
    for _ in range(_TRIES - 1):
        content = read(path)
        if content == before:
            return content
        before = content
    return None


class Reload:
    """The state of one of them.

    ``notice``: text for callers of ``/readyz`` in place of the fault, which may name files.
    """

    def __init__(self, metrics: Metrics, what: str, notice: str | None = None) -> None:
        if what not in RELOADED:
            raise ValueError(f"{what} is not in the table of what can be loaded again")
        self.what = what
        self._notice = notice
        self._cell = metrics.cell("domicile_reload_failed", what)
        self._fault: str | None = None

    def failed(self, error: VaultError) -> None:
        """Record that the new version cannot be used; the previous one stays active."""
        first = error.details[0] if error.details else None
        text = f"{error.message} {first.source}: {first.text}" if first else error.message
        self._fault = self._notice or text
        self._cell.value = 1

    def rejected(self, log: Any, error: VaultError, text: str, detail_text: str) -> None:
        """Record that, and log it under ``text``, each of its details under ``detail_text``."""
        self.failed(error)
        log.error(text, fault=error)
        for detail in error.details:
            log.error(detail_text, source=detail.source, text=detail.text)

    def succeeded(self) -> None:
        """Record that the new version is active."""
        self._fault = None
        self._cell.value = 0

    async def check(self) -> str | None:
        """For ``/readyz``: why it is stale, or ``None``."""
        return self._fault


def files_state(files: Iterable[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """Size, time and number of each file, which tell a change; ``None`` for one not there."""
    states: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            states.append(None)
        else:
            states.append((status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(states)


class FileWatcher:
    """Reloads files that have changed since they were read last.

    They are looked at now and then in place of being watched: it costs microseconds, and it sees
    what watchers miss on some file systems, config map symlink swaps and network folders among
    them. ``fingerprint`` tells one state of them from another. ``settled``: a change counts once
    two looks in a row are equal, so that nothing is read while it is being replaced.
    """

    def __init__(self, fingerprint: Callable[[], object], *, settled: bool = False) -> None:
        self._fingerprint = fingerprint
        self._settled = settled
        self.last = self._read = fingerprint()  #: result of the last look

    def mark_read(self) -> None:
        """Take the current files as those that are loaded."""
        self._read = self._fingerprint()

    async def run(
        self,
        seconds: float,
        reload: Callable[[], Awaitable[object]],
        due: Callable[[], bool] = lambda: False,
    ) -> None:
        """Look for ever, each time after so many seconds; ``due``: reload in any case."""
        while True:
            await asyncio.sleep(seconds)
            before, self.last = self.last, await asyncio.to_thread(self._fingerprint)
            stable = self.last == before or not self._settled
            if due() or (stable and self.last != self._read):
                self._read = self.last
                await reload()

"""The port that lines go through, and the one that takes them all and keeps none."""

from typing import Protocol

from proxy.errors import VaultError


class Sink(Protocol):
    """Where lines go. ``proxy.audit.trail.Trail`` is the one of a running instance."""

    @property
    def fault(self) -> str | None:
        """Why lines cannot be written; ``None`` while they can."""

    @property
    def flushes(self) -> bool:
        """Whether ``flushed`` has to be awaited before an answer leaves."""

    def ready(self) -> None:
        """Raise ``VaultError(AUDIT_DOWN)`` while lines cannot be written."""

    def put(self, *bodies: bytes) -> None:
        """Write lines, all or none. Raises ``VaultError(AUDIT_DOWN)``: then what they tell of must not happen."""

    def happened(self, *bodies: bytes) -> None:
        """The same of what was done already: what cannot be written now is written later. Raises as ``put``."""

    async def flushed(self) -> None:
        """Return when what was put is on the disk. Raises ``VaultError(AUDIT_DOWN)``."""


class Nowhere:
    """For trials of rules in memory, where no values of people are and nobody is shown anything."""

    flushes = False

    @property
    def fault(self) -> str | None:
        """See ``Sink.fault``."""
        return None

    def ready(self) -> None:
        """See ``Sink.ready``."""

    def put(self, *bodies: bytes) -> None:
        """See ``Sink.put``."""

    def happened(self, *bodies: bytes) -> None:
        """See ``Sink.happened``."""

    async def flushed(self) -> None:
        """See ``Sink.flushed``."""


def quietly(sink: Sink, *bodies: bytes) -> None:
    """Tell of what was done where nobody is waiting for an answer: if it cannot be written now, it is later."""
    try:
        sink.happened(*bodies)
    except VaultError:
        return

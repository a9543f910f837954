"""What joins the parts of the log for those who tell it things: where lines go, how records are marked, which are baits."""

from collections.abc import Callable, Iterable

from proxy.audit.baits import REASON, Baits
from proxy.audit.marks import Mark
from proxy.audit.members import Event, body
from proxy.audit.sink import Sink
from proxy.telemetry import logs

_log = logs.logger("audit")


class Witness:
    """One per instance."""

    __slots__ = ("_alarm", "baits", "mark", "sink")

    def __init__(self, sink: Sink, mark: Mark, baits: Baits, alarm: Callable[[str], None]) -> None:
        self.sink = sink
        self.mark = mark
        self.baits = baits
        self._alarm = alarm

    def alarms(self, marks: Iterable[str], **about: object) -> list[bytes]:
        """The lines for those of the marks that are of baits; whoever is on call hears of it at once."""
        found = sorted(set(self.baits.among(marks)))
        if not found:
            return []
        self._alarm("bait")
        _log.error("a record that is marked as bait was revealed", count=len(found))
        return [body(Event.ALARM, **{**about, "records": found, "count": len(found), "reason": REASON})]

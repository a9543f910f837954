"""Records that nobody has a reason to look at: whoever does raises an alarm.

Which they are is kept sealed, beside the log's memory, and known to administrators alone. A record
is told by the mark of its key, and by its number in the store, so that a token of it that was
copied somewhere else is noticed, too.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from proxy.audit.chain import Memory
from proxy.audit.events import EventKind, encode_event
from proxy.audit.open_log import Mark
from proxy.audit.sinks import Sink
from proxy.errors import Code, VaultError
from proxy.telemetry import logs

#: Baits that one instance has at most.
MOST_HONEYTOKENS: Final = 1_000

#: Why the line of an alarm stands there.
REASON: Final = "a record that is marked as bait was revealed"

_NONE: Final[frozenset[int]] = frozenset()


class Bait(msgspec.Struct, frozen=True, array_like=True):
    """One record."""

    mark: str
    environment: str
    schema: str
    rid: int


class Baits:
    """The baits of one instance. ``load`` them before use."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[str, Bait] = {}
        self._rids: dict[tuple[str, str], frozenset[int]] = {}

    def __bool__(self) -> bool:
        """Whether there are any; where there are none nothing is compared."""
        return bool(self._known)

    async def load(self) -> None:
        """Read what is kept. Raises ``VaultError``."""
        content = await self._memory.read()
        kept = msgspec.json.decode(content, type=list[Bait]) if content is not None else []
        self._adopt({one.mark: one for one in kept})

    def __contains__(self, mark: object) -> bool:
        """Whether the record of that mark is one."""
        return mark in self._known

    def among(self, marks: Iterable[str]) -> list[str]:
        """Those of the marks that are of baits."""
        return [mark for mark in marks if mark in self._known] if self._known else []

    def touched(self, environment: str, schema: str, rids: Collection[int]) -> list[str]:
        """The marks of the baits among these records of a schema."""
        if not self._known or self._rids.get((environment, schema), _NONE).isdisjoint(rids):
            return []
        return [one.mark for one in self._of(environment, schema) if one.rid in rids]

    async def add(self, bait: Bait) -> None:
        """Make a record a bait; nothing happens where it is one.

        Raises ``VaultError`` (UNPROCESSABLE over ``MOST``).
        """
        if self._known.get(bait.mark) == bait:
            return
        if len(self._known) >= MOST_HONEYTOKENS and bait.mark not in self._known:
            raise VaultError(
                Code.UNPROCESSABLE,
                f"There are {MOST_HONEYTOKENS:,} baits already, and more are of no use.",
            )
        await self._keep({**self._known, bait.mark: bait})

    async def remove(self, mark: str) -> None:
        """Make a record an ordinary one; nothing happens where it is one. Raises ``VaultError``."""
        if mark in self._known:
            await self._keep({known: one for known, one in self._known.items() if known != mark})

    async def _keep(self, known: dict[str, Bait]) -> None:
        await self._memory.write(msgspec.json.encode(list(known.values())))
        self._adopt(known)

    def _adopt(self, known: dict[str, Bait]) -> None:
        self._known = known
        places = {(one.environment, one.schema) for one in known.values()}
        self._rids = {place: frozenset(one.rid for one in self._of(*place)) for place in places}

    def _of(self, environment: str, schema: str) -> list[Bait]:
        return [
            one
            for one in self._known.values()
            if (one.environment, one.schema) == (environment, schema)
        ]


# What joins the parts of the log for those who tell it things: where lines go, how records are
# marked, which are baits.


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
        """The lines for those of the marks that are of baits; whoever is on call hears of it at
        once.
        """
        found = sorted(set(self.baits.among(marks)))
        if not found:
            return []
        self._alarm("bait")
        _log.error("a record that is marked as bait was revealed", count=len(found))
        return [
            encode_event(
                EventKind.ALARM,
                **{**about, "records": found, "count": len(found), "reason": REASON},
            )
        ]

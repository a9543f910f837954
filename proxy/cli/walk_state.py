"""Direction and options of a walk of ``domicile adopt`` and ``release``, and its state file.

The file saves time alone: a walk that lacks it looks at every record once more. It holds no values
and no ids of records, and ends with the walk.
"""

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from proxy.cli.site import Paging
from proxy.errors import Code, VaultError
from proxy.redactor.tools.adoption_records import ReadRecord, RecordState


class RecordOutcome(enum.StrEnum):
    """Outcome of the rewrite of one record."""

    CONVERTED = "converted"
    SETTLED = "settled"  #: another caller has written it since
    GONE = "gone"  #: in the list, and not at its own address
    REFUSED = "refused"
    BUSY = "busy"  #: concurrent changes at each attempt


class WalkDirection(NamedTuple):
    """Differences between the two commands."""

    name: str
    todo: frozenset[RecordState]  #: states to be rewritten
    through_proxy: bool  #: where it is written
    #: why a record, as callers see it, must not be written
    unfit: Callable[[ReadRecord], str] | None = None


@dataclass(slots=True)
class WalkOptions:
    """Options of a walk."""

    paging: Paging
    rate: float | None  #: records a second
    dry_run: bool
    state: Path
    parallel: int = 1  #: records processed concurrently
    region: str = ""  #: ISO 3166 code of the country of national telephone numbers; empty: unknown


class Tally(msgspec.Struct):
    """Progress of a walk; stands in its state file until complete. No values, no ids."""

    walk: str  #: what tells this walk from another one
    passes: int = 0  #: whole ones
    steps: int = 0  #: within the present one, where pages are counted
    converted: int = 0
    conditional: int = 0  #: of these, on the condition of an entity tag
    #: whether the application refuses a false condition; ``None``: unknown yet
    heeds: bool | None = None
    members: list[str] = []  #: other members that the application changed with the updates


def read_tally(file: Path, identity: str, *, fresh: bool = False) -> Tally:
    """The state of a walk if it was begun, else a new one; ``fresh``: a new one in any case.

    Raises ``VaultError(CONFLICT)`` where the file belongs to another walk.
    """
    begun = Tally(hashlib.sha256(identity.encode()).hexdigest())
    if fresh or not file.exists():
        return begun
    try:
        tally = msgspec.json.decode(file.read_bytes(), type=Tally)
    except (OSError, msgspec.MsgspecError):
        tally = Tally("")
    if tally.walk != begun.walk:
        raise VaultError(
            Code.CONFLICT, f"{file} belongs to another walk: remove it, or name one with --state."
        )
    return tally

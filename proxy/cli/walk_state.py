"""The state file of ``domicile adopt`` and ``release``: how far a walk is.

It saves time alone: a walk that lacks it looks at every record once more. It holds no values and no
ids of records, and ends with the walk.
"""

import hashlib
from pathlib import Path

import msgspec

from proxy.errors import Code, VaultError


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

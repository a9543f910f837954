"""What is told of keys: kinds, ids, figures; never a key."""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class KeyKind(enum.StrEnum):
    """Keys that can be rotated."""

    DATA = "data"  #: seals what one environment holds
    MASTER = "master"  #: wraps the keysets of all environments
    SIGNING = "signing"  #: signs access tokens


class DataKeys(NamedTuple):
    """The data keys of one environment."""

    environment: str
    keys: tuple[str, ...]  #: ids, oldest first; the last one seals, all of them open
    wrapped_by: str  #: id of the master key
    sealings: int  #: at most so many bodies were sealed with the one that seals
    reseal: str  #: none, running, stopped, done
    resealed: int  #: records that were looked at
    versions: int  #: past versions that were looked at
    contents: int  #: contents of files that were looked at
    unreadable: int  #: of all of them, those that do not open
    used: Mapping[str, Mapping[str, int]] | None = (
        None  #: what the last complete look found, by older key and kind; ``None`` before one
    )


class KeysTold(NamedTuple):
    """All keys of an instance."""

    master: str  #: id of the present one
    signing: tuple[str, ...]  #: ids, oldest first; the last one signs, all of them verify
    environments: Sequence[DataKeys]

"""Environments: each has keys, schemas, records, files and clients of its own, and none of them reaches another."""

import re
from typing import Final

import msgspec

#: The environment that every vault has: the proxy works in it, and its administrators look after all others.
DEFAULT: Final = "default"

#: What an id is: it becomes part of names of tables and notes of the store.
IDENT: Final = re.compile(r"[a-z][a-z0-9]{0,31}", re.ASCII)


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One environment as the vault's book has it."""

    id: str
    name: str  #: what people call it
    created_at: int  #: milliseconds since the epoch; of ``default``: when the book was begun
    removed_at: int | None = None  #: from then on nothing of it can be opened
    erased: bool = False  #: nothing of it is left in the store

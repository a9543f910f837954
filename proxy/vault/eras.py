"""Eras of values: which value of its field a text is, counted by what changed it and never told by what it says.

A redacted value stays what it is until the value behind it changes, and does not come back when that one does. So each record
remembers for each text the version that brought it: another number for every change, since versions only grow. A text that
came with the record itself has none, so that a new record stores nothing.

Whoever writes a text that it does not see begins an era in any case. Else it could write what it guesses, and learn from
the redacted value whether that was there already.
"""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from proxy.model.record import Eras, Fields, Record
from proxy.vault.document import Document


def following(before: Record, after: Fields, fresh: Collection[str], version: int) -> Eras:
    """The eras of the version that has the fields ``after``. Texts of ``fresh`` fields count as new."""
    known = before.eras or {}
    found: Eras = {}
    for name, value in after.items():
        if not isinstance(value, str):
            continue
        if name in fresh or value != before.fields.get(name):
            found[name] = version
        elif name in known:
            found[name] = known[name]
    return found


def moved(documents: Iterable[Document], first: int) -> list[Document]:
    """Versions of a record as versions of another one, which they become from the number ``first`` on: eras of its own."""
    begun: dict[tuple[str, object], int] = {}
    found: list[Document] = []
    for version, document in enumerate(documents, first):
        eras = document.eras if isinstance(document.eras, dict) else {}
        fresh: Eras = {
            name: begun.setdefault((name, eras.get(name, 0)), version)
            for name, value in document.fields.items()
            if isinstance(value, str)
        }
        found.append(replace(document, eras=fresh))
    return found

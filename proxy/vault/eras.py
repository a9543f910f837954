"""Eras of values: which value of its field a text is, counted by what changed it and never told by what it says.

A redacted value stays what it is until the value behind it changes, and does not come back when that one does. So each record
remembers for each text the version that brought it: another number for every change, since versions only grow. A text that
came with the record itself has none, so that a new record stores nothing.

Whoever writes a text that it does not see begins an era in any case. Else it could write what it guesses, and learn from
the redacted value whether that was there already.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from proxy.model.record import Eras, Fields, Record
from proxy.vault.content import Content, Kept
from proxy.vault.document import Document

#: Makes one era of the numbers of several values: a prime beyond those that records have, and a bound.
_MANY, _BEYOND = 1_000_003, 2**61 - 1


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


def texts_of(content: Content) -> tuple[Fields, Eras]:
    """The fields of what the proxy has collected, a text, or a list of texts where a field has several; and their eras.

    The number of a value is its era: it is unique within the record, and another value has another one.
    """
    fields: Fields = {}
    eras: Eras = {}
    for name, values in content.fields.items():
        if values:
            alone = len(values) == 1
            fields[name] = values[0].text if alone else [kept.text for kept in values]
            eras[name] = values[0].number if alone else [kept.number for kept in values]
    return fields, eras


def array_of(values: Sequence[Kept]) -> str:
    """Several texts as the text of a JSON array."""
    return msgspec.json.encode([kept.text for kept in values]).decode()


def era_of(values: Sequence[Kept]) -> int:
    """The era of several values as one: another one as soon as one of them is another."""
    era = 0
    for kept in values:
        era = (era * _MANY + kept.number) % _BEYOND
    return era

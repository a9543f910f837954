"""What the use cases tell the audit log: which records were shown or changed, and in which fields, by name."""

from collections.abc import Iterable, Sequence

from proxy.audit import noting
from proxy.model.builtin import PROFILE_KEY
from proxy.model.query import KEY
from proxy.model.record import Draft, Record
from proxy.vault.records import Records


def shown(records: Records, found: Sequence[Record]) -> None:
    """These records are about to be shown, whole."""
    keys_shown(records, [record.key for record in found])


def keys_shown(records: Records, keys: Sequence[str | None]) -> None:
    """The records of these keys are about to be shown, whole."""
    noting.revealed(records.name, keys, _names(records) if keys else ())


def added_up(records: Records, groups: int, fields: Iterable[str]) -> None:
    """Figures over so many groups are about to be shown, made of these fields."""
    noting.counted(records.name, groups, fields)


def listed(records: Records, keys: Iterable[str | None], fields: Iterable[str]) -> None:
    """The records of these keys are about to be shown, in these fields."""
    noting.revealed(records.name, keys, fields)


def taken(records: Records, source: Record) -> None:
    """A record goes into another one, where whoever may read that sees what it had: as good as shown."""
    noting.revealed(records.name, (source.key,), source.fields)


def rehashed(records: Records, made: Sequence[Record], fields: Sequence[str]) -> None:
    """New tokens of these fields were committed, and are about to be shown: what they tell of values is up to their strategy."""
    keys = [record.key for record in made]
    noting.written(records.name, keys, fields)
    if keys:
        noting.revealed(records.name, keys, (KEY, PROFILE_KEY, *fields))


def attached(records: Records, made: Iterable[Record]) -> None:
    """Of these records, those that have files are about to be shown with them."""
    keys = [record.key for record in made if record.attachments]
    if keys:
        noting.revealed(records.name, keys, ())


def written(records: Records, made: Sequence[Record], drafts: Sequence[Draft]) -> None:
    """These records were committed, with what the drafts name."""
    noting.written(records.name, (record.key for record in made), (name for draft in drafts for name in draft.fields))


def _names(records: Records) -> list[str]:
    return [field.name for field in records.known.fields]

"""How records of the record-based family are written: every field of every record, ``null`` where it has no value.

``key`` and ``range_key`` say once more what ``record_key`` and ``range_key1`` say, for callers of older times.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxy.clock import to_wire
from proxy.model.builtin import IS_ENCRYPTED, RECORD_KEY, STATED_VERSION, records_schema
from proxy.model.dialect import ALIASES, COUNTRY
from proxy.model.query import CREATED_AT, EXPIRES_AT, UPDATED_AT, VERSION
from proxy.model.record import Fields, Record
from proxy.model.rights import FULL, Rights, Shown
from proxy.vault.aggregate import Figures
from proxy.web.api import wire

_OTHER_NAMES: Final = {field: name for name, field in ALIASES.items()}

#: What is shown of the fields of a record, in this order: the name, and the field that has the value.
_SHOWN: Final = tuple(
    (name, field.name)
    for field in records_schema().fields
    if field.name not in (STATED_VERSION, IS_ENCRYPTED)
    for name in (field.name, _OTHER_NAMES.get(field.name))
    if name is not None
)

#: Between the values of a group's name, and before a character of a value that means something there.
_BETWEEN: Final = "|"
_BEFORE: Final = "\\"
_NOTHING: Final = "null"


def shown(record: Shown, country: str, rights: Rights = FULL) -> dict[str, Any]:
    """A record as every answer has it; without fields that these rights hide, which others would take for empty ones."""
    found = _fields(record.fields, rights)
    found[RECORD_KEY] = found[_OTHER_NAMES[RECORD_KEY]] = record.key
    found[VERSION] = version_of(record)
    found[CREATED_AT] = to_wire(record.created_at)
    found[UPDATED_AT] = to_wire(record.updated_at)
    found[EXPIRES_AT] = None if record.expires_at is None else to_wire(record.expires_at)
    found[COUNTRY] = country
    base = wire.files_of(record.key or "", "", country) if record.attachments else ""
    found["attachments"] = [wire.attachment(base, item) for item in record.attachments]
    return found


def version_of(record: Record) -> int:
    """What the caller stated of the record, or how often it was written."""
    stated: int | None = record.fields.get(STATED_VERSION)
    return record.version if stated is None else stated


def version(record: Shown, rights: Rights = FULL) -> dict[str, Any]:
    """An entry of a record's history. ``version`` counts them; what a caller stated is in the record."""
    return {
        "version": record.version,
        "action": str(record.action),
        "at": to_wire(record.updated_at),
        "by": record.by,
        "record": {**_fields(record.fields, rights), VERSION: version_of(record)},
    }


def groups(found: Iterable[Figures]) -> dict[str, Any]:
    """Groups by their names."""
    return {group_name(group.keys): {"group": {"keys": group.keys}, "metrics": group.metrics} for group in found}


def group_name(keys: Mapping[str, Any]) -> str:
    r"""The values of the keys, with ``|`` between them; ``null`` is no value. No two groups have one name.

    In a value a backslash stands before ``|`` and ``\``, and before the text ``null``. Without keys there is one group, ``all``.
    """
    return _BETWEEN.join(map(_named, keys.values())) if keys else "all"


def _named(value: Any) -> str:
    if value is None:
        return _NOTHING
    text = str(value)
    if text == _NOTHING:
        return _BEFORE + text
    return text.replace(_BEFORE, _BEFORE * 2).replace(_BETWEEN, _BEFORE + _BETWEEN)


def _fields(fields: Fields, rights: Rights) -> dict[str, Any]:
    get = fields.get
    if rights.view is None:
        return {name: get(field) for name, field in _SHOWN}
    return {name: get(field) for name, field in _SHOWN if field in rights.names}

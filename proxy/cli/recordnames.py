"""Records of the record-based family as hosted services of this kind export them, in the names of the schema ``records``.

Such a record has other names for some fields, says in which country it is kept, and has what the service itself sets. The model-based
operations, by which an import stores, take none of these. A record of another country than the instance's is refused.
"""

from collections.abc import Iterator
from typing import Any, Final

from proxy.cli import remote
from proxy.cli.formats import Entry, Types
from proxy.model.builtin import RECORDS, STATED_VERSION
from proxy.model.dialect import ALIASES, COUNTRY
from proxy.model.query import CREATED_AT, UPDATED_AT, VERSION

#: Names in files -> names in the schema.
_NAMES: Final = {**ALIASES, VERSION: STATED_VERSION}

#: What the service sets, and no import takes.
_OF_THE_SERVICE: Final = frozenset((CREATED_AT, UPDATED_AT, "attachments"))


def with_names(schema: str, types: Types) -> Types:
    """The types of fields, by the names in files, too."""
    if schema != RECORDS:
        return types
    return {**types, **{name: types[field] for name, field in _NAMES.items() if field in types}}


def translated(instance: remote.Remote, schema: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    """The records of a file in the names of their schema; those of other schemas as they are."""
    if schema != RECORDS:
        yield from entries
        return
    countries: dict[Any, bool] = {}
    for entry in entries:
        yield entry if entry.record is None else _translated(instance, entry.line, entry.record, countries)


def _translated(instance: remote.Remote, line: int, record: dict[str, Any], countries: dict[Any, bool]) -> Entry:
    found: dict[str, Any] = {}
    for name, value in record.items():
        if name == COUNTRY:
            if not _ours(instance, value, countries):
                return Entry(line, None, "this record is kept in another country than this instance's", record)
        elif name not in _OF_THE_SERVICE:
            known = _NAMES.get(name, name)
            if found.get(known, value) != value:
                return Entry(line, None, f"{name} says something else than another name of it", record)
            found[known] = value
    return Entry(line, found)


def _ours(instance: remote.Remote, country: Any, countries: dict[Any, bool]) -> bool:
    """Whether the instance keeps records of that country; it is asked once for each."""
    if country is None:
        return True
    if not isinstance(country, str):
        return False
    if country not in countries:
        told = instance.ask("POST", "/api/records/find", {COUNTRY: country, "options": {"limit": 1}})
        if told.status not in (200, 400, 409):
            raise remote.refusal(told)
        countries[country] = told.status == 200
    return countries[country]

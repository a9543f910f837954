"""Handlers of the record-based family: the use cases of the other family, in the names and shapes of this one (``model.dialect``).

Where the specification is silent: ``country`` has to stand in the bodies that it shows with one, and may stand in the others; in a
batch each record may repeat it. A batch overwrites as a single create does. Records that nobody has are no reason to refuse an update.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from proxy.errors import Code, Detail, VaultError
from proxy.model.builtin import RECORD_KEY
from proxy.model.dialect import (
    ALIASES,
    COUNTRY,
    named,
    read_record,
    read_record_aggregate,
    read_record_filter,
    read_record_find,
    read_records,
)
from proxy.model.faults import step
from proxy.model.policy import Act
from proxy.model.query import Query
from proxy.model.record import Draft, Record
from proxy.vault import clone as cloning
from proxy.vault import delete as deleting
from proxy.vault import update as updating
from proxy.vault import write as writing
from proxy.vault.aggregate import aggregate
from proxy.vault.find import find
from proxy.vault.records import Records
from proxy.web.api import recordwire, shapes, wire
from proxy.web.api.conditions import guarded
from proxy.web.api.finding import answered, one, versions
from proxy.web.api.models import GONE, Show, gone, records_of, tagged
from proxy.web.api.models import told as sent
from proxy.web.api.operation import Answer, Call, Handler

#: What only find, aggregate and clone of this family know the record key by.
_KEY_NAMES: Final = (RECORD_KEY, *(name for name, field in ALIASES.items() if field == RECORD_KEY))


_UNTOLD: Final = "A group is left out: none of its records opens, so that the values of its keys are not known."


def here(handler: Handler) -> Handler:
    """The handler of an operation whose path names the country, which has to be the instance's."""

    async def checked(call: Call) -> Answer:
        shapes.check_country(call, call.path, place=COUNTRY, spelled=True)
        return await handler(call)

    return checked


async def create_record(call: Call) -> Answer:
    """One record, new or in place of the one that has its key."""
    _in_country(call, call.content)
    records = guarded(call.request, records_of(call, Act.WRITE))
    draft = read_record(records.known, call.content, partial=False, limits=call.services.limits)
    return await _create(call, records, [draft], partial(_one, call, records))


async def show_record(call: Call) -> Answer:
    """The record with that key."""
    records = records_of(call, Act.READ)
    return await one(call, records, partial(_written, call, records))


async def create_records(call: Call) -> Answer:
    """A batch of them, all or none."""
    raw, records = _batch(call)["records"], records_of(call, Act.WRITE)
    drafts = read_records(records.known, raw, partial=False, limits=call.services.limits, pointer="/records")
    return await _create(call, records, drafts, partial(_many, call, records, 201))


async def update_records(call: Call) -> Answer:
    """A batch of changes to records that exist, all or none."""
    content = _batch(call, "search_key")
    records = records_of(call, Act.WRITE)
    search_key = content.get("search_key", RECORD_KEY)
    if not isinstance(search_key, str):
        raise shapes.invalid("/search_key", "Has to be the name of a field.")
    drafts = read_records(
        records.known, content["records"], partial=True, limits=call.services.limits, pointer="/records"
    )

    def show(made: Sequence[Record]) -> Answer:
        return _many(call, records, 200, sent(records, drafts, made))

    made = await updating.update(
        records, drafts, call.principal.client, call.closing(show), search_key=named(search_key)
    )
    return show(made)


async def clone_record(call: Call) -> Answer:
    """A copy of a record under a key of its own."""
    readable, records, limits = records_of(call, Act.READ), records_of(call, Act.WRITE), call.services.limits
    content = shapes.members(call.content, ("filter", "update_with", COUNTRY), ("filter", "update_with"))
    shapes.check_country(call, content, spelled=True)
    tests = read_record_filter(records.known, content["filter"], limits)
    _in_country(call, content["update_with"], "/update_with", required=False)
    draft = read_record(records.known, content["update_with"], partial=True, limits=limits, pointer="/update_with")

    async def sources(most: int) -> list[Record]:
        result = await find(readable, Query(tests, limit=most), limits)
        if result.unreadable:
            raise VaultError(Code.CANNOT_OPEN, "A record that matches the filter does not open.")
        return result.records

    show = partial(_many, call, records, 201)
    return show(await cloning.clone(records, sources, draft, call.principal.client, call.closing(show)))


async def find_records(call: Call) -> Answer:
    """The records that match."""
    content = shapes.members(call.content, (COUNTRY, "filter", "options"), (COUNTRY,))
    shapes.check_country(call, content, spelled=True)
    records, limits = records_of(call, Act.READ), call.services.limits
    query = read_record_find(records.known, _without_country(content), limits)
    rights, country = records.rights, call.services.country

    def render(record: Record) -> bytes:
        return wire.encode(recordwire.shown(rights.shown(record), country, rights))

    return await answered(call, records, query, render, wire.redacted_fields(records))


async def aggregate_records(call: Call) -> Answer:
    """Figures over the records that match, by group."""
    content = call.content
    if not isinstance(content, dict):
        raise shapes.invalid("", "Has to be a JSON object.")
    shapes.check_country(call, content, spelled=True)
    records, limits = records_of(call, Act.READ), call.services.limits
    wanted = read_record_aggregate(records.known, _without_country(content), limits)
    result = await aggregate(records, wanted, call.principal.client, limits, lenient=True)
    data = recordwire.groups(result.groups)
    errors = [_UNTOLD] * result.untold
    return wire.answer(200, {"data": data, "meta": {"next": result.next}, "errors": errors})


async def delete_records(call: Call) -> Answer:
    """The end of those of some records that exist."""
    content = shapes.members(call.content, ("filter", COUNTRY), ("filter",))
    shapes.check_country(call, content, spelled=True)
    chosen = content["filter"]
    if not isinstance(chosen, dict) or len(chosen) != 1 or not chosen.keys() <= set(_KEY_NAMES):
        text = f"Has to be an object whose one member is {RECORD_KEY}: records are deleted by their keys alone."
        raise VaultError(Code.INVALID_FILTER, "The filter does not fit this operation.", (Detail("/filter", text),))
    ((name, given),) = chosen.items()
    keys = shapes.strings(given, "/filter" + step(name), call.services.limits.find_maximum)
    cascade_by, records = call.query.get("cascadeBy"), records_of(call, Act.DELETE)
    await deleting.delete_many(records, keys, call.principal.client, call.closing(gone), cascade_by=cascade_by)
    return GONE


async def record_history(call: Call) -> Answer:
    """What a record was, newest version first."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    records = records_of(call, Act.READ)

    def render(record: Record) -> bytes:
        return wire.encode(recordwire.version(records.rights.shown(record), records.rights))

    return await versions(call, records, (limit, offset), render)


# ---------------------------------------------------------------------- parts


async def _create(call: Call, records: Records, drafts: Sequence[Draft], show: Show) -> Answer:
    made = await writing.create(records, drafts, call.principal.client, call.closing(show), on_existing="update")
    return show(made)


def _batch(call: Call, *more: str) -> dict[str, Any]:
    """The body of a batch, its country and those of its records being the instance's."""
    content = shapes.members(call.content, (COUNTRY, "records", *more), (COUNTRY, "records"))
    shapes.check_country(call, content, spelled=True)
    if isinstance(content["records"], list):
        for number, record in enumerate(content["records"]):
            _in_country(call, record, f"/records/{number}", required=False)
    return content


def _in_country(call: Call, record: Any, pointer: str = "", *, required: bool = True) -> None:
    """Raise unless a record says that it is kept in the instance's country; or says nothing, where that is enough."""
    if not isinstance(record, dict):
        return  # told by who reads it
    if required and COUNTRY not in record:
        raise shapes.invalid(f"{pointer}/{COUNTRY}", "Is missing.")
    shapes.check_country(call, record, place=f"{pointer}/{COUNTRY}", spelled=True)


def _without_country(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != COUNTRY}


def _one(call: Call, records: Records, made: Sequence[Record]) -> Answer:
    return tagged(records, made[0], wire.answer(201, _written(call, records, made[0])))


def _many(call: Call, records: Records, status: int, made: Sequence[Record]) -> Answer:
    return wire.answer(status, [_written(call, records, record) for record in made])


def _written(call: Call, records: Records, record: Record) -> dict[str, Any]:
    shown = recordwire.shown(records.rights.shown(record), call.services.country, records.rights)
    return {**shown, **({"meta": meta} if (meta := wire.redacted_fields(records)) else {})}

"""Handlers of the point-of-presence interface: records as clients made for hosted services of this kind speak of them.

Its records are those of ``/api/records``. A caller says with ``X-Encrypted-Storage: true`` that it sends values as they are; without it it
has sealed and hashed them itself, and gets back what it sent. The vault seals and hashes either kind once more for itself.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from proxy.errors import Code, Detail, VaultError
from proxy.model.builtin import BODY, IS_ENCRYPTED, RECORD_KEY, RECORDS
from proxy.model.dialect import ALIASES, COUNTRY
from proxy.model.policy import Act
from proxy.model.popdialect import read_pop_find, read_pop_record, read_pop_records
from proxy.model.record import Draft, Record
from proxy.vault import delete as deleting
from proxy.vault import write as writing
from proxy.vault.find import find
from proxy.vault.records import Records
from proxy.web.api import recordwire, shapes, wire
from proxy.web.api.conditions import guarded
from proxy.web.api.finding import one, told
from proxy.web.api.operation import Answer, Call, Handler

#: Where the files of a record are.
FILES: Final = "/v2/storage/records/{country}/{record_key}/attachments"

_ENVIRONMENT: Final = "x-env-id"
_SEALED_HERE: Final = "X-Encrypted-Storage"

#: Names of this instance's own that the answers of this interface do not have.
_ELSEWHERE: Final = frozenset((*ALIASES, COUNTRY))

_EMPTY: Final = wire.answer(200, {})


def here(handler: Handler) -> Handler:
    """The handler of an operation whose path and headers name country and environment: both have to be the caller's."""

    async def checked(call: Call) -> Answer:
        check_environment(call)
        shapes.check_country(call, call.path, place=COUNTRY, spelled=True)
        return await handler(call)

    return checked


def check_environment(call: Call) -> None:
    """Raise ``VaultError``: INVALID_INPUT without the header, UNAUTHORIZED where it is not that of the token."""
    given = call.request.headers.getall(_ENVIRONMENT, [])
    if len(given) != 1:
        detail = Detail(_ENVIRONMENT, "Has to stand once, with the id of the environment.")
        raise VaultError(Code.INVALID_INPUT, "The environment is not named.", (detail,))
    if given[0] != call.principal.environment:
        raise VaultError(Code.UNAUTHORIZED, "The access token is for another environment than x-env-id names.")


async def health(call: Call) -> Answer:
    """Whether records can be read."""
    check_environment(call)
    collection = call.records(RECORDS, Act.READ).collection
    await collection.store.rows(collection.table, [0])
    return wire.answer(200, {"status": "ok"})


async def write(call: Call) -> Answer:
    """One record, new or in place of the one that has its key."""
    records = guarded(call.request, call.records(RECORDS, Act.WRITE))
    draft = read_pop_record(records.known, call.content, call.services.limits, sealed_here=_sealed_here(call))
    return await _write(call, records, [draft], partial(_one, call, 201, records))


async def batch_write(call: Call) -> Answer:
    """A batch of them, all or none."""
    records = call.records(RECORDS, Act.WRITE)
    content = shapes.members(call.content, ("records",), ("records",))
    drafts = read_pop_records(records.known, content["records"], call.services.limits, sealed_here=_sealed_here(call))
    return await _write(call, records, drafts, partial(_many, call, records))


async def read(call: Call) -> Answer:
    """The record with that key."""
    records = call.records(RECORDS, Act.READ)
    return await one(call, records, lambda record: _shown(call, records, record))


async def search(call: Call) -> Answer:
    """The records that match."""
    records, limits = call.records(RECORDS, Act.READ), call.services.limits
    content = shapes.members(call.content, ("filter", "options"))
    query = read_pop_find(records.known, content, limits)
    result = await find(records, query, limits)
    shown = [_shown(call, records, record) for record in result.records]
    return wire.page(shown, query.limit, query.offset, result.total, told(result))


async def delete(call: Call) -> Answer:
    """The end of one record."""
    key = call.path[RECORD_KEY]
    await deleting.delete_one(
        guarded(call.request, call.records(RECORDS, Act.DELETE)),
        key,
        call.principal.client,
        call.closing(lambda _: _EMPTY),
    )
    return _EMPTY


async def batch_delete(call: Call) -> Answer:
    """The end of those of some records that exist."""
    records = call.records(RECORDS, Act.DELETE)
    content = shapes.members(call.content, ("filter",), ("filter",))
    chosen = content["filter"]
    if not isinstance(chosen, dict) or chosen.keys() != {RECORD_KEY}:
        text = f"Has to be an object whose one member is {RECORD_KEY}: records are deleted by their keys alone."
        raise VaultError(Code.INVALID_FILTER, "The filter does not fit this operation.", (Detail("/filter", text),))
    keys = shapes.strings(chosen[RECORD_KEY], f"/filter/{RECORD_KEY}", call.services.limits.find_maximum)
    await deleting.delete_many(records, keys, call.principal.client, call.closing(lambda _: _EMPTY))
    return _EMPTY


# ---------------------------------------------------------------------- parts


async def _write(
    call: Call, records: Records, drafts: Sequence[Draft], show: Callable[[Sequence[Record]], Answer]
) -> Answer:
    made = await writing.create(records, drafts, call.principal.client, call.closing(show), on_existing="update")
    return show(made)


def _sealed_here(call: Call) -> bool:
    """Whether the values are as they are, so that nobody but the vault seals and hashes them."""
    given = call.request.headers.getall(_SEALED_HERE, [])
    if len(given) > 1 or (given and given[0].lower() not in ("true", "false")):
        detail = Detail(_SEALED_HERE, "May stand once, as true or false.")
        raise VaultError(Code.INVALID_INPUT, "It is not told who seals.", (detail,))
    return bool(given) and given[0].lower() == "true"


def _one(call: Call, status: int, records: Records, made: Sequence[Record]) -> Answer:
    return wire.answer(status, _shown(call, records, made[0]))


def _many(call: Call, records: Records, made: Sequence[Record]) -> Answer:
    return wire.answer(201, {"records": [_shown(call, records, record) for record in made]})


def _shown(call: Call, records: Records, record: Record) -> dict[str, Any]:
    """A record as this interface answers with it: every member there that the caller may see, ``null`` where it has no value; a body
    always is a text.
    """
    seen = records.rights.shown(record)
    shown = recordwire.shown(seen, call.services.country, records.rights)
    for name in _ELSEWHERE:
        shown.pop(name, None)
    if BODY in shown:
        shown[BODY] = shown[BODY] or ""
    shown[IS_ENCRYPTED] = seen.fields.get(IS_ENCRYPTED)
    base = wire.filled(FILES, {COUNTRY: call.services.country, RECORD_KEY: record.key or ""})
    shown["attachments"] = [wire.attachment(base, item) for item in seen.attachments]
    return shown

"""Handlers for the rights of a person over all schemas (GDPR, articles 15, 17 and 20)."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proxy.api import request, wire
from proxy.api.access import approval_pending
from proxy.api.context import ApiRequest, ApiResponse
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model.policy import Act
from proxy.model.record import Record
from proxy.model.schema import RECORDS_SCHEMA
from proxy.model.values import Unfit, instant
from proxy.vault.records import (
    DeletedRecords,
    PersonRecord,
    PersonValues,
    Records,
    cursor_context,
    delete_one,
    find_person_records,
    open_cursor,
)

#: Records that one request examines, and those that it returns; a longer walk continues by cursor.
_LOOKED: Final = 20_000
_PAGE: Final = 1000
_LONGEST: Final = 1000
#: Further values of the person in one request.
_ALSO: Final = 20

#: Names of deleted records in one request.
_DELETED: Final = 10_000

_Sought = PersonValues | DeletedRecords

_UNUSABLE: Final = (Code.INVALID_INPUT, "next")


class _Position(msgspec.Struct, array_like=True):
    """Position of a walk: after that record of that schema."""

    schema: str
    after: int


class _Walked(msgspec.Struct):
    """Result of a request, by schema, with its progress."""

    holders: list[tuple[Records, PersonRecord]]
    looked: int = 0
    counted: int = 0  #: among them, those that the caller may know of
    unreadable: int = 0
    schemas: list[str] = []
    next: str | None = None


async def find_person(call: ApiRequest) -> ApiResponse:
    """Every record that has one of some values, in any schema and any field; or every one of those
    that a restored backup has brought back.
    """
    sought = _sought(call, "value", "also", "mentions")
    schemas = list(_schemas(call, Act.READ))
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    walked = await _walk(call, sought, schemas)
    data = [
        {
            "schema": records.name,
            "record_key": one.record.key,
            "fields": list(one.fields),
            **({"mentions": list(one.mentions)} if one.mentions else {}),
            **({"others": list(one.others)} if one.others else {}),
            "record": _record_json(records, one.record),
            **(
                {"in_doubt": [_record_json(records, version) for version in one.in_doubt]}
                if one.in_doubt
                else {}
            ),
        }
        for records, one in walked.holders
    ]
    return wire.json_answer(200, {"data": data, "meta": _meta(walked)})


async def erase_person(call: ApiRequest) -> ApiResponse:
    """Delete every record that has a value, one by one, with the outcome of each."""
    sought = _sought(call, "value", "also")
    schemas = list(_schemas(call, Act.READ, Act.DELETE))
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    walked = await _walk(call, sought, schemas)
    data = [await _erased(call, records, one) for records, one in walked.holders]
    return wire.json_answer(200, {"data": data, "meta": _meta(walked)})


async def _erased(call: ApiRequest, records: Records, one: PersonRecord) -> dict[str, Any]:
    key, by = one.record.key, call.principal.client
    outcome: dict[str, Any] = {
        "schema": records.name,
        "record_key": key,
        "fields": list(one.fields),
    }
    if key is None:
        return {**outcome, "erased": False, "code": Code.CONFLICT}
    try:
        await delete_one(records, key, by, lambda _none: ())
    except VaultError as error:
        if error.code is Code.NOT_FOUND:  # another writer was faster
            return {**outcome, "erased": True}
        if error.code is Code.VAULT_DOWN:
            raise
        return {**outcome, "erased": False, "code": error.code}
    return {**outcome, "erased": True}


def _sought(call: ApiRequest, *members: str) -> PersonValues | DeletedRecords:
    if isinstance(call.content, dict) and "deleted" in call.content:
        return _deleted(call)
    content = request.checked_members(call.content, members, ("value",))
    also, mentions = content.get("also", []), content.get("mentions", False)
    if not isinstance(also, list) or len(also) > _ALSO:
        raise request.invalid("/also", f"Has to be a list of {_ALSO} texts at most.")
    if not isinstance(mentions, bool):
        raise request.invalid("/mentions", "Has to be true or false.")
    places = [("/value", content["value"]), *((f"/also/{n}", one) for n, one in enumerate(also))]
    return PersonValues([_checked(*one) for one in places], mentions)


def _deleted(call: ApiRequest) -> DeletedRecords:
    """Records by their names in the audit log, with the instants of their lines."""
    deleted = request.checked_members(call.content, ("deleted",))["deleted"]
    if not isinstance(deleted, dict) or not 0 < len(deleted) <= _DELETED:
        raise request.invalid("/deleted", f"Has to be an object of 1 to {_DELETED} members.")
    try:
        instants = {name: instant(at) for name, at in deleted.items()}
    except Unfit as unfit:
        raise request.invalid("/deleted", f"Each instant: {unfit}") from None
    return DeletedRecords(instants, call.services.audit.services.record_id)


def _checked(pointer: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST:
        raise request.invalid(pointer, f"Has to be a text of 1 to {_LONGEST} characters.")
    return value.strip()


def _schemas(call: ApiRequest, *acts: Act) -> Iterator[Records]:
    """The records of each schema in which the caller may do that.

    Raises ``VaultError`` (PURPOSE_REQUIRED, OUTSIDE_COUNTRY); ACCESS_DENIED where there is none.
    """
    refusal: VaultError | None = None
    allowed = 0
    for declared in call.space.catalog.schemas():
        try:
            yield call.records(declared.schema.name, *acts)
        except coded(Code.ACCESS_DENIED) as error:
            refusal = error
        else:
            allowed += 1
    if not allowed and refusal is not None:
        raise refusal


async def _walk(call: ApiRequest, sought: _Sought, schemas: list[Records]) -> _Walked:
    """Look at the next records, schema by schema."""
    names = [records.name for records in schemas]
    walked = _Walked([], schemas=names)
    position = _position(call, sought, names)
    while position is not None and walked.looked < _LOOKED and len(walked.holders) < _PAGE:
        at = names.index(position.schema)
        part = await find_person_records(schemas[at], sought, position.after, 1)
        walked.holders += [(schemas[at], one) for one in part.holders]
        walked.looked += part.looked
        # a filter endpoint is asked about holders alone: of others nobody knows who may count them
        walked.counted += part.looked if schemas[at].gate is None else len(part.holders)
        walked.unreadable += part.unreadable
        if part.last is not None:
            position = _Position(position.schema, part.last)
        else:
            position = _Position(names[at + 1], 0) if at + 1 < len(names) else None
    if position is not None:
        base, context = _cursors(call, sought)
        walked.next = base.cursors.seal(msgspec.msgpack.encode(position), context)
    return walked


def _position(call: ApiRequest, sought: _Sought, names: list[str]) -> _Position | None:
    """Return the start of the walk. Raises ``VaultError(INVALID_INPUT)`` for a foreign cursor."""
    cursor = call.query.get("next")
    if cursor is None:
        return _Position(names[0], 0)
    base, context = _cursors(call, sought)
    position = msgspec.msgpack.decode(open_cursor(base, cursor, context, _UNUSABLE), type=_Position)
    if position.schema not in names:
        text = "The schema at which the walk stopped is gone: start again."
        raise VaultError(Code.INVALID_INPUT, text, (Detail("next", text),))
    return position


def _cursors(call: ApiRequest, sought: _Sought) -> tuple[Records, bytes]:
    """Return the cipher of cursors, and their context: this client and these values."""
    base = call.space.catalog.records(RECORDS_SCHEMA)
    about: object = sought
    if isinstance(sought, DeletedRecords):
        about = sorted(sought.instants.items())
    return base, cursor_context(
        base, call.principal.client, b"person\x00" + msgspec.msgpack.encode(about)
    )


def _meta(walked: _Walked) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "count": len(walked.holders),
        "looked_at": walked.counted,
        "schemas": walked.schemas,
        "next": walked.next,
    }
    return {**meta, "unreadable": walked.unreadable} if walked.unreadable else meta


def _record_json(records: Records, record: Record) -> dict[str, Any]:
    primary = records.primary.name if records.primary is not None else None
    return wire.found_json(records.rights.render(record), records.name, primary)

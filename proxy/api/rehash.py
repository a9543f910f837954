"""Handlers of rehashes: new tokens for some records at once, or for all of them in the background.

Where the specification is silent: a rehash reads records and writes what it has made, so a client
needs both rights, and sees the values of what it names as they are; else the tokens would tell what
its policies hide. A profile key that nobody has is no fault.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from proxy.api import request, wire
from proxy.api.access import approval_pending
from proxy.api.context import ApiRequest, ApiResponse, shows
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model import ALIASES, COUNTRY
from proxy.model.policy import Act
from proxy.model.query import KEY
from proxy.model.record import Record
from proxy.model.schema import BODY, PROFILE_KEY, RECORDS_SCHEMA
from proxy.model.values import ValueFaults, step
from proxy.storage.changes import Change
from proxy.vault.maintenance import (
    ALL_OTHERS,
    Rehash,
    RehashedRecord,
    RehashJob,
    RehashRequest,
    RehashRules,
    RehashRun,
    newest_tokens,
    read_dtk,
    read_rules,
    rehash_profiles,
    resolve_rehashed,
)
from proxy.vault.records import PageAsker, Records, export

_TOKENS: Final = 1000  # records of one request


async def rehash_records(call: ApiRequest) -> ApiResponse:
    """New tokens for the records of some profile keys."""
    records, limits = call.records(RECORDS_SCHEMA, Act.READ, Act.WRITE), call.services.limits
    content = request.checked_members(
        call.content, ("dtk", "keys", "rules", COUNTRY), ("dtk", "keys", "rules")
    )
    request.check_country(call, content)
    dtk, rules = _read(content)
    _refuse_unseen(records, rules)
    keys = request.strings(content["keys"], "/keys", limits.find_maximum)
    keep = call.keep

    def closing(rehashed: Sequence[RehashedRecord]) -> Sequence[Change]:
        return (
            ()
            if keep is None
            else keep(_rehashed(records, rehashed), [shows(one.record) for one in rehashed])
        )

    plan = Rehash(records, rules, dtk)
    return _rehashed(
        records, await rehash_profiles(records, plan, keys, limits.find_maximum, closing)
    )


async def resolve_tokens(call: ApiRequest) -> ApiResponse:
    """Resolve tokens to records and fields."""
    records = call.records(RECORDS_SCHEMA, Act.READ)
    content = request.checked_members(call.content, ("tokens",), ("tokens",))
    tokens = request.strings(content["tokens"], "/tokens", _TOKENS)
    resolved = [
        {"token": one.token, **_named(records, one.record), "field": one.name, "newest": one.newest}
        for one in await resolve_rehashed(records, tokens)
        if _sees(records, one.name)
    ]
    return wire.json_answer(200, {"data": resolved, "meta": {"count": len(resolved)}})


async def begin_rehash(call: ApiRequest) -> ApiResponse:
    """A rehash of all records."""
    content = request.checked_members(call.content, ("dtk", "rules", "forget"))
    forget = content.get("forget", False)
    if not isinstance(forget, bool):
        raise request.invalid("/forget", "Has to be true or false.")
    if "rules" in content or not forget:
        dtk, rules = _read({"dtk": None, "rules": None, **content})
        _refuse_unseen(call.records(RECORDS_SCHEMA, Act.READ, Act.WRITE), rules)
        wanted = RehashRequest(dtk, msgspec.Raw(wire.encode_json(content["rules"])), forget)
    else:
        call.records(RECORDS_SCHEMA, Act.WRITE)
        wanted = RehashRequest("", msgspec.Raw(b"{}"), forget)
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    return wire.json_answer(202, _run_json(await _job(call).begin(wanted)))


async def state(call: ApiRequest) -> ApiResponse:
    """Return the progress of the running rehash, or the outcome of the last one."""
    return wire.json_answer(200, _run_json(_job(call).last))


async def stop_rehash(call: ApiRequest) -> ApiResponse:
    """The end of a rehash of all records, before it is through."""
    return wire.json_answer(200, _run_json(await _job(call).stop()))


async def tokens(call: ApiRequest) -> ApiResponse:
    """Yield the tokens of all records, page by page."""
    records, limit = call.records(RECORDS_SCHEMA, Act.READ), request.page_limit(call)
    if (waiting := await approval_pending(call)) is not None:
        return waiting

    def render(record: Record) -> dict[str, Any] | None:
        fields = newest_tokens(records, record, lambda name: _sees(records, name))
        return {**_named(records, record), "fields": fields} if fields else None

    asker = PageAsker(render, call.principal.client)
    page = await export(records, call.query.get("next"), limit, asker, call.services.limits)
    data = [one for one in page.records if one is not None]
    return wire.json_answer(200, {"data": data, "meta": {"count": len(data), "next": page.next}})


# ---------------------------------------------------------------------- parts


def _read(content: dict[str, Any]) -> tuple[str, RehashRules]:
    faults = ValueFaults(1000)
    dtk, rules = read_dtk(content["dtk"], faults), read_rules(content["rules"], faults)
    if faults:
        raise faults.error(Code.INVALID_INPUT, "The rehash cannot be read.")
    return dtk, rules


def _sees(records: Records, name: str) -> bool:
    """Whether the caller sees the value behind a rule of this name in the clear."""
    shows_value = records.rights.shows_value
    field_name = ALIASES.get(name, name)
    if name == ALL_OTHERS:
        return records.rights.view is None
    return (
        shows_value(field_name)
        if any(field.name == field_name for field in records.schema.fields)
        else shows_value(BODY)
    )


def _refuse_unseen(records: Records, rules: RehashRules) -> None:
    unseen = [step(name) for name in rules if not _sees(records, name)]
    faults = [
        Detail(f"/rules{pointer}", "Is not shown to this client as it is.") for pointer in unseen
    ]
    if not records.rights.shows_value(PROFILE_KEY):
        faults.append(Detail("/keys", "Profile keys are not shown to this client as they are."))
    if faults:
        raise VaultError(
            Code.INVALID_INPUT,
            "The access policies of this client hide what is to be rehashed.",
            tuple(faults),
        )


def _job(call: ApiRequest) -> RehashJob:
    job = call.space.rehash
    if job is None:
        raise VaultError(Code.INTERNAL, "This environment carries out no rehashes of all records.")
    return job


def _named(records: Records, record: Record) -> dict[str, Any]:
    """The keys of a record, as the caller may see them."""
    return {KEY: record.key, PROFILE_KEY: records.rights.render(record).fields.get(PROFILE_KEY)}


def _rehashed(records: Records, rehashed: Iterable[RehashedRecord]) -> ApiResponse:
    data = [{**_named(records, one.record), "fields": one.fields} for one in rehashed]
    return wire.json_answer(200, {"data": data, "meta": {"count": len(data)}})


def _run_json(run: RehashRun | None) -> dict[str, Any]:
    """Render a run for administrators, or the absence of any."""
    if run is None:
        return {"state": "none"}
    return {
        "run": run.id,
        "state": str(run.state),
        "total": run.total,
        "done": run.done,
        "failed": run.failed,
        "unreadable": run.unreadable,
        "began_at": to_wire(run.began_at),
        "ended_at": None if run.ended_at is None else to_wire(run.ended_at),
    }

"""Oversight of the vault: audit log, operations, approvals, emergency roles and honeytokens."""

from functools import partial
from typing import Any

import msgspec

from proxy.api import request, wire
from proxy.api.access import admit, approval_json, approval_pending, not_admin
from proxy.api.admin import check_root, emergency_json
from proxy.api.connection import LOCAL_PREFIX
from proxy.api.context import ApiRequest, ApiResponse
from proxy.audit import Auditor, LineFilter
from proxy.audit.events import EventKind
from proxy.audit.services import Honeytoken, Honeytokens
from proxy.auth.approvals import Approval, Approvals
from proxy.auth.clients import Emergency
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model.policy import Act, is_purpose
from proxy.model.record import DEFAULT
from proxy.model.values import Unfit
from proxy.model.values import instant as read_instant
from proxy.offload import in_thread
from proxy.vault.records import Records, all_visible


async def list_audit(call: ApiRequest) -> ApiResponse:
    """A page of lines of the audit log, oldest first; clients of one environment read its own."""
    auditor = await _auditor(call)
    limit = request.query_number(call, "limit", 100, 1, call.services.limits.find_maximum)
    after = request.query_number(call, "after", 0, 0, 2**53)
    wanted = _filter(call, auditor)
    call.audit.subject = wanted.by or wanted.record or None
    page = await _read(lambda: auditor.search(wanted, after, limit))
    meta = {"count": len(page.lines), "limit": limit, "after": page.after, "more": page.more}
    return wire.pages([line.rstrip(b"\n") for line in page.lines], meta)


async def audit_findings(call: ApiRequest) -> ApiResponse:
    """Whether every line of the audit log is there, unchanged and in its place."""
    check_root(call)
    auditor, verifying = await _auditor(call), call.services.audit.verifying
    if verifying.locked():
        raise VaultError(Code.CONFLICT, "The log is being verified already: wait for its end.")
    async with verifying:
        findings = await _read(auditor.verify)
        await _read(partial((await _auditor(call)).compare, findings))
    return wire.json_answer(200, findings.as_json())


async def reload_files(call: ApiRequest) -> ApiResponse:
    """Load rules, schemas, policies, certificates and the database of countries again."""
    check_root(call)
    if call.services.reload is None:
        raise TypeError("these services load nothing again")
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    states = await call.services.reload()
    checks = {what: "ok" if fault is None else f"stale: {fault}" for what, fault in states.items()}
    return wire.json_answer(200, {"checks": checks})


async def list_approvals(call: ApiRequest) -> ApiResponse:
    """A page of the requests that wait or were decided: one's own, and those one may decide."""
    span, caller = request.page_span(call), call.principal
    approvals = [
        one
        for one in _approvals(call).listed()
        if one.client == caller.client or _why_not(call, one) is None
    ]
    return wire.listing(approvals, span, approval_json)


async def decide_approval(call: ApiRequest) -> ApiResponse:
    """Approve or refuse another caller's request."""
    decision = request.checked_members(call.content, ("decision",), ("decision",))["decision"]
    if decision not in ("approve", "refuse"):
        detail = Detail("/decision", "Has to be approve or refuse.")
        raise VaultError(Code.INVALID_INPUT, "The decision cannot be read.", (detail,))
    approvals, ident = _approvals(call), call.path["approval_id"]
    if (reason := _why_not(call, approvals.find(ident))) is not None:
        raise not_admin(reason)
    decided = await approvals.decide(ident, call.principal.client, approve=decision == "approve")
    return wire.json_answer(200, approval_json(decided))


def _why_not(call: ApiRequest, one: Approval) -> str | None:
    """Explain why the caller may not decide about a request; ``None`` if it may.

    It has to be another hand than the one that asks, with the same right.
    """
    caller, clients = call.principal, call.services.auth.clients
    own, other = clients.find(caller.client), clients.find(one.client)
    if one.environment != caller.environment:
        return "The request is of another environment."
    if caller.client.startswith(LOCAL_PREFIX):
        return "A client has to decide: the local socket does not tell who acts."
    if other is None or other.secret_holder == (
        caller.client if own is None else own.secret_holder
    ):
        return "Nobody approves a request of his own, nor by a client that the same hand made."
    operation = next(item for item in call.services.operations if item.name == one.operation)
    asker, _ = other.principal_until(one.created_at, one.ends_at)  # an emergency counts, too
    if caller.admin < asker.admin or (caller.policies and not asker.policies):
        return "This client may less than the one that asks."
    try:
        admit(operation, caller)
        if operation.approval == "exports":
            schema = operation.schema or msgspec.json.decode(one.request)["path"].get("schema")
            if schema is not None:
                call.rights_to(schema).need(Act.READ)
            elif caller.policies and set(caller.policies) != set(asker.policies):
                return "This client may see other records than the one that asks."
    except VaultError as error:
        return error.message
    return None


def _approvals(call: ApiRequest) -> Approvals:
    if call.services.approvals is None:
        raise TypeError("these services know no approvals")
    return call.services.approvals


async def take_role(call: ApiRequest) -> ApiResponse:
    """Grant a prepared emergency role at once, with an alarm, until it expires."""
    most = call.services.emergency_lifetime // 60_000
    content = request.checked_members(
        call.content, ("role", "reason", "minutes"), ("role", "reason")
    )
    role, reason, minutes = content["role"], content["reason"], content.get("minutes", most)
    client = call.services.auth.clients.find(call.principal.client)
    faults = []
    if not isinstance(reason, str) or not is_purpose(reason):
        faults.append(Detail("/reason", "Has to be 1 to 200 visible characters."))
    if not isinstance(minutes, int) or isinstance(minutes, bool) or not 1 <= minutes <= most:
        faults.append(Detail("/minutes", f"Has to be a whole number from 1 to {most}."))
    if faults:
        raise VaultError(Code.INVALID_INPUT, "The role cannot be taken so.", tuple(faults))
    if client is None or role not in client.emergency_roles:
        raise not_admin("This client was not prepared for that role (emergency_roles).")
    emergency = Emergency(role, reason, _now(call) + minutes * 60_000)
    call.audit.purpose, call.audit.subject = reason, role
    about = {**call.audit.about(None, None), "subject": role}
    alarm = partial(call.services.audit.services.emergency, **about)
    await call.services.auth.clients.take(client.id, emergency, alarm)
    return wire.json_answer(201, emergency_json(emergency))


async def end_role(call: ApiRequest) -> ApiResponse:
    """End the role before its time; also where there is none any more."""
    clients = call.services.auth.clients
    client = clients.find(call.principal.client)
    if (
        client is not None
        and client.emergency is not None
        and client.emergency.ends_at > _now(call)
    ):
        over = msgspec.structs.replace(client.emergency, ends_at=_now(call))
        call.audit.subject = over.role
        await clients.take(client.id, over)
    return ApiResponse(204)


def _now(call: ApiRequest) -> int:
    return call.services.auth.clients.clock()


async def _read(work: Any) -> Any:
    try:
        return await in_thread(work)
    except OSError as error:
        text = f"The files of the audit log cannot be read ({error.strerror})."
        raise VaultError(Code.AUDIT_DOWN, text) from None


async def _auditor(call: ApiRequest) -> Auditor:
    if call.services.auditor is None:
        raise TypeError("these services have no audit log")
    return await call.services.auditor()


def _filter(call: ApiRequest, auditor: Auditor) -> LineFilter:
    """Return the filter that the query describes. Raises ``VaultError`` (INVALID_INPUT)."""
    query, faults = call.query, list[Detail]()

    def instant(name: str) -> str:
        text = query.get(name)
        if text is None:
            return ""
        try:
            return to_wire(read_instant(text))
        except Unfit as unfit:
            faults.append(Detail(name, str(unfit)))
            return ""

    own = call.principal.environment
    environment = query.get("environment_id", "" if own == DEFAULT else own)
    if own not in (DEFAULT, environment):
        faults.append(Detail("environment_id", "Is not the environment of the access token."))
    if query.get("event", EventKind.LOG) not in tuple(EventKind):
        faults.append(Detail("event", f"Has to be one of {', '.join(EventKind)}."))
    if ("record" in query) != ("schema" in query):
        faults.append(Detail("record", "A record is named by its key and its schema."))
    wanted = LineFilter(
        instant("from"), instant("to"), query.get("by", ""), query.get("event", ""), environment
    )
    if faults:
        raise request.misfit_query(*faults)
    if "record" not in query:
        return wanted
    record = auditor.record_id(environment or DEFAULT, query["schema"], query["record"])
    return wanted._replace(record=record, environment=environment or DEFAULT)


# Handlers that mark records as honeytokens: there is no reason to look at them, so doing it raises
# an alarm.


async def put_honeytoken(call: ApiRequest) -> ApiResponse:
    """Mark a record that is there."""
    schema, key = call.path["schema"], call.path["record_key"]
    records = _marked_records(call)
    row = (await records.by_key([key])).get(key)
    if row is None or not await all_visible(records, [key]):
        raise VaultError(Code.NOT_FOUND, f"There is no such record of {records.name!r}.")
    environment, rid = call.principal.environment, row.rid
    await _honeytokens(call).add(Honeytoken(_record_id(call), environment, schema, rid))
    return ApiResponse(204)


async def get_honeytoken(call: ApiRequest) -> ApiResponse:
    """Whether a record is marked, as far as the caller sees it."""
    marked = _record_id(call) in _honeytokens(call) and await _may_know(call)
    return wire.json_answer(200, {"bait": marked})


async def delete_honeytoken(call: ApiRequest) -> ApiResponse:
    """Make it an ordinary record again, also one that is gone if the caller sees all records."""
    if not await _may_know(call):
        return ApiResponse(204)
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    await _honeytokens(call).remove(_record_id(call))
    return ApiResponse(204)


def _marked_records(call: ApiRequest) -> Records:
    """The records of the path's schema as the caller sees them."""
    return call.records(call.path["schema"], *((Act.READ,) if call.principal.policies else ()))


async def _may_know(call: ApiRequest) -> bool:
    """Whether the caller may know that the record exists, or sees all records."""
    records = _marked_records(call)
    limited = records.rights.rows or records.gate is not None
    return not limited or await all_visible(records, [call.path["record_key"]])


def _honeytokens(call: ApiRequest) -> Honeytokens:
    return call.services.audit.services.honeytokens


def _record_id(call: ApiRequest) -> str:
    return call.services.audit.services.record_id(
        call.principal.environment, call.path["schema"], call.path["record_key"]
    )

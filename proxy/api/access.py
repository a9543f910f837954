"""Authentication of a request by its access token (RFC 6750), only in ``Authorization``."""

import os
import pwd
import socket
import struct
from collections.abc import Container
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec
from aiohttp import web

from proxy.api import request as shapes
from proxy.api import wire
from proxy.api.connection import LOCAL, LOCAL_PREFIX, NOT_LOCAL
from proxy.api.context import Access, ApiOperation, ApiRequest, ApiResponse
from proxy.auth.access_tokens import TokenIssuer
from proxy.auth.approvals import Approval, ApprovalRequest
from proxy.auth.external_issuer import External
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError, coded
from proxy.model import read_policy
from proxy.model.policy import AccessPolicy, misfits, refuse_misfit, write_policy
from proxy.model.record import DEFAULT, DEFAULTS
from proxy.model.rights import Principal
from proxy.model.schema import Schema
from proxy.net.outbound import EgressPolicy
from proxy.telemetry import logs
from proxy.vault.schemas import Catalog

_CHALLENGE: Final = 'Bearer realm="domicile"'


class BearerAccess:
    """The check of guarded operations: a bearer token, ours or an issuer's, to its principal."""

    def __init__(self, tokens: TokenIssuer, external: External | None = None) -> None:
        self._tokens, self._external = tokens, external

    async def __call__(self, request: web.Request) -> Principal:
        """The principal of a request.

        Raises ``VaultError`` (UNAUTHORIZED) with the challenge of RFC 6750 section 3, or
        (BAD_REQUEST) for two tokens at once.
        """
        tokens, external = self._tokens, self._external
        sent = request.headers.getall("Authorization", ())
        if len(sent) > 1:
            raise _refused(
                Code.BAD_REQUEST, "Authorization stands more than once.", "invalid_request"
            )
        scheme, _, token = sent[0].partition(" ") if sent else ("", "", "")
        if (environments := request.app.get(LOCAL, NOT_LOCAL)) is not NOT_LOCAL:
            return _local(request, token if scheme == "Local" else DEFAULT, environments)
        if scheme.lower() != "bearer":
            raise _refused(
                Code.UNAUTHORIZED, "An access token is needed: ask for one at /oauth2/token."
            )
        token = token.strip(" ")
        try:
            return (
                tokens.principal(token)
                if external is None
                else await _either(token, tokens, external)
            )
        except coded(Code.UNAUTHORIZED) as error:
            raise _refused(error.code, error.message, "invalid_token") from None

    def principal_of(self, token: str) -> Principal | None:
        """The principal of a token that nobody else has to be asked about."""
        if self._external is not None:
            return self._external.remembered(token)
        try:
            return self._tokens.principal(token)
        except VaultError:
            return None


def _local(request: web.Request, environment: str, environments: Container[str]) -> Principal:
    """An administrator by user id: root, or the user of the service, who can read its key file.

    The kernel authenticates the process.
    """
    uid = _peer_user(request)
    if uid not in (0, os.geteuid()):
        raise _refused(Code.FORBIDDEN, "The socket is for the user of the service and for root.")
    return _administrator(uid, environment, environments)


class OperatorAccess:
    """The access of commands on a stopped vault: whoever runs one has the key file."""

    def __init__(self, environments: Container[str]) -> None:
        self._environments = environments

    async def __call__(self, request: web.Request) -> Principal:
        """An administrator of the environment that the request names."""
        environment = request.headers.get("Authorization", "").partition(" ")[2] or DEFAULT
        return _administrator(os.geteuid(), environment, self._environments)


def _administrator(uid: int, environment: str, environments: Container[str]) -> Principal:
    if environment not in environments:
        raise VaultError(Code.NOT_FOUND, "There is no environment of that id.")
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Principal(f"{LOCAL_PREFIX}{name}", environment, admin=True)


def _peer_user(request: web.Request) -> int:
    """The user id of the process at the other end of a Unix socket; -1 if unknown."""
    end = None if request.transport is None else request.transport.get_extra_info("socket")
    if end is None or end.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return -1
    layout = struct.Struct("3i")
    content = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    _, uid, _ = layout.unpack(content)
    return int(uid)


async def _either(token: str, tokens: TokenIssuer, external: External) -> Principal:
    """Resolve a token of ours or of the external issuer; a remembered one costs a look-up."""
    principal = external.remembered(token)
    if principal is not None:
        return principal
    try:
        return tokens.principal(token)
    except VaultError:
        return await external.principal(token)


def not_admin(
    text: str = (
        "This operation is for administrators: clients that were made with the right to administer."
    ),
) -> VaultError:
    """The refusal of an operation that only administrators may call."""
    return _refused(Code.FORBIDDEN, text, "insufficient_scope")


def admit(operation: ApiOperation, principal: Principal) -> None:
    """Raise ``VaultError(FORBIDDEN)`` unless the client may call the operation."""
    if operation.access is Access.ADMIN and not principal.has(*operation.roles):
        raise not_admin()
    if operation.access is Access.CLIENT and principal.roles:
        raise not_admin("A client with a role looks after the vault, and sees no records.")


#: Parameters of an export's page: an approval is for all of them.
_PAGE: Final = ("limit", "next")

_canonical = msgspec.json.Encoder(decimal_format="number", order="deterministic").encode


async def approval_pending(call: ApiRequest) -> ApiResponse | None:
    """The answer to a request that waits for a second person; ``None``: it is carried out now.

    Called right before a change or a reveal, after every other check. An approval counts for the
    same purpose only. Raises ``VaultError``: APPROVAL_REFUSED, TOO_MANY_REQUESTS.
    """
    approvals, operation, caller = call.services.approvals, call.operation, call.principal
    if approvals is None or operation.approval not in approvals.kinds:
        return None
    query = {name: value for name, value in call.query.items() if name not in _PAGE}
    request = {"path": dict(call.path), "query": query, "content": _without_secrets(call.content)}
    if call.audit.purpose is not None:
        request["purpose"] = call.audit.purpose
    wanted = ApprovalRequest(operation.name, caller.environment, caller.client, _canonical(request))
    one = await approvals.ask(wanted, lasts=any(name in operation.query for name in _PAGE))
    if one.state == "approved":
        call.audit.approved = one.decided_by
        return None
    if one.state == "refused":
        text = f"Another client has refused this request ({one.id}), until {to_wire(one.ends_at)}."
        raise VaultError(Code.APPROVAL_REFUSED, text)
    call.audit.subject, call.waits = one.id, True
    return wire.json_answer(202, approval_json(one))


def _without_secrets(content: Any) -> Any:
    """The content with a digest in place of the caller's own key, which no one else needs."""
    if not isinstance(content, dict) or not isinstance(key := content.get("dtk"), str):
        return content
    return {**content, "dtk": f"sha256:{sha256(key.encode()).hexdigest()}"}


def approval_json(one: Approval) -> dict[str, Any]:
    """A request that waits or was decided, as its approvers see it."""
    return {
        "approval_id": one.id,
        "operation": one.operation,
        "client_id": one.client,
        "state": one.state,
        "decided_by": one.decided_by,
        "created_at": to_wire(one.created_at),
        "ends_at": to_wire(one.ends_at),
        "request": one.request,
    }


def _refused(code: Code, message: str, error: str | None = None) -> VaultError:
    refusal = VaultError(code, message)
    refusal.challenge = _CHALLENGE if error is None else f'{_CHALLENGE}, error="{error}"'
    return refusal


# Administration of access policies: ``/api/policies``, those of the caller's environment. What one
# may say, ``model.policy`` tells.

_log = logs.logger("access")


async def put_policy(call: ApiRequest) -> ApiResponse:
    """Store a policy: 201 for a new one, else 200; it applies from the next request."""
    name, catalog = call.path["policy"], call.space.catalog
    dry_run = shapes.query_flag(call, "dry_run", "true")
    policy = read_policy(name, call.content)
    refuse_misfit(policy, schema_of(catalog, policy), DEFAULTS, beyond(policy, egress_of(call)))
    _check_bounds(call, policy)
    if dry_run:
        return wire.json_answer(200, policy_json(policy, catalog, egress_of(call)))
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    new = await call.space.policies.put(policy)
    _log.info("an access policy was applied", source=name)
    return wire.json_answer(201 if new else 200, policy_json(policy, catalog, egress_of(call)))


async def get_policy(call: ApiRequest) -> ApiResponse:
    """Return a policy, with those of its parts that no longer fit its schema."""
    policy = call.space.policies.find(call.path["policy"])
    if policy is None:
        raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
    return wire.json_answer(200, policy_json(policy, call.space.catalog, egress_of(call)))


async def list_policies(call: ApiRequest) -> ApiResponse:
    """The policies by name, page by page."""
    render = partial(policy_json, catalog=call.space.catalog, egress=egress_of(call))
    return wire.listing(call.space.policies.listed(), shapes.page_span(call), render)


async def delete_policy(call: ApiRequest) -> ApiResponse:
    """Forget a policy under which no client is."""
    name = call.path["policy"]
    under = call.services.auth.clients.under(call.principal.environment, name)
    if under:
        raise VaultError(
            Code.POLICY_IN_USE,
            f"Clients are under this policy: {under}. Put new ones in their place, or end them, "
            "first.",
        )
    if (
        call.space.policies.find(name) is not None
        and (waiting := await approval_pending(call)) is not None
    ):
        return waiting
    await call.space.policies.remove(name)
    _log.info("an access policy was removed", source=name)
    return ApiResponse(204)


def _check_bounds(call: ApiRequest, policy: AccessPolicy) -> None:
    """Raise ``VaultError(FORBIDDEN)`` where a caller under policies would allow more than its own
    allow, be it to a client, which may be the caller itself.
    """
    own, environment = call.principal.policies, call.principal.environment
    clients = call.services.auth.clients.listed()
    under = (client.policies for client in clients if client.environment == environment)
    if own and (more := call.space.policies.raises(policy, own, under)):
        raise not_admin(f"The policy would allow more than this client may itself: {more}.")


def egress_of(call: ApiRequest) -> EgressPolicy | None:
    """Return the allowed addresses of the environment's filter endpoints; ``None``: any."""
    return None if call.principal.environment == DEFAULT else call.services.egress


def beyond(policy: AccessPolicy, egress: EgressPolicy | None) -> list[Detail]:
    """List the faults of where the filter endpoint of a policy is."""
    if policy.external_acl is None or egress is None or egress.lists(policy.external_acl):
        return []
    text = (
        "The operator has not allowed this host for other environments than default: see the "
        "setting acl.allow."
    )
    return [Detail("/external_acl", text)]


def policy_json(
    policy: AccessPolicy, catalog: Catalog, egress: EgressPolicy | None
) -> dict[str, Any]:
    """A policy as administrators see it; without ``faults`` its body can be sent back as it is."""
    schema = schema_of(catalog, policy)
    faults = (
        [Detail("/schema", "There is no schema of this name.")]
        if schema is None
        else misfits(policy, schema, DEFAULTS)
    )
    listed = [{"source": at, "detail": text} for at, text in (*faults, *beyond(policy, egress))]
    return {**write_policy(policy), **({"faults": listed} if listed else {})}


def schema_of(catalog: Catalog, policy: AccessPolicy) -> Schema | None:
    """The schema that the policy names, if there is one."""
    try:
        return catalog.records(policy.schema).schema
    except coded(Code.UNKNOWN_SCHEMA):
        return None

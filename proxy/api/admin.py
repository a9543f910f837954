"""Administration of clients: ``/api/clients``.

Administrators see and change clients of their own environment; those of ``default`` all.
"""

from collections.abc import Sequence
from typing import Any

from proxy.api import request, wire
from proxy.api.access import approval_pending, not_admin
from proxy.api.context import ApiRequest, ApiResponse, EnvironmentServices, KeyAdministration
from proxy.auth.clients import ADMINISTRATOR, Client, Emergency, Grant
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model.record import DEFAULT, DataKeys, Environment, KeyInventory, KeyKind
from proxy.model.rights import Role
from proxy.telemetry import logs

# Administration of environments: ``/api/environments``. Administrators of ``default`` make and
# remove them; others see their own.


async def create_environment(call: ApiRequest) -> ApiResponse:
    """A new environment, which can be used at once."""
    check_root(call)
    content = request.checked_members(call.content, ("name", "environment_id"), ("name",))
    name, ident = content["name"], content.get("environment_id")
    faults = [] if isinstance(name, str) else [Detail("/name", "Has to be a string.")]
    if ident is not None and not isinstance(ident, str):
        faults.append(Detail("/environment_id", "Has to be a string."))
    if faults:
        raise VaultError(
            Code.INVALID_INPUT, "The environment cannot be made as described.", tuple(faults)
        )
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    created = await call.services.environments.create(ident, name)
    call.audit.subject = created.id
    return wire.json_answer(201, environment_json(created))


async def list_environments(call: ApiRequest) -> ApiResponse:
    """Answer with the environments, oldest first; administrators of one see that one alone."""
    span, listed = request.page_span(call), call.services.environments.listed()
    environments = [one for one in listed if may_see_environment(call, one.id)]
    return wire.listing(environments, span, environment_json)


async def delete_environment(call: ApiRequest) -> ApiResponse:
    """End an environment with its clients and schemas, and with its records where asked to."""
    check_root(call)
    ident, records = call.path["environment_id"], request.query_flag(call, "records", "delete")
    there = any(one.id == ident for one in call.services.environments.listed())
    if there and (waiting := await approval_pending(call)) is not None:
        return waiting
    await call.services.environments.remove(ident, records=records)
    return ApiResponse(204)


def may_see_environment(call: ApiRequest, environment: str) -> bool:
    """Whether the caller, an administrator, looks after that environment."""
    return call.principal.environment in (environment, DEFAULT)


def environment_json(environment: Environment) -> dict[str, Any]:
    """An environment as administrators see it."""
    return {
        "environment_id": environment.id,
        "name": environment.name,
        "created_at": to_wire(environment.created_at),
    }


def check_root(call: ApiRequest) -> None:
    """Raise ``VaultError(FORBIDDEN)`` unless the caller administers ``default``."""
    if call.principal.environment != DEFAULT:
        raise not_admin(f"This operation needs a client of the environment {DEFAULT}.")


_log = logs.logger("access")


async def create_client(call: ApiRequest) -> ApiResponse:
    """Create a client and answer with its secret, which is not shown again."""
    members = (
        "name", "environment_id", "admin", "policies", "roles", "emergency_roles", "external_id",
    )  # fmt: skip
    content = request.checked_members(call.content, members, ("name", "environment_id"))
    name, environment, admin = (
        content["name"],
        content["environment_id"],
        content.get("admin", False),
    )
    faults = [
        Detail(f"/{member}", "Has to be a string.")
        for member in _TEXTS
        if not isinstance(content[member], str)
    ]
    external = content.get("external_id")
    if external is not None and not isinstance(external, str):
        faults.append(Detail("/external_id", "Has to be a string."))
    if not isinstance(admin, bool):
        faults.append(Detail("/admin", "Has to be true or false."))
    if isinstance(environment, str) and not may_see_environment(call, environment):
        faults.append(Detail("/environment_id", "Is not the environment of the access token."))
    policies, roles = content.get("policies", []), content.get("roles", [])
    emergency = content.get("emergency_roles", [])
    faults += _policy_faults(
        policies, call.services.spaces.get(environment) if not faults else None
    )
    faults += _role_faults("/roles", roles, tuple(Role))
    faults += _role_faults("/emergency_roles", emergency, (*Role, ADMINISTRATOR))
    if faults:
        raise VaultError(
            Code.INVALID_INPUT, "The client cannot be made as described.", tuple(faults)
        )
    if external is not None:
        _check_registrar(call)
    grant = Grant(admin, tuple(policies), tuple(map(Role, roles)), tuple(emergency))
    _check_bounds(call, environment, grant)
    for role in emergency:
        taken = Grant(admin=True) if role == ADMINISTRATOR else grant._replace(roles=(Role(role),))
        _check_bounds(call, environment, taken)
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    clients = call.services.auth.clients
    maker = clients.find(call.principal.client)
    # its maker has the secret, not the approver; a client of an external issuer has none
    apart = external is not None and call.audit.approved is not None
    origin = None if maker is None or apart else maker.secret_holder
    issued = await clients.create(name, environment, grant, external=external, origin=origin)
    call.audit.subject, call.audit.environment = issued.client.id, environment
    _log.info("a client was made", client=issued.client.id)
    proof = {} if external is not None else {"client_secret": issued.secret}
    return wire.json_answer(201, {"client_id": issued.client.id, **proof})


async def list_clients(call: ApiRequest) -> ApiResponse:
    """Answer with a page of the clients, oldest first, without their secrets."""
    span, wanted = request.page_span(call), call.query.get("environment_id")
    own = [
        client
        for client in call.services.auth.clients.listed()
        if may_see_environment(call, client.environment) and wanted in (None, client.environment)
    ]
    return wire.listing(own, span, client_json)


async def get_client(call: ApiRequest) -> ApiResponse:
    """Return a client."""
    return wire.json_answer(200, client_json(_own(call)))


async def delete_client(call: ApiRequest) -> ApiResponse:
    """End a client and every token of it, at once."""
    client = _own(call)
    may = {*client.roles, *client.emergency_roles}
    if client.emergency is not None:
        may.add(client.emergency.role)
    if not call.principal.admin and (client.admin or may - {*call.principal.roles}):
        raise not_admin("Administrators, and clients with other roles, are ended by others.")
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    await call.services.auth.clients.remove(client.id)
    _log.info("a client was ended", client=client.id)
    return ApiResponse(204)


def client_json(client: Client) -> dict[str, Any]:
    """A client as administrators see it."""
    return {
        "client_id": client.id,
        "name": client.name,
        "environment_id": client.environment,
        "admin": client.admin,
        "policies": list(client.policies),
        "roles": list(client.roles),
        "emergency_roles": list(client.emergency_roles),
        "emergency": None if client.emergency is None else emergency_json(client.emergency),
        "disabled": client.disabled,
        "created_at": to_wire(client.created_at),
        **({} if client.external is None else {"external_id": client.external}),
    }


def _check_registrar(call: ApiRequest) -> None:
    """Raise ``VaultError(FORBIDDEN)`` unless the caller may register an id of the external issuer.

    Where such ids are one namespace for all environments, an administrator of one could take an id
    meant for another, and would learn from refusals which ones others have.
    """
    if not call.services.auth.clients.apart and call.principal.environment != DEFAULT:
        raise not_admin(
            "Tokens of the external issuer name no environment here (auth.environment_claim: "
            "none), so an administrator of the"
            f" environment {DEFAULT} registers its clients."
        )


_TEXTS = ("name", "environment_id")

#: Policies that one client may be under.
_MOST_POLICIES = 32


def _policy_faults(names: Any, space: EnvironmentServices | None) -> list[Detail]:
    """List the faults of a client's policy names; ``space`` is its environment's, if any."""
    if (
        not isinstance(names, list)
        or len(names) > _MOST_POLICIES
        or not all(isinstance(item, str) for item in names)
    ):
        return [
            Detail(
                "/policies",
                f"Has to be an array of up to {_MOST_POLICIES} names of access policies.",
            )
        ]
    if space is None:
        return []
    unknown = [number for number, name in enumerate(names) if space.policies.find(name) is None]
    return [
        Detail(f"/policies/{number}", "There is no policy of this name in the environment.")
        for number in unknown
    ]


def _role_faults(at: str, roles: Any, names: Sequence[str]) -> list[Detail]:
    words = ", ".join(names)
    if not isinstance(roles, list):
        return [Detail(at, f"Has to be an array of some of {words}.")]
    return [
        Detail(f"{at}/{number}", f"Has to be one of {words}.")
        for number, role in enumerate(roles)
        if role not in names
    ]


def emergency_json(emergency: Emergency) -> dict[str, Any]:
    """A role that a client has taken, or had."""
    ends_at = to_wire(emergency.ends_at)
    return {"role": emergency.role, "reason": emergency.reason, "ends_at": ends_at}


def _check_bounds(call: ApiRequest, environment: str, grant: Grant) -> None:
    """Raise ``VaultError(FORBIDDEN)`` for a client that may more than the one that makes it."""
    caller = call.principal
    more = None
    if not caller.admin and (grant.admin or {*grant.roles} - {*caller.roles}):
        more = "administration, or a role that it does not have"
    elif not (caller.admin or grant.policies or grant.roles):
        more = "all records, for it has no policies"
    elif caller.policies and environment != caller.environment:
        more = "another environment"
    elif caller.policies and (grant.admin or Role.ACCESS_OFFICER in grant.roles or not grant.roles):
        more = (
            call.space.policies.excess(caller.policies, grant.policies)
            if grant.policies
            else "all records, for it has no policies"
        )
    if more is not None:
        raise not_admin(f"The client could do more than the one that makes it: {more}.")


def _own(call: ApiRequest) -> Client:
    client = call.services.auth.clients.find(call.path["client_id"])
    if client is None or not may_see_environment(call, client.environment):
        raise VaultError(Code.NOT_FOUND, "There is no client of that id.")
    return client


# Administration of keys: ``/api/keys``, for administrators of ``default``.


async def list_keys(call: ApiRequest) -> ApiResponse:
    """Return the keys by id."""
    check_root(call)
    return wire.json_answer(200, keys_json(await _keys(call).listed()))


async def rotate_keys(call: ApiRequest) -> ApiResponse:
    """Another key of a kind from now on; the answer lists all."""
    check_root(call)
    content = request.checked_members(call.content, ("key", "environment_id"), ("key",))
    kind, environment = content["key"], content.get("environment_id", DEFAULT)
    faults = [] if kind in tuple(KeyKind) else [Detail("/key", f"Has to be {', '.join(KeyKind)}.")]
    if not isinstance(environment, str):
        faults.append(Detail("/environment_id", "Has to be a string."))
    elif "environment_id" in content and (faults or not KeyKind(kind).of_environment):
        text = "Only data keys and the roots of hashes and tokens belong to an environment."
        faults.append(Detail("/environment_id", text))
    if faults:
        raise VaultError(Code.INVALID_INPUT, "No key can be rotated as described.", tuple(faults))
    call.audit.subject = kind
    if (waiting := await approval_pending(call)) is not None:
        return waiting
    await _keys(call).rotate(KeyKind(kind), environment)
    call.audit.environment = environment
    return wire.json_answer(200, keys_json(await _keys(call).listed()))


def _keys(call: ApiRequest) -> KeyAdministration:
    keys = call.services.keys
    if keys is None:
        raise TypeError("these services have no keys")
    return keys


def keys_json(keys: KeyInventory) -> dict[str, Any]:
    """All keys as administrators see them."""
    return {
        "master": {"key_id": keys.master},
        "signing": [{"key_id": kid, "signs": kid == keys.signing[-1]} for kid in keys.signing],
        "audit": [{"key_id": key, "writes": key == keys.audit[-1]} for key in keys.audit],
        "data": [_data_keys_json(one) for one in keys.environments],
    }


def _data_keys_json(one: DataKeys) -> dict[str, Any]:
    return {
        "environment_id": one.environment,
        "keys": [
            {**_key_head(one, key), "seals": key == one.keys[-1], "used_by": _used(one, key)}
            for key in one.keys
        ],
        "wrapped_by": one.wrapped_by,
        "sealings": one.sealings,
        "reseal": {
            "state": one.reseal,
            "records": one.resealed,
            "versions": one.versions,
            "contents": one.contents,
            "unreadable": one.unreadable,
            "blocked_by": list(one.blocked_by),
        },
        "hash": {
            "keys": _roots_json(one, one.hash_roots),
            "rehash": {
                "state": one.rehash,
                **one.rehashed,
                "left": dict(one.rehash_left),
                "blocked_by": list(one.rehash_blocked_by),
            },
        },
        "token": {"keys": _roots_json(one, one.token_roots)},
    }


def _roots_json(one: DataKeys, roots: Sequence[str]) -> list[dict[str, Any]]:
    return [{**_key_head(one, root), "makes": root == roots[-1]} for root in roots]


def _key_head(one: DataKeys, key: str) -> dict[str, Any]:
    """The id of a key or root, and when it was made, if that was written down."""
    at = one.created_at.get(key)
    return {"key_id": key, "created_at": None if at is None else to_wire(at)}


def _used(one: DataKeys, key: str) -> dict[str, int] | None:
    """Count the data that still needs an older key, as of the last complete scan."""
    if key == one.keys[-1] or one.used is None or key not in one.used:
        return None
    return dict(one.used[key])

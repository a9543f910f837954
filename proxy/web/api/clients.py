"""Administration of clients: ``/api/clients``. Administrators see and change those of their own environment; those of ``default`` all."""

from typing import Any

from proxy.auth.clients import Client
from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model.environment import DEFAULT
from proxy.telemetry import logs
from proxy.web.api import shapes, wire
from proxy.web.api.access import not_admin
from proxy.web.api.environments import sees
from proxy.web.api.operation import Answer, Call, Space

_log = logs.logger("access")


async def create(call: Call) -> Answer:
    """A new client; its secret is told here and never again."""
    known = ("name", "environment_id", "admin", "policies", "external_id")
    content = shapes.members(call.content, known, ("name", "environment_id"))
    name, environment, admin = content["name"], content["environment_id"], content.get("admin", False)
    faults = [Detail(f"/{member}", "Has to be a string.") for member in _TEXTS if not isinstance(content[member], str)]
    external = content.get("external_id")
    if external is not None and not isinstance(external, str):
        faults.append(Detail("/external_id", "Has to be a string."))
    if not isinstance(admin, bool):
        faults.append(Detail("/admin", "Has to be true or false."))
    if isinstance(environment, str) and not sees(call, environment):
        faults.append(Detail("/environment_id", "Is not the environment of the access token."))
    policies = content.get("policies", [])
    faults += _policy_faults(policies, call.services.spaces.get(environment) if not faults else None)
    if faults:
        raise VaultError(Code.INVALID_INPUT, "The client cannot be made as described.", tuple(faults))
    if external is not None:
        _check_registrar(call)
    made = await call.services.auth.clients.create(name, environment, admin=admin, policies=policies, external=external)
    _log.info("a client was made", client=made.client.id)
    proof = {} if external is not None else {"client_secret": made.secret}
    return wire.answer(201, {"client_id": made.client.id, **proof})


async def listing(call: Call) -> Answer:
    """The clients, oldest first, page by page; of one environment where the caller says so; never a secret."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    asked = call.query.get("environment_id")
    own = [
        client
        for client in call.services.auth.clients.listed()
        if sees(call, client.environment) and asked in (None, client.environment)
    ]
    return wire.page(map(shown, own[offset : offset + limit]), limit, offset, len(own))


async def one(call: Call) -> Answer:
    """One client."""
    return wire.answer(200, shown(_own(call)))


async def remove(call: Call) -> Answer:
    """End a client and every token of it, at once."""
    client = _own(call)
    await call.services.auth.clients.remove(client.id)
    _log.info("a client was ended", client=client.id)
    return Answer(204)


def shown(client: Client) -> dict[str, Any]:
    """A client as administrators see it."""
    return {
        "client_id": client.id,
        "name": client.name,
        "environment_id": client.environment,
        "admin": client.admin,
        "policies": list(client.policies),
        "disabled": client.disabled,
        "created_at": to_wire(client.created_at),
        **({} if client.external is None else {"external_id": client.external}),
    }


def _check_registrar(call: Call) -> None:
    """Raise ``VaultError(FORBIDDEN)`` where an id of the external issuer is one in all environments, and the caller looks after one of them.

    It could take an id that is meant for another environment, and would learn from refusals which ones others have.
    """
    if not call.services.auth.clients.apart and call.principal.environment != DEFAULT:
        raise not_admin(
            "Tokens of the external issuer name no environment here (auth.environment_claim: none), so an administrator of the"
            f" environment {DEFAULT} registers its clients."
        )


_TEXTS = ("name", "environment_id")

#: Policies that one client may be under.
_MOST_POLICIES = 32


def _policy_faults(given: Any, space: Space | None) -> list[Detail]:
    """What is wrong with the policies of a client; ``space``: that of its environment, where that is known."""
    if not isinstance(given, list) or len(given) > _MOST_POLICIES or not all(isinstance(item, str) for item in given):
        return [Detail("/policies", f"Has to be an array of up to {_MOST_POLICIES} names of access policies.")]
    if space is None:
        return []
    unknown = [number for number, name in enumerate(given) if space.policies.find(name) is None]
    return [Detail(f"/policies/{number}", "There is no policy of this name in the environment.") for number in unknown]


def _own(call: Call) -> Client:
    client = call.services.auth.clients.find(call.path["client_id"])
    if client is None or not sees(call, client.environment):
        raise VaultError(Code.NOT_FOUND, "There is no client of that id.")
    return client

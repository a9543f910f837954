"""Administration of environments: ``/api/environments``. Administrators of ``default`` make and remove them; others see their own."""

from typing import Any

from proxy.clock import to_wire
from proxy.errors import Code, Detail, VaultError
from proxy.model.environment import DEFAULT, Environment
from proxy.web.api import shapes, wire
from proxy.web.api.access import not_admin
from proxy.web.api.operation import Answer, Call


async def create(call: Call) -> Answer:
    """A new environment, which can be used at once."""
    check_root(call)
    content = shapes.members(call.content, ("name", "environment_id"), ("name",))
    name, ident = content["name"], content.get("environment_id")
    faults = [] if isinstance(name, str) else [Detail("/name", "Has to be a string.")]
    if ident is not None and not isinstance(ident, str):
        faults.append(Detail("/environment_id", "Has to be a string."))
    if faults:
        raise VaultError(Code.INVALID_INPUT, "The environment cannot be made as described.", tuple(faults))
    return wire.answer(201, shown(await call.services.environments.create(ident, name)))


async def listing(call: Call) -> Answer:
    """The environments, oldest first, page by page; for administrators of another one than ``default`` their own alone."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    seen = [found for found in call.services.environments.listed() if sees(call, found.id)]
    return wire.page(map(shown, seen[offset : offset + limit]), limit, offset, len(seen))


async def remove(call: Call) -> Answer:
    """End an environment with its clients and schemas, and with its records where the caller says so."""
    check_root(call)
    records = shapes.flag(call, "records", "delete")
    await call.services.environments.remove(call.path["environment_id"], records=records)
    return Answer(204)


def sees(call: Call, environment: str) -> bool:
    """Whether the caller, an administrator, looks after that environment."""
    return call.principal.environment in (environment, DEFAULT)


def shown(environment: Environment) -> dict[str, Any]:
    """An environment as administrators see it."""
    return {
        "environment_id": environment.id,
        "name": environment.name,
        "created_at": to_wire(environment.created_at),
    }


def check_root(call: Call) -> None:
    """Raise ``VaultError(FORBIDDEN)`` unless the caller administers ``default``."""
    if call.principal.environment != DEFAULT:
        raise not_admin(f"This operation needs an administrator of the environment {DEFAULT}.")

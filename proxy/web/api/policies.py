"""Administration of access policies: ``/api/policies``, those of the caller's environment. What one may say, ``model.policy`` tells."""

from typing import Any

from proxy.errors import Code, Detail, VaultError
from proxy.model.environment import DEFAULT
from proxy.model.limits import DEFAULTS
from proxy.model.policy import Policy, misfits, read_policy, refuse_misfit, write_policy
from proxy.model.schema import Schema
from proxy.telemetry import logs
from proxy.vault.catalog import Catalog
from proxy.web.api import shapes, wire
from proxy.web.api.operation import Answer, Call
from proxy.web.guard.reach import Reach

_log = logs.logger("access")


async def put(call: Call) -> Answer:
    """Put a policy in force: 201 for a new one, else 200; it counts with the next request."""
    name, catalog = call.path["policy"], call.space.catalog
    policy = read_policy(name, call.content)
    refuse_misfit(policy, schema_of(catalog, policy), DEFAULTS, beyond(policy, reach_of(call)))
    new = await call.space.policies.put(policy)
    _log.info("an access policy was put in force", source=name)
    return wire.answer(201 if new else 200, shown(policy, catalog, reach_of(call)))


async def one(call: Call) -> Answer:
    """One policy, with what of it does not fit its schema any more."""
    policy = call.space.policies.find(call.path["policy"])
    if policy is None:
        raise VaultError(Code.NOT_FOUND, "There is no policy of that name.")
    return wire.answer(200, shown(policy, call.space.catalog, reach_of(call)))


async def listing(call: Call) -> Answer:
    """The policies by name, page by page."""
    limits = call.services.limits
    limit = shapes.number(call, "limit", limits.find_default, 1, limits.find_maximum)
    offset = shapes.number(call, "offset", 0, 0, 2**31 - 1)
    found, catalog, reach = call.space.policies.listed(), call.space.catalog, reach_of(call)
    page = [shown(policy, catalog, reach) for policy in found[offset : offset + limit]]
    return wire.page(page, limit, offset, len(found))


async def remove(call: Call) -> Answer:
    """Forget a policy under which no client is."""
    name = call.path["policy"]
    under = call.services.auth.clients.under(call.principal.environment, name)
    if under:
        raise VaultError(
            Code.POLICY_IN_USE,
            f"Clients are under this policy: {under}. Put new ones in their place, or end them, first.",
        )
    await call.space.policies.remove(name)
    _log.info("an access policy was removed", source=name)
    return Answer(204)


def reach_of(call: Call) -> Reach | None:
    """Where the filter endpoints of the caller's environment may be; ``None``: anywhere."""
    return None if call.principal.environment == DEFAULT else call.services.reach


def beyond(policy: Policy, reach: Reach | None) -> list[Detail]:
    """What is wrong with where the filter endpoint of a policy is."""
    if policy.external_acl is None or reach is None or reach.names(policy.external_acl):
        return []
    text = "The operator has not allowed this host for other environments than default: see the setting acl.allow."
    return [Detail("/external_acl", text)]


def shown(policy: Policy, catalog: Catalog, reach: Reach | None) -> dict[str, Any]:
    """A policy as administrators see it; without ``faults`` its body can be sent back as it is."""
    schema = schema_of(catalog, policy)
    faults = (
        [Detail("/schema", "There is no schema of this name.")] if schema is None else misfits(policy, schema, DEFAULTS)
    )
    told = [{"source": at, "detail": text} for at, text in (*faults, *beyond(policy, reach))]
    return {**write_policy(policy), **({"faults": told} if told else {})}


def schema_of(catalog: Catalog, policy: Policy) -> Schema | None:
    """The schema that the policy names, if there is one."""
    try:
        return catalog.records(policy.schema).schema
    except VaultError as error:
        if error.code is not Code.UNKNOWN_SCHEMA:
            raise
        return None

"""A POST whose body may name another method, for which there is a rule: read whole and shown to the
rules once more.
"""

from collections.abc import Sequence

from proxy.gateway.ports import ActiveRules
from proxy.gateway.redacted import read_whole
from proxy.net.hop_headers import authority
from proxy.net.memory_budget import MemoryBudget
from proxy.net.request import RequestContext
from proxy.offload import SMALL, run_in_thread
from proxy.redactor import content_coding, method_override
from proxy.redactor.rules import BodyLimits, Endpoint


def concerned(rules: ActiveRules, incoming: RequestContext) -> bool:
    """Whether its body could make this POST one that a rule names, or another one.

    Frameworks look into no other bodies.
    """
    match = incoming.match
    if match is not None and not rules.contested(match, incoming.target):
        return False
    types = incoming.head.values(b"content-type")
    return method_override.possible(types) and (
        match is not None or rules.overridable(_host(incoming), incoming.target)
    )


async def match_overridden(
    rules: ActiveRules,
    incoming: RequestContext,
    endpoint: Endpoint,
    seconds: float,
    room: MemoryBudget,
) -> tuple[Endpoint, bytes]:
    """Read the body and match again by the method that it names, if any. Raises ``VaultError``.

    Sets the match of the request; gives its endpoint, which a reload may have changed meanwhile,
    and the body as it came.
    """
    limits = endpoint.limits
    if incoming.head.length:
        method_override.refuse_types(
            incoming.head.values(b"content-type"),
            content_coding.field(incoming.raw, b"content-encoding"),
        )
    body = await read_whole(incoming, limits, seconds, room)
    coded = content_coding.field(incoming.raw, b"content-encoding")
    long = len(body) > (SMALL if coded is None else 0)  # a short one may inflate to any size
    method = await run_in_thread(
        long, _named, incoming.head.values(b"content-type"), body, coded, limits
    )
    if method is not None:
        head = (incoming.head.method, _host(incoming), incoming.target, incoming.raw)
        endpoint, rule = rules.match(*head, method)
        incoming.find(rule)
        incoming.endpoint = endpoint
    return endpoint, body


def _named(
    types: Sequence[str], body: bytes, coded: bytes | None, limits: BodyLimits
) -> str | None:
    """The method that a body names in whatever coding it is. Raises ``VaultError``."""
    plain, _ = content_coding.inflate(body, coded, limits.inflated)
    return method_override.override_method(types, plain, limits.form_fields)


def _host(incoming: RequestContext) -> str:
    return authority(incoming.target, incoming.head.host)

"""A POST whose body may name another method, for which there is a rule: read whole and shown to the rules once more."""

from collections.abc import Sequence

from proxy.offload import SMALL, run
from proxy.redactor import override
from proxy.redactor.codecs import coding
from proxy.redactor.rules import Endpoint, Limits
from proxy.web.forwarding import authority
from proxy.web.incoming import Incoming
from proxy.web.matched import read_whole
from proxy.web.ports import Rules
from proxy.web.room import Room


def concerned(rules: Rules, incoming: Incoming) -> bool:
    """Whether its body could make this POST one that a rule names, or another one. Frameworks look into no other bodies."""
    match = incoming.match
    if match is not None and not rules.contested(match, incoming.target):
        return False
    types = incoming.head.values(b"content-type")
    return override.possible(types) and (match is not None or rules.overridable(_host(incoming), incoming.target))


async def look(
    rules: Rules, incoming: Incoming, endpoint: Endpoint, seconds: float, room: Room
) -> tuple[Endpoint, bytes]:
    """Read the body and match again by the method that it names, if any. Raises ``VaultError``.

    Sets the match of the request; gives its endpoint, which a reload may have changed meanwhile, and the body as it came.
    """
    limits = endpoint.limits
    if incoming.head.length:
        override.refuse_types(incoming.head.values(b"content-type"), coding.field(incoming.raw, b"content-encoding"))
    body = await read_whole(incoming, limits, seconds, room)
    coded = coding.field(incoming.raw, b"content-encoding")
    long = len(body) > (SMALL if coded is None else 0)  # a short one may inflate to any size
    method = await run(long, _named, incoming.head.values(b"content-type"), body, coded, limits)
    if method is not None:
        head = (incoming.head.method, _host(incoming), incoming.target, incoming.raw)
        endpoint, rule = rules.match(*head, method)
        incoming.find(rule)
        incoming.endpoint = endpoint
    return endpoint, body


def _named(types: Sequence[str], body: bytes, coded: bytes | None, limits: Limits) -> str | None:
    """The method that a body names in whatever coding it is. Raises ``VaultError``."""
    plain, _ = coding.inflate(body, coded, limits.inflated)
    return override.named(types, plain, limits.form_fields)


def _host(incoming: Incoming) -> str:
    return authority(incoming.target, incoming.head.host)

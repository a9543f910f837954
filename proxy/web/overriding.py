"""A POST whose body may name another method, for which there is a rule: read whole and shown to the rules once more."""

from proxy.redactor import override
from proxy.redactor.codecs import coding
from proxy.redactor.rules import Endpoint
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
    plain, _ = coding.inflate(body, coding.field(incoming.raw, b"content-encoding"), limits.inflated)
    method = override.named(incoming.head.values(b"content-type"), plain, limits.form_fields)
    if method is not None:
        head = (incoming.head.method, _host(incoming), incoming.target, incoming.raw)
        endpoint, rule = rules.match(*head, method)
        incoming.find(rule)
        incoming.endpoint = endpoint
    return endpoint, body


def _host(incoming: Incoming) -> str:
    return authority(incoming.target, incoming.head.host)

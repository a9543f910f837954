"""Bodies held whole: of matched requests, of those that may name another method, of answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proxy.errors import Code, VaultError
from proxy.gateway.ports import ActiveRules
from proxy.net.hop_headers import authority
from proxy.net.http1.body import BodyQueue
from proxy.net.http1.fields import BadMessageError
from proxy.net.http1.head import LENGTH
from proxy.net.memory_budget import BodyRate, MemoryBudget, Reservation
from proxy.net.reply import UpstreamResponse
from proxy.net.response import RequestContext
from proxy.offload import LARGE, SMALL, in_thread, run_in_thread
from proxy.redactor import content_coding, method_override
from proxy.redactor.message import header
from proxy.redactor.rules import BodyLimits, Endpoint


@dataclass(frozen=True, slots=True)
class BodyTimeouts:
    """Time limits for a caller, in seconds."""

    body: float = 30.0  #: to send the whole body of a matched request
    write: float = 60.0  #: to take the next bytes of its answer
    room: float = 5.0  #: to wait for room in memory


class BodyBudgets(NamedTuple):
    """Room for what matched exchanges hold.

    Answers have their own: requests that are under way must be able to end.
    """

    requests: MemoryBudget
    answers: MemoryBudget

    @classmethod
    def of(cls, size: int, timeouts: BodyTimeouts) -> "BodyBudgets":
        """Half of so many bytes for each direction."""
        return cls(MemoryBudget(size // 2, timeouts.room), MemoryBudget(size // 2, timeouts.room))


def complete_body(incoming: RequestContext, limits: BodyLimits, room: MemoryBudget) -> bytes | None:
    """Return the body if it is complete and fits, as nearly always; else ``None``.

    Then ``read_whole`` waits for it, or raises.
    """
    payload = incoming.payload
    if not payload.done or payload.total > limits.body:
        return None
    holding = Reservation(room)
    if not holding.at_once(payload.total):
        return None
    incoming.reservation = holding
    return payload.take()


async def read_whole(
    incoming: RequestContext, limits: BodyLimits, seconds: float, room: MemoryBudget
) -> bytes:
    """The whole body of a request, held in ``room`` until ``incoming.held`` is closed.

    Raises ``VaultError``: TOO_LARGE, REQUEST_TIMEOUT, BAD_REQUEST, OVERLOADED.
    """
    payload = incoming.payload
    if incoming.head.length > limits.body:
        raise _too_large(limits)
    try:
        holding = incoming.reservation = Reservation(room)
        if payload.done:
            body = payload.take()
            await holding.take(len(body))
        else:
            body = await _arriving(incoming, limits, holding, seconds)
    except TimeoutError:
        raise VaultError(
            Code.REQUEST_TIMEOUT, "The body of the request did not arrive in time."
        ) from None
    except BadMessageError:
        raise VaultError(
            Code.BAD_REQUEST, "The body of the request is not framed as its head says."
        ) from None
    if len(body) > limits.body:
        raise _too_large(limits)
    return body


async def _arriving(
    incoming: RequestContext, limits: BodyLimits, holding: Reservation, seconds: float
) -> bytes:
    """A body that is still on its way, asked for if its caller waits for that."""
    if waits(incoming):
        incoming.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    async with asyncio.timeout(seconds) as deadline:
        with holding.arriving(deadline) as rate:
            return await _collected(incoming.payload, limits, holding, rate)


def waits(incoming: RequestContext) -> bool:
    """Whether the caller waits for 100 Continue before its body (RFC 9110 section 10.1.1)."""
    return (
        incoming.minor == 1 and (header(incoming.raw, b"expect") or b"").lower() == b"100-continue"
    )


def comes_soon(incoming: RequestContext) -> bool:
    """Whether the rest of a body is of a known length, and its caller sends it."""
    head = incoming.head
    return bool(head.length) and not (head.chunked or head.upgrade or waits(incoming))


async def _collected(
    payload: BodyQueue, limits: BodyLimits, holding: Reservation, rate: BodyRate
) -> bytes:
    clock = asyncio.get_running_loop().time
    pieces: list[bytes] = []
    while True:
        rate.wait(clock())
        piece = await payload.read()
        rate.received(len(piece), clock())
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        if payload.total > limits.body:
            raise _too_large(limits)
        await holding.take(len(piece))


def _too_large(limits: BodyLimits) -> VaultError:
    return VaultError(Code.TOO_LARGE, f"The body is over the limit of {limits.body} bytes.")


async def collect(
    reply: UpstreamResponse, whole: bytes | None, limit: int, holding: Reservation
) -> bytes | None:
    """Read the whole body of an answer; ``None`` as soon as it exceeds the limit.

    ``whole``: it was taken from the reply before.

    Raises ``UpstreamFault``, or ``VaultError`` (OVERLOADED).
    """
    if whole is not None:
        if len(whole) > limit:
            return None
        await holding.take(len(whole))
        return whole
    declared = reply.head.length if reply.framing is LENGTH else 0
    if declared > limit:
        return None
    await holding.take(declared)
    pieces = []
    size = 0
    while piece := await reply.read():
        size += len(piece)
        if size > limit:
            return None
        if not declared:
            await holding.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


async def inflated(body: bytes, coded: bytes | None, limit: int) -> tuple[bytes, tuple[str, ...]]:
    """A body without its codings, and those, on another thread unless it is known to be short.

    Raises as ``content_coding.inflate``.
    """
    if len(body) <= SMALL:
        try:
            return content_coding.inflate(body, coded, min(limit, LARGE // 4))
        except VaultError as error:
            if error.code is not Code.TOO_LARGE or limit <= LARGE // 4:
                raise
    return await in_thread(content_coding.inflate, body, coded, limit)


# A POST whose body may name another method, for which there is a rule: read whole and shown to the
# rules once more.


def may_override_method(rules: ActiveRules, incoming: RequestContext) -> bool:
    """Whether its body could make this POST one that a rule names, or another one.

    Frameworks look into no other bodies.
    """
    match = incoming.match
    if match is not None and not rules.may_change_operation(match, incoming.target):
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

    Set the match of the request; return its endpoint, which a reload may have changed, and the
    body.

    The body is returned as received.
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
        long, _method_of, incoming.head.values(b"content-type"), body, coded, limits
    )
    if method is not None:
        head = (incoming.head.method, _host(incoming), incoming.target, incoming.raw)
        endpoint, rule = rules.match(*head, method)
        incoming.find(rule)
        incoming.endpoint = endpoint
    return endpoint, body


def _method_of(
    types: Sequence[str], body: bytes, coded: bytes | None, limits: BodyLimits
) -> str | None:
    """The method that a body names in whatever coding it is. Raises ``VaultError``."""
    inflated, _ = content_coding.inflate(body, coded, limits.inflated)
    return method_override.override_method(types, inflated, limits.form_fields)


def _host(incoming: RequestContext) -> str:
    return authority(incoming.target, incoming.head.host)

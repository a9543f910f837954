"""Answers that are passed on event by event, with values in place of tokens."""

from time import perf_counter

from proxy.gateway import headers as rewriting
from proxy.gateway.ports import Exchange
from proxy.net import response
from proxy.net.hop_headers import answered
from proxy.net.http1.body import frame
from proxy.net.http1.head import NONE
from proxy.net.reply import UpstreamResponse
from proxy.net.request import RequestContext


async def restore_stream(
    incoming: RequestContext, reply: UpstreamResponse, exchange: Exchange, patience: float
) -> bool:
    """Pass a stream of events on as it comes and is taken; false: the answer is none.

    Raises ``UpstreamFault`` if the application breaks off, ``TimeoutError`` if the caller takes
    nothing for ``patience`` seconds, ``VaultError`` if an event must not pass.
    """
    head = reply.head
    fields = tuple(answered(head.headers, NONE, head.status, 0))
    stream = exchange.stream(head.status, fields)
    if stream is None:
        return False
    exchange.timing.answered = perf_counter()
    try:
        incoming.begin(head.status)
        chunked = incoming.minor == 1
        incoming.close = incoming.close or not chunked
        incoming.write(
            b"HTTP/1.1 %d %b\r\n%b%b%b\r\n"
            % (
                head.status,
                head.reason,
                b"".join(rewriting.answer_lines(fields, None, None)),
                b"Transfer-Encoding: chunked\r\n" * chunked,
                b"Connection: close\r\n" * incoming.close,
            )
        )
        while (piece := await reply.read()) and not incoming.gone:
            await _pass(incoming, await stream.restore(piece), patience)
        await _pass(incoming, await stream.rest(), patience)
        incoming.write(b"0\r\n\r\n" * chunked)
        await response.wait_taken(incoming, patience)
    finally:
        stream.end()
    return True


async def _pass(incoming: RequestContext, content: bytes, patience: float) -> None:
    if content:
        incoming.size += len(content)
        incoming.write(frame(content) if incoming.minor == 1 else content)
        await incoming.drained(patience)

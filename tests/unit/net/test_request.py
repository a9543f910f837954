"""One request and what was answered so far."""

import asyncio
from typing import Any, cast

from proxy.net.http1.body import EMPTY, BodyQueue
from proxy.net.http1.head import Heads, parse_request_head
from proxy.net.request import RequestContext
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.rawserver import RawServer, silent


class Gone:
    """A connection whose caller has gone."""

    transport = None
    writing_paused = False


def incoming(payload: BodyQueue = EMPTY) -> RequestContext:
    request = get("/a")
    head = parse_request_head(request, len(request) - 4, Heads())
    about = head.headers, head.minor, head.target, 0.0, head.close
    return RequestContext(cast("Any", Gone()), head, payload, *about)


async def test_nothing_happens_to_a_caller_that_has_gone():
    one = incoming()
    one.write(b"x")
    one.cut()
    await one.drained(PATIENCE)
    assert (one.gone, one.unsent) == (True, 0)


def test_an_answer_before_the_end_of_the_body_ends_the_connection():
    whole, part = incoming(BodyQueue(None, b"abc")), incoming(BodyQueue(None))
    for one in (whole, part):
        one.begin(200)
    assert (whole.close, part.close, part.began, part.status) == (False, True, True, 200)


async def test_a_cut_is_seen_as_one():
    async with (
        RawServer(silent()) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        await client.send(get())
        await server.until(lambda: server.requests != [])
        serving = steered.callers[0]._current
        assert serving is not None
        serving.cut()
        try:
            assert await asyncio.wait_for(client.until_close(), PATIENCE) == b""
        except ConnectionResetError:
            pass

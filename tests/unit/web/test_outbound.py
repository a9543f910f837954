"""What every request of our own has in common; the cases over real servers stand in ``test_acl_client``."""

import pytest

from proxy.web.outbound import Outbound, UnansweredError
from proxy.web.upstream.tls import client_context
from tests.support.patience import PATIENCE
from tests.support.rawserver import RawServer, says, silent
from tests.unit.web.test_acl_client import BODY, whole


async def test_an_answer_comes_back_as_it_is():
    async with RawServer(says(whole())) as server, Outbound(PATIENCE, client_context()) as outbound:
        assert await outbound.ask("GET", server.url + "/x", {"X-A": "b"}) == BODY
    assert (server.requests[0].start, dict(server.requests[0].fields)[b"X-A"]) == (b"GET /x HTTP/1.1", b"b")


async def test_what_was_wrong_is_told_and_never_what_was_said():
    async with RawServer(says(whole(b"secret", status=b"403 secret"))) as server:
        async with Outbound(PATIENCE, client_context()) as outbound:
            with pytest.raises(UnansweredError) as caught:
                await outbound.ask("GET", server.url, {})
    assert "secret" not in str(caught.value)


async def test_time_is_up_when_it_is():
    async with RawServer(silent()) as server, Outbound(0.05, client_context()) as outbound:
        with pytest.raises(TimeoutError):
            await outbound.ask("GET", server.url, {})

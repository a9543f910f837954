import base64

import pytest

from proxy.errors import Code, VaultError
from proxy.net.outbound import IssuerClient, Outbound
from proxy.net.tls import client_context
from tests.support.patience import PATIENCE
from tests.support.rawserver import RawServer, says, silent
from tests.unit.net.test_outbound_acl_client import whole


async def test_keys_are_fetched_and_tokens_asked_about_with_our_own_credentials():
    async with (
        RawServer(says(whole(b"{}"))) as server,
        Outbound(PATIENCE, client_context()) as outbound,
    ):
        client = IssuerClient(outbound, server.url + "/keys", "us:sec ret:x")
        assert await client.keys() == b"{}"
        assert await client.introspect("a+b/c=") == b"{}"
        plain = IssuerClient(outbound, server.url)
        await plain.keys()
    first, second, third = server.requests
    assert (first.start, first.body) == (b"GET /keys HTTP/1.1", b"")
    assert second.body == b"token=a%2Bb%2Fc%3D&token_type_hint=access_token"
    proof = dict(second.fields)[b"Authorization"].split()[1]
    assert base64.b64decode(proof) == b"us:sec+ret%3Ax"
    assert b"Authorization" not in dict(third.fields)


async def test_no_answer_and_no_good_one_are_told_as_such():
    async with (
        RawServer(says(whole(b"{}", status=b"500 No"))) as broken,
        RawServer(silent()) as slow,
    ):
        for server, seconds in ((broken, PATIENCE), (slow, 0.05)):
            async with Outbound(seconds, client_context()) as outbound:
                with pytest.raises(VaultError) as caught:
                    await IssuerClient(outbound, server.url).keys()
            assert caught.value.code is Code.ISSUER_UNREACHABLE

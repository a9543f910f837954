"""Strangers who guess the secret of a client, from their own addresses, do not keep the client
itself out.
"""

import asyncio
import time

import aiohttp

from proxy.auth.secret_checks import BY_CLIENT
from proxy.bootstrap.instance import prepare_instance, running
from proxy.config import load_settings
from tests.e2e.test_external_issuer import given
from tests.support.auth import basic
from tests.support.patience import PATIENCE
from tests.support.people import rules


async def token(place: str, address: str, client: str, secret: str) -> int:
    """The status of one request for a token from an address of this machine."""
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    headers = {"Authorization": basic(client, secret)}
    async with (
        aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(PATIENCE)
        ) as caller,
        caller.post(
            f"http://{place}/oauth2/token",
            data={"grant_type": "client_credentials"},
            headers=headers,
        ) as answer,
    ):
        return answer.status


async def test_wrong_tries_from_elsewhere_do_not_keep_the_right_client_out_and_it_is_known_after_a_restart(
    tmp_path,
):
    (tmp_path / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    settings = load_settings(None, given(tmp_path))
    await prepare_instance(settings)
    async with running(settings) as started:
        made = await started.auth.clients.create("shop", "default")
        tries, begun = 2 * BY_CLIENT.burst, time.monotonic()
        strangers = [
            await asyncio.gather(
                *(
                    token(started.interface, f"127.0.1.{host}", made.client.id, "wrong")
                    for host in (1, 2)
                )
            )
            for _ in range(tries)
        ]
        assert {status for told in strangers for status in told} == {401, 429}
        # each address has its burst, and one more for each ``every`` that this machine took
        most = BY_CLIENT.burst + 2 + (time.monotonic() - begun) * 1000 / BY_CLIENT.every
        assert sum(told.count(401) for told in strangers) <= 2 * most, "brute force stays slow"
        assert [
            await token(started.interface, "127.0.0.2", made.client.id, made.secret)
            for _ in range(30)
        ] == [200] * 30
    async with running(settings) as started:
        assert (made.client.id, "127.0.0.2") in started.auth.networks
        # a stranger behind the same address, in other names
        for number in range(3 * BY_CLIENT.burst):
            await token(started.interface, "127.0.0.2", f"other{number}", "wrong")
        assert await token(started.interface, "127.0.0.2", "other", "wrong") == 429
        assert await token(started.interface, "127.0.0.2", made.client.id, made.secret) == 200

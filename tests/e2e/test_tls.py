"""TLS of the whole program: by the settings, under load while certificates change, and the caller's
address behind a load balancer.
"""

import asyncio
import contextlib
import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from authlib.integrations.httpx_client import AsyncOAuth2Client

from proxy.bootstrap.offline import stopped_clients
from proxy.config import load_settings
from tests.support.certificates import Authority, Pair
from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message
from tests.support.rawserver import OK, RawServer, says
from tests.support.scraping import FIELD
from tests.support.secured import TLS_1_2, TLS_1_3, greeted, replace, trusting

NAMES = ("vault.test", "localhost")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "tls"
    folder.mkdir()
    return Authority(folder)


@pytest.fixture
async def instance(tmp_path: Path, authority: Authority) -> AsyncIterator[Instance]:
    """An installation with a certificate, before an application that says 200."""
    pair = authority.issue(*NAMES)
    made = Instance(tmp_path)
    made.rules.mkdir()
    made.environment |= {
        "DOMICILE__LISTEN__TLS__CERTIFICATE": str(pair.certificate),
        "DOMICILE__LISTEN__TLS__KEY": str(pair.key),
    }
    async with RawServer(says(OK)) as server:
        (made.rules / "rules.yaml").write_text(rules(server.url))
        yield made
        await made.kill()


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def client(instance: Instance) -> dict[str, str]:
    """Credentials of a new client; the instance is stopped."""
    await instance.command("init")
    async with stopped_clients(load_settings(None, instance.settings())) as clients:
        made = await clients.create("shop", "default")
    return {"client_id": made.client.id, "client_secret": made.secret}


async def checks(instance: Instance) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(instance.admin + "/readyz") as answer,
    ):
        return answer.status, (await answer.json())["checks"]["certificates"]


async def metrics(instance: Instance) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(instance.admin + "/metrics", headers=FIELD) as answer,
    ):
        return await answer.text()


async def test_both_listeners_speak_tls_and_the_vault_goes_by_the_name_of_its_certificate(
    instance: Instance, authority: Authority
) -> None:
    proof = await client(instance)
    await instance.start()
    vault, tls = f"https://localhost:{port(instance.vault)}", trusting(authority)
    async with AsyncOAuth2Client(
        proof["client_id"], proof["client_secret"], token_endpoint=vault + "/oauth2/token",
        grant_type="client_credentials", trust_env=False, timeout=PATIENCE, verify=tls,
    ) as seller:  # fmt: skip
        await seller.fetch_token(audience=vault)
        answer = await seller.get(vault + "/api/schemas")
        assert answer.status_code in (200, 403)
        assert answer.headers["Strict-Transport-Security"] == "max-age=15552000"
        metadata = (await seller.get(vault + "/.well-known/oauth-authorization-server")).json()
        assert metadata["issuer"] == f"https://vault.test:{port(instance.vault)}"
    async with RawClient(port(instance.proxy), tls, "localhost") as caller:
        answered = await caller.ask(get("/other"))
        assert (answered.status, answered.one("Strict-Transport-Security")) == (200, None)

    for version in (TLS_1_2, TLS_1_3):
        missing = "MISSING_EXTENSION" if version is TLS_1_3 else "HANDSHAKE_FAILURE"
        assert missing in await greeted(port(instance.vault), trusting(authority, version), None)
        foreign = await greeted(port(instance.vault), trusting(authority, version), "foreign.test")
        assert "UNRECOGNIZED_NAME" in foreign
        for name in (None, "foreign.test", "localhost"):
            assert (
                await greeted(port(instance.proxy), trusting(authority, version), name)
                == "vault.test"
            )
    text = await metrics(instance)
    assert 'domicile_tls_handshakes_total{listener="vault",outcome="foreign_name"} 2' in text
    assert 'domicile_tls_handshakes_total{listener="vault",outcome="no_name"} 2' in text
    with pytest.raises((ConnectionError, aiohttp.ClientError)):
        async with aiohttp.ClientSession() as session, session.get(instance.vault + "/docs"):
            pass
    assert await instance.stop() == 0


async def test_the_vault_alone_speaks_tls_and_readiness_tells_outsiders_no_sentence(
    instance: Instance, authority: Authority
) -> None:
    proof = await client(instance)
    instance.environment["DOMICILE__LISTEN__TLS__AT"] = "vault"
    await instance.start()
    vault, tls = f"https://localhost:{port(instance.vault)}", trusting(authority)
    async with AsyncOAuth2Client(
        proof["client_id"], proof["client_secret"], token_endpoint=vault + "/oauth2/token",
        grant_type="client_credentials", trust_env=False, timeout=PATIENCE, verify=tls,
    ) as seller:  # fmt: skip
        await seller.fetch_token(audience=vault)
        assert (await seller.get(vault + "/api/schemas")).status_code in (200, 403)
    async with RawClient(port(instance.proxy)) as caller:
        assert (await caller.ask(get("/other"))).status == 200

    certificate = Path(instance.environment["DOMICILE__LISTEN__TLS__CERTIFICATE"])
    await asyncio.to_thread(certificate.write_text, "nothing of the kind")
    async with asyncio.timeout(PATIENCE):
        while (await checks(instance))[1] == "ok":  # noqa: ASYNC110  # the instance looks by itself
            await asyncio.sleep(0.1)
    assert str(certificate) in (await checks(instance))[1]
    async with (
        aiohttp.ClientSession(headers={"X-Forwarded-For": "203.0.113.9"}) as session,
        session.get(instance.admin + "/readyz") as answer,
    ):
        assert (answer.status, (await answer.json())["checks"]["certificates"]) == (200, "stale")
    assert await instance.stop() == 0


@pytest.mark.parametrize("secure", [True, False])
async def test_a_target_or_a_head_that_is_too_long_is_told_from_what_cannot_be_read(
    instance: Instance, authority: Authority, secure: bool
) -> None:
    await client(instance)
    if not secure:
        for name in ("CERTIFICATE", "KEY"):
            del instance.environment[f"DOMICILE__LISTEN__TLS__{name}"]
    await instance.start()
    places = (
        [instance.proxy, instance.vault]
        if secure
        else [instance.proxy, instance.vault, instance.admin]
    )
    for place in places:
        for sent, status, code in [
            (get("/" + "secret" * 4000), 414, "uri_too_long"),
            (get("/" + "secret" * 20_000), 414, "uri_too_long"),
            (get("/", "X: " + "secret" * 4000), 431, "header_too_large"),
            (get("/", "X: " + "secret" * 4_000_000), 431, "header_too_large"),
            (get("/" + "secret" * 4_000_000), 414, "uri_too_long"),
            (get("/", *["X: secret"] * 200), 431, "header_too_large"),
            (get("/", "X : secret"), 400, "bad_request"),
        ]:
            tls = (trusting(authority), "localhost") if secure else ()
            answer = await answered(port(place), sent, *tls)
            told = json.loads(answer.body)
            assert (answer.status, told["status"], told["code"]) == (status, status, code), place
            assert b"secret" not in answer.body


async def answered(place: int, request: bytes, *tls: Any) -> Message:
    """The answer to a request of which little is read. One whose sender stands still for seconds, as
    on a busy machine, is taken for gone, and sent again.
    """
    for last in (False, False, True):
        try:
            async with RawClient(place, *tls) as caller:
                return await caller.ask(request)
        except ConnectionError:
            if last:
                raise
    raise AssertionError


async def test_certificates_change_under_load_and_no_request_fails(
    instance: Instance, authority: Authority
) -> None:
    await instance.start()
    own = _files(instance)
    over, asked = asyncio.Event(), 0

    async def load_on(listener: str, target: str, kept: bool) -> None:
        nonlocal asked
        tls = trusting(authority)
        while not over.is_set():
            async with RawClient(port(listener), tls, "localhost") as caller:
                for _ in range(50 if kept else 1):
                    assert (await caller.ask(get(target))).status == 200
                    asked += 1

    workers = [
        asyncio.create_task(load_on(listener, target, kept))
        for listener, target in (
            (instance.proxy, "/other"),
            (instance.vault, "/.well-known/oauth-authorization-server"),
        )
        for kept in (True, False)
    ]
    try:
        for number in range(3):
            fresh = authority.issue(f"name{number}.test", *NAMES, file=f"fresh{number}")
            replace(own, fresh)
            await instance.logged("new certificates are active", number + 1)
            assert (
                await greeted(port(instance.proxy), trusting(authority), "localhost")
                == f"name{number}.test"
            )
            before = asked
            while asked < before + 20:  # the workers count
                assert not [one for one in workers if one.done()]
                await asyncio.sleep(0.01)
    finally:
        over.set()
        results = await asyncio.gather(*workers, return_exceptions=True)
    assert results == [None] * 4


def _files(instance: Instance) -> Pair:
    certificate = Path(instance.environment["DOMICILE__LISTEN__TLS__CERTIFICATE"])
    return Pair(certificate, certificate.with_suffix(".key"))


async def test_a_broken_pair_keeps_the_one_before_and_says_so_until_it_is_mended(
    instance: Instance, authority: Authority
) -> None:
    await instance.start()
    own = _files(instance)
    other, keep = authority.issue("other.test", *NAMES), own.certificate.read_bytes()
    shutil.copy(other.certificate, own.certificate)
    await instance.logged("TLS files rejected; previous certificates stay active")
    assert await greeted(port(instance.vault), trusting(authority), "localhost") == "vault.test"
    status, told = await checks(instance)
    assert (status, "does not belong to its key" in told) == (200, True)
    assert 'domicile_reload_failed{what="certificates"} 1.0' in await metrics(instance)
    assert "domicile_tls_reload_failures_total 1" in await metrics(instance)
    own.certificate.write_bytes(keep)
    instance.send(signal.SIGHUP)
    await instance.logged("the same certificates were reloaded")
    assert await checks(instance) == (200, "ok")


async def test_callers_show_certificates_where_the_settings_ask_for_them(
    instance: Instance, authority: Authority
) -> None:
    instance.environment["DOMICILE__LISTEN__TLS__CLIENTS"] = str(authority.certificate)
    await instance.start()
    own = authority.issue("client.test")
    assert "CERTIFICATE_REQUIRED" in await greeted(
        port(instance.vault), trusting(authority), "localhost", PATIENCE
    )
    assert (
        await greeted(port(instance.vault), trusting(authority, own=own), "localhost")
        == "vault.test"
    )
    assert await greeted(port(instance.proxy), trusting(authority), "localhost") == "vault.test"


@pytest.mark.parametrize("lost", ["revoked", "authority", "neither"])
async def test_a_caller_whose_certificate_is_not_valid_any_more_is_not_answered(
    instance: Instance, authority: Authority, lost: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other, trusted = Authority(tmp_path / "other"), tmp_path / "tls" / "clients.pem"
    shutil.copy(authority.certificate, trusted)
    revocations = authority.revoke()
    instance.environment |= {
        "DOMICILE__LISTEN__TLS__CLIENTS": str(trusted),
        "DOMICILE__LISTEN__TLS__CLIENTS_AT": "both",
        "DOMICILE__LISTEN__TLS__CLIENTS_CRL": str(revocations),
    }
    await instance.start()
    own, good = authority.issue("lost.test"), authority.issue("good.test")
    known = "/.well-known/oauth-authorization-server"
    places = [(port(instance.proxy), "/other"), (port(instance.vault), known)]
    async with contextlib.AsyncExitStack() as stack:
        open_ones = []
        for place, target in places:
            caller = RawClient(place, trusting(authority, own=own), "localhost")
            open_ones.append((await stack.enter_async_context(caller), target))
            for _ in range(3):
                assert (await caller.ask(get(target))).status == 200
        if lost == "authority":
            replace(Pair(trusted, trusted), Pair(other.certificate, other.certificate))
            other.revoke()
            revocations.write_bytes((tmp_path / "other" / "revoked.crl").read_bytes())
        else:  # a new list may take nothing from anybody
            authority.revoke(*[own] * (lost == "revoked"), days=2)
        await instance.logged("the same certificates were reloaded")
        for caller, target in open_ones:
            if lost == "neither":
                assert (await caller.ask(get(target))).status == 200
            else:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await caller.ask(get(target))
    for place, target in places:
        for shown, accepted in ((own, lost == "neither"), (good, lost != "authority")):
            async with contextlib.AsyncExitStack() as stack:
                if not accepted:
                    stack.enter_context(
                        pytest.raises((OSError, asyncio.IncompleteReadError, EOFError))
                    )
                tls = trusting(authority, own=shown)
                caller = await stack.enter_async_context(RawClient(place, tls, "localhost"))
                assert (await caller.ask(get(target))).status == 200
    assert "domicile_tls_revocation_list_end_timestamp_seconds 1" in await metrics(instance)


async def test_a_certificate_that_cannot_be_used_ends_the_start_with_a_sentence(
    instance: Instance,
) -> None:
    _files(instance).key.write_text("nothing")
    with pytest.raises(Exception, match=r"listen\.tls\.certificate") as caught:
        await instance.start()
    assert "no key stands in it" in str(caught.value)


async def test_behind_a_load_balancer_whoever_guesses_secrets_is_slowed_by_the_address_that_it_told(
    tmp_path: Path, authority: Authority
) -> None:
    instance = Instance(tmp_path)
    instance.rules.mkdir()
    (instance.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    instance.environment |= {
        "DOMICILE__LISTEN__PROXY_PROTOCOL": "true",
        "DOMICILE__TRUSTED_PROXIES": "127.0.0.0/8",
    }
    await instance.start()
    try:

        async def guess(address: str, number: int) -> int:
            form = (
                f"grant_type=client_credentials&client_id=nobody{number}&client_secret=x".encode()
            )
            request = post(
                "/oauth2/token",
                form,
                "Content-Type: application/x-www-form-urlencoded",
                "Connection: close",
            )
            async with RawClient(port(instance.vault)) as caller:
                await caller.send(f"PROXY TCP4 {address} 127.0.0.1 5 80\r\n".encode() + request)
                return (await asyncio.wait_for(caller.answer(), PATIENCE)).status

        statuses = [await guess("192.0.2.7", number) for number in range(40)]
        assert 429 in statuses
        assert await guess("192.0.2.8", 99) == 401
        # no preamble from one that has to send it
        async with RawClient(port(instance.vault)) as caller:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await caller.ask(get("/openapi.json"))
                raise AssertionError("a trusted proxy without a preamble was answered")
    finally:
        await instance.kill()

"""Every setting of the HTTP side has its effect in a whole instance, read from a file or from the
environment.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.bootstrap.instance import Running, running
from proxy.config import load_settings
from proxy.errors import Code, Detail, VaultError
from proxy.vault.expiry import pending
from tests.support.certificates import Authority, Pair
from tests.support.patience import PATIENCE
from tests.support.people import ANN, rules
from tests.support.ports import closed_port
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message
from tests.support.rawserver import OK, Behaviour, RawServer, drips, says, silent
from tests.support.scraping import bearer

BODY = json.dumps(ANN).encode()
NAME = str(ANN["name"]).encode()


def create(*fields: str) -> bytes:
    """A write that a rule names."""
    return post("/people", BODY, "Content-Type: application/json", *fields)


#: The first half of an answer, and then nothing.
HALF = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"


class Instance(NamedTuple):
    """A running instance, and the port of its proxy."""

    running: Running
    port: int

    async def ask(self, request: bytes) -> Message:
        async with RawClient(self.port) as client:
            return await client.ask(request, PATIENCE)

    async def problem(self, request: bytes) -> tuple[int, str]:
        """Status and code of an answer that the proxy gives itself."""
        answer = await self.ask(request)
        assert answer.one("Domicile-Answer") == b"proxy", answer.head
        return answer.status, json.loads(answer.body)["code"]

    async def stored(self) -> tuple[int, int, int]:
        """Records, pending ones, staged changes."""
        return (await pending(tuple(self.running.vault.collections())))["person"]


@asynccontextmanager
async def started(
    folder: Path, upstream: str, *lines: str, **environment: str
) -> AsyncIterator[Instance]:
    """An instance before the application at ``upstream``, with these lines in its settings file and
    these variables.
    """
    (folder / "rules.yaml").write_text(rules(upstream))
    file = folder / "domicile.yaml"
    file.write_text("\n".join(lines))
    fixed = {
        "DOMICILE__COUNTRY": "se",
        "DOMICILE__DATA": str(folder / "data"),
        "DOMICILE__RULES": str(folder / "rules.yaml"),
        "DOMICILE__LISTEN__PROXY": "127.0.0.1:0",
        "DOMICILE__LISTEN__VAULT": "127.0.0.1:0",
        "DOMICILE__LISTEN__ADMIN": "127.0.0.1:0",
    }
    async with running(load_settings(file, fixed | environment)) as instance:
        yield Instance(instance, int(instance.proxy.rpartition(":")[2]))


def stalls() -> Behaviour:
    """Begins an answer, and says nothing more."""

    async def behave(wire, server):
        await server.read(wire)
        await wire.send(HALF)
        await wire.until_close()

    return behave


# ---------------------------------------------------------------------- time-outs


@pytest.mark.parametrize(
    "request_", [get("/other"), get("/people/1"), create()], ids=lambda one: one[:9]
)
async def test_the_wait_for_an_answer_is_a_setting(tmp_path, request_):
    async with RawServer(silent()) as server:
        async with started(tmp_path, server.url, DOMICILE__UPSTREAM__HEAD="200ms") as instance:
            assert await instance.problem(request_) == (504, "upstream_timeout")


async def test_the_wait_for_a_connection_is_a_setting(tmp_path):
    async with RawServer(silent()) as server:  # it takes the connection, and never shakes hands
        url = server.url.replace("http:", "https:")
        async with started(tmp_path, url, "upstream: {connect: 200ms}") as instance:
            assert await instance.problem(get("/other")) == (504, "upstream_timeout")


async def test_the_longest_silence_is_a_setting(tmp_path):
    async with RawServer(stalls()) as server:
        async with started(tmp_path, server.url, "upstream: {idle: 200ms}") as instance:
            assert await instance.problem(get("/people/1")) == (504, "upstream_timeout")
            # an answer that has begun can only be broken off
            async with RawClient(instance.port) as client:
                await client.send(get("/other"))
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asyncio.wait_for(client.answer(), PATIENCE)


async def test_the_longest_exchange_is_a_setting(tmp_path):
    async with RawServer(drips(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000, 1, 0.02)) as server:
        async with started(tmp_path, server.url, "upstream: {total: 300ms}") as instance:
            assert await instance.problem(get("/other")) == (504, "upstream_timeout")


async def test_how_long_an_unused_connection_is_kept_is_a_setting(tmp_path):
    async with RawServer(says(OK)) as server:
        async with started(tmp_path, server.url, "upstream: {keep: 50ms}") as instance:
            assert (await instance.ask(get("/other"))).status == 200
            await server.until(lambda: server.open == 0, PATIENCE)


# ---------------------------------------------------------------------- connection limits


async def test_who_finds_neither_a_connection_nor_a_place_in_the_queue_is_told_at_once(tmp_path):
    may = asyncio.Event()

    async def behave(wire, server):
        while True:
            await server.read(wire)
            await may.wait()
            await wire.send(OK)

    async with RawServer(behave) as server:
        async with started(
            tmp_path, server.url, "upstream: {connections: 1, queue: 0}"
        ) as instance:
            first = asyncio.ensure_future(instance.ask(get("/first")))
            await server.until(lambda: server.requests != [], PATIENCE)
            for request in (get("/second"), create()):
                answer = await instance.ask(request)
                assert (answer.status, json.loads(answer.body)["code"]) == (503, "upstream_busy")
                assert answer.one("Retry-After") == b"1"
            may.set()
            assert (await first).status == 200
            assert (await instance.ask(get("/third"))).status == 200
            assert len(server.wires) == 1
            assert await instance.stored() == (0, 0, 0)


# ---------------------------------------------------------------------- the circuit breaker


async def test_an_application_that_is_gone_is_left_alone_and_a_refused_write_stores_nothing(
    tmp_path,
):
    with closed_port() as port:
        breaker = "upstream: {breaker: {failures: 2, pause: 1h}}"
        async with started(tmp_path, f"http://127.0.0.1:{port}", breaker) as instance:
            for _ in range(2):
                assert await instance.problem(create()) == (502, "upstream_unreachable")
            answer = await instance.ask(create())
            assert (answer.status, json.loads(answer.body)["code"]) == (503, "upstream_suspended")
            assert int(answer.one("Retry-After") or 0) in range(3500, 3601)
            assert await instance.problem(get("/other")) == (503, "upstream_suspended")
            staged = [line for line in await metrics(instance) if 'event="staged"' in line]
            assert staged == ['domicile_vault_events_total{event="staged",schema="person"} 2.0']
            assert await instance.stored() == (0, 0, 0)
            assert 'domicile_upstream_suspended{endpoint="people"} 1.0' in await metrics(instance)


async def metrics(instance: Instance) -> list[str]:
    async with RawClient(int(instance.running.admin.rpartition(":")[2])) as client:
        shown = f"Authorization: Bearer {await bearer(instance.running)}"
        return (await client.ask(get("/metrics", shown), PATIENCE)).body.decode().splitlines()


@pytest.mark.parametrize("failures", ["0", "10"])
async def test_errors_that_the_application_answers_never_suspend_it(tmp_path, failures):
    error = b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"
    async with RawServer(says(error)) as server:
        async with started(
            tmp_path, server.url, DOMICILE__UPSTREAM__BREAKER__FAILURES=failures
        ) as instance:
            assert [(await instance.ask(get("/other"))).status for _ in range(15)] == [500] * 15


async def test_it_can_be_switched_off(tmp_path):
    with closed_port() as port:
        async with started(
            tmp_path, f"http://127.0.0.1:{port}", "upstream: {breaker: {failures: 0}}"
        ) as instance:
            told = {await instance.problem(get("/other")) for _ in range(15)}
            assert told == {(502, "upstream_unreachable")}


async def test_an_application_that_returns_is_found(tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        async with started(
            tmp_path, url, "upstream: {breaker: {failures: 1, pause: 10ms}}"
        ) as instance:
            assert await instance.problem(get("/other")) == (502, "upstream_unreachable")
            server = RawServer(says(OK))
            server.at = bound
            async with server, asyncio.timeout(PATIENCE):
                while (await instance.ask(get("/other"))).status != 200:  # noqa: ASYNC110  # its pause ends by itself
                    await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- callers and proxies in front


async def test_what_the_application_is_told_of_callers_is_a_setting(tmp_path):
    lines = [
        "trusted_proxies: [10.0.0.0/8]",
        "forwarding: {x_forwarded: true, forwarded: true, via: true, host: upstream}",
    ]
    async with RawServer(says(OK)) as server, started(tmp_path, server.url, *lines) as instance:
        claims = ("X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9")
        for request in (get("/other", *claims), create(*claims)):
            await instance.ask(request)
            sent = server.requests[-1]
            assert sent.one("X-Forwarded-For") == b"127.0.0.1"
            assert sent.one("X-Forwarded-Host") == b"app.test"
            assert sent.one("Forwarded") == b"for=127.0.0.1;proto=http;host=app.test"
            assert sent.one("Via") == b"1.1 domicile"
            assert sent.one("Host") == f"127.0.0.1:{server.port}".encode()
        assert NAME not in server.requests[-1].body


async def test_without_settings_the_application_is_told_nothing(tmp_path):
    async with RawServer(says(OK)) as server, started(tmp_path, server.url) as instance:
        request = get("/other", "X-Forwarded-For: 203.0.113.9", "Via: 1.1 edge")
        await instance.ask(request)
        assert server.requests[-1].head == request


async def test_the_proxy_protocol_is_a_setting(tmp_path):
    environment = {
        "DOMICILE__LISTEN__PROXY_PROTOCOL": "true",
        "DOMICILE__TRUSTED_PROXIES": "127.0.0.0/8",
        "DOMICILE__FORWARDING__X_FORWARDED": "true",
    }
    async with (
        RawServer(says(OK)) as server,
        started(tmp_path, server.url, **environment) as instance,
    ):
        preamble = b"PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n"
        for request in (get("/other", "X-Forwarded-For: 203.0.113.9"), create()):
            async with RawClient(instance.port) as client:
                await client.send(preamble + request)
                await asyncio.wait_for(client.answer(), PATIENCE)
            assert server.requests[-1].one("X-Forwarded-For") == b"192.0.2.7"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await instance.ask(get("/other"))
        assert len(server.requests) == 2


# ---------------------------------------------------------------------- own fields


OWN = (
    "Domicile-Answer: proxy", "domicile_answer: proxy", "DOMICILE-Caller: a", "Domicile_Answer: b",
    "dOmIcIlE-_x: c",
)  # fmt: skip


async def test_nobody_but_the_proxy_says_that_the_proxy_answered(tmp_path):
    fields = "".join(f"{line}\r\n" for line in OWN).encode()
    answers = [
        b"HTTP/1.1 103 Early Hints\r\n"
        + fields
        + b"\r\nHTTP/1.1 200 OK\r\n"
        + fields
        + b"Content-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
        + fields
        + b"\r\n2\r\n{}\r\n0\r\n"
        + fields
        + b"\r\n",
    ]
    for answer in answers:
        async with RawServer(says(answer)) as server, started(tmp_path, server.url) as instance:
            for request in (get("/other", *OWN), get("/people/1", *OWN), create(*OWN)):
                async with RawClient(instance.port) as client:
                    assert (await client.ask(request, PATIENCE)).status == 200
                    assert b"domicile" not in bytes(client.received).lower()
                assert b"domicile" not in server.requests[-1].head.lower()


# ---------------------------------------------------------------------- TLS to the application


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def serving(pair: Pair, clients: Authority | None = None) -> ssl.SSLContext:
    """TLS of an application; ``clients`` has to vouch for whoever connects."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


async def test_an_application_with_tls_is_reached_as_the_settings_say(tmp_path, authority):
    client = authority.issue("client.test")
    lines = [
        "upstream:",
        "  tls:",
        f"    ca: {authority.certificate}",
        f"    certificate: {client.certificate}",
        f"    key: {client.key}",
        "    server_name: crm.test",
    ]
    context = serving(authority.issue("crm.test"), authority)
    asked = []
    context.sni_callback = lambda _ssl, name, _context: asked.append(name)
    async with (
        RawServer(says(OK), tls=context) as server,
        started(tmp_path, server.url, *lines) as instance,
    ):
        assert (await instance.ask(get("/other"))).status == 200
        assert (await instance.ask(create())).status == 200
        assert NAME not in server.requests[-1].body
    assert set(asked) == {"crm.test"}


@pytest.mark.parametrize(
    ("name", "days", "settings"),
    [
        ("127.0.0.1", 1, ""),  # nobody vouches for it
        ("127.0.0.1", 1, "ca: {foreign}"),
        ("127.0.0.1", -1, "ca: {ca}"),
        ("other.test", 1, "ca: {ca}"),
        ("127.0.0.1", 1, "ca: {ca}, server_name: crm.test"),
    ],
)
async def test_an_application_that_is_not_the_right_one_gets_nothing(
    tmp_path, authority, name, days, settings
):
    foreign = Authority(tmp_path)
    tls = settings.format(ca=authority.certificate, foreign=foreign.certificate)
    context = serving(authority.issue(name, days=days))
    async with RawServer(says(OK), tls=context) as server:
        async with started(
            tmp_path, server.url, f"upstream: {{tls: {{{tls}}}}}" if tls else ""
        ) as instance:
            for request in (get("/other"), create()):
                assert await instance.problem(request) == (502, "upstream_unreachable")
            assert server.requests == []
            assert await instance.stored() == (0, 0, 0)


async def test_verifying_can_be_switched_off_by_its_name(tmp_path, authority):
    async with RawServer(says(OK), tls=serving(authority.issue("other.test"))) as server:
        async with started(
            tmp_path, server.url, DOMICILE__UPSTREAM__TLS__VERIFY="false"
        ) as instance:
            assert (await instance.ask(get("/other"))).status == 200


async def test_an_application_that_misses_our_certificate_ends_as_its_fault(tmp_path, authority):
    context = serving(authority.issue("127.0.0.1"), authority)
    async with RawServer(says(OK), tls=context) as server:
        async with started(
            tmp_path, server.url, DOMICILE__UPSTREAM__TLS__CA=str(authority.certificate)
        ) as instance:
            status, code = await instance.problem(create())
            assert status == 502
            # a reset may overtake the alert
            assert code in {"upstream_unreachable", "upstream_broken"}
            assert server.requests == []


async def test_certificates_are_changed_without_a_restart_and_broken_ones_are_not_taken(
    tmp_path, authority, capsys
):
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Authority(tmp_path).certificate.read_bytes())
    async with RawServer(says(OK, close=True), tls=serving(authority.issue("127.0.0.1"))) as server:
        async with started(tmp_path, server.url, f"upstream: {{tls: {{ca: {ca}}}}}") as instance:
            assert await instance.problem(get("/other")) == (502, "upstream_unreachable")
            ca.write_bytes(authority.certificate.read_bytes())
            instance.running.renew()
            assert (await instance.ask(get("/other"))).status == 200
            ca.write_text("rubbish")
            instance.running.renew()
            assert "a TLS file is unusable; previous files stay active" in capsys.readouterr().err
            assert (await instance.ask(get("/other"))).status == 200


# ---------------------------------------------------------------------- settings of one application


async def test_one_application_may_be_reached_in_a_way_of_its_own(tmp_path, authority):
    lines = [
        f"applications: {{people: {{tls: {{ca: {authority.certificate}, server_name: crm.test}}}}}}"
    ]
    async with RawServer(says(OK), tls=serving(authority.issue("crm.test"))) as server:
        async with started(tmp_path, server.url, *lines) as instance:
            assert (await instance.ask(get("/other"))).status == 200
            assert (await instance.ask(create())).status == 200
    async with RawServer(silent()) as server:
        environment = {"DOMICILE__APPLICATIONS__PEOPLE__HEAD": "200ms"}
        async with started(tmp_path, server.url, **environment) as instance:
            assert await instance.problem(get("/other")) == (504, "upstream_timeout")


async def test_settings_of_an_application_that_no_rule_names_end_the_start(tmp_path):
    with pytest.raises(VaultError) as caught:
        async with started(tmp_path, "http://127.0.0.1:9", "applications: {crm: {head: 1s}}"):
            raise AssertionError("it must not start")
    assert caught.value.code is Code.BAD_SETTINGS
    assert caught.value.details == (
        Detail("applications.crm", "no rule file has an endpoint of that name: there are people"),
    )
    assert not (tmp_path / "data").exists()


async def test_files_that_cannot_be_used_end_the_start_before_anything_is_made(tmp_path):
    with pytest.raises(VaultError, match="TLS towards the application") as caught:
        async with started(
            tmp_path, "https://127.0.0.1:9", "applications: {people: {tls: {ca: /none.pem}}}"
        ):
            raise AssertionError("it must not start")
    assert [fault.source for fault in caught.value.details] == ["applications.people.tls.ca"]
    assert not (tmp_path / "data").exists()

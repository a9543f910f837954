import asyncio
import errno
import shutil
import socket
import ssl
import time
from collections.abc import Callable

import pytest
from aiohttp import web

from proxy.errors import Code, Detail, VaultError
from proxy.net.caller_connection import CallerServer
from proxy.net.http1.head import Heads
from proxy.net.listener import Certificates, listen
from proxy.net.tls import CertificateFiles
from proxy.net.tls_context import ListenerCertificates, TlsPolicy
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.certificates import Authority
from tests.support.certificates import Pair as Files
from tests.support.clock import ManualClock
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, get
from tests.support.secured import replace
from tests.support.table import table


async def answers(incoming) -> None:
    incoming.begin(204)
    incoming.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def test_a_server_listens_and_tells_where_until_the_block_ends():
    server = CallerServer(answers, Heads())
    async with listen("proxy", ("127.0.0.1", 0), server) as place:
        port = int(place.removeprefix("127.0.0.1:"))
        async with RawClient(port) as client:
            assert (await client.ask(get())).status == 204
        assert len(server.listeners) == 1
    with pytest.raises(OSError, match="refused"):
        async with RawClient(port):
            pass


async def test_so_does_an_application():
    async def says_x(_: web.Request) -> web.Response:
        return web.Response(text="x")

    app = web.Application()
    app.router.add_get("/", says_x)
    async with (
        listen("admin", ("127.0.0.1", 0), app) as place,
        RawClient(int(place.rpartition(":")[2])) as client,
    ):
        assert (await client.ask(get("/"))).body == b"x"


async def test_a_port_in_use_is_one_sentence_that_names_the_setting():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for served in (CallerServer(answers, Heads()), web.Application()):
            with pytest.raises(
                VaultError, match=r"another program listens there.*listen\.proxy"
            ) as caught:
                async with listen("proxy", ("127.0.0.1", port), served):
                    pass
            assert caught.value.code is Code.PORT_IN_USE


@table(
    ("address", "words"),
    [
        (("no-such-host.invalid", 0), "host name is not known"),
        (("192.0.2.1", 0), "no such address"),
    ],
)
async def test_an_address_that_cannot_be_opened_is_one_sentence(address, words):
    with pytest.raises(VaultError, match=words):
        async with listen("proxy", address, CallerServer(answers, Heads())):
            pass


@pytest.mark.parametrize(
    ("number", "words"), [(errno.EACCES, "above 1023"), (errno.EMFILE, "cannot be opened")]
)
async def test_a_refusal_of_the_machine_is_one_sentence(monkeypatch, number, words):
    async def refuses(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    class Loop:
        create_server = staticmethod(refuses)

    server = CallerServer(answers, Heads())
    monkeypatch.setattr("proxy.net.listener.asyncio.get_running_loop", Loop)
    with pytest.raises(VaultError, match=words):
        async with listen("proxy", ("127.0.0.1", 80), server):
            pass
    await asyncio.sleep(0)


DAY = 24 * 3600 * 1000


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def log(capsys):
    logs.configure(logs.Style("info", "json"))
    yield lambda: capsys.readouterr().err
    logs.configure(logs.Style())


class Place:
    """Certificates in force of one pair of files, with everything they tell."""

    def __init__(
        self, authority: Authority, pair: Files | None = None, listener: str = "vault"
    ) -> None:
        self.pair = pair or authority.issue("vault.test", days=1)
        self.metrics = Metrics()
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        self.accepted: list[tuple[str, ...]] = []
        self.refusal: VaultError | None = None
        pairs = [CertificateFiles(self.pair.certificate, self.pair.key)]
        self.certificates = Certificates(
            pairs, {listener: TlsPolicy(True)}, self.metrics, self.clock, self.accept
        )

    def accept(self, material: ListenerCertificates) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.accepted.append(material.names())

    @property
    def context(self) -> ssl.SSLContext:
        return self.certificates.listeners["vault"].context

    def value(self, name: str, *labels: str) -> float:
        return self.metrics.cell(name, *labels).value

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110  # files change without a word
                await asyncio.sleep(0.01)


async def test_a_changed_pair_takes_effect_by_itself(authority, log):
    here = Place(authority)
    before = here.context
    watching = asyncio.create_task(here.certificates.watch(0.01))
    replace(here.pair, authority.issue("vault.test", "more.test", days=2, file="new"))
    await here.until(lambda: here.context is not before)
    watching.cancel()
    assert here.accepted == [("vault.test",), ("vault.test", "more.test")]
    assert await here.certificates.check() is None
    assert here.value("domicile_tls_reload_failures_total") == 0
    ends = here.value("domicile_tls_certificate_end_timestamp_seconds", "vault.test")
    assert 1.5 * 86400 < ends - time.time() <= 2 * 86400
    assert "new certificates are active" in log()


async def test_what_cannot_be_used_changes_nothing_and_is_told_until_it_can(authority, log):
    here = Place(authority)
    before = here.context
    other = authority.issue("other.test")
    shutil.copy(other.certificate, here.pair.certificate)
    assert not here.certificates.reload()
    assert here.context is before
    assert "does not belong to its key" in (await here.certificates.state.check() or "")
    assert await here.certificates.check() is None
    assert (
        here.value("domicile_tls_reload_failures_total")
        == here.value("domicile_reload_failed", "certificates")
        == 1
    )
    told = log()
    assert "TLS files rejected; previous certificates stay active" in told
    assert "a fault in the files for TLS" in told
    shutil.copy(other.key, here.pair.key)
    assert here.certificates.reload()
    assert here.context is not before
    assert await here.certificates.state.check() is None
    assert here.value("domicile_reload_failed", "certificates") == 0


@pytest.mark.parametrize("days", [-1, 40])
async def test_a_certificate_outside_its_time_does_not_replace_one_that_is_valid(authority, days):
    here = Place(authority)
    before = here.context
    replace(here.pair, authority.issue("vault.test", days=days, file="new"))
    assert not here.certificates.reload()
    assert here.context is before
    assert ("ended at" if days < 0 else "begins at") in (
        await here.certificates.state.check() or ""
    )
    assert await here.certificates.check() is None


async def test_names_that_are_not_accepted_change_nothing(authority):
    here = Place(authority)
    before = here.context
    here.refusal = VaultError(Code.BAD_SETTINGS, "No.", (Detail("auth.audiences", "why"),))
    assert not here.certificates.reload()
    assert here.context is before
    assert await here.certificates.state.check() == "No. auth.audiences: why"


async def test_a_certificate_that_ends_is_told_before_and_takes_no_other_listener_away(
    authority, log
):
    here = Place(authority)
    assert log().count("a certificate ends soon") == 1  # within a day
    here.clock.advance(2 * DAY)
    for _ in range(2):
        here.certificates.look_at_dates()
    assert log().count("a certificate is shown to callers outside its time") == 1
    assert await here.certificates.check() is None, "the proxy is in the clear"
    assert "ended at" in (await here.certificates.state.check() or "")
    assert here.value("domicile_reload_failed", "certificates") == 1
    other = authority.issue("other.test", file="other")
    shutil.copy(other.certificate, here.pair.certificate)
    assert not here.certificates.reload()
    here.certificates.look_at_dates()
    assert "does not belong to its key" in (await here.certificates.state.check() or "")
    replace(here.pair, authority.issue("vault.test", days=4, file="new"))
    assert here.certificates.reload()
    assert await here.certificates.state.check() is None


async def test_an_instance_whose_proxy_no_caller_gets_through_to_is_not_ready(authority):
    here = Place(authority, listener="proxy")
    assert await here.certificates.check() is None
    here.clock.advance(2 * DAY)
    assert "ended at" in (await here.certificates.check() or "")


async def test_a_start_with_one_that_has_ended_is_told_and_goes_on(authority, log):
    here = Place(authority, authority.issue("vault.test", days=-1))
    assert "ended at" in (await here.certificates.state.check() or "")
    assert "a certificate is shown to callers outside its time" in log()


async def test_files_that_stay_the_same_are_taken_anew_for_the_sake_of_ticket_keys(authority, log):
    here = Place(authority)
    before = here.context
    watching = asyncio.create_task(here.certificates.watch(0.01, 0.0))
    await here.until(lambda: here.context is not before)
    watching.cancel()
    assert "the same certificates were reloaded" in log()


async def test_handshakes_are_counted_by_listener_and_outcome(authority):
    here = Place(authority)
    here.certificates.listeners["vault"].ended(
        here.certificates.listeners["vault"](asyncio.Protocol()), "no_name"
    )
    assert here.value("domicile_tls_handshakes_total", "vault", "no_name") == 1
    assert (
        b'domicile_tls_handshakes_total{listener="vault",outcome="done"} 0' in here.metrics.render()
    )

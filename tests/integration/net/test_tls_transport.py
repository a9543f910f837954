"""TLS under the gateway's own server: everything that holds of a plain connection holds of this
one.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.api.connection import ConnectionAcceptor
from proxy.clock import system_clock
from proxy.net.tls_transport import OUTCOMES, TlsListener
from tests.support.certificates import Authority
from tests.support.clock import ManualClock
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, says
from tests.support.secured import TLS_1_2, TLS_1_3, greeted, tls_listener, trusting

NAME = "app.test"
ANSWERS = says(OK)
SWITCHED = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@asynccontextmanager
async def listening(authority, behaviour=ANSWERS, patience: float = 30.0, **terms):
    """An application, the port of a gateway that speaks TLS, what steers it, and how handshakes
    ended.
    """
    tls, outcomes = tls_listener(authority.issue(NAME), patience=patience, **terms)
    async with RawServer(behaviour) as server:
        async with gateway(server.url, options={"acceptor": ConnectionAcceptor(None, tls)}) as (
            port,
            steered,
        ):
            yield server, port, steered, outcomes
            assert tls.shaking == set() or patience < 30


def client(port: int, authority: Authority, version=TLS_1_3) -> RawClient:
    return RawClient(port, trusting(authority, version), NAME)


async def echoes(wire, server):
    """Answers each request with its body."""
    while True:
        body = (await server.read(wire)).body
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
async def test_requests_and_answers_of_every_size_pass_as_they_are(authority, version):
    async with (
        listening(authority, echoes) as (_, port, _, outcomes),
        client(port, authority, version) as caller,
    ):
        for size in (0, 1, 1000, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 3_000_000):
            body = os.urandom(size)
            assert (await caller.ask(post("/echo", body))).body == body
            assert (
                await caller.ask(chunked("/echo", body + b"x", body + b"y"))
            ).body == body + b"x" + body + b"y"
        assert outcomes == ["done"]


async def test_what_is_matched_is_redacted_all_the_same(authority):
    async with (
        listening(authority, echoes) as (server, port, _, _),
        client(port, authority) as caller,
    ):
        answer = await caller.ask(post("/people", b'{"name": "Ann"}'))
        assert (answer.body, server.requests[0].body) == (
            b'{"name": "Ann"}',
            b'{"name": "tok_9f8e7d6c"}',
        )


async def test_requests_in_one_piece_are_answered_in_order(authority):
    async with listening(authority, echoes) as (_, port, _, _), client(port, authority) as caller:
        await caller.send(b"".join(post("/", b"%d" % number) for number in range(20)))
        assert [(await caller.answer()).body for _ in range(20)] == [
            b"%d" % number for number in range(20)
        ]


async def test_the_handshake_may_come_in_single_bytes(authority):
    """Through a relay that sends each byte of the caller for itself."""
    async with listening(authority) as (_, port, _, outcomes):

        async def relayed(reader, writer):
            inward, outward = await asyncio.open_connection("127.0.0.1", port)
            outward.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            async def back() -> None:
                while data := await inward.read(65536):
                    writer.write(data)

            task = asyncio.create_task(back())
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    for byte in data:
                        outward.write(bytes([byte]))
                        await asyncio.sleep(0)
            task.cancel()
            outward.close()
            writer.close()

        async with await asyncio.start_server(relayed, "127.0.0.1", 0) as relay:
            async with client(relay.sockets[0].getsockname()[1], authority) as caller:
                assert (await caller.ask(get())).status == 200
        assert outcomes == ["done"]


async def test_a_caller_that_reads_slowly_holds_the_application_back(authority):
    """The whole way stops: what the application could write at most is far below what it has."""
    sent = 0

    async def endless(wire, server):
        nonlocal sent
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(200):
            await wire.send(b"x" * 1_000_000)
            sent += 1

    async with (
        listening(authority, endless) as (_, port, steered, _),
        client(port, authority) as caller,
    ):
        caller.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 65536
        )
        transport = cast("asyncio.Transport", caller.writer.transport)
        transport.pause_reading()
        await caller.send(get())

        async def stands_still() -> None:
            while True:
                before = sent
                await asyncio.sleep(0.5)
                if sent and sent == before and steered.callers[0].writing_paused:
                    return

        await asyncio.wait_for(stands_still(), PATIENCE)
        assert sent < 100
        transport.resume_reading()
        answer = await asyncio.wait_for(caller.answer(), PATIENCE * 3)
        assert len(answer.body) == 200_000_000


async def test_a_caller_that_says_it_sends_nothing_more_gets_its_answer(authority):
    """``close_notify`` ends one direction (RFC 8446 section 6.1)."""
    release = asyncio.Event()

    async def late(wire, server):
        await server.read(wire)
        await release.wait()
        await wire.send(OK)

    def half_closing(port: int) -> bytes:
        tls, out, into = trusting(authority), ssl.MemoryBIO(), ssl.MemoryBIO()
        here = tls.wrap_bio(into, out, server_hostname=NAME)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:

            def step(work: Callable[[], Any]) -> Any:
                while True:
                    try:
                        return work()
                    except ssl.SSLWantReadError:
                        plain.sendall(out.read())
                        into.write(plain.recv(65536))

            step(here.do_handshake)
            here.write(get())
            with contextlib.suppress(ssl.SSLWantReadError):
                here.unwrap()
            plain.sendall(out.read())
            loop.call_soon_threadsafe(release.set)
            return bytes(step(lambda: here.read(65536)))

    loop = asyncio.get_running_loop()
    async with listening(authority, late) as (_, port, _, _):
        assert (await asyncio.to_thread(half_closing, port)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("whole", [True, False])
async def test_a_broken_answer_has_no_farewell_and_a_whole_one_has(authority, whole):
    """The end of a connection tells a truncated answer from a complete one."""

    async def breaks(wire, server):
        await server.read(wire)
        await wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
            + (b"whole" if whole else b"who")
        )
        wire.close()

    def read_all(port: int) -> str:
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE)
        with trusting(authority).wrap_socket(
            plain, server_hostname=NAME, suppress_ragged_eofs=False
        ) as secured:
            secured.sendall(get("/", "Connection: close"))
            try:
                while secured.recv(65536):
                    pass
            except (ssl.SSLError, OSError):
                return "broken"
            return "farewell"

    async with listening(authority, breaks) as (_, port, _, _):
        assert await asyncio.to_thread(read_all, port) == ("farewell" if whole else "broken")


async def test_a_caller_that_goes_away_is_noticed(authority):
    gone = asyncio.Event()

    async def waits(wire, server):
        await server.read(wire)
        await wire.until_close()
        gone.set()

    async with listening(authority, waits) as (server, port, steered, _):
        async with client(port, authority) as caller:
            await caller.send(get())
            await server.until(lambda: len(server.requests) == 1)
        await asyncio.wait_for(gone.wait(), PATIENCE)
        await server.until(lambda: not steered.callers)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
async def test_refusals_reach_the_caller_as_alerts(authority, version):
    clients = {"clients": authority.certificate}
    async with listening(authority, **clients) as (_, port, _, outcomes):
        assert "UNRECOGNIZED_NAME" in await greeted(
            port, trusting(authority, version), "other.test"
        )
        missing = "MISSING_EXTENSION" if version is TLS_1_3 else "HANDSHAKE_FAILURE"
        assert missing in await greeted(port, trusting(authority, version), None)
        alert = await greeted(port, trusting(authority, version), NAME)
        assert ("CERTIFICATE_REQUIRED" if version is TLS_1_3 else "HANDSHAKE_FAILURE") in alert
        old = authority.issue("old.test", days=-1)
        assert "CERTIFICATE_EXPIRED" in await greeted(port, trusting(authority, version, old), NAME)
        own = authority.issue("client.test")
        assert await greeted(port, trusting(authority, version, own), NAME) == NAME
        assert outcomes == ["foreign_name", "no_name", "no_certificate", "bad_certificate", "done"]


def visited(port: int, tls: ssl.SSLContext, session: ssl.SSLSession | None):
    """What is answered to a visit that goes on with a session, that session, and whether it did."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        with tls.wrap_socket(plain, server_hostname=NAME, session=session) as secured:
            answer, reused = b"", secured.session_reused
            with contextlib.suppress(OSError):
                secured.sendall(get())
                answer = secured.recv(100)
            session = secured.session
            with contextlib.suppress(OSError):
                secured.unwrap()  # a session that ends without a farewell is forgotten
            return answer, session, reused


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
async def test_no_session_outlives_the_certificate_of_its_caller(authority, version):
    """Whoever goes on with one shows no certificate again, and the library verifies none."""
    clock = ManualClock(system_clock())
    terms = {"clients": authority.certificate, "clock": clock}
    async with listening(authority, **terms) as (_, port, _, outcomes):
        own = trusting(authority, version, authority.issue("client.test"))
        answer, session, _ = await asyncio.to_thread(visited, port, own, None)
        assert answer.startswith(b"HTTP/1.1 200")
        answer, _, reused = await asyncio.to_thread(visited, port, own, session)
        assert answer.startswith(b"HTTP/1.1 200")
        assert reused is (version is TLS_1_2)  # of which the library remembers sessions by itself
        clock.advance(2 * 86_400_000)
        if reused:
            answer, _, reused = await asyncio.to_thread(visited, port, own, session)
            assert (answer, reused, outcomes[-1]) == (b"", True, "bad_certificate")


@pytest.mark.parametrize("shown", [True, False])
async def test_a_connection_ends_with_the_certificate_of_its_caller_at_the_next_request(
    authority, shown
):
    clock = ManualClock(system_clock())
    own = authority.issue("client.test") if shown else None
    terms = {"clients": authority.certificate, "required": False, "clock": clock}
    async with (
        listening(authority, **terms) as (_, port, _, _),
        RawClient(port, trusting(authority, own=own), NAME) as caller,
    ):
        assert (await caller.ask(get())).status == 200
        clock.advance(2 * 86_400_000)
        if shown:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await caller.ask(get())
        else:
            assert (await caller.ask(get())).status == 200


async def test_a_request_under_way_is_answered_and_none_behind_it_and_a_tunnel_ends_at_once(
    authority,
):
    gone = asyncio.Event()

    async def waits(wire, server):
        request = await server.read(wire)
        if b"Upgrade" in request.head:
            await wire.send(SWITCHED)
            await wire.reader.read()
            return
        await gone.wait()
        await wire.send(OK)

    pair, own = authority.issue(NAME), trusting(authority, own=authority.issue("client.test"))
    tls, _ = tls_listener(pair, clients=authority.certificate)
    options = {"acceptor": ConnectionAcceptor(None, tls)}
    async with (
        RawServer(waits) as server,
        gateway(server.url, options=options) as (port, _),
        RawClient(port, own, NAME) as busy,
        RawClient(port, own, NAME) as tunnel,
    ):
        await tunnel.send(get("/other", "Upgrade: x", "Connection: Upgrade"))
        assert (await tunnel.head()).status == 101
        await busy.send(get("/other") * 2)
        await server.until(lambda: len(server.requests) == 2)
        tls.renew(tls.context, ended=True)
        async with asyncio.timeout(PATIENCE):
            assert await tunnel.reader.read() == b""
            gone.set()
            answer = await busy.answer()
            assert (answer.status, answer.one("Connection")) == (200, b"close")
            assert await busy.reader.read() == b""
        assert len(server.requests) == 2


async def test_plain_http_is_refused_and_the_next_caller_is_served(authority):
    async with listening(authority) as (server, port, _, outcomes):
        async with RawClient(port) as caller:
            await caller.send(get())
            with contextlib.suppress(ConnectionError):
                assert not (await asyncio.wait_for(caller.reader.read(), PATIENCE)).startswith(
                    b"HTTP"
                )
        async with client(port, authority) as caller:
            assert (await caller.ask(get())).status == 200
        assert outcomes == ["failed", "done"]
        assert len(server.requests) == 1


async def test_garbage_within_tls_ends_the_connection_and_hurts_nobody(authority):
    async with listening(authority) as (_, port, _, _):
        async with client(port, authority) as caller:
            assert (await caller.ask(get())).status == 200
            plain = socket.socket(fileno=os.dup(caller.writer.get_extra_info("socket").fileno()))
            plain.send(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            plain.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await asyncio.wait_for(caller.reader.read(), PATIENCE)
        async with client(port, authority) as caller:
            assert (await caller.ask(get())).status == 200


async def test_a_handshake_that_does_not_come_in_time_ends(authority):
    async with (
        listening(authority, patience=0.1) as (_, port, _, outcomes),
        RawClient(port) as caller,
    ):
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(caller.reader.read(), PATIENCE) == b""
        assert outcomes == ["late"]


async def test_who_leaves_before_it_is_complete_is_forgotten(authority):
    async with listening(authority) as (server, port, _, outcomes):
        async with RawClient(port) as caller:
            await caller.send(b"\x16\x03\x01")
        await server.until(lambda: outcomes == ["left"])


async def test_a_session_is_taken_up_again(authority):
    """Tickets work on both versions, so that callers need not shake hands in full each time."""

    def twice(port: int, version) -> bool:
        tls, session, reused = trusting(authority, version), None, None
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
                with tls.wrap_socket(plain, server_hostname=NAME, session=session) as secured:
                    secured.sendall(get())
                    assert secured.recv(65536).startswith(b"HTTP/1.1 200")
                    session, reused = secured.session, secured.session_reused
        return bool(reused)

    async with listening(authority) as (_, port, _, _):
        for version in (TLS_1_2, TLS_1_3):
            assert await asyncio.to_thread(twice, port, version)


async def test_another_protocol_passes_both_ways(authority):
    async def switches(wire, server):
        await wire.head()
        await wire.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n"
        )
        for _ in range(3):
            await wire.send((await wire.reader.readexactly(4)).upper())
        wire.close()

    async with listening(authority, switches) as (_, port, _, _), client(port, authority) as caller:
        await caller.send(get("/", "Connection: upgrade", "Upgrade: raw"))
        assert (await caller.answer()).status == 101
        for word in (b"abcd", b"efgh", b"ijkl"):
            await caller.send(word)
            assert await asyncio.wait_for(caller.reader.readexactly(4), PATIENCE) == word.upper()
        assert await asyncio.wait_for(caller.reader.read(), PATIENCE) == b""


async def test_many_callers_at_once(authority):
    async def calls(port: int, number: int) -> None:
        async with client(port, authority, (TLS_1_2, TLS_1_3)[number % 2]) as caller:
            for count in range(5):
                body = b"%d-%d" % (number, count) * 100
                assert (await caller.ask(post("/", body))).body == body

    async with listening(authority, echoes) as (_, port, _, outcomes):
        await asyncio.gather(*(calls(port, number) for number in range(30)))
        assert outcomes == ["done"] * 30


# ---- listener


async def test_new_connections_get_the_context_in_force_and_those_that_are_open_go_on(
    authority, tmp_path
):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    fresh, _ = tls_listener(other.issue("app.test"))
    options = {"acceptor": ConnectionAcceptor(None, tls)}
    async with RawServer(says(OK)) as server, gateway(server.url, options=options) as (port, _):
        async with RawClient(port, trusting(authority), "app.test") as before:
            assert (await before.ask(get())).status == 200
            tls.context = fresh.context
            async with RawClient(port, trusting(other), "app.test") as after:
                assert (await after.ask(get())).status == 200
            assert (await before.ask(get())).status == 200
    assert outcomes == ["done", "done"]
    assert set(outcomes) <= set(OUTCOMES)


async def test_a_handshake_is_listed_from_its_beginning_to_its_end(authority):
    tls, outcomes = tls_listener(authority.issue("app.test"))
    assert isinstance(tls, TlsListener)
    connection = tls(asyncio.Protocol())
    assert tls.shaking == set()
    tls.began(connection)
    assert tls.shaking == {connection}
    tls.ended(connection, "left")
    assert (tls.shaking, outcomes) == (set(), ["left"])

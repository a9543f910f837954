"""Connections that do nothing, more than the process has descriptors: others are served beside
them, and probes are answered.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path

import aiohttp
import pytest

from tests.support.application import Application
from tests.support.certificates import Authority
from tests.support.instance import SERVE, Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.scraping import FIELD
from tests.support.serving import serving

#: Descriptors of the process, and connections that are opened to it.
FILES = 320
CROWD = 400

PREAMBLE = b"PROXY TCP4 198.51.100.7 127.0.0.1 1234 80\r\n"

BEGINNINGS = {
    "plain": [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX-"],
    "tls": [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)],
    "proxy protocol": [b"PROXY TCP4 198.", PREAMBLE, PREAMBLE + b"G"],
    "proxy protocol and tls": [PREAMBLE + b"\x16\x03\x01\x02\x00"],
}


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextmanager
def crowd(port: int, address: str, beginning: bytes) -> Iterator[list[socket.socket]]:
    """Many connections from one address, each with its beginning; all closed at the end."""
    made: list[socket.socket] = []
    try:
        for _ in range(CROWD):
            made.append(socket.create_connection(("127.0.0.1", port), PATIENCE, (address, 0)))
            with suppress(OSError):
                made[-1].sendall(beginning)
        yield made
    finally:
        for one in made:
            one.close()


def status(
    url: str, tls: ssl.SSLContext | None, address: str = "127.0.0.1", preamble: bytes = b""
) -> int:
    """The status of one request over a connection of its own, from an address of this machine."""
    with ExitStack() as stack:
        caller = socket.create_connection(("127.0.0.1", port_of(url)), PATIENCE, (address, 0))
        stack.callback(caller.close)
        caller.sendall(preamble)
        if tls is not None:
            caller = stack.enter_context(tls.wrap_socket(caller, server_hostname="vault.test"))
        caller.sendall(
            b"GET /openapi.json HTTP/1.1\r\nHost: vault.test\r\nConnection: close\r\n\r\n"
        )
        return int(caller.recv(64).split()[1])


async def healthy(instance: Instance) -> None:
    """Probes are answered at once, those of store and audit log, too."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE / 4)) as caller:
        for path in ("/healthz", "/readyz"):
            async with caller.get(instance.admin + path) as answer:
                assert answer.status == 200, await answer.text()


@pytest.mark.slow
@pytest.mark.parametrize("how", BEGINNINGS)
async def test_a_crowd_of_idle_connections_stops_nobody(tmp_path: Path, how: str) -> None:
    environment, tls = {"DOMICILE__UPSTREAM__CONNECTIONS": "16"}, None
    if "tls" in how:
        authority = Authority(tmp_path)
        pair = authority.issue("vault.test")
        environment["DOMICILE__LISTEN__TLS__CERTIFICATE"] = str(pair.certificate)
        environment["DOMICILE__LISTEN__TLS__KEY"] = str(pair.key)
        tls = ssl.create_default_context(cafile=str(authority.certificate))
    address = "127.0.0.2"
    if "protocol" in how:
        address = "127.0.0.3"
        environment |= {
            "DOMICILE__LISTEN__PROXY_PROTOCOL": "true",
            "DOMICILE__TRUSTED_PROXIES": address,
        }
    instance = Instance(tmp_path / "here", SERVE, environment, files=FILES)
    async with serving(Application().app()) as upstream:
        instance.rules.mkdir(parents=True)
        (instance.rules / "rules.yaml").write_text(rules(upstream))
        await instance.start()
        try:
            for beginning, listener in zip(
                BEGINNINGS[how], cycle((instance.proxy, instance.vault)), strict=False
            ):
                await beside_crowd(instance, (listener, address, beginning), tls)
            assert "domicile_limited_connections_total 0.0" not in await scraped(instance)
        finally:
            await instance.kill()


async def beside_crowd(
    instance: Instance, those: tuple[str, str, bytes], tls: ssl.SSLContext | None
) -> None:
    """Others are served at both listeners while a crowd holds its connections to one of them."""
    listener, address, beginning = those
    with ExitStack() as stack:
        port = port_of(listener)
        await asyncio.to_thread(stack.enter_context, crowd(port, address, beginning))
        for _ in range(3):
            await healthy(instance)
            assert await asyncio.to_thread(status, instance.vault, tls) == 200
            assert await asyncio.to_thread(status, instance.proxy, tls) in (200, 404)
            if PREAMBLE in beginning:
                other = PREAMBLE.replace(b"198.51.100.7", b"198.51.100.8")
                assert await asyncio.to_thread(status, instance.vault, tls, address, other) == 200


async def scraped(instance: Instance) -> str:
    async with (
        aiohttp.ClientSession(headers=FIELD) as caller,
        caller.get(instance.admin + "/metrics") as answer,
    ):
        return await answer.text()


async def test_a_head_that_does_not_come_within_ten_seconds_ends_its_connection(
    tmp_path: Path,
) -> None:
    async with (
        serving(Application().app()) as upstream,
        running(tmp_path, rules(upstream)) as instance,
    ):
        began = asyncio.get_running_loop().time()
        opened = []
        for url in (instance.proxy, instance.vault, instance.admin):
            for beginning in BEGINNINGS["plain"]:
                opened.append(await asyncio.open_connection("127.0.0.1", port_of(url)))
                opened[-1][1].write(beginning)
        async with asyncio.timeout(10 + PATIENCE):
            assert [await reader.read() for reader, _ in opened] == [b""] * 9
        assert asyncio.get_running_loop().time() - began > 5
        for _, writer in opened:
            writer.close()

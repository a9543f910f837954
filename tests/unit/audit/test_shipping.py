import asyncio
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.audit.events import EventKind, encode_event
from proxy.audit.shipping import Sender, Shipper, StandardOutput, SyslogSink, message
from proxy.audit.verify import number_of
from tests.support.audit import trail
from tests.support.patience import PATIENCE
from tests.support.table import table

LINE = encode_event(EventKind.WRITE)


class Taking:
    """A place that takes lines, unless it is away."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.away = False
        self.closed = threading.Event()

    def send(self, line: bytes) -> None:
        if self.away:
            raise OSError(111, "Connection refused")
        self.numbers.append(number_of(line))

    def close(self) -> None:
        self.closed.set()


def shipper_of(folder: Path, sender: Sender) -> Shipper:
    return Shipper(folder, "syslog", sender, look=0.002, first=0.002)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # another thread makes it so
            await asyncio.sleep(0.002)


async def test_lines_are_handed_over_as_they_come_and_the_rest_at_the_end(tmp_path):
    way = Taking()
    async with trail(tmp_path) as made:
        shipper = shipper_of(tmp_path, way)
        shipper.start()
        made.put(LINE)
        await until(lambda: shipper.position == 2)
        made.put(LINE)
    shipper.stop(20)
    assert way.numbers == [1, 2, 3, 4]
    assert way.closed.is_set()


async def test_the_next_start_goes_on_behind_the_last_line(tmp_path):
    async with trail(tmp_path):
        first, second = Taking(), Taking()
        for way in (first, second):
            shipper = shipper_of(tmp_path, way)
            shipper.start()
            await until(lambda: shipper.position == 1)  # noqa: B023  # asked before the next one is made
            shipper.stop(20)
        assert (first.numbers, second.numbers) == ([1], [])
        (tmp_path / "shipped-syslog").write_text("?")
        assert Shipper(tmp_path, "syslog", second).position == 0


async def test_a_place_that_is_away_gets_what_it_missed(tmp_path):
    way = Taking()
    async with trail(tmp_path) as made:
        shipper = shipper_of(tmp_path, way)
        shipper.start()
        await until(lambda: way.numbers == [1])
        way.away = True
        for _ in range(5):
            made.put(LINE)
        way.away = False
        await until(lambda: shipper.position == 6)
        shipper.stop(20)
    assert set(way.numbers) >= set(range(1, 7))


def test_one_that_was_never_started_can_be_stopped(tmp_path):
    Shipper(tmp_path, "stdout", Taking()).stop()


def test_standard_output_takes_lines_as_they_are(capfdbinary):
    out = StandardOutput()
    out.send(b"line\n")
    out.close()
    assert capfdbinary.readouterr().out == b"line\n"


# ---- syslog


SENT_LINE = b'{"n":7,"at":"2026-11-22T03:00:00.000Z","event":"alarm","prev":"0","hash":"1"}\n'

#: RFC 5424, section 6: PRI, version, time, host, program, process, kind, structured data, text.
FORM = re.compile(rb"<(\d+)>1 (\S+) (\S+) domicile (\d+) audit - (.*)", re.DOTALL)


@table(
    ("event", "priority"),
    [(b"alarm", 105), (b"refused", 108), (b"log", 110), (b"reveal", 109), (b"write", 109)],
)
def test_a_message_has_the_facility_of_audits_and_the_severity_of_its_event(event, priority):
    found = FORM.fullmatch(message(SENT_LINE.replace(b"alarm", event), b"host domicile 1 audit -"))
    assert found is not None
    assert int(found[1]) == priority
    assert found[2] == b"2026-11-22T03:00:00.000Z"
    assert found[5] == SENT_LINE.replace(b"alarm", event).rstrip()


def test_a_line_of_somebody_else_is_passed_on_all_the_same():
    assert message(b"x\n", b"h domicile 1 audit -") == b"<109>1 - h domicile 1 audit - x"


def test_udp_takes_one_message_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        way = SyslogSink("udp", "127.0.0.1", server.getsockname()[1])
        way.send(SENT_LINE)
        assert FORM.fullmatch(server.recv(4096)) is not None
        way.close()
        way.close()


def test_a_local_socket_takes_one_message_a_datagram(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(PATIENCE)
        way = SyslogSink("unix", str(tmp_path / "log"))
        way.send(SENT_LINE)
        assert FORM.fullmatch(server.recv(4096)) is not None
        way.close()
    with pytest.raises(OSError, match=r"."):
        SyslogSink("unix", str(tmp_path / "none")).send(SENT_LINE)


def test_tcp_counts_octets_and_a_broken_connection_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        way = SyslogSink("tcp", "127.0.0.1", server.getsockname()[1])
        got: list[bytes] = []

        def take() -> None:
            peer, _ = server.accept()
            with peer, peer.makefile("rb") as file:
                for _ in range(2):
                    size = b""
                    while (one := file.read(1)) != b" ":
                        size += one
                    got.append(file.read(int(size)))

        thread = threading.Thread(target=take)
        thread.start()
        way.send(SENT_LINE)
        way.send(SENT_LINE)
        thread.join(20)
        assert [FORM.fullmatch(one) is not None for one in got] == [True, True]

    def on_and_on() -> None:
        for _ in range(100_000):
            way.send(SENT_LINE)

    with pytest.raises(OSError, match=r"."):
        on_and_on()

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from proxy.audit.events import EventKind, encode_event
from proxy.audit.shipping import Sender, Shipper, StandardOutput
from proxy.audit.verify import number_of
from tests.support.audit import trail

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
    async with asyncio.timeout(20):
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

"""The load: kept-alive connections that each send the next request as soon as the answer is there.

A process of its own. The job comes as one JSON argument, the result goes to standard output as one
line of JSON:

    python -m bench.load '{"scenario": "create", "port": 8080, "connections": 16, "seconds": 3}'

Every answer is looked at: a status other than 2xx, an answer without the value that was sent, or a
connection that closes is an error, and whoever reads the result refuses a run that has one.
"""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import cast

import msgspec
import uvloop

from bench.processes import processor_seconds
from bench.scenarios import SCENARIOS, Source


class Job(msgspec.Struct):
    """What to send, where, for how long; ``start`` is the first running number, ``pids`` whose
    processor time counts.
    """

    scenario: str
    port: int
    connections: int
    seconds: float
    count: int = 10_000_000
    warmup: float = 0.5
    start: int = 0
    pids: list[int] = []
    rest: list[int] = []


class Result(msgspec.Struct):
    """What was measured between the end of the warm-up and the last counted answer.

    ``cpu_us`` is the processor time of ``pids`` for one request; ``rest_busy`` the cores' worth of
    processor time that the load and ``rest`` took: close to 1 means that they, not the proxy, were
    the limit.
    """

    requests: int
    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    first_error: str
    cpu_us: float | None
    rest_busy: float | None


class Tally:
    """What all connections count together."""

    def __init__(self, count: int) -> None:
        self.latencies: list[float] = []
        self.errors = 0
        self.first_error = ""
        self.over = False
        self.full = asyncio.Event()
        self.count = count

    def answer(self, seconds: float) -> None:
        """One good answer."""
        self.latencies.append(seconds)
        if len(self.latencies) >= self.count:
            self.full.set()

    def error(self, text: str) -> None:
        """One that was not; the first is kept to be told."""
        self.errors += 1
        self.first_error = self.first_error or text
        self.full.set()


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, source: Source, tally: Tally) -> None:
        self._source = source
        self._tally = tally
        self._transport: asyncio.WriteTransport
        self._part = b""
        self._expected = b""
        self._sent = 0.0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self._tally.error(f"the connection closed before its answer: {exc or 'end of stream'}")
            self.finished.set_result(None)

    def data_received(self, data: bytes) -> None:
        whole = self._part + data if self._part else data
        body = body_of(whole)
        if body is None:
            self._part = whole
            return
        self._part = b""
        if whole[9:10] != b"2" or self._expected not in body:
            self._tally.error(
                f"status {whole[9:12].decode()}, body {body[:200].decode(errors='replace')}"
            )
        else:
            self._tally.answer(time.perf_counter() - self._sent)
            self._source.answered(body)
        self._send()

    def _send(self) -> None:
        if self._tally.over or self._tally.errors:
            self.finished.set_result(None)
            self._transport.close()
            return
        wire, self._expected = self._source.next()
        self._sent = time.perf_counter()
        self._transport.write(wire)


def body_of(answer: bytes) -> bytes | None:
    """The body of an answer, as long as it is complete; a chunked one with its chunk sizes in it."""
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = answer[: end + 2].lower()
    body = answer[end + 4 :]
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return (
            body if body.endswith(b"0\r\n\r\n") or b"\r\ntransfer-encoding:" not in head else None
        )
    return body if len(body) >= int(head[at + 17 : head.index(b"\r\n", at + 2)]) else None


async def run(job: Job) -> Result:
    """Send what the job asks for and answer what came of it."""
    tally = Tally(job.count)
    numbers = itertools.count(job.start)
    sources = [SCENARIOS[job.scenario](numbers) for _ in range(job.connections)]
    clients = await _connect(job.port, sources, tally)
    await _warm_up(job, sources, tally)
    began, cpu, rest = time.perf_counter(), processor_seconds(job.pids), _rest(job)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(tally.full.wait(), job.seconds)
    took = time.perf_counter() - began
    latencies = sorted(tally.latencies)
    cpu_after, rest_after = processor_seconds(job.pids), _rest(job)
    tally.over = True
    await asyncio.wait([client.finished for client in clients], timeout=10)
    done = len(latencies)
    return Result(
        requests=done,
        rate=done / took,
        p50_ms=latencies[done // 2] * 1000 if done else 0.0,
        p99_ms=latencies[done * 99 // 100] * 1000 if done else 0.0,
        errors=tally.errors,
        first_error=tally.first_error,
        cpu_us=None
        if cpu is None or cpu_after is None or not done
        else (cpu_after - cpu) / done * 1e6,
        rest_busy=None if rest is None or rest_after is None else (rest_after - rest) / took,
    )


async def _connect(port: int, sources: Sequence[Source], tally: Tally) -> list[Client]:
    """One connection for each source; each begins to send at once."""
    loop = asyncio.get_running_loop()
    clients = [Client(source, tally) for source in sources]
    for client in clients:
        await loop.create_connection(partial(_same, client), "127.0.0.1", port)
    return clients


def _same(client: Client) -> Client:
    return client


async def _warm_up(job: Job, sources: Sequence[Source], tally: Tally) -> None:
    """Let the load run until every source is ready and the warm-up is over, then forget what was
    counted.
    """
    for _ in range(3000):
        if tally.errors or all(source.ready for source in sources):
            break
        await asyncio.sleep(0.01)
    else:
        tally.error("not every connection was ready to be measured after 30 seconds")
    await asyncio.sleep(job.warmup)
    tally.latencies.clear()
    if not tally.errors:
        tally.full.clear()


def _rest(job: Job) -> float | None:
    """Processor seconds of the load itself and of what the job calls the rest."""
    others = processor_seconds(job.rest)
    return None if others is None else others + time.process_time()


def main() -> None:
    """Run the job of the command line."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    result = uvloop.run(run(job))
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    main()

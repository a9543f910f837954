"""Measure 17: a large attachment up and down, against a plain copy through aiohttp that seals and
hashes nothing.

One caller, one connection, the same bytes in turns; both sides flush an upload to disk before they
answer. Constant memory is part of the measure: what the process grew by is told, and a run in which
it grew by more than a part of the file has failed.
"""

import asyncio
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import uvloop

from bench.creates import CASES, Interface, interface
from bench.processes import Unavailable, free_port, started
from bench.rounds import Failed

_BOUNDARY = b"--measure"
_HEAD = (
    _BOUNDARY
    + b'\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: application/pdf\r\n\r\n'
)
_TAIL = b"\r\n" + _BOUNDARY + b"--\r\n"
_PIECE = 512 * 1024

#: The part of the file by which memory may grow while it goes through.
_GROWTH = 0.4


class Plan(NamedTuple):
    """How much, how often."""

    size: int
    rounds: int


class Caller:
    """One keep-alive connection that sends and takes bytes as fast as they go."""

    def __init__(self, port: int, headers: str = "") -> None:
        self._port = port
        self._headers = headers
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(
        self, method: str, path: str, parts: tuple[bytes, ...] = (), more: str = ""
    ) -> tuple[int, bytes]:
        """The status of the answer, and the digest of its body."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._port, limit=2**20
            )
        length = sum(map(len, parts))
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: "
            f"127.0.0.1:{self._port}\r\n{self._headers}{more}Content-Length: {length}\r\n\r\n"
        )
        self._writer.write(head.encode())
        for part in parts:
            for at in range(0, len(part), _PIECE):
                self._writer.write(memoryview(part)[at : at + _PIECE])
                await self._writer.drain()
        answered = await self._reader.readuntil(b"\r\n\r\n")
        left = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        body = bytearray()
        while left:
            piece = await self._reader.read(min(left, _PIECE))
            if not piece:
                raise Failed(f"{method} {path}: the answer broke off.")
            left -= len(piece)
            body += piece
        return int(answered[9:12]), bytes(body)

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()


def resident(pid: int, name: str) -> int:
    """Bytes of memory of a process: ``VmRSS`` now, ``VmHWM`` at its highest."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise Unavailable("This system does not tell how much memory a process has.")


async def timed(work: Awaitable[tuple[int, bytes]], status: int, size: int) -> tuple[float, bytes]:
    """Megabytes/s, and what was answered; another status is a failure."""
    start = time.perf_counter()
    answered, body = await work
    seconds = time.perf_counter() - start
    if answered != status:
        raise Failed(f"An upload or a download was answered {answered}.")
    return size / 1e6 / seconds, body


async def _measure(place: Interface, peer: int, plan: Plan) -> dict[str, Any]:
    content = os.urandom(plan.size)
    digest = hashlib.sha256(content).hexdigest()
    ours = Caller(place.port, f"Authorization: Bearer {place.token}\r\n")
    theirs = Caller(peer)
    place.put_schema(CASES[0])
    status, _ = await ours.ask(
        "POST", "/api/models/customer", (b'{"id": "c"}',), "Content-Type: application/json\r\n"
    )
    if status != 201:
        raise Failed(f"The record of the measure was answered {status}.")
    form = (
        f"Content-Type: multipart/form-data; boundary={_BOUNDARY[2:].decode()}\r\nx-filename: "
        "large\r\n"
    )
    parts, files = (_HEAD, content, _TAIL), "/api/models/customer/c/files"
    rates: dict[str, list[float]] = {
        "up": [],
        "down": [],
        "peer up": [],
        "peer form up": [],
        "peer down": [],
    }
    before = 0
    for number in range(plan.rounds + 1):
        # A new file each time, as ours is: one that is written over gives its pages, warm as they
        # are, to the next.
        copy = f"/copy{number}"
        up, told = await timed(ours.ask("PUT", files, parts, form), 201, plan.size)
        link = told.partition(b'"download_link":"')[2].partition(b'"')[0].decode()
        peer_up, _ = await timed(theirs.ask("PUT", copy, (content,)), 201, plan.size)
        form_up, _ = await timed(theirs.ask("POST", copy + "f", parts, form), 201, plan.size)
        down, got = await timed(ours.ask("GET", link), 200, plan.size)
        peer_down, _ = await timed(theirs.ask("GET", copy), 200, plan.size)
        if hashlib.sha256(got).hexdigest() != digest:
            raise Failed("What was downloaded is not what was uploaded.")
        if number == 0:
            before = resident(place.pid, "VmRSS")  # after the first round, which warms up
            continue
        for name, rate in zip(rates, (up, down, peer_up, form_up, peer_down), strict=True):
            rates[name].append(rate)
    grown = resident(place.pid, "VmHWM") - before
    ours.close()
    theirs.close()
    if grown > _GROWTH * plan.size and plan.size >= 10**8:
        raise Failed(
            f"Memory grew by {grown / 1e6:.0f} MB while {plan.size / 1e6:.0f} MB went through."
        )
    return {
        "rates": {name: statistics.median(found) for name, found in rates.items()},
        "grown": grown,
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Measure 17; ``quick`` only shows that it works."""
    plan = Plan(300_000, 1) if quick else Plan(100_000_000, 5)
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "copies").mkdir()
        port = free_port()
        command = [sys.executable, "-m", "bench.copy_app", str(port), str(folder / "copies")]
        with (
            interface(folder, "limits:\n  upload: 256MiB\n") as place,
            started("copy", command, port, folder),
        ):
            found = uvloop.run(_measure(place, port, plan))
    cases = (
        ("upload", "up", "peer form up", "a plain copy of the same form through aiohttp"),
        (
            "upload, the peer without a form,",
            "up",
            "peer up",
            "a plain copy of the bare bytes through aiohttp",
        ),
        ("download", "down", "peer down", "a plain copy through aiohttp"),
    )
    for title, ours, peer, against in cases:
        rates = found["rates"]
        rows.append(
            {
                "measure": 17,
                "case": f"{title} of {plan.size / 1e6:g} MB",
                "ours": rates[ours],
                "peer": rates[peer],
                "unit": "MB/s",
                "against": against,
                "ratio": rates[ours] / rates[peer],
                "detail": (
                    f"memory grew by {max(0, found['grown']) / 1e6:.0f} MB at most, in all "
                    "rounds together"
                ),
            }
        )
    return {"rows": rows, "notes": []}


if __name__ == "__main__":
    for row in run("--quick" in sys.argv)["rows"]:
        print(row)

"""Bodies made to fill the memory: bombs in every coding, and many large ones at once."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator

import brotli
import pytest
import pytest_asyncio
from backports import zstd

from tests.support import plain
from tests.support.instance import Instance, running
from tests.support.people import rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawserver import OK, RawServer, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTES = 1 << 20
JSON = "Content-Type: application/json"
ZEROS = bytes(64 * MEGABYTES)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    async with (
        RawServer(says(OK)) as server,
        running(
            tmp_path_factory.mktemp("memory"), rules(server.url), DOMICILE__LIMITS__HELD="16MiB"
        ) as made,
    ):
        yield made


def process(instance: Instance) -> int:
    assert instance.process is not None
    return instance.process.pid


async def ask(instance: Instance, request: bytes) -> int:
    async with RawClient(int(instance.proxy.rpartition(":")[2])) as client:
        return (await client.ask(request, 60)).status


def bombs() -> dict[str, tuple[str, bytes]]:
    """Each with the codings it is said to be in; none is larger than a few hundred kilobytes."""
    packed = gzip.compress(ZEROS, 9, mtime=0)
    small = zstd.compress(ZEROS)
    return {
        "gzip": ("gzip", packed),
        "deflate": ("deflate", zlib.compress(ZEROS, 9)),
        "br": ("br", brotli.compress(ZEROS, quality=5)),
        "zstd": ("zstd", small),
        "gzip in gzip": ("gzip, gzip", gzip.compress(packed, mtime=0)),
        "zstd in br in gzip": (
            "zstd, br, gzip",
            gzip.compress(brotli.compress(small, quality=5), mtime=0),
        ),
        "parts without end": ("gzip", gzip.compress(bytes(1000), mtime=0) * 20_000),
    }


async def test_bombs_in_every_coding_cost_no_memory(instance: Instance) -> None:
    assert await ask(instance, post("/people", b'{"name": "Ann"}', JSON)) == 200
    before = plain.memory(process(instance))
    for name, (coding, body) in bombs().items():
        assert len(body) < MEGABYTES
        request = post("/people", body, JSON, f"Content-Encoding: {coding}")
        assert await ask(instance, request) == 413, name
        assert plain.memory(process(instance)) - before < 64 * MEGABYTES, name
        assert (
            await ask(instance, post("/elsewhere", body, JSON, f"Content-Encoding: {coding}"))
            == 200
        ), name
    assert await ask(instance, get("/next")) == 200


async def test_many_large_bodies_at_once_stay_within_what_may_be_held(instance: Instance) -> None:
    before = plain.memory(process(instance))
    body = b'{"name": "Ann", "x": "' + b"y" * (2 * MEGABYTES - 100) + b'"}'
    asked = [asyncio.create_task(ask(instance, post("/people", body, JSON))) for _ in range(60)]
    peak = before
    while not all(task.done() for task in asked):
        await asyncio.wait(asked, timeout=0.05)
        peak = max(peak, plain.memory(process(instance)))
    assert {task.result() for task in asked} <= {200, 503}
    assert any(task.result() == 200 for task in asked)
    # of 120 that were sent, each of which is needed more than once
    assert peak - before < 5 * 16 * MEGABYTES
    assert await ask(instance, post("/people", body, JSON)) == 200

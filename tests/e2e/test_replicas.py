"""Two instances that serve at the same time on one database: what one is told the other one knows,
and kill -9 of either loses nothing.
"""

import random
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_kill import WORKERS, before, nowhere
from tests.support.application import Application
from tests.support.crowd import Crowd, moody
from tests.support.effort import rounds
from tests.support.lives import Installation
from tests.support.postgres import fresh_address


class Several(Crowd):
    """Callers of whom each request goes to either installation."""

    both: tuple[Installation, ...] = ()

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        self.installation = random.choice([one for one in self.both if one.proxy])
        return await super()._ask(method, path, **options)


@pytest.fixture
async def crowd(tmp_path: Path) -> AsyncIterator[Several]:
    application = Application()
    async with before(application, moody(application), tmp_path) as alone:
        first = alone.installation
        first.environment |= {
            "DOMICILE__STORE": fresh_address(replicas="true"),
            "DOMICILE__KEYS": f"file://{first.folder}/keys.json",
            "DOMICILE__FILES": f"file://{first.folder}/files",
        }
        second = Installation(first.nursery, first.folder / "two", dict(first.environment))
        second.folder.mkdir()
        shutil.copytree(first.rules, second.rules)
        made = Several(application, alone.caller, first)
        made.both = (first, second)
        for one in made.both:
            assert await one.start(), one.log.decode()
        yield made
        for one in made.both:
            await one.kill()


@pytest.mark.slow
async def test_either_is_killed_at_random_and_nothing_is_lost_or_mixed(crowd: Several) -> None:
    for number in range(rounds(4)):
        work = [crowd.visit(worker, WORKERS) for worker in range(WORKERS)]
        victim = random.choice(crowd.both)
        await victim.kill_at_work(work, crowd.counts, 200)
        victim.proxy = ""
        since = time.monotonic()
        if number % 2:
            await crowd.judge()  # the other one serves, whoever is gone
        assert await victim.start(), victim.log.decode()
        print("again after", time.monotonic() - since)
    await crowd.judge(len(crowd.every))
    print(crowd.counts)
    for one in crowd.both:
        assert await one.stop() == 0, one.log[-3000:].decode()
        one.proxy = ""
        assert await one.run("audit", "verify") == 0, one.output + one.log
    nowhere(crowd)

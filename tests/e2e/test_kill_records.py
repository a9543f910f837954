"""kill -9 while clients write records over the vault's own interface: all or nothing of each call,
and all of each that was answered.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import aiohttp
import pytest

from tests.support.application import Application, found_in
from tests.support.clients import MARKERS, KeptCrowd, RecordCrowd
from tests.support.crowd import Crowd, HostedCrowd, moody
from tests.support.effort import rounds
from tests.support.lives import Installation, nursery
from tests.support.patience import PATIENCE
from tests.support.people import KEPT_PLAIN, rules
from tests.support.serving import serving

#: Deaths in all; a release is tried with 200.
ROUNDS = rounds(7)


def nowhere(folder: Path, markers: Sequence[str] = MARKERS) -> None:
    """No value is in a file of the data folder, or in the log."""
    heap = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not [marker for marker in markers if found_in(heap, marker)]


#: What a crowd has done and seen when its rounds end; where chance had it otherwise, they go on.
TRIED = {
    *("_create 201", "_create_many 201", "_update 201", "_delete 204", "_clone 201"),
    *("_migrate 204", "repeated", "carried out unheard", "not carried out"),
}


async def killed(crowd: RecordCrowd, most: int, tried: AbstractSet[str] = frozenset()) -> None:
    """The instance dies so many times under its clients; what is to be found then is judged each
    time.
    """
    crowd.installation.rules.mkdir()
    (crowd.installation.rules / "rules.yaml").write_text(rules("http://127.0.0.1:9"))
    await crowd.prepare()
    for number in range(4 * most):
        if number >= most and tried <= crowd.counts.keys():
            break
        await crowd.arrive()
        await crowd.judge()
        await crowd.installation.kill_at_work(map(crowd.visit, crowd.workers), crowd.counts, 60)
    await crowd.arrive()
    await crowd.judge()
    assert await crowd.installation.stop() == 0


@pytest.mark.slow
async def test_what_was_answered_is_there_and_what_was_not_is_there_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
        crowd = RecordCrowd(caller, Installation(cradle, tmp_path))
        await killed(crowd, ROUNDS, TRIED)
    nowhere(tmp_path)
    assert crowd.counts.keys() >= TRIED, crowd.counts


@pytest.mark.slow
async def test_overwritten_records_are_of_one_body_after_any_death(tmp_path: Path) -> None:
    timeout = aiohttp.ClientTimeout(2 * PATIENCE)
    async with nursery() as cradle, aiohttp.ClientSession(timeout=timeout) as caller:
        crowd = KeptCrowd(caller, Installation(cradle, tmp_path))
        await killed(crowd, max(1, ROUNDS // 4), made := {"_create 201", "_create_many 201"})
    nowhere(tmp_path)
    assert made <= crowd.counts.keys(), crowd.counts


#: Callers of the application.
CALLERS = 4
#: What of its people is in the clear neither there nor here; of the clients' own records the
#: settings keep something so.
HIDDEN = ("Zorbina", "Wexlomere", "Flumpergatan", "yxmarker-", "qophmatrix-")


async def killed_among_both(crowd: HostedCrowd, most: int) -> None:
    """The instance dies so many times under clients and callers; what is to be found then is judged
    each time.
    """
    await crowd.prepare()
    while most > 0 or not crowd.tried:
        most -= 1
        await crowd.arrive()
        await crowd.judge()
        work = [
            *(crowd.visit(worker) for worker in crowd.workers[:2]),
            *(crowd.people.visit(number, CALLERS) for number in range(CALLERS)),
            crowd.look(),
        ]
        await crowd.installation.kill_at_work(work, crowd.people.counts, 60)
    await crowd.converge()


@pytest.mark.slow
async def test_people_that_the_proxy_keeps_among_records_are_whole_after_any_death(
    tmp_path: Path,
) -> None:
    timeout, application = aiohttp.ClientTimeout(2 * PATIENCE), Application()
    async with (
        serving(moody(application)) as upstream,
        nursery() as cradle,
        aiohttp.ClientSession(timeout=timeout) as caller,
    ):
        installation = Installation(cradle, tmp_path)
        installation.rules.mkdir()
        (installation.rules / "rules.yaml").write_text(KEPT_PLAIN.format(upstream=upstream))
        people = Crowd(application, caller, installation)
        crowd = HostedCrowd(caller, installation, people=people)
        await killed_among_both(crowd, max(1, ROUNDS // 6))
    nowhere(tmp_path, HIDDEN)
    assert not [marker for marker in HIDDEN if application.holds(marker)]

"""The soak of ``make soak`` finds no fault in a short run of every step."""

import os
from pathlib import Path

import pytest

from tests.support.instance import Instance
from tests.support.patience import PATIENCE
from tests.support.soak import Look, Pace, Pauses, Upkeep, ready, soak, soak_fleet

#: Steps of upkeep are what a short run is for, on a machine that may have no turn for anybody: what
#: an answer takes without its pauses is bounded all the same.
SHORT = Pace(3, 0.5, rest=0.1, longest=PATIENCE, own=15.0)


def grown(*files: int, callers: int = 8) -> list[str]:
    """Faults of a process that has so many descriptors, round by round."""
    upkeep = Upkeep(Instance(Path()), Path())
    upkeep.looks[1] = [
        [Look(100 << 20, one + more, callers, 8) for more in (0, 0, 1)] for one in files
    ]
    return upkeep.faults()


def test_a_leak_of_one_descriptor_each_round_is_found_and_a_warm_up_is_none() -> None:
    assert grown(15, 21, 22, 21, 22, 21) == []
    assert grown(15, 21, 22, 23, 24) != []
    assert grown(15, 21, 21, 21) == []
    assert grown(15, 21, 21, 21, callers=30) != []


def test_pauses_of_the_machine_are_taken_off_an_answer(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path)
    pauses.noted.extend([(1.0, 2.0), (3.0, 5.0)])
    assert pauses.within(0.0, 1.0) == 0
    assert pauses.within(1.5, 4.0) == 1.5
    assert pauses.within(0.0, 9.0) == 3
    pauses.ready.extend([(0.0, {1: 0.5}), (2.0, {1: 0.7, 2: 0.1}), (4.0, {1: 1.5, 2: 1.1})])
    assert pauses.within(1.0, 1.5) == 0.5, "no more than there is"
    assert pauses.within(2.5, 3.5) == pytest.approx(1.0)
    assert pauses.within(0.0, 2.0) == 1.0, "the pause, of which the wait may be a part"
    assert pauses.share() == {"average": 0.25, "most": 0.25}, (
        "of the one that was there all the while"
    )
    assert ready(os.getpid()) >= 0


@pytest.mark.slow
async def test_a_short_soak_with_every_kind_of_upkeep_has_no_fault(tmp_path: Path) -> None:
    result = await soak(tmp_path / "run", SHORT)
    assert result.faults() == []
    assert {"rules", "data key", "backup"} <= result.upkeep.done.keys()
    assert all(one.answers["update"] for one in result.callers)


@pytest.mark.slow
async def test_a_short_soak_of_two_instances_has_no_fault(tmp_path: Path) -> None:
    result = await soak_fleet(tmp_path / "run", SHORT._replace(steps=4), program=())
    assert result.faults() == []
    assert result.upkeep.done.keys() == {"rules", "data key", "backup", "restart"}
    assert all(one.answers["update"] for one in result.callers)

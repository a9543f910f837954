"""The soak of ``make soak`` finds no fault in a short run of every step."""

from pathlib import Path

import pytest

from tests.support.soak import soak, soak_fleet


@pytest.mark.slow
async def test_a_short_soak_with_every_kind_of_upkeep_has_no_fault(tmp_path: Path) -> None:
    result = await soak(tmp_path / "run", 3, 0.5)
    assert result.faults() == []
    assert {"rules", "data key", "backup"} <= result.upkeep.done.keys()
    assert all(one.answers["update"] for one in result.callers)


@pytest.mark.slow
async def test_a_short_soak_of_two_instances_has_no_fault(tmp_path: Path) -> None:
    result = await soak_fleet(tmp_path / "run", 4, 0.5)
    assert result.faults() == []
    assert result.upkeep.done.keys() == {"rules", "data key", "backup", "restart"}
    assert all(one.answers["update"] for one in result.callers)

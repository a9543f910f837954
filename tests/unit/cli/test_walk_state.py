from pathlib import Path

from tests.unit.cli.test_walk import walk

__all__ = ["walk"]


def test_a_walk_that_was_stopped_goes_on_and_counts_on(office, walk):
    office.refuse = {"p4": 403}
    assert "403" in walk("--pages", "start+0", status=1)["message"]
    state = Path("domicile-adopt-crm-contact.json")
    assert '"steps":4' in state.read_text()
    office.refuse, before = {}, len(office.requests)
    report = walk("--pages", "start+0")
    assert (report["complete"], report["converted"], report["passes"]) == (True, 5, 2)
    assert office.requests[before] == "application GET /people?start=4"
    assert not state.exists()


def test_the_state_of_another_walk_is_not_taken_for_this_one(office, walk):
    office.refuse = {"p4": 403}
    walk(status=1)
    assert "another walk" in walk("--pages", "start+0", status=1)["message"]
    Path("domicile-adopt-crm-contact.json").write_text("{")
    assert "another walk" in walk(status=1)["message"]
    assert "cannot be written" in walk("--state", "no/where.json", status=1)["message"]

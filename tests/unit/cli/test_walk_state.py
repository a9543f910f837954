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


def test_a_pass_that_goes_on_in_its_middle_is_never_the_last_one(office, walk):
    """What a shifting list skipped in the part before is met by a whole pass alone."""
    state = Path("domicile-adopt-crm-contact.json")
    pages = ("--pages", "start+0")
    office.refuse = {"p4": 403}
    walk(*pages, "--parallel", "1", status=1)
    assert '"steps":4' in state.read_text()
    office.change("p1", name="Ann 1")  # as if p1 had been skipped
    office.change("p4", name="t-Ann 4", email="t-a4@b.example")  # nothing is left to do in the rest
    office.refuse = {}
    report = walk(*pages)
    assert (report["complete"], report["records"], report["clear"]) == (True, 5, 0)
    assert office.records["p1"]["name"] == "t-Ann 1"

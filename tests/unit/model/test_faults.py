import pytest

from proxy.errors import Code, Detail
from proxy.model.faults import Faults, Unfit, step


@pytest.mark.parametrize(
    ("name", "spelled"), [("a", "/a"), ("a/b~c", "/a~1b~0c"), ("", "/"), (3, "/3"), ("x" * 200, "")]
)
def test_steps_are_escaped_as_rfc_6901_says_and_endless_names_are_not_repeated(name, spelled):
    assert step(name) == spelled


def test_faults_are_told_in_order_and_no_more_than_allowed():
    faults = Faults(2)
    assert not faults
    for number in range(5):
        faults.add(f"/{number}", "Wrong.")
    error = faults.error(Code.INVALID_RECORD, "No.")
    assert error.details == (Detail("/0", "Wrong."), Detail("/1", "Wrong."))
    assert error.message == "No. 3 more faults are not listed."
    assert error.code is Code.INVALID_RECORD


def test_kinds_of_faults_are_told_apart_where_somebody_says_them():
    faults = Faults(1)
    faults.add("", "Wrong.")
    faults.add("", "Wrong.", Code.INVALID_FILTER)
    assert faults.codes == {Code.INVALID_FILTER}


def test_a_fault_knows_its_place_below_the_value():
    assert (Unfit("Wrong.", "/a").text, Unfit("Wrong.", "/a").place) == ("Wrong.", "/a")

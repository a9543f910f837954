import pytest

from proxy.errors import Code, Detail
from proxy.model.values import Unfit, ValueFaults, step


@pytest.mark.parametrize(
    ("name", "spelled"), [("a", "/a"), ("a/b~c", "/a~1b~0c"), ("", "/"), (3, "/3"), ("x" * 200, "")]
)
def test_steps_are_escaped_as_rfc_6901_says_and_endless_names_are_not_repeated(name, spelled):
    assert step(name) == spelled


def test_faults_are_told_in_order_and_no_more_than_allowed():
    faults = ValueFaults(2)
    assert not faults
    for number in range(5):
        faults.add(f"/{number}", "Wrong.")
    error = faults.error(Code.INVALID_RECORD, "No.")
    assert error.details == (Detail("/0", "Wrong."), Detail("/1", "Wrong."))
    assert error.message == "No. 3 more faults are not listed."
    assert error.code is Code.INVALID_RECORD


def test_kinds_of_faults_are_told_apart_where_somebody_says_them():
    faults = ValueFaults(1)
    faults.add("", "Wrong.")
    faults.add("", "Wrong.", Code.INVALID_FILTER)
    assert faults.codes == {Code.INVALID_FILTER}


def test_a_fault_knows_its_place_below_the_value():
    assert (Unfit("Wrong.", "/a").text, Unfit("Wrong.", "/a").place) == ("Wrong.", "/a")


class Names(list[str]):
    """Names that are taken as a part, never one by one to their end."""

    def __iter__(self):
        raise AssertionError("there are too many to look at each")


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_the_same_fault_of_many_members_costs_no_more_than_what_is_told(before):
    faults = ValueFaults(2)
    for _ in range(before):
        faults.add("", "Before.")
    faults.each("/o", Names(["a/b", "c", "d", "e"]), "Wrong.", Code.INVALID_FILTER)
    error = faults.error(Code.INVALID_FILTER, "No.")
    assert (
        error.details
        == (
            *[Detail("", "Before.")] * before,
            Detail("/o/a~1b", "Wrong."),
            Detail("/o/c", "Wrong."),
        )[:2]
    )
    assert error.message == f"No. {before + 2} more faults are not listed."
    assert faults.codes == {Code.INVALID_FILTER}


def test_no_members_are_no_fault():
    faults = ValueFaults(2)
    faults.each("", [], "Wrong.", Code.INVALID_FILTER)
    assert not faults
    assert not faults.codes

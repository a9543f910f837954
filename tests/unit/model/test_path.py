import pytest

from proxy.model.path import Path, Step, spell


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "$"),
        (("email",), "$.email"),
        (("items", Step.EACH, "first_name"), "$.items[*].first_name"),
        ((Step.DEEP, "email"), "$..email"),
        ((Step.DEEP, Step.MEMBERS), "$..*"),
        ((Step.DEEP, Step.EACH, Step.MEMBERS), "$..[*].*"),
        ((0, "first-name"), "$[0]['first-name']"),
        (("", "0th"), "$['']['0th']"),
    ],
)
def test_a_path_is_spelled_as_a_selector(path: Path, text: str):
    assert spell(path) == text


def test_a_relative_path_is_spelled_from_its_own_root():
    assert spell(("address", "street"), "@") == "@.address.street"

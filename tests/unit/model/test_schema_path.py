from proxy.model.schema import Path, PathStep, spell
from tests.support.table import table


@table(
    ("path", "text"),
    [
        ((), "$"),
        (("email",), "$.email"),
        (("items", PathStep.EACH, "first_name"), "$.items[*].first_name"),
        ((PathStep.DEEP, "email"), "$..email"),
        ((PathStep.DEEP, PathStep.MEMBERS), "$..*"),
        ((PathStep.DEEP, PathStep.EACH, PathStep.MEMBERS), "$..[*].*"),
        ((0, "first-name"), "$[0]['first-name']"),
        (("", "0th"), "$['']['0th']"),
    ],
)
def test_a_path_is_spelled_as_a_selector(path: Path, text: str):
    assert spell(path) == text


def test_a_relative_path_is_spelled_from_its_own_root():
    assert spell(("address", "street"), "@") == "@.address.street"

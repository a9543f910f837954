import pytest

from proxy.model.schema import Path, PathStep, Value
from proxy.redactor.select import Emptied

STREET: Path = ("address", "street")
TAGS: Path = ("tags", PathStep.EACH)
NAMES: Path = ("people", PathStep.EACH, "name")


def among(path: Path, body: str, *given: str) -> dict[str, Value | None]:
    return dict(Emptied(["f"], [path]).among(given, body.encode(), 64))


@pytest.mark.parametrize(
    ("path", "empty", "silent"),
    [
        (TAGS, ['{"tags": []}', '{"tags":[ \n]}', '{"t\\u0061gs": []}', '{"tags": ""}'], ['{"x": []}', '{"tags": {}}', '{"tags": 5}']),
        (STREET, ['{"address": ""}'], ['{"address": []}', '{"address": {}}', '{"address": {"street2": []}}', "{}"]),
        (NAMES, ['{"people": []}'], ['{"people": [{}]}', '{"people": [[]]}', '{"x": {"people": []}}']),
        (("m", PathStep.EACH, PathStep.EACH), ['{"m": []}', '{"m": [[]]}', '{"m": [[], [ ]]}'], ['{"m": {}}']),
        (("l", 0), [], ['{"l": []}']),
        (("a", PathStep.DEEP, "n"), ['{"a": []}'], ['{"a": {}}', '{"a": [[]]}']),
        (("a", PathStep.MEMBERS), [], ['{"a": {}}', '{"a": []}']),
        ((PathStep.EACH, "n"), ['{"x": ""}'], ["{}"]),
    ],
)  # fmt: skip
def test_an_array_without_elements_holds_nothing(
    path: Path, empty: list[str], silent: list[str]
) -> None:
    assert [body for body in empty if among(path, body) != {"f": Value("")}] == []
    assert [body for body in silent if among(path, body)] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TAGS, '{"tags": null}'),
        (STREET, '{"address": null}'),
        (NAMES, '{"people": [null]}'),
        (("l", 0), '{"l": null}'),
    ],
)
def test_null_on_the_way_holds_nothing(path: Path, body: str) -> None:
    assert among(path, body) == {"f": None}


def test_a_field_that_was_given_is_not_asked_about() -> None:
    assert among(TAGS, '{"tags": []}', "f") == {}


def test_there_is_nothing_to_ask_where_no_place_lies_behind_another() -> None:
    assert not Emptied(["a", "b", "c"], [("name",), (PathStep.DEEP, "n"), (PathStep.MEMBERS,)])
    assert Emptied(["a", "b"], [("name",), TAGS])

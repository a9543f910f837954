import pytest

from proxy.model.path import Path, Step
from proxy.model.value import Value
from proxy.redactor.emptied import Emptied

STREET: Path = ("address", "street")
TAGS: Path = ("tags", Step.EACH)
NAMES: Path = ("people", Step.EACH, "name")


def among(path: Path, body: str, *given: str) -> dict[str, Value | None]:
    return dict(Emptied(["f"], [path]).among(given, body.encode(), 64))


@pytest.mark.parametrize(
    ("path", "empty", "silent"),
    [
        (TAGS, ['{"tags": []}', '{"tags":[ \n]}', '{"t\\u0061gs": []}', '{"tags": ""}'], ['{"x": []}', '{"tags": {}}', '{"tags": 5}']),
        (STREET, ['{"address": ""}'], ['{"address": []}', '{"address": {}}', '{"address": {"street2": []}}', "{}"]),
        (NAMES, ['{"people": []}'], ['{"people": [{}]}', '{"people": [[]]}', '{"x": {"people": []}}']),
        (("m", Step.EACH, Step.EACH), ['{"m": []}', '{"m": [[]]}', '{"m": [[], [ ]]}'], ['{"m": {}}']),
        (("l", 0), [], ['{"l": []}']),
        (("a", Step.DEEP, "n"), ['{"a": []}'], ['{"a": {}}', '{"a": [[]]}']),
        (("a", Step.MEMBERS), [], ['{"a": {}}', '{"a": []}']),
        ((Step.EACH, "n"), ['{"x": ""}'], ["{}"]),
    ],
)  # fmt: skip
def test_an_array_without_elements_holds_nothing(path: Path, empty: list[str], silent: list[str]) -> None:
    assert [body for body in empty if among(path, body) != {"f": Value("")}] == []
    assert [body for body in silent if among(path, body)] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [(TAGS, '{"tags": null}'), (STREET, '{"address": null}'), (NAMES, '{"people": [null]}'), (("l", 0), '{"l": null}')],
)
def test_null_on_the_way_holds_nothing(path: Path, body: str) -> None:
    assert among(path, body) == {"f": None}


def test_a_field_that_was_given_is_not_asked_about() -> None:
    assert among(TAGS, '{"tags": []}', "f") == {}


def test_there_is_nothing_to_ask_where_no_place_lies_behind_another() -> None:
    assert not Emptied(["a", "b", "c"], [("name",), (Step.DEEP, "n"), (Step.MEMBERS,)])
    assert Emptied(["a", "b"], [("name",), TAGS])

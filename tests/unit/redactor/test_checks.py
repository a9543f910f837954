import pytest

from proxy.model.schema import Path, PathStep
from proxy.redactor.checks import Outline

STREET: Path = ("address", "street")
TAGS: Path = ("tags", PathStep.EACH)
ROOT: Path = ()


def strayed(
    body: str, *leaves: Path, objects: Path | None = ROOT, anchored: tuple[Path, ...] = ()
) -> bool:
    return Outline(objects, leaves, anchored).strayed(body.encode())


@pytest.mark.parametrize(
    ("leaf", "fits", "strays"),
    [
        (("name",), ['{"name": [1]}', '{"a": 1}', "{}"], ['"x"', "5", '["x"]']),
        (STREET, ['{"address": {"street": {}}}', '{"address": {"x": 1}}'], ['{"address": "x"}', '{"address": [{"street": 1}]}']),
        (TAGS, ['{"tags": ["x", [1]]}', '{"tags": {"0": "x"}}'], ['{"tags": "x"}', '{"tags": 5}', '[{}, {"tags": -1}]']),
        (("m", PathStep.EACH, PathStep.EACH), ['{"m": [["x"], [], null]}'], ['{"m": ["x"]}', '{"m": [["x"], "y"]}', '{"m": {"a": 1}}']),
        (("l", 1, "n"), ['{"l": ["x", {"n": 1}, 5]}', '{"l": []}'], ['{"l": {"1": {"n": 1}}}', '{"l": ["x", "y"]}']),
        (("a", PathStep.DEEP, "n"), ['{"a": "x"}', '{"a": [{"n": 1}]}'], []),
        ((PathStep.MEMBERS, "n"), ['{"x": {"n": 1}}'], ['{"x": "y"}']),
    ],
)  # fmt: skip
def test_what_stands_on_the_way_to_a_place(leaf: Path, fits: list[str], strays: list[str]) -> None:
    assert [body for body in fits if strayed(body, leaf)] == []
    assert [body for body in strays if not strayed(body, leaf)] == []


@pytest.mark.parametrize("nothing", ["null", "true", "false", '""', "[]", "{}", "[ ]", "{ }"])
def test_what_holds_nothing_may_stand_anywhere(nothing: str) -> None:
    for body in (
        nothing,
        f'{{"address": {nothing}}}',
        f'{{"tags": {nothing}}}',
        f'[{nothing}, {{"tags": []}}]',
    ):
        assert not strayed(body, STREET, TAGS), body


def test_a_value_that_is_swapped_as_a_whole_may_hold_anything() -> None:
    assert not strayed('{"address": "x"}', STREET, ("address",))


def test_objects_in_arrays_are_all_looked_at() -> None:
    assert not strayed('[[{"tags": ["x"]}], {"tags": []}]', TAGS)
    assert strayed('[[{"tags": ["x"]}], {"tags": "x"}]', TAGS)
    assert strayed('[[{"tags": ["x"]}, 7]]', TAGS)


def test_objects_deeper_in_the_document_and_places_from_its_root() -> None:
    data: Path = ("data", PathStep.EACH, "x")
    assert not strayed(
        '{"data": [{"x": {"name": 1}}, {"x": [{}]}, {"y": 1}], "meta": {}}', ("name",), objects=data
    )
    assert strayed('{"data": [{"x": "Ann"}]}', ("name",), objects=data)
    assert strayed('{"data": {"x": "Ann"}, "a": 1}', ("name",), objects=data)
    assert strayed('{"meta": "x"}', objects=None, anchored=(("meta", "mail"),))
    assert not strayed(
        '{"meta": {"mail": "x"}, "data": 5}', objects=None, anchored=(("meta", "mail"),)
    )
    assert not strayed("5", objects=None)


def test_two_paths_through_one_place_allow_what_either_expects() -> None:
    assert not strayed('{"a": {"n": 1}}', ("a", "n"), ("a", 0))
    assert not strayed('{"a": [1]}', ("a", "n"), ("a", 0))
    assert strayed('{"a": "x"}', ("a", "n"), ("a", 0))


def test_white_space_and_half_of_a_surrogate_pair_change_nothing() -> None:
    assert not strayed(' {"x": "\\ud800", "address": {"street": "x"}} ', STREET)
    assert strayed('\n{"x": "\\ud800", "address": "x"}\t', STREET)

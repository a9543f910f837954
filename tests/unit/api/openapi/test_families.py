from proxy.api.openapi.components import COMPONENTS
from proxy.api.openapi.families import GROUP, VERSIONS, aggregation, some_keys
from proxy.api.openapi.parts import ref, string
from proxy.model.query import MetricFunction


def test_an_aggregation_names_every_function_in_both_spellings():
    whole, *pages = aggregation(string(), ref("Filter"))["anyOf"]
    named = whole["properties"]["metrics"]["additionalProperties"]["properties"]["func"]["enum"]
    assert sorted(named) == sorted(
        name for one in MetricFunction for name in (one.value, one.value.upper())
    )
    assert [page["required"] for page in pages] == [["next"], ["cursor"]]


def test_what_a_family_adds_is_taken_and_nothing_else():
    plain, more = (
        aggregation(string(), ref("Filter"), **extra)["anyOf"][0]
        for extra in ({}, {"country": string()})
    )
    assert more["properties"].keys() - plain["properties"].keys() == {"country"}
    assert plain["additionalProperties"] is more["additionalProperties"] is False
    assert some_keys("By key.", country=string())["required"] == ["filter"]


def test_what_an_answer_always_has_is_required():
    assert VERSIONS["required"] == ["data", "meta"]
    for shape in (GROUP, VERSIONS["properties"]["data"]["items"]):
        assert shape["required"] == list(shape["properties"])
    assert VERSIONS["properties"]["meta"]["$ref"].rpartition("/")[2] in COMPONENTS

from typing import Any

from proxy.model.policy import AccessPolicy, Act, misfits, row_tests
from proxy.model.policy_reader import read_policy
from proxy.model.query import Equals
from proxy.model.record import DEFAULTS
from proxy.model.schema_document import read_definition
from tests.support.table import table
from tests.unit.model.test_policy_reader import EXAMPLE

SCHEMA = read_definition(
    "contact",
    {
        "fields": {
            "id": {"type": "primary_key"},
            "email": {"type": "string", "partial_match": True},
            "phone": {"type": "string"},
            "passport": {"type": "json"},
            "city": {"type": "string", "storage": "indexed"},
            "region": {"type": "string"},
            "secret": {"type": "string", "storage": "encrypted"},
            "age": {"type": "integer", "storage": "indexed"},
        }
    },
)


def misfit(**change: Any) -> list[str]:
    policy = read_policy("p", {"schema": "contact", "actions": ["read"], **change})
    return [detail.source for detail in misfits(policy, SCHEMA, DEFAULTS)]


def test_the_example_fits_its_schema():
    assert misfits(read_policy("support", EXAMPLE), SCHEMA, DEFAULTS) == []


def test_what_does_not_fit_the_schema_is_told_where_it_is():
    template = {"valueType": "redacted", "format": "[a-z]{8}"}
    assert misfit(
        fields={
            "none": "hidden",
            "id": "hidden",
            "age": template,
            "passport": "masked",
            "email": template,
        }
    ) == [
        "/fields/none",
        "/fields/id",
        "/fields/age",
        "/fields/passport",
    ]
    assert misfit(fields={"id": "clear", "age": "hidden", "*": template}) == []


@table(
    ("wanted", "places"),
    [
        ({"none": 1}, ["/rows/filter/none"]),
        ({"secret": "x"}, ["/rows/filter/secret"]),
        ({"age": "x"}, ["/rows/filter/age"]),
        ({"email": {"$like": "example"}}, ["/rows/filter"]),
        ({"search_keys": "example"}, ["/rows/filter"]),
        ({"$or": [{"email": {"$like": "example"}}, {"city": "x"}]}, ["/rows/filter"]),
        (
            {
                "city": {"$like": "x"}, "age": {"$gt": 5}, "region": ["a", None],
                "passport": {"$.a": 1},
            },
            [],
        ),
    ],
)  # fmt: skip
def test_rows_are_narrowed_by_what_an_index_answers(wanted, places):
    assert misfit(rows={"filter": wanted}) == places


def test_the_tests_of_rows_are_those_of_the_filter():
    assert row_tests(read_policy("support", EXAMPLE), SCHEMA, DEFAULTS) == (
        Equals("region", ("north",)),
    )
    assert row_tests(AccessPolicy("p", "contact", (Act.READ,)), SCHEMA, DEFAULTS) == ()

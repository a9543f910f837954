"""Which of two versions an application has, by the tokens that it shows."""

from proxy.vault.body import RecordBody, TokenizedFields, TokenizedValue
from proxy.vault.verdicts import superseded, taken
from tests.support.table import table


def version(**tokens: str) -> TokenizedFields:
    """A field for each, its value made from its own token and the number that follows."""
    values: dict[str, tuple[TokenizedValue, ...]] = {}
    for name, told in tokens.items():
        token, _, text = told.partition("/")
        values[name] = (TokenizedValue(1, text or token, False, token, False),)
    return values


#: What a later request wrote, what an earlier one had, what is shown, and where the later counts.
ROWS = [
    ({"pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {"name": "cy"}, {"pin"}),
    ({"pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {}, {"pin"}),
    ({"name": "di", "pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {"name": "cy"}, set()),
    ({"name": "di", "pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {"name": "di"}, {"pin"}),
    ({"name": "di", "pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {}, set()),  # it will be told
    ({"phone": "1", "pin": "x/2"}, {"name": "cy", "pin": "x/1"}, {}, {"pin"}),  # it will not
    ({"phone": "1"}, {"name": "cy", "pin": "x/1"}, {"name": "cy"}, set()),
    ({}, {"name": "cy", "pin": "x/1"}, {"name": "cy"}, set()),
]


@table(("later", "earlier", "places", "fields"), ROWS)
def test_a_later_write_counts_where_no_token_tells(
    later: dict[str, str], earlier: dict[str, str], places: dict[str, str], fields: set[str]
) -> None:
    versions = version(**later), version(**earlier)
    assert superseded(*versions, list(places.items())) == fields


@table(
    ("places", "expected"),
    [({"name": "cy"}, [True]), ({"name": "ann"}, [False]), ({"pin": "x"}, [None])],
)
def test_an_object_tells_of_a_version_in_doubt(
    places: dict[str, str], expected: list[bool | None]
) -> None:
    live, doubtful = (RecordBody(dict(version(name=name, pin="x"))) for name in ("ann", "cy"))
    assert taken(places.items(), live, [doubtful]) == expected

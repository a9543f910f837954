"""Which of two versions an application has, by the tokens that it shows."""

from msgspec.structs import replace

from proxy.vault.body import RecordBody, TokenizedFields, TokenizedValue
from proxy.vault.verdicts import superseded, taken, values_shown, verdict_together
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
    # what the earlier one did not have tells nothing of which came last
    (
        {"name": "di", "born": "2", "pin": "x/2"},
        {"name": "cy", "pin": "x/1"},
        {"name": "cy", "born": "2"},
        set(),
    ),
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


@table(
    ("shown", "text"),
    [
        ({"name": "bo", "born": "2", "card": "a", "email": "e"}, "2"),  # of neither as a whole
        ({"name": "ann", "born": "1", "card": "a", "email": "e"}, "1"),
        ({"card": "a"}, "2"),  # nothing tells
    ],
)
def test_a_field_with_one_token_is_of_the_version_that_explains_most_of_an_object(
    shown: dict[str, str], text: str
) -> None:
    live = RecordBody(dict(version(email="e", card="b")))
    versions = [
        RecordBody(dict(version(name="ann", born="1", card="a", email="d", pin="x/1"))),
        RecordBody(dict(version(name="bo", born="2", card="a", email="c", pin="x/2"))),
    ]
    places = [*shown.items(), ("pin", "x")]
    assert values_shown(places, live, versions, {0, 1})["pin"][0].text == text


@table(
    ("written", "since", "places", "text"),
    [
        ({"name": 7, "pin": 7}, {}, {"name": "cy", "email": "a"}, "2"),  # it came behind the create
        ({"name": 7, "pin": 7}, {}, {"name": "ann", "email": "b"}, "1"),
        ({"name": 7, "pin": 6}, {}, {"name": "cy", "email": "a"}, "1"),  # another request's
        ({"name": 7, "pin": 7}, {"pin": 9}, {"name": "cy", "email": "a"}, "1"),  # the latter is not
        ({"name": 7, "pin": 7}, {"pin": 5, "name": 5}, {"name": "cy", "email": "a"}, "2"),
        ({}, {"name": 5, "pin": 5}, {"name": "cy", "email": "a"}, "2"),  # a create, and an update
        ({}, {}, {"name": "cy", "email": "a"}, "1"),
    ],
)
def test_a_field_with_one_token_follows_what_its_request_wrote_with_it(
    written: dict[str, int], since: dict[str, int], places: dict[str, str], text: str
) -> None:
    live = RecordBody(dict(version(name="ann", email="a", pin="x/1")), written=since)
    old = RecordBody(dict(version(name="cy", email="b", pin="x/2")), written=written)
    assert values_shown([*places.items(), ("pin", "x")], live, [old], {0})["pin"][0].text == text
    told = verdict_together({*places.items()}, (live, old), None, "pin")
    assert told is {"2": True, "1": False if places["name"] == "ann" else None}[text]


@table(
    ("written", "since", "number", "text"),
    [
        ({"name": 7, "pin": 7}, {"pin": 5}, 1, "2"),  # a joined create has a later number
        ({"name": 7, "pin": 7}, {"pin": 9}, 3, "1"),
        ({}, {}, 1, "1"),  # numbers alone tell
        ({}, {}, 3, "2"),
        (
            {"card": 7, "pin": 5},
            {"name": 5, "pin": 5, "card": 5},
            3,
            "1",
        ),  # it wrote the card alone
    ],
)
def test_of_values_with_one_token_the_one_that_was_written_later_counts(
    written: dict[str, int], since: dict[str, int], number: int, text: str
) -> None:
    live = RecordBody(dict(version(name="ann", card="a", pin="x/1")), written=since)
    live.values["pin"] = (replace(live.values["pin"][0], number=2),)
    taken_one = RecordBody(dict(version(name="bo", card="b", pin="x/2")), written=written)
    taken_one.values["pin"] = (replace(taken_one.values["pin"][0], number=number),)
    places = [("card", "b"), ("pin", "x")]
    assert values_shown(places, live, [taken_one], ())["pin"][0].text == text


def test_a_version_that_was_live_is_again_where_more_of_it_is_shown_than_of_any_other() -> None:
    live = RecordBody(dict(version(name="bo", born="b", email="b", pin="x")))
    versions = [
        RecordBody(dict(version(name="cy", born="a", email="c", pin="x"))),
        RecordBody(dict(version(name="cy", born="c", email="a", pin="x"))),
        RecordBody(dict(version(name="cy", born="c", email="c", pin="x"))),
    ]
    places = {"name": "cy", "born": "c", "email": "c", "pin": "x"}.items()
    assert taken(places, live, versions, {2}) == [None, None, True]
    assert taken(places, live, versions) == [None, None, None]

import pytest
from msgspec import structs

from proxy.errors import VaultError
from proxy.model.schema import Value
from proxy.redactor.exchange import request_tokens
from proxy.redactor.exchange.request_tokens import RequestText, WrittenTokens
from proxy.redactor.message import Request
from proxy.redactor.redact import BodyObject, Spot
from tests.support.exchanges import USUAL, desk
from tests.support.table import table

ANN = {
    "name": "Ann Wexlomere",
    "email": "Ann@Wexlomere.example",
    "phone": "+46 70 918 27 36",
    "born": "1931-02-27",
    "tags": ["one", "two"],
}
LIST = ', response: {each: "$[*]", id: $.id}}'
BULK = '{match: POST /bulk, create: p, request: {each: "$[*]"}' + LIST
SMALL = (
    "name: {kind: name}",
    "pin: {kind: text, token: {shape: fixed, value: hidden}}",
    "hint: {kind: text, token: {shape: fixed, value: hidden}}",
)


async def test_small_tokens_that_agree_mean_what_they_mean_in_their_field_and_record():
    one = await desk(*USUAL[:1], BULK, '{match: "PATCH /p/{id}", update: p' + LIST, fields=SMALL)
    people = [
        {"name": f"n{number}", "pin": f"pin {number}", "hint": f"hint {number}"}
        for number in range(3)
    ]
    call = await one.send("POST /bulk", people)
    assert {item["pin"] for item in call.json} == {item["hint"] for item in call.json} == {"hidden"}
    stored = [{**item, "id": number} for number, item in enumerate(call.json)]
    assert await call.seen(201, stored) == [
        {**item, "id": number} for number, item in enumerate(people)
    ]
    changed = await one.send("PATCH /p/1", {"pin": "new"})
    assert await changed.seen(200, stored) == [
        {**people[0], "id": 0},
        {**people[1], "pin": "new", "id": 1},
        {**people[2], "id": 2},
    ]


async def test_a_constant_in_a_refusal_is_not_taken_for_a_token():
    one = await desk(*USUAL[:1], fields=(*SMALL[:2], "age: {kind: text, token: zero}"))
    call = await one.send("POST /p", {"name": "Ann", "pin": "1234", "age": 99})
    refusal = {"pin": "hidden", "code": 0, "text": "hidden", "name": call.json["name"]}
    assert await call.seen(422, refusal) == {**refusal, "name": "Ann"}


async def test_each_record_shows_its_own_spelling_of_a_value_that_they_share():
    one = await desk(*USUAL, BULK)
    spellings = ["ann@x.example", "Ann@X.example", "ANN@x.example"]
    call = await one.send(
        "POST /bulk",
        [{"email": text, "name": str(number)} for number, text in enumerate(spellings)],
    )
    assert len({item["email"] for item in call.json}) == 1
    stored = [{**item, "id": number} for number, item in enumerate(call.json)]
    assert [item["email"] for item in await call.seen(201, list(reversed(stored)))] == list(
        reversed(spellings)
    )


async def test_an_answer_of_another_record_is_not_taken_for_this_one():
    one = await desk(
        USUAL[0], '{match: "PATCH /p/{id}", update: p, response: {id: $.id}}', fields=SMALL
    )
    await one.create({"name": "Ann", "pin": "1"}, 1)
    other = await one.create({"name": "Bo", "pin": "2"}, 2)
    call = await one.send("PATCH /p/1", {"pin": "3"})
    assert await call.seen(200, other) == {"name": "Bo", "pin": "2", "id": 2}


async def test_whose_an_object_is():
    one = await desk(*USUAL, BULK)
    call = await one.send(
        "POST /bulk",
        [{"name": "a", "born": "1950-01-01"}, {"name": "b", "born": "1950-02-02", "tags": ["t"]}],
    )
    writing = call.exchange._writing
    assert writing is not None
    recall = WrittenTokens(one.people, writing.writes)
    writing.writes[1].key = "7"
    (a, b) = call.json

    def rows(*items: tuple[str | None, dict[str, str | None]]) -> list[list[str | None]]:
        objects = [
            BodyObject(
                [Spot(n, 0, 0, None if t is None else Value(t)) for n, t in spots.items()], key
            )
            for key, spots in items
        ]
        return [
            [None if value is None else value.text for value in row] for row in recall.rows(objects)
        ]

    (tag,) = b.pop("tags")
    assert rows((None, a), ("7", b)) == [["a", "1950-01-01"], ["b", "1950-02-02"]]
    assert rows(("7", {"born": b["born"]})) == [["1950-02-02"]]  # by its id
    assert rows((None, {"born": b["born"]})) == [[None]]  # nobody can say whose small token that is
    # by a token that tells
    assert rows(("8", {"born": b["born"], "name": b["name"]})) == [["1950-02-02", "b"]]
    # two of them
    assert rows((None, {"name": a["name"], "tags": tag, "born": a["born"]})) == [["a", "t", None]]
    # in other fields
    assert rows((None, {"tags": b["name"], "name": tag, "born": b["born"]})) == [[None, None, None]]
    assert rows((None, {"name": None, "born": "x"})) == [[None, None]]
    assert WrittenTokens(one.people, ()).rows(
        [BodyObject([Spot("name", 0, 0, Value(a["name"]))])]
    ) == [[None]]


class Never(dict[tuple[str, str], int]):
    """A table that is asked, and never gone through."""

    def __iter__(self):
        raise AssertionError("an object of a list goes through the tokens of all")


async def test_no_object_of_an_answer_goes_through_the_tokens_of_all():
    """A bulk of 9,000 took 9 s so."""
    one = await desk(*USUAL, BULK)
    call = await one.send("POST /bulk", [{"name": "a"}, {"name": "b"}])
    writing = call.exchange._writing
    assert writing is not None
    recall = WrittenTokens(one.people, writing.writes)
    recall._owners = Never()
    for number, write in enumerate(writing.writes):
        write.key = str(number)
    items = [
        BodyObject([Spot("name", 0, 0, Value(sent["name"]))], str(number))
        for number, sent in enumerate(call.json)
    ]
    assert recall.rows(items) == [[Value("a")], [Value("b")]]


async def test_a_token_opens_in_no_other_field_also_when_the_exchange_made_it():
    one = await desk()
    call = await one.send("POST /p", ANN)
    made = {**call.json, "id": 1}
    moved = {
        **made,
        "name": made["email"],
        "email": made["name"],
        "tags": [made["phone"], made["tags"][1]],
    }
    seen = {
        **ANN,
        "id": 1,
        "name": made["email"],
        "email": made["name"],
        "tags": [made["phone"], "two"],
    }
    assert await call.seen(201, moved) == seen
    assert await one.shown(moved) == seen
    searched = await one.send("GET /p?email=ann%40wexlomere.example")
    assert await searched.seen(200, [{"id": 9, "name": made["email"]}]) == [
        {"id": 9, "name": made["email"]}
    ]


async def test_places_that_a_rule_has_as_one_field_open_the_tokens_of_each_other():
    fields = ('email: {kind: email, at: "$..email"}', 'tags: {kind: text, at: "$.tags[*]"}')
    one = await desk(*USUAL[:1], '{match: "GET /p/{id}", read: p}', fields=fields)
    person = {"email": "a@x.example", "work": {"email": "b@x.example"}, "tags": ["one", "two"]}
    stored = await one.create(person)
    moved = {
        "email": stored["work"]["email"],
        "work": {"email": stored["email"]},
        "tags": stored["tags"][::-1],
    }
    seen = {"email": "b@x.example", "work": {"email": "a@x.example"}, "tags": ["two", "one"]}
    assert await one.shown(moved) == seen


async def test_an_own_token_is_opened_in_no_other_field_refused_there_or_a_value():
    one = await desk()
    stored = await one.create(ANN)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", {"tags": [stored["name"]]})
    assert [detail.source for detail in caught.value.details] == ["/tags/0"]
    call = await one.send("PATCH /p/1", {"name": stored["phone"], "phone": ANN["phone"]})
    sent = call.json
    assert sent["phone"] == stored["phone"]
    assert sent["name"] not in (stored["phone"], stored["name"])
    assert await call.seen(200, {**stored, **sent}) == {
        **ANN,
        "id": 1,
        "name": stored["phone"],
    }, "digits cannot be told from a number"
    found = await one.send(f"GET /p?email={stored['name']}%40x.example")
    assert stored["name"].encode() not in found.sent.target


# ---- words


TOKEN = "Ab+3 d@e.example"


def request(target: bytes = b"/", field: bytes = b"", body: bytes = b"") -> Request:
    return Request("POST", target, ((b"X-Y", field),), body)


@table(
    "said",
    [
        request(b"/p/Ab+3%20d%40e.example?x"),
        request(b"/?q=%41b%2B3+d@e.example"),
        request(field=b"x=Ab+3 d@e.example; y"),
        request(body=b'{"x": "Ab+3 d@e.example"}'),
        request(body=b'{"x": "\\u0041b\\u002b3 d\\u0040e.example"}'),
        request(body=b"x=1&y=Ab%2b3+d%40e.example"),
    ],
)
def test_a_token_that_the_caller_wrote_is_its_own_word(said: Request) -> None:
    assert others(RequestText(said), TOKEN, "another") == ["another"]


def test_a_token_in_the_place_of_a_value_that_the_caller_wrote_is_not_its_own_word() -> None:
    said = request(field=b"/p?q=Ann")
    sent = structs.replace(request(field=b"/p?q=" + TOKEN.encode()), received=said)
    assert others(RequestText(sent), TOKEN, "Ann") == [TOKEN]


def test_escaped_quotes_backslashes_and_slashes() -> None:
    assert others(RequestText(request(body=b'"a\\/b\\"c\\\\d"')), 'a/b"c\\d') == []


def test_what_there_is_no_time_for_counts_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tokens, "_BYTES", 1000)
    words = RequestText(request(body=b"x" * 100))
    assert others(words, "a", "b") == ["a", "b"]
    assert not words.full
    assert others(words, "a", "b", "c") == ["a", "b"]
    assert words.full


def test_parts_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_tokens, "_PART_BYTES", 500)
    words = RequestText(request(body=b"x" * 100))
    assert list(words.others(["a", "b", "x", "c"])) == [["a", "b"], ["c"]]


def others(words: RequestText, *tokens: str) -> list[str]:
    return [one for part in words.others(tokens) for one in part]


async def test_a_look_alike_that_resolves_to_nothing_is_data():
    one = await desk(more="on_error: {unknown_token: leave}")
    stored = await one.create({"name": "Ann", "email": "ann@x.example"})
    strange = {**stored, "name": stored["name"][::-1], "email": f"0{stored['email'][1:]}"}
    assert await one.shown(strange) == strange

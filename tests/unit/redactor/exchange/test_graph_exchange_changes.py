"""What became of changes that a GraphQL operation asks for, by the answer of each field."""

from tests.support.table import table
from tests.unit.redactor.exchange.test_graph_exchange import ALL, ANN, create, office

UPDATE = 'mutation { updatePerson(id: 1, input: {name: "secret", born: "1931-12-12"}) %s { id } }'


@table(
    ("query", "answer"),
    [
        ("mutation { deletePerson(id: 1) @skip(if: true) }", {"data": {}}),
        ("mutation { ... @include(if: false) { deletePerson(id: 1) } version }", {"data": {"version": "1"}}),
        ("mutation { deletePerson(id: 1) }", {"data": {"deletePerson": False}}),
        ("mutation { deletePerson(id: 1) }", {"data": {"deletePerson": None}}),
        ("mutation { deletePerson(id: 1) }", {"data": None}),
        ("mutation { deletePerson(id: 1) }", {"message": "later"}),
        (UPDATE % "@include(if: false)", {"data": {}}),
        (UPDATE % "", {"data": {"updatePerson": None}}),
        (UPDATE % "", {"data": {"updatePerson": False}}),
        (UPDATE % "", {}),
        (UPDATE % "", {"data": {"updatePerson": {"person": None, "userErrors": [{"message": "no"}]}}}),
        (UPDATE % "", {"data": {"updatePerson": {"success": False, "person": {"id": "1"}}}}),
        (UPDATE % "", {"data": {"updatePerson": {"__typename": "ValidationError", "field": "name"}}}),
        (UPDATE % "", {"data": {"updatePerson": {"person": None}}}),
        (UPDATE % "", {"data": {"updatePerson": {"affected_rows": 0}}}),
        ("mutation { deletePerson(id: 1) { ok } }", {"data": {"deletePerson": {"ok": False}}}),
        ("mutation { deletePerson(id: 1) { id message } }", {"data": {"deletePerson": {"id": None, "message": "no"}}}),
    ],
)  # fmt: skip
async def test_a_change_that_the_application_did_not_make_loses_nothing(query, answer):
    one = await office()
    await create(one)
    call = await one.desk.send("POST /graphql", {"query": query})
    assert await call.seen(200, answer) == answer
    for _ in range(2):
        shown = await one.ask(f"{{ person(id: 1) {{ {ALL} }} }}")
        assert shown["data"]["person"] == {**ANN, "id": "1"}
    assert one.desk.idle


async def test_one_that_it_made_and_answered_with_null_counts_as_soon_as_it_is_shown():
    one = await office()
    await create(one)
    call = await one.desk.send("POST /graphql", {"query": UPDATE % ""})
    one.server.answer(call.json)
    await call.answer(200, {"data": {"updatePerson": None}})
    shown = (await one.ask("{ person(id: 1) { id name born } }"))["data"]["person"]
    assert shown == {"id": "1", "name": "secret", "born": "1931-12-12"}


CHANGES = """mutation {
  a: createPerson(input: {name: "secret", born: "1931-12-12"}) { id }
  b: updatePerson(id: 1, input: {name: "secret two"}) { id } }"""
NO = {"message": "no", "path": ["b"], "locations": [{"line": 2}]}


@table(
    ("status", "answer", "made"),
    [
        (403, {"data": {"a": {"id": "2"}, "b": None}, "errors": [NO]}, True),
        (400, {"data": None, "errors": [NO]}, True),
        (200, {"data": None}, True),
        (200, "<html>please log in</html>", True),
        (200, '{"data": {"a"', True),
        (200, "later", True),
        (403, {"errors": [{"message": "denied"}]}, False),
        (400, {"data": None, "errors": [{"message": "no", "locations": [{"line": 1}]}]}, False),
        (401, {"error": "who are you"}, False),
    ],
)
async def test_of_two_changes_what_was_made_is_shown_whatever_the_answer_to_both(
    status, answer, made
):
    one = await office()
    await create(one)
    call = await one.desk.send("POST /graphql", {"query": CHANGES})
    if made:
        one.server.stored("2", created(call.json["query"]))
    raw = answer if isinstance(answer, dict) else answer.encode()
    fields = None if isinstance(answer, dict) else ((b"Content-Type", b"text/html"),)
    restored = await call.answer(status, raw, fields)
    assert restored.status == status
    shown = (await one.ask("{ person(id: 1) { id name } }"))["data"]["person"]
    assert shown["name"] == ANN["name"], "its update was not made"
    if made:
        shown = (await one.ask("{ person(id: 2) { id name born } }"))["data"]["person"]
        assert shown == {"id": "2", "name": "secret", "born": "1931-12-12"}
    else:
        assert await one.desk.counts() == (1, 0, 0)
    assert one.desk.idle


def created(query: str) -> dict[str, str]:
    """The tokens of the create that a server was sent."""
    _, name, _, born, *_ = query.split('"')
    return {"name": name, "born": born}


async def test_a_create_that_was_refused_in_its_payload_is_in_doubt_and_found_if_it_was_made():
    for made in (False, True):
        one = await office()
        query = (
            'mutation { createPerson(input: {name: "secret"}) { person { id } errors { text } } }'
        )
        call = await one.desk.send("POST /graphql", {"query": query})
        answer = {"data": {"createPerson": {"person": None, "errors": [{"text": "secret: no"}]}}}
        seen = await call.seen(200, answer)
        assert seen == answer
        assert await one.desk.counts() == (1, 1, 0)
        if made:
            name = call.json["query"].split('"')[1]
            one.server.stored("1", {"name": name})
            shown = await one.ask("{ person(id: 1) { id name } }")
            assert shown["data"]["person"] == {"id": "1", "name": "secret"}


async def test_a_create_that_was_left_out_leaves_nothing_behind():
    one = await office()
    query = 'mutation { createPerson(input: {name: "secret"}) @skip(if: true) { id } }'
    assert (await one.ask(query))["data"] == {}
    assert await one.desk.counts() == (0, 0, 0)


@table(
    ("status", "fields"),
    [(200, ((b"Content-Length", b"0"),)), (204, ()), (200, ((b"Content-Encoding", b"x-own"),))],
)
async def test_an_answer_that_is_not_read_tells_nothing_of_a_change(status, fields):
    for query in (UPDATE % "", "mutation { deletePerson(id: 1) }"):
        one = await office()
        await create(one)
        call = await one.desk.send("POST /graphql", {"query": query})
        await call.exchange.settled(status, fields)
        shown = await one.ask(f"{{ person(id: 1) {{ {ALL} }} }}")
        assert shown["data"]["person"] == {**ANN, "id": "1"}
        assert one.desk.idle

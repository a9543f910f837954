"""Answers of GraphQL in parts (``multipart/mixed``): ``@defer``, ``@stream`` and subscriptions."""

import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import Call, Desk, desk

FIELDS = (
    "name: {kind: name}", "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
    "born: {kind: date, token: {shape: date}}", "street: {kind: text, at: $.address.street}",
    'tags: {kind: text, at: "$.tags[*]"}',
)  # fmt: skip
RULE = """{match: POST /graphql, graphql: {Mutation.createPerson: {create: p, object: input}, Mutation.deletePerson: {delete: p, key: id},
  person: {entity: p}, people: {entity: p}, Subscription.changed: {entity: p}}}""".replace(
    "\n", " "
)
MIXED: RawHeaders = ((b"Content-Type", b'multipart/mixed; boundary="-"; deferSpec=20220824'),)
ASKED: RawHeaders = (
    (b"Content-Type", b"application/json"),
    (b"Accept", b"multipart/mixed;deferSpec=20220824, application/json"),
)
ANN: dict[str, Any] = {"name": "Ann Wexlom", "email": "ann@wexlom.example", "tags": ["yx-one", "yx-two"],
       "address": {"street": "Flumpergatan 7"}}  # fmt: skip
FIRST = "{ person(id: 1) { id name ... @defer { mail: email address { street } tags } } }"
LIST = "{ page { people @stream { id name tags } } }"


def parts(*documents: Any) -> bytes:
    """An answer as servers write it."""
    head = b"\r\n---\r\nContent-Type: application/json; charset=utf-8\r\n\r\n"
    return b"".join(head + json.dumps(one).encode() for one in documents) + b"\r\n-----\r\n"


async def asked(one: Desk, query: str, **more: Any) -> Call:
    return await one.send("POST /graphql", {"query": query, **more}, ASKED)


async def streamed(call: Call, raw: bytes, size: int = 7) -> list[Any]:
    """The documents that the caller gets, however the bytes arrive."""
    stream = await call.exchange.stream(200, MIXED)
    assert stream is not None
    seen = b"".join([await stream.restore(raw[at : at + size]) for at in range(0, len(raw), size)])
    seen += await stream.rest()
    await stream.end()
    return [json.loads(one.split(b"\r\n\r\n", 1)[1]) for one in seen.split(b"\r\n---")[1:-1]]


@pytest.fixture
async def office() -> Desk:
    return await desk(RULE, fields=FIELDS)


@pytest.fixture
async def stored(office: Desk) -> dict[str, Any]:
    """What the application has of Ann."""
    query = "mutation ($in: PersonInput!) { createPerson(input: $in) { id } }"
    call = await asked(office, query, variables={"in": ANN})
    await call.answer(200, {"data": {"createPerson": {"id": "1"}}})
    sent: dict[str, Any] = call.json["variables"]["in"]
    assert "Wexlom" not in json.dumps(sent)
    return sent


def later(stored: dict[str, Any]) -> dict[str, Any]:
    return {"mail": stored["email"], "address": stored["address"], "tags": stored["tags"]}


LATER = {"mail": ANN["email"], "address": ANN["address"], "tags": ANN["tags"]}


@pytest.mark.parametrize(
    "spelled",
    [
        lambda part: {"incremental": [{"path": ["person"], "data": part}], "hasNext": False},
        lambda part: {"path": ["person"], "data": part, "hasNext": False},
        lambda part: {"incremental": [{"id": "0", "data": part}], "completed": [{"id": "0"}]},
        lambda part: {"incremental": [
            {"path": ["other"], "data": {"x": 1}},
            {"path": ["person"], "data": {"mail": part["mail"]}},
            {"path": ["person", "address"], "data": part["address"]},
            {"path": ["person", "tags", 0], "items": part["tags"]},
        ]},
        lambda part: {"incremental": [
            {"id": "0", "data": {"mail": part["mail"]}},
            {"id": "0", "subPath": ["address"], "data": part["address"]},
            {"path": ["person", "tags", 0], "items": part["tags"]},
        ]},
    ],
)  # fmt: skip
async def test_what_comes_later_is_restored_where_it_belongs(office, stored, spelled):
    call = await asked(office, FIRST)
    pending = [{"id": "0", "path": ["person"]}]
    first = {"data": {"person": {"id": "1", "name": stored["name"]}}, "pending": pending}
    raw = parts({**first, "hasNext": True}, spelled(later(stored)))
    seen = await streamed(call, raw)
    assert seen[0]["data"]["person"] == {"id": "1", "name": ANN["name"]}
    assert seen[1] == spelled(LATER)
    assert office.idle


async def test_the_first_part_is_there_before_the_second_comes(office, stored):
    call = await asked(office, FIRST)
    stream = await call.exchange.stream(200, MIXED)
    assert stream is not None
    raw = parts({"data": {"person": {"id": "1", "name": stored["name"]}}})
    assert b"Ann Wexlom" in await stream.restore(raw[: -len(b"--\r\n")])
    await stream.end()


async def test_elements_of_a_list_come_one_by_one(office, stored):
    call = await asked(office, LIST)
    element = {"id": "1", "name": stored["name"], "tags": stored["tags"]}
    raw = parts(
        {"data": {"page": {"people": [element]}}, "hasNext": True},
        {"incremental": [{"path": ["page", "people", 1], "items": [element, element]}]},
        {"incremental": [{"path": ["page", "people", 2, "tags", 0], "items": stored["tags"]}]},
        {"incremental": [{"path": ["page"], "data": {"people": [element]}}], "hasNext": False},
    )
    seen = await streamed(call, raw, 1000)
    ann = {"id": "1", "name": ANN["name"], "tags": ANN["tags"]}
    assert seen[0]["data"]["page"]["people"] == [ann]
    assert seen[1]["incremental"][0]["items"] == [ann, ann]
    assert seen[2]["incremental"][0]["items"] == ANN["tags"]
    assert seen[3]["incremental"][0]["data"]["people"] == [ann]


async def test_a_part_that_nobody_told_of_keeps_its_tokens_and_is_counted(office, stored):
    call = await asked(office, FIRST)
    document = {"incremental": [{"id": "7", "data": later(stored)}]}
    assert await streamed(call, parts(document)) == [document]
    assert office.events["unreadable_answer"] == 1


async def test_a_value_elsewhere_in_a_part_stays_a_token(office, stored):
    call = await asked(office, FIRST)
    document = {"incremental": [{"path": ["person"], "data": {"note": stored["name"]}},
                                {"path": ["strange"], "data": later(stored)}]}  # fmt: skip
    assert await streamed(call, parts(document)) == [document]


async def test_subscriptions_over_parts(office, stored):
    call = await asked(office, "subscription { changed { id name } }")
    payload = {"payload": {"data": {"changed": {"id": "1", "name": stored["name"]}}}}
    seen = await streamed(call, parts({}, payload))
    assert seen == [{}, {"payload": {"data": {"changed": {"id": "1", "name": ANN["name"]}}}}]


async def written(one: Desk, query: str, *documents: Any) -> list[Any]:
    """What the caller of a mutation gets, whose input is Ann; ``{name}`` and its like stand for the
    tokens that the application was sent.
    """
    call = await asked(one, query, variables={"in": ANN})
    tokens = call.json["variables"].get("in", {})
    raw = json.dumps(documents)
    for name, token in {**tokens, "street": tokens["address"]["street"]}.items():
        raw = raw.replace(f'"{{{name}}}"', json.dumps(token))
    assert await call.exchange.stream(200, MIXED) is None, "its first document settles it"
    seen = (await call.answer(200, parts(*json.loads(raw)), MIXED)).body
    assert one.idle
    return [json.loads(part.split(b"\r\n\r\n", 1)[1]) for part in seen.split(b"\r\n---")[1:-1]]


CREATED = "mutation ($in: PersonInput!) { createPerson(input: $in) { %s } }"
NAME = {"incremental": [{"path": ["createPerson"], "data": {"name": "{name}"}}], "hasNext": False}


async def test_all_parts_of_the_answer_to_a_mutation_are_restored(office):
    query = CREATED % "id email ... @defer { name } ... @defer { address { street } tags }"
    seen = await written(
        office, query,
        {"data": {"createPerson": {"id": "5", "email": "{email}"}}, "hasNext": True},
        {"incremental": [{"path": ["createPerson"], "data": {"name": "{name}"}},
                         {"path": ["createPerson"], "data": {"address": {"street": "{street}"}, "tags": "{tags}"}}]},
        {"hasNext": False},
    )  # fmt: skip
    assert seen[0]["data"]["createPerson"] == {"id": "5", "email": ANN["email"]}
    data = [one["data"] for one in seen[1]["incremental"]]
    assert data == [{"name": ANN["name"]}, {"address": ANN["address"], "tags": ANN["tags"]}]
    assert await office.counts() == (1, 0, 0)
    again = await asked(office, "{ person(id: 5) { id name } }")
    held = {"id": "5", "name": "unknown"}
    assert await again.seen(200, {"data": {"person": held}}) == {"data": {"person": held}}


@pytest.mark.parametrize(
    "documents",
    [
        ({"data": {}}, {"path": [], "data": {"createPerson": {"id": "5", "name": "{name}"}}}),
        (
            {"data": {"createPerson": {"name": "{name}"}}},
            {"path": ["createPerson"], "data": {"id": "5"}},
        ),
    ],
    ids=["all of it", "its id"],
)
async def test_a_record_that_is_told_by_a_later_part_gets_its_id_from_there(office, documents):
    seen = await written(office, CREATED % "... @defer { id } name", *documents)
    assert ANN["name"] in json.dumps(seen)
    call = await asked(office, "mutation { deletePerson(id: 5) { id } }")
    await call.seen(200, {"data": {"deletePerson": {"id": "5"}}})
    assert await office.counts() == (0, 0, 0)


async def test_a_removed_person_is_shown_once_more_in_every_part(office):
    sent = await asked(office, CREATED % "id", variables={"in": ANN})
    tokens = sent.json["variables"]["in"]
    await sent.seen(200, {"data": {"createPerson": {"id": "5"}}})
    query = "mutation { deletePerson(id: 5) { name ... @defer { id email } } }"
    call = await asked(office, query)
    raw = parts(
        {"data": {"deletePerson": {"name": tokens["name"]}}},
        {"path": ["deletePerson"], "data": {"id": "5", "email": tokens["email"]}},
    )
    seen = (await call.answer(200, raw, MIXED)).body
    assert seen == raw.replace(tokens["name"].encode(), ANN["name"].encode()).replace(
        tokens["email"].encode(), ANN["email"].encode()
    )
    assert await office.counts() == (0, 0, 0)


async def test_later_events_of_a_mutation_are_restored_as_its_parts_are(office):
    events: RawHeaders = ((b"Content-Type", b"text/event-stream"),)
    fields = ((b"Content-Type", b"application/json"), (b"Accept", b"text/event-stream"))
    body = {"query": CREATED % "id ... @defer { name }", "variables": {"in": ANN}}
    call = await office.send("POST /graphql", body, fields)
    name = call.json["variables"]["in"]["name"]
    raw = (
        'event: next\ndata: {"data":\ndata:  {"createPerson": {"id": "5"}}}\ndata: \n\n: still there\n\n'
        f'event: next\ndata: {json.dumps(NAME)}\n\nevent: complete\ndata:\n\n'
    ).replace("{name}", name)  # fmt: skip
    seen = (await call.answer(200, raw.encode(), events)).body.decode()
    assert seen == raw.replace(name, ANN["name"])
    assert await office.counts() == (1, 0, 0)


async def test_the_root_continued_at_an_empty_path_is_restored_once(office, stored):
    call = await asked(office, "{ ... @defer { person(id: 1) { id name } } }")
    part = {"path": [], "data": {"person": {"id": "1", "name": stored["name"]}}}
    seen = await streamed(call, parts({"data": {}, "hasNext": True}, part))
    assert seen[1]["data"]["person"]["name"] == ANN["name"]


STRANGE = {"incremental": [{"id": "7", "data": {"name": "{name}"}}]}
BORN = {"data": {"createPerson": {"id": "5", "name": "{name}"}}}


async def test_a_part_of_a_mutation_that_cannot_be_read_keeps_its_tokens(office):
    seen = await written(office, CREATED % "id name", BORN, STRANGE, NAME)
    assert seen[0]["data"]["createPerson"]["name"] == ANN["name"]
    assert ANN["name"] not in json.dumps(seen[1])
    assert seen[2]["incremental"][0]["data"]["name"] == ANN["name"]
    assert office.events["unreadable_answer"] == 1


async def test_or_is_refused_after_the_mutation_is_settled_where_the_rule_says_so():
    one = await desk(RULE, fields=FIELDS, more="on_error: {unreadable_answer: 502}")
    with pytest.raises(VaultError) as caught:
        await written(one, CREATED % "id name", BORN, STRANGE, NAME)
    assert caught.value.code is Code.UNREADABLE_ANSWER
    assert await one.counts() == (1, 0, 0)
    assert one.idle


async def test_a_token_that_needs_its_id_is_not_asked_for_in_a_part_of_its_own(office):
    with pytest.raises(VaultError, match="leave @defer out") as caught:
        await asked(office, "{ person(id: 1) { id ... @defer { born } } }")
    assert caught.value.code is Code.VALUE_UNFIT


@pytest.mark.parametrize("told", [None, False, True])
async def test_a_delete_of_which_a_later_part_tells_was_not_left_out(office, told):
    sent = await asked(office, CREATED % "id", variables={"in": ANN})
    await sent.seen(200, {"data": {"createPerson": {"id": "5"}}})
    call = await asked(office, "mutation { ... @defer { deletePerson(id: 5) } }")
    first = {"data": {}, "hasNext": True}
    await call.answer(200, parts(first, {"data": {"deletePerson": told}, "path": []}), MIXED)
    assert (await office.counts()) == ((0, 0, 0) if told else (1, 0, 1))

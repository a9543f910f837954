import json

import pytest

from proxy.auth.external_acl import AclDecisions, client_auth, parse_answer, question, timed_out
from proxy.errors import Code, VaultError
from proxy.model.policy import Act
from tests.support.table import table


@table(
    ("act", "name"),
    [
        (Act.READ, "v1.restapi.read"),
        (Act.WRITE, "v1.restapi.write"),
        (Act.DELETE, "v1.restapi.delete"),
    ],
)
def test_a_question_has_exactly_the_three_properties_of_the_specification(act, name):
    asked = json.loads(question(act, "contact", "id", ["a", "ö", '"']))
    assert asked == {"action": name, "type": "contact", "id": ["a", "ö", '"']}


@table("name", ["action", "type"])
def test_a_key_field_with_the_name_of_another_property_cannot_be_asked_about(name):
    with pytest.raises(VaultError) as caught:
        question(Act.READ, "contact", name, ["a"])
    assert caught.value.code is Code.FILTER_ENDPOINT_WRONG


@table(
    ("body", "allowed"),
    [
        (b'{"id": ["a", "b"]}', {"a", "b"}), (b'{"id":[]}', set()), (b'{"id":["a","a"]}', {"a"}), (b'{"id": "*"}', None),
        (b' {"\\u0069d": ["*"]} ', {"*"}),
    ],
)  # fmt: skip
def test_answers_of_the_right_shape_are_understood(body, allowed):
    assert parse_answer(body, "id") == allowed


@table(
    "body",
    [
        b"", b"*", b'"*"', b"null", b"[]", b"{}", b'["a"]', b'{"id": null}', b'{"id": "a"}', b'{"id": "**"}', b'{"id": ""}',
        b'{"id": 1}', b'{"id": [1]}', b'{"id": [null]}', b'{"id": {"a": true}}', b'{"id": [["a"]]}', b'{"id": true}',
        b'{"ID": ["a"]}', b'{"record_key": ["a"]}', b'{"id": ["a"], "more": []}', b'{"id": ["a"], "more": 1}',
        b'{"id": ["a"], "id": "*"}', b'{"id": [], "\\u0069d": "*"}', b'{"id": ["a"]} x', b'{"id": ["a"]}{}', b'{"id": ["a",]}',
        b'{"id": ["a"]', b"{'id': ['a']}", b'{"id": ["\xff"]}', b'\xef\xbb\xbf{"id": "*"}', b'{"id": ["\\ud800"]}', b"[" * 100_000,
        b'{"id": "*" /* all */}', '{"id": "*"}'.encode("utf-16"), b'{"id": NaN}',
    ],
)  # fmt: skip
def test_every_other_answer_allows_nothing_and_is_not_quoted(body):
    with pytest.raises(VaultError) as caught:
        parse_answer(body, "id")
    assert caught.value.code is Code.FILTER_ENDPOINT_WRONG
    assert "more" not in caught.value.message


@table("text", ["Bearer abc", "bearer  a.b-c_d~e+f/g==", " BEARER x\t"])
def test_the_token_of_the_person_is_taken_as_it_is(text):
    assert client_auth([text]) == text.strip().split()[-1]


@table(
    "fields",
    [
        [], [""], ["abc"], ["Bearer"], ["Bearer "], ["Basic abc"], ["Bearer a b"], ["Bearer a,b"], ["Bearer a\r\nX: y"],
        ["Bearer é"], ["Bearer a", "Bearer a"], ["Bearer " + "a" * 8193], ["Bearer a=b"],
    ],
)  # fmt: skip
def test_without_one_bearer_token_nobody_is_asked(fields):
    with pytest.raises(VaultError) as caught:
        client_auth(fields)
    assert (caught.value.code, caught.value.details[0].source) == (
        Code.UNAUTHORIZED,
        "x-client-auth",
    )
    assert "abc" not in str(caught.value.details)


class Endpoint:
    """Allows what it is told to, and remembers what it was asked."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)
        self.asked: list[tuple[str, str, dict[str, object]]] = []

    async def ask(self, url: str, token: str, question: bytes) -> bytes:
        self.asked.append((url, token, json.loads(question)))
        return self.bodies.pop(0)


def gate(endpoint: Endpoint, primary: str | None = "id") -> AclDecisions:
    return AclDecisions(endpoint, "https://app.example.com/allowed", "tok", "contact", primary)


async def test_a_gate_lets_through_what_is_allowed_of_what_was_asked_for():
    endpoint = Endpoint(b'{"id": ["b", "not asked for"]}')
    assert await gate(endpoint).allowed(Act.READ, ["a", "b", "b", "c"]) == {"b"}
    ((url, token, asked),) = endpoint.asked
    assert (url, token) == ("https://app.example.com/allowed", "tok")
    assert asked == {"action": "v1.restapi.read", "type": "contact", "id": ["a", "b", "c"]}


async def test_nobody_is_asked_about_nothing_or_twice_about_the_same():
    endpoint = Endpoint(b'{"id": ["a"]}', b'{"id": "*"}', b'{"id": []}')
    one = gate(endpoint)
    assert await one.allowed(Act.READ, []) == frozenset()
    assert await one.allowed(Act.READ, ["a", "b"]) == {"a"}
    assert await one.allowed(Act.READ, ["b", "a", "c"]) == {"a", "c"}
    assert await one.allowed(Act.WRITE, ["a"]) == frozenset()
    assert [asked["id"] for _, _, asked in endpoint.asked] == [["a", "b"], ["c"], ["a"]]


async def test_about_what_a_search_finds_it_is_asked_once_also_if_that_is_nothing():
    endpoint = Endpoint(b'{"id": []}', b'{"id": ["a"]}')
    one = gate(endpoint)
    for keys, allowed in (([], frozenset()), (["a"], {"a"}), ([], frozenset())):
        assert await one.allowed(Act.READ, keys, always=True) == allowed
    assert [asked["id"] for _, _, asked in endpoint.asked] == [[], ["a"]]


async def test_one_record_that_is_not_allowed_refuses_all():
    one = gate(Endpoint(b'{"id": ["a"]}'))
    await one.need(Act.WRITE, [])
    with pytest.raises(VaultError) as caught:
        await one.need(Act.WRITE, ["a", "b"])
    assert caught.value.code is Code.ACCESS_DENIED
    await one.need(Act.WRITE, ["a"])


async def test_records_without_a_key_field_of_their_own_are_asked_about_by_the_built_in_name():
    endpoint = Endpoint(b'{"record_key": ["a"]}')
    assert await gate(endpoint, None).allowed(Act.READ, ["a"]) == {"a"}


def test_a_late_answer_says_how_late():
    error = timed_out(0.25)
    assert (error.code, "0.25 s" in error.message) == (Code.FILTER_ENDPOINT_LATE, True)

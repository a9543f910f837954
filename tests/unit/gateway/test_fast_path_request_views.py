"""Ordinary exchanges of callers who prove a role, and of those who prove none, on real sockets."""

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.crypto.keyset import Keyset
from tests.support.issuer import claims, token
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message
from tests.support.twoways import JSON, Even, House, house
from tests.support.viewers import Badges

ANN = {"name": "Ann Lee", "email": "ann@example.com", "phone": "+46701234567", "note": "likes tea"}
MASKED = {
    "name": "A** ***",
    "email": "a**@example.com",
    "phone": "+*********67",
    "note": "***** ***",
}
#: What callers of each role see, but for tokens.
SEEN: dict[str, dict[str, str]] = {
    "dpo": ANN,
    "sales": {"name": ANN["name"], "email": ANN["email"], "phone": MASKED["phone"]},
    "desk": MASKED,
    "post": {"name": ANN["name"]},
}
TOKENS = {"sales": {"note"}, "post": {"email", "phone", "note"}, "nobody": set(ANN)}


class Office(NamedTuple):
    """A house whose callers show tokens of roles."""

    house: House
    badges: Badges

    def field(self, role: str) -> str:
        return f"Authorization: Bearer {self.badges.of(role)}"

    def read(self, role: str, *more: str) -> bytes:
        return get("/p/1", self.field(role), *more)

    def write(self, role: str, target: str = "/p", method: str = "POST", **more: str) -> bytes:
        body = json.dumps({**ANN, **more}).encode()
        return post(target, body, JSON, self.field(role), method=method)


@pytest.fixture(params=["jwt", "introspection"])
async def one(tmp_path: Path, request: Any) -> AsyncIterator[Office]:
    badges = Badges(random.Random(7), lambda: 0)
    caller = request.param, badges
    async with house(tmp_path, Keyset.create("test"), fast_path=True, caller=caller) as made:
        badges.clock = made.clock
        office = Office(made, badges)
        for role in (*SEEN, "nobody"):
            badges._good[role] = badges.signed(role)
        async with RawClient(made.port) as client:
            for role in ("dpo", *SEEN, "nobody"):
                assert (await client.ask(office.write("dpo"))).status == 201
                assert (await client.ask(office.write("dpo", "/p/1", "PUT"))).status == 200
                assert (await client.ask(office.read(role))).status == 200
            for _ in range(4):  # objects that come again are looked at by patterns
                assert (await client.ask(office.read("dpo"))).status == 200
        made.fast_path.clear()
        made.spelling, made.dice = b"", Even()
        made.audit.lines.clear()
        yield office


def seen(answer: Message) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer.body)
    assert b"\r\nCache-Control: private" in answer.head
    assert b"\r\nVary: Authorization" in answer.head
    return told


@pytest.mark.parametrize("role", [*SEEN, "nobody"])
async def test_each_role_reads_what_its_view_shows(one: Office, role: str) -> None:
    async with RawClient(one.house.port) as client:
        told = seen(await client.ask(one.read(role)))
    hidden = TOKENS.get(role, set())
    assert {name: told[name] for name in ANN if name not in hidden} == SEEN.get(role, {})
    for name in hidden:
        assert told[name].encode() in one.house.labels
    assert one.house.fast_path == {"general" if role == "nobody" else "fast_path": 1}
    lines = [
        (line["view"], set(line.get("fields", ())), set(line.get("covered", ())))
        for line in one.house.audit.lines
        if line["event"] == "reveal"
    ]
    masked = {name for name in SEEN.get(role, ()) if SEEN[role][name] != ANN[name]}
    shown = ANN.keys() - hidden - masked
    assert lines == ([] if role == "nobody" else [(role, shown, masked)])


async def test_what_everybody_sees_takes_the_fast_path_and_what_may_come_back_masked_does_not(
    one: Office,
) -> None:
    async with RawClient(one.house.port) as client:
        for role, verb, way in (
            ("dpo", "POST", "fast_path"), ("dpo", "PUT", "fast_path"),
            ("sales", "POST", "fast_path"), ("sales", "PUT", "general"),
            ("desk", "POST", "fast_path"), ("desk", "PUT", "general"),
        ):  # fmt: skip
            one.house.fast_path.clear()
            target = "/p/1" if verb == "PUT" else "/p"
            changes = SEEN[role] if way == "general" else {}
            told = seen(await client.ask(one.write(role, target, verb, **changes)))
            hidden = TOKENS.get(role, set())
            assert {name: told[name] for name in ANN if name not in hidden} == SEEN[role]
            assert one.house.fast_path == {way: 1}, (role, verb)
        assert seen(await client.ask(one.read("dpo"))) == {**ANN, "id": 1}


async def test_an_equal_token_tells_a_caller_nothing_that_its_view_hides(one: Office) -> None:
    async with RawClient(one.house.port) as client:
        answer = await client.ask(one.write("post"))
    assert (answer.status, json.loads(answer.body)["code"]) == (403, "field_hidden")
    assert one.house.fast_path == {"general": 1}


async def test_callers_on_one_connection_see_each_their_own(one: Office) -> None:
    roles = ["dpo", "desk", "sales", "dpo", "nobody", "desk", "post", "dpo"] * 4
    async with RawClient(one.house.port) as client:
        await client.send(b"".join(one.read(role) for role in roles))
        told = [seen(await client.answer()) for _ in roles]
        for role, record in zip(roles, told, strict=True):
            assert (record["name"], record["email"]) in {
                "dpo": [(ANN["name"], ANN["email"])],
                "sales": [(ANN["name"], ANN["email"])],
                "desk": [(MASKED["name"], MASKED["email"])],
                "post": [(ANN["name"], record["email"])],
                "nobody": [(record["name"], record["email"])],
            }[role]
            assert (record["email"] == ANN["email"]) is (role in ("dpo", "sales"))
        for role in ("dpo", "", "dpo"):  # with a field, and without one
            request = one.read(role) if role else get("/p/1", "X-Roles: dpo", "X-User: dpo")
            assert (seen(await client.ask(request))["name"] == ANN["name"]) is (role == "dpo")


async def test_a_token_ends_where_it_says_so_on_a_connection_that_stays(one: Office) -> None:
    now = one.house.clock
    one.badges._good["dpo"] = one.badges.signed("dpo", exp=now() // 1000 + 30)
    async with RawClient(one.house.port) as client:
        for _ in range(3):
            assert seen(await client.ask(one.read("dpo")))["name"] == ANN["name"]
        assert one.house.fast_path == {"general": 1, "fast_path": 2}, "it was asked about once"
        now.advance(30_001)
        one.house.fast_path.clear()
        for _ in range(3):
            assert seen(await client.ask(one.read("dpo")))["name"] != ANN["name"]
        assert one.house.fast_path == {"general": 3}


async def test_keys_and_answers_of_an_issuer_are_believed_for_a_minute(one: Office) -> None:
    shown = one.read("dpo")
    async with RawClient(one.house.port) as client:
        assert seen(await client.ask(shown))["name"] == ANN["name"]
        one.badges.rotate()  # and revoked, where it is asked about
        one.house.clock.advance(60_001)
        for _ in range(2):
            assert seen(await client.ask(shown))["name"] != ANN["name"]
        forged = claims(one.house.clock(), roles=["dpo"])
        for key, kid in ((1, "k1"), (1, "k2"), (1, "k9")):
            field = f"Authorization: Bearer {token(one.badges._keys[key], forged, kid=kid)}"
            assert seen(await client.ask(get("/p/1", field)))["name"] != ANN["name"]
    assert one.house.fast_path["fast_path"] == 1


@pytest.mark.parametrize("act", ["cached", "tagged", "zipped", "split", "close"])
async def test_no_cache_gives_one_callers_answer_to_another(one: Office, act: str) -> None:
    async with RawClient(one.house.port) as client:
        told = []
        for role in ("dpo", "desk"):
            one.house.script.append(act)
            answer = await client.ask(one.read(role))
            if act == "zipped":
                assert b"Vary: Authorization" in answer.head
                assert b"Cache-Control: private" in answer.head
            else:
                assert seen(answer)["name"] == SEEN[role]["name"]
            told.append(answer.head)
            assert b"public" not in answer.head
            assert b"Expires" not in answer.head
        tags = [head.partition(b"ETag: ")[2].partition(b"\r\n")[0] for head in told]
        assert tags[0] != tags[1] or not any(tags)
        assert act != "tagged" or all(tags)


@pytest.mark.parametrize("act", ["tagged", "split"])
async def test_who_names_the_tag_of_another_view_gets_an_answer(one: Office, act: str) -> None:
    one.house.spelling = b'ETag: W/"6b"\r\n'
    tags: dict[str, str] = {}
    async with RawClient(one.house.port) as client:
        for role in ("dpo", "desk", "sales", "dpo"):
            for other, tag in tags.items():
                one.house.script.append(act)
                answer = await client.ask(one.read(role, f"If-None-Match: {tag}"))
                assert answer.status == (304 if role == other else 200)
                assert b"Vary: Authorization" in answer.head
            one.house.script.append(act)
            answer = await client.ask(one.read(role))
            assert seen(answer)["name"] == SEEN[role]["name"]
            tags[role] = answer.head.partition(b"ETag: ")[2].partition(b"\r\n")[0].decode()
    assert len(set(tags.values())) == 3
    assert set(one.house.fast_path) == {"fast_path"}


async def test_an_answer_that_is_refused_shows_as_much_as_the_view(one: Office) -> None:
    async with RawClient(one.house.port) as client:
        one.house.script.append("refused")
        answer = await client.ask(one.write("desk"))
    assert answer.status == 422
    assert json.loads(answer.body)["input"]["phone"] == MASKED["phone"]
    assert one.house.fast_path["fast_path"] == 1

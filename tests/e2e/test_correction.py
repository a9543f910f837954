"""What the proxy has collected, corrected and taken away over the vault's own interface while the
application behind the proxy goes on.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import Code
from tests.e2e.conftest import World
from tests.e2e.test_entity_tags import Content
from tests.e2e.test_kept_rules import Vault, domicile, installed
from tests.support.application import Misbehaviour
from tests.support.patience import until
from tests.support.people import ANN, rules
from tests.support.rawhttp import Wire
from tests.support.rawserver import RawServer

PEOPLE = "/api/models/person"
TAGS = ["corrected one", "corrected two"]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[tuple[World, Vault]]:
    async with installed(tmp_path) as (world, vault):
        (world.instance.rules / "rules.yaml").write_text(rules(world.upstream))
        await world.instance.start()
        await vault.enter()
        yield world, vault


async def correct(vault: Vault, ident: int, status: int = 200, /, **values: Any) -> dict[str, Any]:
    got, answer = await vault.ask("PATCH", f"{PEOPLE}/{ident}", values)
    assert got == status, answer
    return dict(answer)


async def test_the_next_answer_shows_what_was_corrected(office: tuple[World, Vault]) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json={**ANN, "pin": "1234"})
    before = json.dumps(world.application.records)
    changes = {"name": "Quistina Ombrella", "born": "1971-02-03", "pin": "4711"}
    record = await correct(vault, ann["id"], **changes, tags=TAGS)
    assert record.items() >= changes.items()
    shown = {**ann, **changes, "tags": TAGS}
    assert await world.call("GET", f"/people/{ann['id']}", 200) == shown
    assert (await world.call("GET", "/people", 200))["items"] == [shown]
    assert json.dumps(world.application.records) == before
    assert not world.application.holds("Quistina")
    status, found = await vault.ask("POST", f"{PEOPLE}/find", {"filter": {"email": ANN["email"]}})
    assert (status, found["data"][0]["name"]) == (200, "Quistina Ombrella")
    status, history = await vault.ask("GET", f"{PEOPLE}/{ann['id']}/history")
    assert [one["record"]["name"] for one in history["data"]] == ["Quistina Ombrella", ANN["name"]]
    await world.instance.kill()
    await world.instance.start()
    assert await world.call("GET", f"/people/{ann['id']}", 200) == shown
    # a whole record that is sent back keeps the tokens, and the correction
    assert await world.call("PUT", f"/people/{ann['id']}", 200, json=shown) == shown
    assert (
        world.application.records[ann["id"]]["name"] == json.loads(before)[str(ann["id"])]["name"]
    )
    assert await world.instance.stop() == 0
    status_, out = await domicile(world.instance, "store", "verify")
    assert status_ == 0, out


async def test_what_the_application_would_have_to_know_is_refused(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json={**ANN, "tags": ["a", "b"]})
    plain = await world.call("POST", "/people", 201, json={"name": "Bob"})
    for ident, values in (
        (ann["id"], {"email": "new@example.com"}),
        (ann["id"], {"tags": ["a"]}),
        (ann["id"], {"name": "Eve", "nobody": "x"}),
        (ann["id"], {"name": 17}),
        (ann["id"], {"expires_at": "2100-01-01T00:00:00Z"}),
        (plain["id"], {"phone": "+46701234567"}),
    ):
        answer = await correct(vault, ident, 400, **values)
        assert answer["code"] == Code.INVALID_RECORD
        assert answer["errors"]
    assert (await correct(vault, 99, 404, name="Eve"))["code"] == Code.NOT_FOUND
    assert await world.call("GET", f"/people/{ann['id']}", 200) == ann


async def test_a_field_that_is_taken_away_is_shown_empty(office: tuple[World, Vault]) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    bob = await world.call(
        "POST", "/people", 201, json={**ANN, "name": "Bob", "email": "bob@x.example"}
    )
    record = await correct(vault, ann["id"], email=None, card=None)
    assert record.get("email") is None
    assert await world.call("GET", f"/people/{ann['id']}", 200) == {
        **ann, "email": None, "card": None,
    }  # fmt: skip
    assert await world.call("GET", f"/people/{bob['id']}", 200) == bob
    assert (await vault.ask("POST", f"{PEOPLE}/find", {"filter": {"email": ANN["email"]}}))[1][
        "data"
    ] == []


class Restorer(Content):
    """Whatever is asked for, it is what is stored, of the type that the path ends with."""

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        while True:
            kind = (await server.read(wire)).head.split()[1].rpartition(b".")[2]
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/%b\r\nContent-Length: %d\r\n\r\n"
            await wire.send(head % (kind, len(self.stored)) + self.stored)


#: A page about a record, and an export, with tokens; and the same without values.
EMPTY = {
    "/cards/{id}/page.html": ("<b id=born>{born}</b>, {name}", "<b id=born></b>, "),
    "/export.csv": ("ID,Born,Name,Card\r\n{id},{born},{name},{card}\r\n", "ID,Born,Name,Card\r\n{id},,,\r\n"),
}  # fmt: skip
PAGES = """\
  - match: "GET /cards/{id}/page.html"
    read: person
    id: path id
    response: {restore: html, form: {born: born, phone: phone, pin: pin}}
  - match: GET /export.csv
    read: person
    response: {restore: csv, columns: {Born: born, Name: name, Card: card}, id: column ID}
"""


@pytest.mark.parametrize("ending", ["DELETE", "person erase"])
async def test_what_is_left_of_a_deleted_record_in_the_application_shows_no_value(
    office: tuple[World, Vault], ending: str
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json={**ANN, "pin": "1234"})
    bob = await world.call("POST", "/people", 201, json={**ANN, "name": "Bob"})
    path, tokens = f"/people/{ann['id']}", world.application.records[ann["id"]]
    if ending == "DELETE":
        assert (await vault.ask("DELETE", f"{PEOPLE}/{ann['id']}"))[0] == 204
    else:
        status, found = await vault.ask("POST", "/api/persons/erase", {"value": ANN["name"]})
        assert (status, [one["erased"] for one in found["data"]]) == (200, [True])
    await world.instance.kill()
    await world.instance.start()
    await vault.enter()
    gone = {
        **dict.fromkeys(("name", "born", "phone", "card", "pin")),
        "id": ann["id"],
        "vip": True,
        "tags": [None, None],
        "address": {"street": None, "city": "Visby"},
        "matrix": [[None, None], [None]],
    }
    shown = await world.call("GET", path, 200)
    assert shown.pop("email") in (None, ANN["email"])  # Bob has the same, and so the same token
    assert shown == gone
    listed = (await world.call("GET", "/people", 200))["items"]
    assert [one["born"] for one in listed] == [None, ANN["born"]]
    assert await world.call("GET", f"/people/{bob['id']}", 200) == bob
    assert (await vault.ask("GET", f"{PEOPLE}/{ann['id']}"))[0] == 404
    status, found = await vault.ask("POST", f"{PEOPLE}/find", {"filter": {}})
    assert (status, [one["name"] for one in found["data"]]) == (200, ["Bob"])
    # a form that is saved again writes no token as a value, and a new value is one
    body = {**ANN, "name": None, "born": "1999-09-09", "tags": [], "matrix": []}
    await world.call("PUT", path, 200, json=body)
    again = await world.call("GET", path, 200)
    assert (again["name"], again["born"]) == (None, "1999-09-09")
    answered = Restorer("")
    async with RawServer(answered) as server:
        (world.instance.rules / "rules.yaml").write_text(rules(server.url) + PAGES)
        assert await world.instance.stop() == 0
        await world.instance.start()
        await vault.enter()
        assert (await vault.ask("DELETE", f"{PEOPLE}/{ann['id']}"))[0] == 204
        for target, (page, empty) in EMPTY.items():
            answered.stored = page.format(**tokens).encode()
            url = world.instance.proxy + target.format(id=ann["id"])
            async with world.caller.get(url) as answer:
                assert await answer.text() == empty.format(id=ann["id"])
    assert await world.instance.stop() == 0
    status_, out = await domicile(world.instance, "store", "verify")
    assert status_ == 0, out


async def test_a_version_that_was_read_before_a_correction_is_not_updated(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    async with RawServer(Content("")) as server:
        await behind(world, vault, rules(server.url))
        await world.call("POST", "/people", 200, json={"name": "Ann"})
        path = f"{world.instance.proxy}/people/1"
        async with world.caller.get(path) as answer:
            tag = answer.headers["ETag"]
        headed = f'W/{tag.partition("-domicile.")[0]}-domicile.s"'  # as an answer to HEAD has it
        await correct(vault, 1, name="Anna")
        async with world.caller.get(path, headers={"If-None-Match": tag}) as answer:
            assert (answer.status, (await answer.json())["name"]) == (200, "Anna")
            fresh = answer.headers["ETag"]
        for sent, status in ((tag, 412), (headed, 412), (f'"x", {tag}', 412), (fresh, 200)):
            headers = {"If-Match": sent}
            async with world.caller.patch(path, json={"name": "Eve"}, headers=headers) as answer:
                assert answer.status == status
        assert (await world.call("GET", "/people/1", 200))["name"] == "Eve"


async def behind(world: World, vault: Vault, text: str) -> None:
    """Start again with these rules."""
    (world.instance.rules / "rules.yaml").write_text(text)
    await world.instance.stop()
    await world.instance.start()
    await vault.enter()


class Dated(Content):
    """Tells no tag, but when it was changed last, and lets nobody change what is newer."""

    changed = 0

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        while True:
            request = await server.read(wire)
            since, head = request.all("if-unmodified-since"), b"HTTP/1.1 200 OK"
            if since and parsedate_to_datetime(since[0].decode()).timestamp() < self.changed:
                head = b"HTTP/1.1 412 Precondition Failed"
            elif not request.head.startswith(b"GET"):
                change = {**json.loads(self.stored), **json.loads(request.body or b"{}"), "id": 1}
                self.stored, self.changed = json.dumps(change).encode(), int(time.time())
            date = formatdate(self.changed, usegmt=True).encode()
            fields = b"Content-Type: application/json\r\nLast-Modified: %b\r\nContent-Length: %d"
            await wire.send(
                b"\r\n".join((head, fields % (date, len(self.stored)), b"", self.stored))
            )


@pytest.mark.parametrize("workers", [False, True])
async def test_what_was_read_before_a_correction_is_not_updated_as_unmodified_since(
    office: tuple[World, Vault], workers: bool
) -> None:
    """The application goes by dates, and does not know of the correction."""
    world, vault = office
    world.instance.arguments = ("serve", "--workers", "2") if workers else ("serve",)
    async with RawServer(Dated("")) as server:
        await behind(world, vault, rules(server.url))
        await world.call("POST", "/people", 200, json={"name": "Ann", "email": "ann@x.example"})
        path = f"{world.instance.proxy}/people/1"

        async def read(name: str) -> str:
            async with world.caller.get(path) as answer:
                assert (await answer.json())["name"] == name
                return answer.headers["Last-Modified"]

        async def change(method: str, date: str, status: int) -> None:
            headers = {"If-Unmodified-Since": date}
            body = {"name": "Eve"} if method != "DELETE" else None
            async with world.caller.request(method, path, headers=headers, json=body) as answer:
                assert answer.status == status

        before = await read("Ann")
        await change("PATCH", before, 200)
        before = await read("Eve")
        await asyncio.sleep(1.1)
        await correct(vault, 1, name="Anna")
        for method in ("PATCH", "PUT", "DELETE"):
            await change(method, before, 412)
            await change(method, "no date", 412)
        await asyncio.sleep(1.1)
        fresh = await read("Anna")
        assert parsedate_to_datetime(fresh) > parsedate_to_datetime(before)
        await change("PATCH", before, 412)
        await change("PATCH", fresh, 200)
        await change("PATCH", await read("Eve"), 200)


ORDERS = """
version: 1
endpoint: {name: orders, upstream: "URL"}
entities:
  person: {fields: {name: {kind: name}}}
  courier: {fields: {name: {kind: name}}}
operations:
  - match: POST /orders
    objects:
      - {create: person, request: {object: $.person}, response: {object: $.person, id: $.id}}
      - {create: courier, request: {object: $.courier}, response: {object: $.courier, id: $.id}}
  - match: "GET /orders/{order}"
    objects:
      - {read: person, response: {object: $.person, id: $.id}}
      - {read: courier, response: {object: $.courier, id: $.id}}
  - match: "PUT /orders/{order}"
    objects:
      - {update: person, id: $.person.id, request: {object: $.person}, response: {object: $.person}}
      - {update: courier, id: $.courier.id, request: {object: $.courier}, response: {object: $.courier}}
"""


async def test_conditions_hold_for_each_object_of_a_message(office: tuple[World, Vault]) -> None:
    world, vault = office
    async with RawServer(Content("")) as server:
        await behind(world, vault, ORDERS.replace("URL", server.url))
        order = {"person": {"id": 1, "name": "Ann"}, "courier": {"id": 7, "name": "Bob"}}
        await world.call("POST", "/orders", 200, json=order)
        path = f"{world.instance.proxy}/orders/1"
        tags = []
        for name, given in (("person/1", "Anna"), ("courier/7", "Rob"), ("courier/7", "Robert")):
            async with world.caller.get(path) as answer:
                tags.append(answer.headers["ETag"])
            status, _ = await vault.ask("PATCH", f"/api/models/{name}", {"name": given})
            assert status == 200
        async with world.caller.get(path) as answer:
            assert (await answer.json())["courier"]["name"] == "Robert"
            tags.append(answer.headers["ETag"])
        for tag, status in zip(tags, (412, 412, 412, 200), strict=True):
            async with world.caller.put(path, json=order, headers={"If-Match": tag}) as answer:
                assert answer.status == status


@pytest.mark.parametrize("outcome", ["taken", "refused", "died"])
async def test_an_update_under_way_and_a_correction_come_one_after_the_other(
    office: tuple[World, Vault], outcome: str
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    path = f"/people/{ann['id']}"
    world.application.gate = asyncio.Event()
    if outcome == "refused":
        world.application.plan.append(Misbehaviour(status=409))
    seen = world.application.requests
    update = asyncio.create_task(world.call("PATCH", path, json={"name": "Later", "tags": []}))
    await until(lambda: world.application.requests > seen)
    correction = asyncio.create_task(correct(vault, ann["id"], name="Corrected", born="1971-02-03"))
    await asyncio.sleep(0.3)
    assert not correction.done()
    if outcome == "died":
        await world.instance.kill()
        await asyncio.gather(update, correction, return_exceptions=True)
        world.application.gate.set()
        await world.instance.start()
        await vault.enter()
        # whether the application took the update is in doubt until an answer shows it
        answer = await correct(vault, ann["id"], 409, name="Corrected")
        assert answer["code"] == Code.CONFLICT
        await correct(vault, ann["id"], born="1971-02-03")
        shown = await world.call("GET", path, 200)
        assert (shown["name"], shown["born"]) in (
            ("Later", "1971-02-03"),
            (ANN["name"], "1971-02-03"),
        )
        await correct(vault, ann["id"], name="Corrected")
    else:
        world.application.gate.set()
        await asyncio.gather(update, correction)
    shown = await world.call("GET", path, 200)
    assert (shown["name"], shown["born"]) == ("Corrected", "1971-02-03")
    assert (await world.call("PATCH", path, 200, json={"name": "Last"}))["name"] == "Last"


async def test_corrections_that_were_acknowledged_survive_kills(
    office: tuple[World, Vault],
) -> None:
    world, vault = office
    ann = await world.call("POST", "/people", 201, json=ANN)
    acknowledged = begun = ANN["name"]
    for turn in range(6):

        async def go_on(turn: int = turn) -> None:
            nonlocal acknowledged, begun
            for number in range(1000):
                begun = f"Name {turn}-{number}"
                await correct(vault, ann["id"], name=begun)
                acknowledged = begun

        task = asyncio.create_task(go_on())
        await asyncio.sleep(0.15 + 0.05 * turn)
        await world.instance.kill()
        await asyncio.gather(task, return_exceptions=True)
        await world.instance.start()
        await vault.enter()
        shown = (await world.call("GET", f"/people/{ann['id']}", 200))["name"]
        assert shown in (acknowledged, begun)
        acknowledged = shown


async def test_who_is_shown_no_value_does_not_learn_it_by_correcting_it(
    office: tuple[World, Vault],
) -> None:
    """Whether a guess is right or wrong, the answer and what is shown afterwards are the same."""
    world, vault = office
    ann = await world.call("POST", "/people", 201, json={**ANN, "pin": "1234"})
    redacted = {"valueType": "redacted", "format": "[a-z]{12}"}
    fields = {"email": redacted, "name": redacted, "tags": redacted, "pin": "hidden"}
    policy = {"schema": "person", "actions": ["read", "write"], "fields": fields}
    blind = await under(vault, "blind", policy)
    writer = await under(vault, "writer", {"schema": "person", "actions": ["write"]})
    path = f"{PEOPLE}/{ann['id']}"
    for email in (ANN["email"], "other@example.com"):
        for client in (blind, writer):
            status, answer = await client.ask("PATCH", path, {"email": email})
            assert (status, answer["errors"][0]["source"]) == (400, "/email"), answer
    for tags in (ANN["tags"], ["not", "these"]):
        assert (await blind.ask("PATCH", path, {"tags": tags}))[0] == 400
    for name in (ANN["name"], ANN["name"], "Eve"):
        _, before = await blind.ask("GET", path)
        status, after = await blind.ask("PATCH", path, {"name": name})
        assert status == 200
        assert after["name"] != before["name"]
        assert after["email"] == before["email"]
    assert (await world.call("GET", f"/people/{ann['id']}", 200))["name"] == "Eve"


async def under(vault: Vault, name: str, policy: dict[str, Any]) -> Vault:
    """A client under a new access policy."""
    assert (await vault.ask("PUT", f"/api/policies/{name}", policy))[0] == 201
    wanted = {"name": name, "environment_id": "default", "policies": [name]}
    status, access = await vault.ask("POST", "/api/clients", wanted)
    assert status == 201, access
    client = Vault(vault.world, access)
    await client.enter()
    return client

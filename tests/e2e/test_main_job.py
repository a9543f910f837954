"""The main job as a user has it: the application stores tokens, its users see people."""

import asyncio
import io
import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.conftest import World
from tests.support.application import Misbehaviour, found_in
from tests.support.files import rewrite
from tests.support.patience import PATIENCE, until
from tests.support.people import ANN, MARKERS
from tests.support.real.inside import counts
from tests.support.table import collected, told


async def ann(world: World, **changes: Any) -> dict[str, Any]:
    created: dict[str, Any] = await world.call("POST", "/people", 201, json={**ANN, **changes})
    return created


def stored(world: World, ident: int = 1) -> dict[str, Any]:
    return world.application.records[ident]


def nowhere(world: World, *, answers: bytes = b"") -> None:
    """No marker in what the application saw or stores, nor in any file, log line or answer of our
    own.
    """
    heap = bytes(world.instance.log) + answers
    for path in sorted(world.instance.data.rglob("*")):
        if path.is_file():
            heap += path.read_bytes()
    for marker in MARKERS:
        assert not world.application.holds(marker), f"{marker} reached the application"
        assert not found_in(heap, marker), f"{marker} stands in a file, a log line or a metric"


async def test_callers_see_people_and_the_application_never_does(world: World) -> None:
    created = await ann(world)
    assert created == {**ANN, "id": 1}
    assert await world.call("GET", "/people/1", 200) == created
    assert await world.call("GET", "/people", 200) == {"items": [created], "total": 1}
    assert await world.call("PATCH", "/people/1", 200, json={"name": "Zorbina Wexlomere"}) == {
        **created,
        "name": "Zorbina Wexlomere",
    }
    assert await world.call("PUT", "/people/1", 200, json=ANN) == created
    assert await world.call("GET", "/people?email=zorbina.q%40wexlomere.example", 200) == {
        "items": [created],
        "total": 1,
    }
    record = stored(world)
    assert record["vip"] is True
    assert record["address"]["city"] == "Visby"
    nowhere(world, answers=(await world.metrics()).encode())
    await world.call("DELETE", "/people/1", 204)
    assert await world.call("GET", "/people/1", 404) == {"error": "not found"}
    assert await world.metric("domicile_vault_events_total", event="deleted") == 1


async def test_whatever_was_answered_is_read_at_once_on_any_connection(world: World) -> None:
    async def caller(number: int) -> None:
        created = await ann(world, name=f"Zorbina {number}", born=f"19{31 + number}-02-27")
        path = f"/people/{created['id']}"
        seen, listed = await asyncio.gather(
            world.call("GET", path, 200), world.call("GET", "/people", 200)
        )
        assert seen == created
        assert created in listed["items"]
        changes = {"name": f"Quistina {number}", "born": f"19{31 + number}-03-28"}
        assert await world.call("PATCH", path, 200, json=changes) == {**created, **changes}
        again = await asyncio.gather(*[world.call("GET", path, 200) for _ in range(3)])
        assert again == [{**created, **changes}] * 3

    await asyncio.gather(*map(caller, range(48)))
    assert await world.metric("domicile_vault_events_total", event="settled") == 96


@pytest.mark.parametrize("spelled", ["1", "01"])
async def test_a_record_that_is_changed_before_its_lost_create_was_shown_is_one_record(
    world: World, spelled: str
) -> None:
    world.application.plan = [Misbehaviour(act=True, cut=True)]
    await world.call("POST", "/people", json=ANN)
    changed = await world.call(
        "PATCH", f"/people/{spelled}", 200, json={"name": "Flumpergatan 1", "born": "1955-05-05"}
    )
    person = {**ANN, "name": "Flumpergatan 1", "born": "1955-05-05", "id": 1}
    assert changed["name"] == person["name"]
    for _ in range(2):
        assert await world.call("GET", "/people/1", 200) == person
        assert await world.call("GET", "/people", 200) == {"items": [person], "total": 1}
    assert await world.instance.stop() == 0
    await world.instance.start()
    assert await world.call("GET", "/people/1", 200) == person
    await world.call("DELETE", "/people/1", 204)
    assert counts(world.instance.data)[:3] == (0, 0, 0)
    nowhere(world)


async def test_a_read_only_field_keeps_its_value(world: World) -> None:
    await ann(world)
    world.application.plan = [Misbehaviour(forget=("email",))]
    changed = await world.call(
        "PATCH", "/people/1", 200, json={"name": "Bo", "email": "other@wexlomere.example"}
    )
    assert (changed["name"], changed["email"]) == ("Bo", ANN["email"])
    assert (await world.call("GET", "/people/1", 200))["email"] == ANN["email"]


async def test_concurrent_updates_of_one_record_end_in_one_of_them_whole(world: World) -> None:
    await ann(world)
    people = [
        {
            "name": f"Name {number}",
            "email": f"mail{number}@wexlomere.example",
            "born": f"19{number:02d}-01-01",
        }
        for number in range(10, 42)
    ]
    await asyncio.gather(*(world.call("PATCH", "/people/1", 200, json=person) for person in people))
    seen = await world.call("GET", "/people/1", 200)
    assert {key: seen[key] for key in ("name", "email", "born")} in people
    await until(lambda: counts(world.instance.data).staged == 0)


async def test_the_page_of_a_search_asks_for_its_pictures_without_telling_who_was_looked_for(
    world: World,
) -> None:
    await ann(world)
    page = "/people?email=zorbina.q%40wexlomere.example"
    for path in ("/elsewhere/picture.png", "/people/1"):
        whole = world.instance.proxy + page
        state = quote(json.dumps([f"__PAGE__{page.removeprefix('/people')}"]))
        headers = {"Referer": whole, "HX-Current-URL": whole, "Next-Url": page}
        headers |= {"RSC": "1", "Next-Router-State-Tree": state}
        async with world.caller.get(world.instance.proxy + path, headers=headers) as answer:
            await answer.read()
    nowhere(world)
    assert (
        world.application.holds(f"/people?email={stored(world)['email'].replace('@', '%40')}") != []
    )


REFUSED = [
    (b'{"name": "Quibblethwaite', "application/json", 400, "malformed_json"),
    (b'{"name": "Quibblethwaite"} x', "application/json", 400, "ambiguous_json"),
    (b'{"name": "a", "name": "Quibblethwaite"}', "application/json", 400, "ambiguous_json"),
    (b'{"name": "a", "n\\u0061me": "Quibblethwaite"}', "application/json", 400, "ambiguous_json"),
    (b'{"Name": "Quibblethwaite"}', "application/json", 400, "ambiguous_json"),
    (b'{"name": "\\ud800 Quibblethwaite"}', "application/json", 400, "ambiguous_json"),
    ('{"name": "Quibblethwaite"}'.encode("utf-16"), "application/json", 415, "unreadable_body"),
    (b'\xef\xbb\xbf{"name": "Quibblethwaite"}', "application/json", 400, "malformed_json"),
    (b'{"name": "Quibblethwaite"}', "application/json; charset=utf-16", 415, "unreadable_body"),
    (b'{"name": "Quibblethwaite \xff"}', "application/json", 415, "unreadable_body"),
    (b'{"name": "Quibblethwaite"}', "text/plain", 415, "unreadable_body"),
    (b"<name>Quibblethwaite</name>", "application/xml", 415, "unreadable_body"),
    (b"name=Quibblethwaite", "application/x-www-form-urlencoded", 415, "unreadable_body"),
    (
        b'{"name": ' + b"[" * 100 + b'"Quibblethwaite"' + b"]" * 100 + b"}", "application/json",
        413, "too_large",
    ),
    (b'{"name": "' + b"Quibblethwaite" * 200_000 + b'"}', "application/json", 413, "too_large"),
]  # fmt: skip


async def test_what_is_not_understood_is_refused_and_leaves_no_trace(world: World) -> None:
    failed: list[BaseException] = []
    for number, (body, kind, status, code) in enumerate(REFUSED):
        sent: dict[str, Any] = {"data": io.BytesIO(body), "headers": {"Content-Type": kind}}
        with collected(failed, number, {"body": body, "kind": kind}):
            async with world.caller.post(world.instance.proxy + "/people", **sent) as answer:
                raw = await answer.read()
                assert answer.status == status, raw
                assert answer.content_type == "application/problem+json"
                assert json.loads(raw)["code"] == code
            assert not found_in(raw + bytes(world.instance.log), "Quibblethwaite")
            assert world.application.requests == 0
            assert await world.metric("domicile_vault_events_total", event="staged") == 0
    told(failed, len(REFUSED))
    await ann(world)


async def test_rules_follow_the_file_and_a_broken_one_changes_nothing(world: World) -> None:
    file = world.instance.rules / "rules.yaml"
    good = file.read_text()
    await ann(world)
    rewrite(file, good.replace("update: person", "updates: person"))
    await world.instance.logged("rules rejected; previous rules stay active")
    async with world.caller.get(world.instance.admin + "/readyz") as answer:
        assert "updates" in await answer.text()
        assert answer.status == 200, "a typo is no outage"
    assert await world.metric("domicile_reload_failed", what="rules") == 1
    assert await world.metric("domicile_rules_reload_failures_total") == 1
    assert (await world.call("GET", "/people/1", 200))["name"] == ANN["name"]
    rewrite(file, good.replace('      tags:   {kind: text, at: "$.tags[*]"}\n', ""))
    lost = 0
    async with asyncio.timeout(PATIENCE):
        while True:
            await world.call("POST", "/people", 201, json={"name": "Bo", "tags": ["free"]})
            if stored(world, world.application.following - 1)["tags"] == ["free"]:
                break
            lost += 1
    async with world.caller.get(world.instance.admin + "/readyz") as answer:
        assert (answer.status, (await answer.json())["stale"]) == (200, [])
    assert await world.metric("domicile_reload_failed", what="rules") == 0
    assert stored(world, 1)["tags"] != ANN["tags"]


async def test_files_of_the_data_folder_are_for_their_owner_alone(world: World) -> None:
    await ann(world)
    paths = [world.instance.data, *world.instance.data.rglob("*")]
    modes = {path.name: path.stat().st_mode & 0o077 for path in paths}
    assert not any(modes.values()), modes
    assert {"keys.json", "vault.db"} <= modes.keys()

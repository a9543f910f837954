"""The main job as a user has it: the application stores tokens, its users see people."""

import asyncio
import gzip
import io
import json
from email.utils import parseaddr
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


async def test_tokens_pass_the_checks_that_applications_make(world: World) -> None:
    await ann(world)
    record = stored(world)
    assert parseaddr(record["email"])[1] == record["email"]
    assert "@" in record["email"]
    digits = [int(char) for char in record["card"] if char.isdigit()][::-1]
    assert sum(digits[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) == 10 * (
        (sum(digits[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])) // 10
    )
    assert record["card"].endswith("0821")
    assert len(record["born"]) == 10
    assert record["born"] != ANN["born"]
    assert record["phone"].startswith("+")
    assert record["phone"].endswith("36")


async def test_random_tokens_differ_same_ones_agree_and_fields_do_not_share(world: World) -> None:
    await ann(world)
    await ann(world, name="yxmarker-one", email="zorbina.q@wexlomere.EXAMPLE")
    first, second = stored(world, 1), stored(world, 2)
    assert first["email"] == second["email"], "same: true, whatever the spelling"
    assert first["tags"][0] != second["tags"][0], "random"
    assert second["name"] != second["tags"][0], "the same text in two fields gives two tokens"
    assert (await world.call("GET", "/people/2"))["email"] == "zorbina.q@wexlomere.EXAMPLE"


async def test_a_token_is_stable_until_its_value_changes(world: World) -> None:
    created = await ann(world)
    before = dict(stored(world))
    await world.call("PUT", "/people/1", 200, json=created)
    assert stored(world) == before
    await world.call("PATCH", "/people/1", 200, json={"name": "Bo"})
    assert stored(world)["name"] != before["name"]
    assert {**stored(world), "name": 0} == {**before, "name": 0}


async def test_an_own_token_that_comes_back_keeps_its_value(world: World) -> None:
    await ann(world)
    tokens = dict(stored(world))
    changed = await world.call(
        "PATCH", "/people/1", 200, json={"name": tokens["name"], "email": tokens["email"]}
    )
    assert changed["name"] == ANN["name"]
    assert stored(world) == tokens


async def test_a_list_of_500_is_restored_whole(world: World) -> None:
    people = [
        {**ANN, "name": f"Zorbina Quibblethwaite {number}", "phone": f"+46 70 918 {number:04d}"}
        for number in range(500)
    ]
    created = await world.call("POST", "/people/bulk", 201, json=people)
    assert [item["name"] for item in created] == [item["name"] for item in people]
    listed = await world.call("GET", "/people", 200)
    assert [{**item, "id": 0} for item in listed["items"]] == [{**item, "id": 0} for item in people]
    nowhere(world)


async def test_one_change_for_many(world: World) -> None:
    for _ in range(3):
        await ann(world)
    changed = await world.call(
        "PATCH", "/people/bulk", 200, json={"keys": [1, 3], "data": {"name": "Flumpergatan"}}
    )
    assert [item["name"] for item in changed] == ["Flumpergatan", "Flumpergatan"]
    listed = (await world.call("GET", "/people", 200))["items"]
    assert [item["name"] for item in listed] == ["Flumpergatan", ANN["name"], "Flumpergatan"]
    nowhere(world)


async def test_forms_and_redirects_with_the_id_in_location(world: World) -> None:
    form = {
        "name": ANN["name"],
        "email": ANN["email"],
        "phone": ANN["phone"],
        "color": "gr\u00f6n & bl\u00e5",
    }
    async with world.caller.post(
        world.instance.proxy + "/people/form", data=form, allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/people/1")
    assert await world.call("GET", "/people/1", 200) == {**form, "id": 1}
    async with world.caller.post(
        world.instance.proxy + "/people/1/form",
        data={"name": "Flumpergatan 9"},
        allow_redirects=False,
    ) as answer:
        assert answer.status == 303
    assert await world.call("GET", "/people/1", 200) == {**form, "id": 1, "name": "Flumpergatan 9"}
    assert stored(world)["color"] == form["color"]
    nowhere(world)


async def test_gzip_answers_are_restored(world: World) -> None:
    world.application.gzip = True
    created = await ann(world)
    assert created == {**ANN, "id": 1}
    raw = world.caller.get(
        world.instance.proxy + "/people/1",
        headers={"Accept-Encoding": "gzip"},
        auto_decompress=False,
    )
    async with raw as answer:
        body = await answer.read()
        if answer.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert json.loads(body) == created
        assert int(answer.headers["Content-Length"]) == len(await answer.read())


async def test_a_refusal_that_repeats_the_input_shows_callers_their_own_words_and_keeps_nothing(
    world: World,
) -> None:
    world.application.plan = [Misbehaviour(status=422)]
    refused = await world.call("POST", "/people", 422, json=ANN)
    assert json.loads(refused["input"])["name"] == ANN["name"]
    assert json.loads(refused["input"])["email"] == ANN["email"]
    assert await world.metric("domicile_vault_events_total", event="dropped") == 1
    nowhere(world)


@pytest.mark.parametrize("act", [True, False])
@pytest.mark.parametrize("way", [{"status": 500}, {"cut": True}])
async def test_a_create_in_doubt_is_kept_and_bound_by_the_next_read(
    world: World, way: dict[str, Any], act: bool
) -> None:
    world.application.plan = [Misbehaviour(act=act, **way)]
    await world.call("POST", "/people", json=ANN)
    assert await world.metric("domicile_vault_events_total", event="in_doubt") == 1
    if act:
        assert await world.call("GET", "/people/1", 200) == {**ANN, "id": 1}
        assert await world.metric("domicile_vault_events_total", event="reconciled") == 1
        assert (await world.call("PATCH", "/people/1", 200, json={"vip": False}))["name"] == ANN[
            "name"
        ]


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


@pytest.mark.parametrize("act", [True, False])
@pytest.mark.parametrize("way", [{"status": 503}, {"cut": True}])
async def test_an_update_in_doubt_resolves_either_way(
    world: World, way: dict[str, Any], act: bool
) -> None:
    await ann(world)
    world.application.plan = [Misbehaviour(act=act, **way)]
    await world.call("PATCH", "/people/1", json={"name": "Flumpergatan 1", "born": "1955-05-05"})
    seen = await world.call("GET", "/people/1", 200)
    assert (seen["name"], seen["born"]) == (
        ("Flumpergatan 1", "1955-05-05") if act else (ANN["name"], ANN["born"])
    )
    assert await world.call("GET", "/people/1", 200) == seen


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


async def test_what_no_rule_names_passes_byte_for_byte(world: World) -> None:
    body = b'{"name": "Zorbina",  "n": 1.0e+05, "u": "\\u00e5", "dup": 1, "dup": 2}\n'
    async with world.caller.post(
        world.instance.proxy + "/elsewhere//x/%2e?a=1&&b",
        data=body,
        headers={"Content-Type": "application/json"},
    ) as answer:
        assert await answer.read() == body


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


async def test_a_restart_finds_everything(world: World) -> None:
    created = await ann(world)
    assert await world.instance.stop() == 0
    await world.instance.start()
    assert await world.call("GET", "/people/1", 200) == created


async def test_files_of_the_data_folder_are_for_their_owner_alone(world: World) -> None:
    await ann(world)
    paths = [world.instance.data, *world.instance.data.rglob("*")]
    modes = {path.name: path.stat().st_mode & 0o077 for path in paths}
    assert not any(modes.values()), modes
    assert {"keys.json", "vault.db"} <= modes.keys()

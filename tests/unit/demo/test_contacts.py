import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.demo.contacts import STORE, contacts_app
from tests.support.serving import serving

ANN = {
    "first_name": "Ann",
    "last_name": "Lindqvist",
    "email": "Ann@Example.com",
    "phone": "+46 70 174 06 05",
    "birth_date": "1987-04-12",
    "card": "4242424242424242",
    "address": {"street": "Sveavägen 21", "city": "Stockholm"},
    "tags": ["press"],
    "note": "Calls back.",
    "vip": True,
}


def kept(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))["contacts"]


async def test_a_contact_is_created_read_changed_and_deleted(
    client: aiohttp.ClientSession, file: Path
) -> None:
    async with client.post("/api/contacts", json=ANN) as answer:
        assert answer.status == 201
        assert answer.headers["Location"] == "/api/contacts/1"
        assert await answer.json() == {"id": 1, **ANN}
    async with client.get("/api/contacts/1") as answer:
        assert await answer.json() == {"id": 1, **ANN}
    async with client.patch(
        "/api/contacts/1", json={"note": "", "address": {"city": "Lund"}}
    ) as answer:
        changed = {**ANN, "note": "", "address": {"street": "Sveavägen 21", "city": "Lund"}}
        assert (answer.status, await answer.json()) == (200, {"id": 1, **changed})
    assert kept(file) == [{"id": 1, **changed}]
    async with client.delete("/api/contacts/1") as answer:
        assert (answer.status, await answer.read()) == (204, b"")
    async with client.get("/api/contacts/1") as answer:
        assert (answer.status, answer.content_type) == (404, "application/problem+json")


async def test_put_forgets_what_it_does_not_name(client: aiohttp.ClientSession) -> None:
    async with client.post("/api/contacts", json=ANN):
        pass
    async with client.put(
        "/api/contacts/1", json={"first_name": "Eva", "last_name": "Berg", "id": 9}
    ) as answer:
        content = await answer.json()
    assert content["id"] == 1
    assert (content["first_name"], content["email"], content["tags"], content["vip"]) == (
        "Eva",
        "",
        [],
        False,
    )
    assert content["address"] == {"street": "", "city": ""}


async def test_the_list_can_be_narrowed_to_an_email(client: aiohttp.ClientSession) -> None:
    for name in ("Ann", "Ben"):
        async with client.post(
            "/api/contacts", json={**ANN, "first_name": name, "email": f"{name}@Example.com"}
        ):
            pass
    async with client.get("/api/contacts") as answer:
        content = await answer.json()
    assert [item["first_name"] for item in content["items"]] == ["Ann", "Ben"]
    assert content["total"] == 2
    async with client.get("/api/contacts", params={"email": "ben@example.com"}) as answer:
        assert [item["first_name"] for item in (await answer.json())["items"]] == ["Ben"]
    async with client.get("/api/contacts", params={"email": "nobody@example.com"}) as answer:
        assert await answer.json() == {"items": [], "total": 0}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_unfit_fields_are_refused_and_what_came_is_repeated(
    client: aiohttp.ClientSession, method: str
) -> None:
    async with client.post("/api/contacts", json=ANN):
        pass
    path = "/api/contacts" if method == "POST" else "/api/contacts/1"
    submitted = {**ANN, "card": "4242424242424241", "first_name": ""}
    async with client.request(method, path, json=submitted) as answer:
        assert (answer.status, answer.content_type) == (422, "application/problem+json")
        content = await answer.json(content_type=None)
    assert [error["field"] for error in content["errors"]] == ["first_name", "card"]
    assert content["input"] == submitted
    async with client.get("/api/contacts") as answer:
        assert (await answer.json())["items"] == [{"id": 1, **ANN}]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"first_name": "\\ud800"}', "application/json", 400),
        (b"[" * 200_000, "application/json", 400),
        (b"{}", "application/json; charset=none-such", 400),
        (b"first_name=Ann", "application/x-www-form-urlencoded", 415),
    ],
)
async def test_a_body_of_another_kind_is_refused(
    client: aiohttp.ClientSession, body: bytes, kind: str, status: int
) -> None:
    async with client.post("/api/contacts", data=body, headers={"Content-Type": kind}) as answer:
        assert (answer.status, answer.content_type) == (status, "application/problem+json")


@pytest.mark.parametrize(
    "path", ["/api/contacts/1", "/api/contacts/x", f"/api/contacts/{'9' * 5000}"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_contacts_that_are_not_there_answer_404(
    client: aiohttp.ClientSession, method: str, path: str
) -> None:
    async with client.request(method, path, json=ANN) as answer:
        assert answer.status == 404


async def test_the_store_is_at_hand_for_whoever_runs_the_application(file: Path) -> None:
    app = contacts_app(str(file))
    async with serving(app) as address, aiohttp.ClientSession(address) as client:
        async with client.post("/api/contacts", json=ANN):
            pass
    running, found = app[STORE], contacts_app(file)[STORE]
    assert list(running) == list(found) == [{"id": 1, **ANN}]

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.demo.contacts import (
    STORE,
    as_json,
    contacts_app,
)
from tests.support.serving import serving

ANN = {
    "first_name": "Ann", "last_name": "Lindqvist", "email": "Ann@Example.com",
    "phone": "+46 70 174 06 05", "birth_date": "1987-04-12", "card": "4242424242424242",
    "address": {"street": "Sveavägen 21", "city": "Stockholm"}, "tags": ["press"],
    "note": "Calls back.", "vip": True,
}  # fmt: skip


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


def test_json_is_utf8_and_asked_for_again() -> None:
    answer = as_json({"name": "Åsa"}, 201, {"Location": "/x"})
    assert (answer.status, answer.body) == (201, '{"name": "Åsa"}'.encode())
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["Location"] == "/x"
    assert answer.headers["Cache-Control"] == "no-cache"


FORM = {
    "first_name": "Ann", "last_name": "Lindqvist", "email": "ann@example.com",
    "phone": "+46 70 174 06 05", "birth_date": "1987-04-12", "card": "4242424242424242",
    "street": "Sveavägen 21", "city": "Stockholm", "note": "", "vip": "yes",
}  # fmt: skip


async def stored(client: aiohttp.ClientSession) -> list[dict[str, object]]:
    async with client.get("/api/contacts") as answer:
        items: list[dict[str, object]] = (await answer.json())["items"]
        return items


async def test_the_form_of_a_new_contact_leads_to_its_page(client: aiohttp.ClientSession) -> None:
    async with client.post("/contacts", data=FORM, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/contacts/1")
    assert await stored(client) == [
        {
            "id": 1,
            **{
                name: FORM[name]
                for name in (
                    "first_name", "last_name", "email", "phone", "birth_date", "card", "note",
                )
            },
            "address": {"street": "Sveavägen 21", "city": "Stockholm"},
            "tags": [],
            "vip": True,
        }
    ]  # fmt: skip


async def test_the_form_of_a_contact_leaves_its_tags_alone(client: aiohttp.ClientSession) -> None:
    person = {
        "first_name": "Ann",
        "last_name": "L",
        "tags": ["press"],
        "vip": True,
        "address": {"city": "Lund"},
    }
    async with client.post("/api/contacts", json=person):
        pass
    async with client.post(
        "/contacts/1", data={"last_name": "Berg"}, allow_redirects=False
    ) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/contacts/1")
    (contact,) = await stored(client)
    assert (contact["first_name"], contact["last_name"], contact["tags"]) == (
        "Ann",
        "Berg",
        ["press"],
    )
    assert contact["address"] == {"street": "", "city": "Lund"}
    assert contact["vip"] is False  # the box was not ticked


async def test_the_delete_button_leads_back_to_the_list(client: aiohttp.ClientSession) -> None:
    async with client.post("/contacts", data=FORM):
        pass
    async with client.post("/contacts/1/delete", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/contacts")
    assert await stored(client) == []


@pytest.mark.parametrize("path", ["/contacts", "/contacts/1"])
async def test_an_unfit_form_is_shown_back_with_the_fields_at_fault(
    client: aiohttp.ClientSession, path: str
) -> None:
    async with client.post("/contacts", data=FORM):
        pass
    before = await stored(client)
    unfit = {**FORM, "email": "<b>ann", "birth_date": "yesterday"}
    async with client.post(path, data=unfit) as answer:
        assert (answer.status, answer.content_type) == (422, "text/html")
        text = await answer.text()
    assert "<b>Email</b> must look like" in text
    assert "<b>Birth date</b> must be a date" in text
    assert "&lt;b&gt;ann" in text
    assert "<b>ann" not in text
    async with client.post(path, data=unfit, headers={"Accept": "application/json"}) as answer:
        assert (answer.status, answer.content_type) == (422, "application/problem+json")
        assert json.loads(await answer.text())["input"] == unfit
    assert await stored(client) == before


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"first_name=Ann", "application/x-www-form-urlencoded; charset=none-such", 400),
        (b"first_name=\xff", "application/x-www-form-urlencoded", 400),
    ],
)
async def test_a_form_of_another_kind_is_refused(
    client: aiohttp.ClientSession, body: bytes, kind: str, status: int
) -> None:
    async with client.post("/contacts", data=body, headers={"Content-Type": kind}) as answer:
        assert answer.status == status


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/contacts/7"), ("POST", "/contacts/7"), ("POST", "/contacts/7/delete")],
)
async def test_pages_of_nobody_answer_404(
    client: aiohttp.ClientSession, method: str, path: str
) -> None:
    async with client.request(method, path, data=FORM if method == "POST" else None) as answer:
        assert answer.status == 404


async def test_pages_hold_no_contact_and_ask_nobody_else(client: aiohttp.ClientSession) -> None:
    async with client.post("/contacts", data=FORM):
        pass
    for path in ("/", "/contacts", "/contacts/1"):
        async with client.get(path) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            text = await answer.text()
        assert "Ann" not in text
        assert "$" not in text  # every placeholder of the template is filled
        assert "//" not in re.sub(r"<!--.*?-->", "", text)  # no address of another host
        for asset in re.findall(r'(?:src|href)="(/static/[^"]+)"', text):
            async with client.get(asset) as answer:
                assert answer.status == 200, asset


def test_no_script_or_style_fetches_from_another_host() -> None:
    static = Path(__file__).parents[3] / "proxy" / "demo" / "static"
    files = [file for file in static.rglob("*") if file.suffix in {".js", ".css", ".html"}]
    assert len(files) >= 9
    for file in files:
        assert not re.findall(r"https?://[^\s\"']+", file.read_text("utf-8")), file.name

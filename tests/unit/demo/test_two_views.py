import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proxy.demo import two_views
from proxy.demo.contacts import STORE, contacts_app
from proxy.demo.store import Contact, ContactStore
from proxy.demo.two_views import Links, differing, twoviews_app
from tests.support.patience import PATIENCE
from tests.support.serving import serving

TOKENS = {
    "first_name": "tok1", "email": "tok2@t.example", "address": {"street": "tok3", "city": "Lund"},
    "tags": ["tok4"],
}  # fmt: skip
PEOPLE = {
    "first_name": "Ann", "email": "ann@example.com",
    "address": {"street": "Storgatan 1", "city": "Lund"}, "tags": ["press"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "seen", "places"),
    [
        (
            {"id": 1, **TOKENS},
            {"id": 1, **PEOPLE},
            ["/first_name", "/email", "/address/street", "/tags/0"],
        ),
        (TOKENS, TOKENS, []),
        (TOKENS, None, []),
        ({"a": "x", "b": 1}, {"b": 2}, ["/b"]),
        ({"a": ["x", "y"]}, {"a": ["z"]}, ["/a/0"]),
        ({"a": {"b": 1}}, {"a": "text"}, ["/a"]),
    ],
)
def test_values_that_read_otherwise_through_the_proxy_are_tokens(
    stored: Any, seen: Any, places: list[str]
) -> None:
    assert list(differing(stored, seen)) == places


class Restoring:
    """Stands in for the proxy: answers the stored contacts with people in place of tokens."""

    def __init__(self, store: ContactStore) -> None:
        self._store = store
        self.status = 200

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/contacts", self.find)
        return app

    async def find(self, _request: web.Request) -> web.Response:
        items: list[Contact] = [{**contact, **PEOPLE} for contact in self._store]
        return web.json_response({"items": items, "total": len(items)}, status=self.status)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that pauses is not taken for a proxy that does not answer."""
    monkeypatch.setattr(two_views, "_PATIENCE", aiohttp.ClientTimeout(PATIENCE))


@pytest.fixture
def store(tmp_path: Path) -> ContactStore:
    return contacts_app(tmp_path / "contacts.json")[STORE]


@pytest.fixture
def proxy(store: ContactStore) -> Restoring:
    return Restoring(store)


@pytest.fixture
async def client(store: ContactStore, proxy: Restoring) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(proxy.app()) as address:
        links = Links(
            address,
            "http://127.0.0.1:3",
            "http://127.0.0.1:4",
            "http://127.0.0.1:5",
            "rules/<contacts>.yaml",
        )
        async with (
            serving(twoviews_app(links, store)) as page,
            aiohttp.ClientSession(page) as session,
        ):
            yield session


async def event(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next event that carries data."""
    async with asyncio.timeout(PATIENCE):
        while not (line := await answer.content.readline()).startswith(b"data: "):
            assert line, "the stream ended"
        content: dict[str, Any] = json.loads(line[6:])
        return content


async def test_the_page_shows_every_address_and_frames_the_proxy_only(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/") as answer:
        text = await answer.text()
        policy = answer.headers["Content-Security-Policy"]
    assert "http://127.0.0.1:3/contacts" in text
    assert "http://127.0.0.1:4/docs" in text
    assert "http://127.0.0.1:5/readyz" in text
    assert "rules/&lt;contacts&gt;.yaml" in text
    assert "<code>contacts.json</code>" in text
    assert "$" not in text
    (frame,) = [part for part in policy.split("; ") if part.startswith("frame-src")]
    assert f'<iframe src="{frame.split()[1]}/contacts"' in text
    for asset in ("icon.svg", "twoviews.css", "twoviews.js"):
        assert f"/static/{asset}" in text
        async with client.get(f"/static/{asset}") as answer:
            assert answer.status == 200


async def test_stored_rows_come_newest_first_with_their_tokens_named(
    client: aiohttp.ClientSession, store: ContactStore
) -> None:
    store.add(TOKENS)
    store.add({"first_name": "Ann", "vip": True})
    async with client.get("/stored") as answer:
        content = await answer.json()
    assert [contact["id"] for contact in content["contacts"]] == [2, 1]
    assert content["contacts"][1] == {"id": 1, **TOKENS}
    assert content["tokens"] == {
        "1": ["/first_name", "/email", "/address/street", "/tags/0"],
        "2": [],
    }
    assert content["answers"] is True
    # the restored value itself never stands on this side
    assert "ann@example.com" not in json.dumps(content)


async def test_a_proxy_that_does_not_answer_is_told_and_nothing_is_marked(
    client: aiohttp.ClientSession, store: ContactStore, proxy: Restoring
) -> None:
    store.add(TOKENS)
    proxy.status = 503
    async with client.get("/stored") as answer:
        content = await answer.json()
    assert content["answers"] is False
    assert content["tokens"] == {"1": []}
    assert content["contacts"] == [{"id": 1, **TOKENS}]


async def test_a_change_reaches_the_browser_within_a_second(
    client: aiohttp.ClientSession, store: ContactStore
) -> None:
    async with client.get("/events") as answer:
        assert answer.content_type == "text/event-stream"
        assert (await event(answer))["contacts"] == []
        took = []
        for number in ("1", "2", "3"):
            begun = time.monotonic()
            store.add(TOKENS)
            tokens = (await event(answer))["tokens"]
            took.append(time.monotonic() - begun)
            assert tokens[number] == ["/first_name", "/email", "/address/street", "/tags/0"]
    assert min(took) < 1, "the best of three, for a machine may pause now and then"


async def test_a_proxy_that_answers_again_is_noticed_without_a_change(
    client: aiohttp.ClientSession, proxy: Restoring
) -> None:
    proxy.status = 503
    async with client.get("/events") as answer:
        assert (await event(answer))["answers"] is False
        proxy.status = 200
        assert (await event(answer))["answers"] is True


async def test_open_streams_do_not_hold_up_the_end(store: ContactStore) -> None:
    links = Links(
        "http://127.0.0.1:1",
        "http://127.0.0.1:3",
        "http://127.0.0.1:4",
        "http://127.0.0.1:5",
        "rules/contacts.yaml",
    )
    async with aiohttp.ClientSession() as session:
        async with serving(twoviews_app(links, store), patience=2 * PATIENCE) as page:
            answer = await session.get(f"{page}/events")
            assert (await event(answer))["answers"] is False
            begun = time.monotonic()
        assert time.monotonic() - begun < PATIENCE
        answer.close()

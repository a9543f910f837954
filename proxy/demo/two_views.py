"""The page that shows both sides at once: the contacts as people see them, and as the application
stores them.

The left side is the application itself in a frame, through the proxy. The right side is what its
store holds. A stored value is marked as a token when the same value reads otherwise through the
proxy; nothing here knows rules, shapes or keys.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from proxy.demo.store import Contact, ContactStore

_STATIC = Path(__file__).parent / "static"
_SETTLE = 0.15  # seconds from a change in the store until the proxy has had its answer
_POLL = 2.0  # seconds between two looks without a change: a rule file may have been edited
_PATIENCE = aiohttp.ClientTimeout(total=3)


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses that the page shows, each ``http://host:port``, and the rule file's name."""

    proxy: str
    application: str
    vault: str
    admin: str
    rules: str


def twoviews_app(links: Links, direct: ContactStore) -> web.Application:
    """The page at ``/``; ``direct``: the contacts application's store, ``app[contacts.STORE]``."""
    views = TwoViews(links, direct)
    app = web.Application()
    app.cleanup_ctx.append(views.client)
    app.on_shutdown.append(views.end)
    app.add_routes(
        [
            web.get("/", views.page),
            web.get("/stored", views.stored),
            web.get("/events", views.events),
            web.static("/static", _STATIC / "twoviews"),
        ]
    )
    return app


class TwoViews:
    """Handlers of the page and of its stream of events."""

    def __init__(self, links: Links, direct: ContactStore) -> None:
        self._links = links
        self._direct = direct
        self._ended = False
        self._client: aiohttp.ClientSession

    async def client(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep one HTTP client while the application runs."""
        async with aiohttp.ClientSession(timeout=_PATIENCE) as self._client:
            yield

    async def end(self, _app: web.Application) -> None:
        """Let open streams finish, so that stopping does not wait for browsers."""
        self._ended = True
        self._direct.notify()

    async def page(self, _request: web.Request) -> web.Response:
        parts = {name: escape(text) for name, text in asdict(self._links).items()}
        template = Template((_STATIC / "pages" / "twoviews.html").read_text("utf-8"))
        places = {f"{name}_place": text.partition("://")[2] for name, text in parts.items()}
        text = template.substitute(parts, **places, file=escape(self._direct.path.name))
        return web.Response(
            text=text, content_type="text/html", headers=_page_headers(self._links.proxy)
        )

    async def stored(self, _request: web.Request) -> web.Response:
        """Return the right side of the page once, as JSON."""
        return web.Response(
            text=await self._snapshot(), content_type="application/json", headers=_UNKEPT
        )

    async def events(self, request: web.Request) -> web.StreamResponse:
        """The same as a stream of server-sent events: one now, and one whenever it changed."""
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", **_UNKEPT})
        await stream.prepare(request)
        sent = ""
        try:
            while not self._ended:
                # what changes while the snapshot is made is not missed
                since = self._direct.changes
                snapshot = await self._snapshot()
                message = f"data: {snapshot}\n\n" if snapshot != sent else ": nothing new\n\n"
                await stream.write(message.encode())
                sent = snapshot
                if await self._direct.changed(since, within=_POLL):
                    await asyncio.sleep(_SETTLE)
        except ConnectionError:
            pass  # the browser went away; the stream has nothing more to do
        return stream

    async def _snapshot(self) -> str:
        view = await self._callers_view()
        contacts = list(self._direct)
        return json.dumps(
            {
                "answers": view is not None,
                "contacts": contacts[::-1],
                "tokens": {
                    contact["id"]: list(differing(contact, (view or {}).get(contact["id"])))
                    for contact in contacts
                },
            }
        )

    async def _callers_view(self) -> dict[int, Contact] | None:
        """The contacts by id as the proxy answers them; ``None`` when it does not answer."""
        try:
            async with self._client.get(f"{self._links.proxy}/api/contacts") as answer:
                answer.raise_for_status()
                return {contact["id"]: contact for contact in (await answer.json())["items"]}
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            return None


def differing(stored: Any, view: Any, pointer: str = "") -> Iterator[str]:
    """JSON Pointers of values in ``stored`` that differ in ``seen``; none where nothing is seen."""
    if view is None or stored == view:
        return
    if isinstance(stored, dict) and isinstance(view, dict):
        for name, value in stored.items():
            yield from differing(value, view.get(name), f"{pointer}/{name}")
    elif isinstance(stored, list) and isinstance(view, list):
        for index, (one, other) in enumerate(zip(stored, view, strict=False)):
            yield from differing(one, other, f"{pointer}/{index}")
    else:
        yield pointer


_UNKEPT = {"Cache-Control": "no-store"}


def _page_headers(proxy: str) -> dict[str, str]:
    address = urlsplit(proxy)
    policy = (
        f"default-src 'self'; frame-src {address.scheme}://{address.netloc}; base-uri 'none'; "
        "form-action 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
    }

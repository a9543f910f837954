"""Server-sent events through the proxy, as a browser's own ``EventSource`` reads them."""

import asyncio
import json
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.support.browser import Browser
from tests.support.instance import running
from tests.support.serving import serving
from tests.support.tree import ROOT

RULES = ROOT / "rules" / "examples" / "streams.yaml"
ANN = {"name": "Zorbina Quibblethwaite", "email": "ann@x.example", "phone": "+46 70 1"}
LISTEN = """
window.got = []; const source = new EventSource("/contacts/events");
source.addEventListener("change", (one) => {
  window.got.push([one.lastEventId, JSON.parse(one.data).contact.name]);
});
"""


async def test_a_browser_gets_people_event_by_event(tmp_path: Path, browser: Browser):
    stored: list[dict[str, object]] = []
    more = asyncio.Event()

    async def create(request: web.Request) -> web.Response:
        stored.append({**await request.json(), "id": 1})
        return web.json_response(stored[-1], status=201)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>x</title>", content_type="text/html")

    async def events(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for number in (1, 2):
            text = json.dumps({"contact": stored[0]}, indent=1).replace("\n", "\r\ndata: ")
            await answer.write(f"id: {number}\r\nevent: change\r\ndata: {text}\r\n\r\n".encode())
            await more.wait()
        return answer

    application = web.Application()
    application.add_routes([web.post("/contacts", create), web.get("/contacts/events", events)])
    application.router.add_get("/", page)
    async with serving(application) as upstream:
        rules = RULES.read_text().replace("http://127.0.0.1:3000", upstream)
        async with running(tmp_path, rules) as instance, aiohttp.ClientSession() as caller:
            async with caller.post(instance.proxy + "/contacts", json=ANN) as answer:
                assert answer.status == 201
            assert stored[0]["name"] != ANN["name"]
            view = await browser.page()
            await view.goto(instance.proxy + "/")
            await view.evaluate(LISTEN)
            await view.until("window.got.length === 1")
            more.set()
            await view.until("window.got.length >= 2")
            got = await view.evaluate("window.got.slice(0, 2)")
            assert got == [["1", ANN["name"]], ["2", ANN["name"]]]

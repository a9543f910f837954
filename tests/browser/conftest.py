"""The contacts application, and a stand-in that swaps one name as the proxy would."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from proxy.demo.contacts import contacts_app
from tests.support.serving import serving

#: The name that the stand-in keeps from the application, and what it sends in its place.
NAME, TOKEN = "Ingeborg", "tk7Qm2XvB9"


@pytest.fixture
def application(tmp_path: Path) -> web.Application:
    """The contacts application, with nobody in it."""
    return contacts_app(tmp_path / "contacts.json")


@pytest.fixture
async def direct(application: web.Application) -> AsyncIterator[str]:
    """Address of the contacts application."""
    async with serving(application) as address:
        yield address


@pytest.fixture
async def swapping(direct: str) -> AsyncIterator[str]:
    """Address of a stand-in for the proxy: forwards everything, swaps ``NAME`` for ``TOKEN`` and
    back.
    """

    async def forward(request: web.Request) -> web.Response:
        body = (await request.read()).replace(NAME.encode(), TOKEN.encode())
        kept = {
            name: request.headers[name]
            for name in ("Content-Type", "Accept")
            if name in request.headers
        }
        async with client.request(
            request.method, request.path_qs, data=body, headers=kept, allow_redirects=False
        ) as answer:
            content = (await answer.read()).replace(TOKEN.encode(), NAME.encode())
            back = {
                name: answer.headers[name]
                for name in ("Content-Type", "Location")
                if name in answer.headers
            }
            return web.Response(body=content, status=answer.status, headers=back)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    async with aiohttp.ClientSession(direct) as client, serving(app) as address:
        yield address

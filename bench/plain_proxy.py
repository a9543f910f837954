"""The peer of measure 3: aiohttp's server and client, naively joined, and nothing done to a body.

python bench/plain_proxy.py PORT UPSTREAM_PORT
"""

import sys

import aiohttp
from aiohttp import web


class Plain:
    """Passes requests on as they come."""

    def __init__(self, upstream: int) -> None:
        self._upstream = f"http://127.0.0.1:{upstream}"
        self._session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.Response:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        kind = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with self._session.request(
            request.method,
            f"{self._upstream}{request.path_qs}",
            data=await request.read(),
            headers=kind,
        ) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )


def main(port: int, upstream: int) -> None:
    """Serve until the process ends."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", Plain(upstream).handle)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

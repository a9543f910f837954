"""The peer of measure 11: what a developer writes in an afternoon. aiohttp, ``json``, ``jsonpath-ng``
and a dictionary in memory: no vault, no keys, no audit, nothing exact, nothing durable.

    python bench/naive_proxy.py PORT UPSTREAM_PORT
"""

import json
import sys
import uuid
from typing import Any

import aiohttp
from aiohttp import web
from jsonpath_ng.parser import parse

FIELDS = ("first_name", "last_name", "email", "phone", "street")
_PATHS = [parse(f"$[*].{name}") for name in FIELDS]


class Naive:
    """Tokens out, values in, and the other way round."""

    def __init__(self, upstream: int) -> None:
        self._upstream = f"http://127.0.0.1:{upstream}"
        self._values: dict[str, Any] = {}
        self._session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.Response:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        body = await request.read()
        if body:
            document = json.loads(body)
            for path in _PATHS:
                for match in path.find(document):
                    token = uuid.uuid4().hex
                    self._values[token] = match.value
                    match.full_path.update(document, token)
            body = json.dumps(document).encode()
        async with self._session.request(
            request.method, f"{self._upstream}{request.path_qs}", data=body
        ) as answer:
            document = json.loads(await answer.read())
        for path in _PATHS:
            for match in path.find(document):
                if match.value in self._values:
                    match.full_path.update(document, self._values[match.value])
        text = json.dumps(document)
        return web.Response(text=text, status=answer.status, content_type="application/json")


def main(port: int, upstream: int) -> None:
    """Serve until the process ends."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", Naive(upstream).handle)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

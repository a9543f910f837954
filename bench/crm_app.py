"""The application of measure 22: a small CRM that works half a millisecond for a request, as an
ordinary framework with an ordinary database does.

    python bench/crm_app.py PORT
"""

import json
import sys
import time

from aiohttp import web

#: Seconds of work for a request, beside what the server itself takes.
WORK = 0.0005
PAGE = 50


class Crm:
    """Contacts in memory, by number."""

    def __init__(self) -> None:
        self.stored: dict[int, dict[str, object]] = {}
        self.last = 0

    async def create(self, request: web.Request) -> web.Response:
        self.last += 1
        if request.content_type == "application/json":
            fields = await request.json()
        else:
            fields = dict(await request.post())
        self.stored[self.last] = {**fields, "id": self.last}
        return _answer(self.stored[self.last], 201)

    async def change(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        self.stored[number] = {**await request.json(), "id": number}
        return _answer(self.stored[number])

    async def read(self, request: web.Request) -> web.Response:
        return _answer(self.stored[int(request.match_info["id"])])

    async def remove(self, request: web.Request) -> web.Response:
        self.stored.pop(int(request.match_info["id"]), None)
        return web.Response(status=204)

    async def several(self, request: web.Request) -> web.Response:
        """A page, or those of an e-mail address."""
        email, chosen = request.query.get("email"), list(self.stored.values())
        if email is not None:
            return _answer([one for one in chosen if one["email"] == email])
        first = int(request.query.get("first", 0)) % max(len(chosen) - PAGE, 1)
        return _answer(chosen[first : first + PAGE])

    async def status(self, request: web.Request) -> web.Response:
        del request
        return _answer({"status": "well"})


def _answer(content: object, status: int = 200) -> web.Response:
    until = time.perf_counter() + WORK
    while time.perf_counter() < until:
        pass
    return web.Response(text=json.dumps(content), status=status, content_type="application/json")


def main(port: int) -> None:
    """Serve until the process ends."""
    crm = Crm()
    app = web.Application()
    app.add_routes(
        [
            web.post("/people", crm.create),
            web.post("/form", crm.create),
            web.get("/people", crm.several),
            web.get("/people/{id}", crm.read),
            web.put("/people/{id}", crm.change),
            web.delete("/people/{id}", crm.remove),
            web.get("/status", crm.status),
        ]
    )
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""An application that keeps what it is sent, as lists: behind the proxy for measures 21 and 24, and as
bare as can be.

``POST /people`` takes a list and answers it with ids, ``GET /people`` shows all that it has as one
list, or those of ``ids``, ``PUT /people/{n}`` and ``GET /people/{n}`` change and show one record.

    python bench/list_app.py PORT
"""

import sys

import msgspec
from aiohttp import web

_JSON = "application/json"


class People:
    """All records, by number."""

    def __init__(self) -> None:
        self.kept: dict[int, dict[str, object]] = {}

    async def create(self, request: web.Request) -> web.Response:
        made = msgspec.json.decode(await request.read())
        for one in made:
            one["id"] = number = len(self.kept) + 1
            self.kept[number] = one
        return self._answer(made, 201)

    async def every(self, request: web.Request) -> web.Response:
        ids = request.query.get("ids")
        if ids is None:
            return self._answer(list(self.kept.values()))
        return self._answer([self.kept[int(one)] for one in ids.split(",") if one != "0"])

    async def change(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        self.kept[number] = {**msgspec.json.decode(await request.read()), "id": number}
        return self._answer(self.kept[number])

    async def one(self, request: web.Request) -> web.Response:
        return self._answer(self.kept[int(request.match_info["number"])])

    def _answer(self, content: object, status: int = 200) -> web.Response:
        return web.Response(body=msgspec.json.encode(content), status=status, content_type=_JSON)


def main(port: int) -> None:
    """Serve until the process ends."""
    people = People()
    app = web.Application(client_max_size=2**26)
    app.add_routes(
        [
            web.post("/people", people.create),
            web.get("/people", people.every),
            web.put("/people/{number}", people.change),
            web.get("/people/{number}", people.one),
        ]
    )
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))

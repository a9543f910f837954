"""The peer of measure 17: a plain copy through aiohttp, to a file and back, flushed to disk,
nothing sealed, nothing hashed.

``python -m bench.copy_app PORT FOLDER``; ``PUT /name`` keeps the body, ``POST /name`` the part of a
form (the request that an upload to the vault is), ``GET /name`` answers it.
"""

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import BodyPartReader, web

_PIECE = 512 * 1024


def application(folder: Path) -> web.Application:
    """The routes."""

    async def put(request: web.Request) -> web.Response:
        with (folder / request.match_info["name"]).open("wb") as file:
            async for piece in request.content.iter_any():
                file.write(piece)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return web.Response(status=201)

    async def post(request: web.Request) -> web.Response:
        part = await (await request.multipart()).next()
        if not isinstance(part, BodyPartReader):
            raise web.HTTPBadRequest
        with (folder / request.match_info["name"]).open("wb") as file:
            while piece := await part.read_chunk(_PIECE):
                file.write(piece)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return web.Response(status=201)

    async def get(request: web.Request) -> web.StreamResponse:
        path = folder / request.match_info["name"]
        response = web.StreamResponse()
        response.content_length = path.stat().st_size
        await response.prepare(request)
        with path.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, _PIECE):
                await response.write(piece)
        await response.write_eof()
        return response

    app = web.Application(client_max_size=2**40)
    app.router.add_put("/{name}", put)
    app.router.add_post("/{name}", post)
    app.router.add_get("/{name}", get)
    return app


if __name__ == "__main__":
    web.run_app(application(Path(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), print=None)

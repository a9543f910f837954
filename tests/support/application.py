"""An application to stand behind the proxy: it stores what it is sent, records every byte, and
misbehaves on request.
"""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

from aiohttp import web

Record = dict[str, Any]


@dataclass
class Misbehaviour:
    """What happens to the next request: ``before`` or after the application has acted on it."""

    status: int = 0  #: answer with this status instead; 0: do not answer with another status
    act: bool = False  #: whether the change is made all the same
    hang: bool = False  #: never answer
    cut: bool = False  #: close the connection without an answer
    forget: tuple[str, ...] = ()  #: members that the application ignores (read-only there)
    answer: Callable[[Record], Any] | None = None  #: what to answer instead of the record
    #: which record a create is answered with, if not with a new one; without a number, the latest
    known: int = 0
    #: what happens to that one: ``upsert`` writes it, ``duplicate`` leaves it as it is, ``again``
    #: deletes it before and gives its id to the new one
    by: str = ""


WAY: web.RequestKey[Misbehaviour] = web.RequestKey("way", Misbehaviour)


@dataclass
class Application:
    """Records by id under ``/people``, as JSON and as forms."""

    records: dict[int, Record] = field(default_factory=dict)
    #: every byte of every request that reached it
    seen: bytearray = field(default_factory=bytearray)
    requests: int = 0
    plan: list[Misbehaviour] = field(default_factory=list)
    gate: asyncio.Event | None = None  #: requests wait here before they act
    #: what a bulk create shows of what it made
    reply: Callable[[list[Record]], list[Record]] | None = None
    following: int = 1

    def app(self) -> web.Application:
        """The aiohttp application."""
        made = web.Application(middlewares=[self._record])
        made.add_routes(
            [
                web.get("/people", self._list),
                web.post("/people", self._create),
                web.post("/people/bulk", self._create_many),
                web.patch("/people/bulk", self._change_many),
                web.post("/people/form", self._create_form),
                web.get("/people/{id:\\d+}", self._read),
                web.put("/people/{id:\\d+}", self._change),
                web.patch("/people/{id:\\d+}", self._change),
                web.post("/people/{id:\\d+}/form", self._change_form),
                web.delete("/people/{id:\\d+}", self._delete),
                web.route("*", "/{rest:.*}", self._echo),
            ]
        )
        return made

    def holds(self, marker: str) -> list[str]:
        """The forms in which the marker reached the application, in anything it ever saw or stores."""
        heap = (
            bytes(self.seen)
            + json.dumps(self.records).encode()
            + json.dumps(self.records, ensure_ascii=False).encode()
        )
        return found_in(heap, marker)

    @web.middleware
    async def _record(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        self.requests += 1
        body = await request.read()
        head = b"".join(name + b": " + value + b"\r\n" for name, value in request.raw_headers)
        self.seen += (
            f"{request.method} {request.raw_path}\r\n".encode() + head + b"\r\n" + body + b"\r\n"
        )
        if self.gate is not None:
            await self.gate.wait()
        way = self.plan.pop(0) if self.plan else Misbehaviour()
        request[WAY] = way
        if not way.act and (way.status or way.hang or way.cut):
            return await self._misbehave(request, way, {})
        answer: web.StreamResponse = await handler(request)
        if way.status or way.hang or way.cut:
            return await self._misbehave(request, way, {})
        return answer

    async def _misbehave(
        self, request: web.Request, way: Misbehaviour, record: Record
    ) -> web.StreamResponse:
        if way.hang:
            await asyncio.sleep(3600)
        if way.cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        body = await request.read()
        if way.answer is not None:
            return web.json_response(way.answer(record), status=way.status)
        echo = body.decode("utf-8", "replace")
        return web.json_response({"error": "refused", "input": echo}, status=way.status)

    # ------------------------------------------------------------------ routes

    def _put(self, content: Record, ident: int | None = None) -> Record:
        if ident is None:
            ident = self.following
            self.following += 1
        self.records[ident] = {**content, "id": ident}
        return self.records[ident]

    async def _list(self, request: web.Request) -> web.Response:
        wanted = request.query.get("email")
        items = [
            item for item in self.records.values() if wanted is None or item.get("email") == wanted
        ]
        return web.json_response({"items": items, "total": len(items)})

    async def _create(self, request: web.Request) -> web.Response:
        content, way = self._accepted(request, await request.json()), request[WAY]
        ident = (way.known or self.following - 1) if way.by else None
        before = self.records.get(ident or 0, {})
        if way.by == "duplicate" and before:
            record = before
        else:
            record = self._put({**(before if way.by == "upsert" else {}), **content}, ident)
        return web.json_response(way.answer(record) if way.answer else record, status=201)

    async def _create_many(self, request: web.Request) -> web.Response:
        made = [self._put(item) for item in await request.json()]
        return web.json_response(self.reply(made) if self.reply else made, status=201)

    async def _change_many(self, request: web.Request) -> web.Response:
        change = await request.json()
        for ident in change["keys"]:
            self.records[int(ident)].update(change["data"])
        return web.json_response([self.records[int(ident)] for ident in change["keys"]])

    async def _create_form(self, request: web.Request) -> web.Response:
        record = self._put(self._accepted(request, dict(await request.post())))
        return web.Response(status=302, headers={"Location": f"/people/{record['id']}"})

    async def _change_form(self, request: web.Request) -> web.Response:
        ident = int(request.match_info["id"])
        self.records[ident].update(await request.post())
        return web.Response(status=303, headers={"Location": f"/people/{ident}"})

    async def _read(self, request: web.Request) -> web.Response:
        record = self.records.get(int(request.match_info["id"]))
        return (
            web.json_response(record)
            if record
            else web.json_response({"error": "not found"}, status=404)
        )

    async def _change(self, request: web.Request) -> web.Response:
        ident = int(request.match_info["id"])
        content = self._accepted(request, await request.json())
        before = (
            self.records.get(ident, {}) if request.method == "PATCH" or request[WAY].forget else {}
        )
        return web.json_response(self._put({**before, **content}, ident))

    async def _delete(self, request: web.Request) -> web.Response:
        gone = self.records.pop(int(request.match_info["id"]), None)
        return web.Response(status=204 if gone else 404)

    async def _echo(self, request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type=request.content_type)

    @staticmethod
    def _accepted(request: web.Request, content: Record) -> Record:
        way = request[WAY]
        return {name: value for name, value in content.items() if name not in way.forget}


def spellings(marker: str) -> dict[str, list[bytes]]:
    """Every form in which a value may hide: raw, JSON-escaped, percent-encoded, base64 at each
    offset, UTF-16.
    """
    raw = marker.encode()
    escaped = "".join(f"\\u{ord(char):04x}" for char in marker)
    percent = "".join(f"%{byte:02x}" for byte in raw)
    return {
        "raw": [raw, raw.lower(), raw.upper()],
        "json": [
            json.dumps(marker)[1:-1].encode(),
            escaped.encode(),
            escaped.upper().replace("\\U", "\\u").encode(),
        ],
        "percent": [
            quote(marker, safe="").encode(),
            quote_plus(marker).encode(),
            percent.encode(),
            percent.upper().encode(),
        ],
        "base64": _base64_cores(raw),
        "utf-16": [marker.encode("utf-16-le"), marker.encode("utf-16-be")],
        "hex": [raw.hex().encode(), raw.hex().upper().encode()],
    }


def found_in(heap: bytes, marker: str) -> list[str]:
    """Which spellings of the marker occur in the bytes."""
    return [
        name for name, forms in spellings(marker).items() if any(form in heap for form in forms)
    ]


def _base64_cores(raw: bytes) -> list[bytes]:
    """The part of the base64 text that does not depend on what surrounds the value, for each of
    three offsets.
    """
    cores: list[bytes] = []
    for offset in range(3):
        text = base64.b64encode(b"\x00" * offset + raw)
        start = -(-offset * 8 // 6)
        whole = (offset + len(raw)) * 8 // 6
        core = text[start:whole]
        if len(core) >= 6:
            cores.extend((core, core.translate(bytes.maketrans(b"+/", b"-_"))))
    return cores

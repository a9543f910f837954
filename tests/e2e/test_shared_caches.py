"""A real nginx with ``proxy_cache`` stands before the proxy: what was restored for one caller, no
other one gets out of the cache.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench import peers
from bench.processes import Unavailable
from tests.support.instance import running
from tests.support.people import ANN, MARKERS, rules
from tests.support.rawclient import RawClient, get, post
from tests.support.rawhttp import Message, Wire
from tests.support.rawserver import RawServer
from tests.support.unavailable import Unavailable as Lacking

#: nginx that caches whatever it is allowed to, failures too.
NGINX = """\
daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
{user}
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    scgi_temp_path scgi;
    uwsgi_temp_path uwsgi;
    proxy_cache_path cache keys_zone=shared:1m;
    upstream domicile {{ server 127.0.0.1:{upstream}; keepalive 4; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://domicile;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_cache shared;
            proxy_cache_key $request_uri;
            add_header X-Cache $upstream_cache_status always;
        }}
    }}
}}
"""

#: Fields by which nginx keeps an answer, alone and beside one that forbids it.
KEEPING = [
    ("X-Accel-Expires: 3600",),
    ("X-Accel-Expires: 3600", "Cache-Control: no-store"),
    ("Cache-Control: private", "x-accel-expires: @4102444800"),
    ("Cache-Control: public, max-age=3600", "Cache-Control: s-maxage=3600"),
    ("Expires: Thu, 31 Dec 2099 23:59:59 GMT",),
    (
        "Expires: Thu, 31 Dec 2099 23:59:59 GMT",
        'Cache-Control: private="set-cookie, x-seen", max-age=3600',
    ),
    ("X-Accel-Expires: 3600", "Vary: Accept-Language", "Surrogate-Control: max-age=3600"),
]


class Application:
    """Keeps one person, shows her to her own session alone, and says how long everything may be
    kept.
    """

    def __init__(self) -> None:
        self.stored = b"{}"
        self.fields: tuple[str, ...] = ()
        self.status = "200 OK"

    async def __call__(self, wire: Wire, server: RawServer) -> None:
        while True:
            request = await server.read(wire)
            if request.head.startswith(b"POST"):
                self.stored = json.dumps({**json.loads(request.body), "id": 1}).encode()
                await wire.send(
                    _answer("201 Created", self.stored, "Content-Type: application/json")
                )
            else:
                own = request.all("cookie") == [b"session=ann"] or request.head.startswith(
                    b"GET /static"
                )
                body = self.stored if own else b'{"id": 1}'
                await wire.send(
                    _answer(self.status, body, "Content-Type: application/json", *self.fields)
                )


def _answer(status: str, body: bytes, *fields: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""])
    return head.encode() + body


@asynccontextmanager
async def cached(
    folder: Path, unavailable: Lacking
) -> AsyncIterator[tuple[Application, Callable[..., Awaitable[Message]]]]:
    application = Application()
    async with RawServer(application) as server, running(folder, rules(server.url)) as instance:
        port = int(instance.proxy.rpartition(":")[2])
        async with RawClient(port) as client:
            body = json.dumps(ANN).encode()
            assert (
                await client.ask(post("/people", body, "Content-Type: application/json"))
            ).status == 201
        assert not any(marker.encode() in application.stored for marker in MARKERS)
        (folder / "nginx").mkdir()
        try:
            with peers.nginx(port, folder / "nginx", install=True, template=NGINX) as cache:

                async def asked(target: str, *fields: str) -> Message:
                    async with RawClient(cache.port) as caller:
                        return await caller.ask(get(target, *fields))

                yield application, asked
        except Unavailable as reason:
            unavailable("the test with a shared cache of nginx", str(reason))


@pytest.mark.parametrize("status", ["200 OK", "409 Conflict", "301 Moved Permanently"])
async def test_a_stranger_never_gets_what_was_restored_for_somebody_else(
    tmp_path: Path, unavailable: Lacking, status: str
) -> None:
    async with cached(tmp_path, unavailable) as (application, asked):
        application.status = status
        for number, fields in enumerate(KEEPING):
            application.fields = fields
            target = f"/people/1?n={number}"
            ann = await asked(target, "Cookie: session=ann")
            assert b"Zorbina Quibblethwaite" in ann.body, fields
            stranger = await asked(target, "Cookie: session=eve")
            assert (stranger.all("x-cache"), stranger.body) == ([b"MISS"], b'{"id": 1}'), fields


async def test_what_no_rule_names_is_cached_as_ever(tmp_path: Path, unavailable: Lacking) -> None:
    async with cached(tmp_path, unavailable) as (application, asked):
        application.fields = KEEPING[0]
        first, second = [await asked("/static/1") for _ in range(2)]
        assert (first.all("x-cache"), second.all("x-cache")) == ([b"MISS"], [b"HIT"])

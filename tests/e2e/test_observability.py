"""What an operator sees of a running instance: times, lines, ids and spans; never a value."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.conftest import World
from tests.support.application import Application, found_in
from tests.support.audit import lines
from tests.support.instance import running
from tests.support.patience import PATIENCE, within
from tests.support.people import ANN, rules
from tests.support.rawclient import RawClient, get, post
from tests.support.serving import serving

JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@asynccontextmanager
async def observed(folder: Path, **settings: str) -> AsyncIterator[World]:
    application = Application()
    async with (
        serving(application.app()) as upstream,
        running(folder, rules(upstream), **settings) as instance,
        aiohttp.ClientSession() as caller,
    ):
        yield World(application, upstream, instance, caller)


@dataclass
class Collector:
    """Takes spans as a collector of OpenTelemetry does."""

    spans: list[Any] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        return app

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response(content_type="application/x-protobuf")


async def test_the_times_of_requests_are_told_by_operation_and_step(world: World) -> None:
    await world.call("POST", "/people", 201, json=ANN)
    await world.call("GET", "/people/1", 200)
    text = await world.metrics()
    steps = re.findall(
        r'request_seconds_count\{.*operation="POST /people",outcome="matched",step="(\w+)"\} 1.0',
        text,
    )
    assert set(steps) == {
        "total", "match", "receive", "redact", "stage", "application", "settle", "restore",
    }  # fmt: skip
    assert (
        await world.metric("domicile_request_seconds_count", outcome="matched", step="stage") == 1
    )
    total = await world.metric("domicile_request_seconds_sum", outcome="matched", step="total")
    parts = await world.metric("domicile_request_seconds_sum", outcome="matched") - total
    assert 0 < parts <= total * 1.001


async def test_the_access_log_has_a_line_for_each_request_and_no_value(tmp_path: Path) -> None:
    async with observed(tmp_path, DOMICILE__LOG__ACCESS="true") as world:
        await world.call("POST", "/people", 201, json=ANN)
        await world.call("GET", "/people/1?note=Quibblethwaite", 200)
        await world.call("GET", "/anything/Quibblethwaite", headers=TRACEPARENT)
        await world.instance.logged("request", 3)
        create, read, other = world.instance.events("request")
        assert (create["operation"], create["status"]) == ("POST /people", 201)
        assert read["operation"] == "GET /people/{id}"
        assert (other["operation"], other["trace_id"]) == ("-", TRACE)
        assert other["path"].startswith("/")
        assert {"level", "duration_ms", "size", "endpoint"} <= other.keys()
        assert not found_in(bytes(world.instance.log), "Quibblethwaite")
        assert str(ANN["name"]).encode() not in world.instance.log


ODD = [
    get("/%s"), get("/x/%s.json"), get("/people/%s"), get("/ann::%s"), get("/people?%s=1"),
    get("/people?q=%s"), get("/people", "%s: 1"), get("/people", "X-%s: %s"),
    get("/people", "Cookie: %s=%s"), get("/people", host="%s.example"), get("/people", method="%s"),
    get("/x", "X-Request-Id: %s", "tracestate: v=%s", "baggage: name=%s"),
    get("/people", 'If-None-Match: "%s"'), get("/people", "Range: %s=0-1"),
    get("/people", "Authorization: Bearer %s"), get("/people", "X-Forwarded-For: %s"),
    get("/people", "X-HTTP-Method-Override: %s"), get("/people?_method=%s"),
    post("/people", b'{"name": "%s", "%s": 1, "name": 2}', JSON),
    post("/people", b'{"name": {"%s": "%s"}}', JSON), post("/people", b'{"name": "%s', JSON),
    post("/people", b"%s", "Content-Type: text/%s"), post("/people", b"x", "Content-Encoding: %s"),
    post("/people/form", b"%s=%s&name=%s&name=x", FORM), post("/people/form", b"%s", FORM),
    post("/other/%s", b'{"email": "a@%s.example", "%s": "b@%s.example"}', JSON),
    get("http://%s.example/people"), b"GET /people %s HTTP/1.1\r\nHost: a\r\n\r\n", b"%s\r\n\r\n",
    b"GET /p HTTP/%s\r\n\r\n", b"GET /p HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n",
    get("/p", "Content-Length: %s"), get("/p", "Transfer-Encoding: %s"),
    get("/p", "Transfer-Encoding: chunked", method="POST") + b"%s\r\n",
    post("/api/models/%s/find", b"{}", JSON), get("/docs/%s"), get("/api/audit?by=%s"),
    post("/oauth2/token", b"grant_type=%s&client_id=%s&client_secret=%s", FORM),
    get("/metrics?%s", "Authorization: Bearer %s"), get("/console/%s"),
]  # fmt: skip


async def test_no_part_of_any_request_is_told_by_logs_metrics_files_or_errors(
    tmp_path: Path,
) -> None:
    settings = {"LOG__ACCESS": "true", "LOG__LEVEL": "debug", "FORWARDING__REQUEST_ID": "true"}
    marker, told = "quibblethwaite", b""
    async with observed(tmp_path, **{f"DOMICILE__{name}": settings[name] for name in settings}) as (
        world
    ):
        instance = world.instance
        for address in (instance.proxy, instance.vault, instance.admin):
            for request in (*ODD, get("/next")):
                async with RawClient(int(address.rpartition(":")[2])) as client:
                    await client.send(request.replace(b"%s", marker.encode()))
                    client.half_close()
                    answer = await within(PATIENCE, "an answer", client.until_close())
                own = b"Domicile-Answer: proxy" in answer or address != instance.proxy
                told += answer * own
        async with asyncio.timeout(PATIENCE):
            while "/next" not in [  # noqa: ASYNC110  # another process tells of it
                one.get("path") for one in instance.events("request")
            ]:
                await asyncio.sleep(0.02)
        told += (await world.metrics()).encode()
        assert await instance.stop() == 0
        files = b"".join(file.read_bytes() for file in instance.data.rglob("*") if file.is_file())
        assert (instance.data / "coverage.json").exists()
        assert not found_in(told + files + bytes(instance.log), marker)


async def test_without_it_requests_are_no_lines(world: World) -> None:
    await world.call("POST", "/people", 201, json=ANN)
    assert world.instance.events("request") == []


async def test_a_request_has_one_id_everywhere(tmp_path: Path) -> None:
    async with observed(
        tmp_path,
        DOMICILE__FORWARDING__REQUEST_ID="true",
        DOMICILE__LOG__ACCESS="true",
        DOMICILE__TRUSTED_PROXIES="[127.0.0.1]",
    ) as world:
        mine = {"X-Request-Id": "01J8Z-front"}
        proxy, vault = world.instance.proxy, world.instance.vault
        async with world.caller.post(f"{proxy}/people", json=ANN, headers=mine) as answer:
            assert answer.status == 201
            assert answer.headers.getall("X-Request-Id") == ["01J8Z-front"]
        async with world.caller.get(f"{proxy}/people/1") as answer:
            (fresh,) = answer.headers.getall("X-Request-Id")
            assert re.fullmatch("[0-9a-f]{32}", fresh)
        # a refusal of ours has one, too, and what is no id is replaced
        async with world.caller.post(
            f"{proxy}/people", data=b"x", headers={"X-Request-Id": "a b"}
        ) as answer:
            refused = answer.headers["X-Request-Id"]
            assert (answer.status // 100, re.fullmatch("[0-9a-f]{32}", refused) is None) == (
                4,
                False,
            )
        async with world.caller.get(f"{vault}/api/schemas", headers=mine) as answer:
            assert (answer.status, answer.headers["X-Request-Id"]) == (401, "01J8Z-front")
        assert b"01J8Z-front" in world.application.seen
        assert fresh.encode() in world.application.seen
        assert b"a b" not in world.application.seen
        await world.instance.logged("request", 2)
        assert [line["request_id"] for line in world.instance.events("request")] == [
            "01J8Z-front",
            fresh,
        ]
        await world.instance.logged("request refused or failed")
        (fault,) = world.instance.events("request refused or failed")
        assert fault["request_id"] == refused
        told = [line.get("request") for line in lines(world.instance.data / "audit")]
        assert {"01J8Z-front", fresh} <= set(told)
        done = await world.instance.command("audit", "verify")
        assert done["ok"] is True


async def test_nobody_but_a_trusted_proxy_chooses_the_id(tmp_path: Path) -> None:
    async with observed(tmp_path, DOMICILE__FORWARDING__REQUEST_ID="true") as world:
        async with world.caller.get(
            f"{world.instance.proxy}/people", headers={"X-Request-Id": "forged"}
        ) as answer:
            assert answer.headers["X-Request-Id"] != "forged"
        assert b"forged" not in world.application.seen


async def test_a_trace_context_passes_as_it_came(world: World) -> None:
    await world.call("GET", "/people", 200, headers=TRACEPARENT)
    assert TRACEPARENT["traceparent"].encode() in world.application.seen


async def test_the_spans_of_a_request_reach_a_collector(tmp_path: Path) -> None:
    collector = Collector()
    async with (
        serving(collector.app()) as address,
        observed(tmp_path, DOMICILE__TRACING__ENDPOINT=f"{address}/v1/traces") as world,
    ):
        await world.call("POST", "/people", 201, json=ANN, headers=TRACEPARENT)
        await world.call("GET", "/people", 200, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        assert await world.instance.stop() == 0  # what waits is sent at the end
        async with asyncio.timeout(PATIENCE):
            while not collector.spans:  # noqa: ASYNC110  # another process sends them
                await asyncio.sleep(0.02)
        spans = {span.name: span for span in collector.spans}
        assert set(spans) == {
            "POST /people", "match", "receive", "redact", "stage", "application", "settle",
            "restore",
        }  # fmt: skip
        whole = spans.pop("POST /people")
        assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
        assert {span.parent_span_id for span in spans.values()} == {whole.span_id}
        assert all(
            whole.start_time_unix_nano
            <= span.start_time_unix_nano
            <= span.end_time_unix_nano
            <= whole.end_time_unix_nano + 1_000_000
            for span in spans.values()
        )
        told = f"00-{TRACE}-{whole.span_id.hex()}-01".encode()
        assert told in world.application.seen
        assert str(ANN["name"]) not in repr(collector.spans)


async def test_metrics_have_a_listener_of_their_own(tmp_path: Path) -> None:
    async with observed(tmp_path, DOMICILE__LISTEN__METRICS="127.0.0.1:0") as world:
        await world.instance.logged("listening", 4)
        (address,) = [
            line["address"]
            for line in world.instance.events("listening")
            if line["listener"] == "metrics"
        ]
        async with world.caller.get(f"http://{address}/metrics") as answer:
            assert (answer.status, answer.content_type) == (200, "text/plain")
            assert "domicile_requests_total" in await answer.text()
        async with world.caller.get(f"http://{address}/readyz") as answer:
            assert answer.status == 404
        async with world.caller.get(f"{world.instance.admin}/metrics") as answer:
            assert answer.status == 401

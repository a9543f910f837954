"""What no rule names is told once for each shape of a path, with kinds and never a value, and costs
nothing afterwards.
"""

import asyncio
import gzip
import json
import zlib
from contextlib import asynccontextmanager

import brotli
import pytest

from proxy.gateway.gateway import Gateway
from proxy.net.coverage import Coverage, Sample, media_type
from proxy.net.coverage_report import joined_reports
from proxy.redactor.load import load_text
from proxy.redactor.rules import Unmatched
from proxy.telemetry import logs
from proxy.telemetry.metrics import Metrics
from tests.support.gateway import gateway
from tests.support.patience import PATIENCE
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import RawServer, says

RULES = load_text('version: 1\nendpoint: {name: crm, upstream: "http://a"}\n')
PERSON = json.dumps(
    {"first_name": "Ann", "email": "ann@example.com", "phone": "+46 70 123 45 67"}
).encode()


def reply(
    body: bytes = b"{}",
    *fields: bytes,
    status: bytes = b"200 OK",
    media: bytes = b"application/json",
) -> bytes:
    head = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status,
        media,
        head,
        len(body),
        body,
    )


class Told:
    """What was told so far."""

    def __init__(
        self, capfd: pytest.CaptureFixture[str], metrics: Metrics, coverage: Coverage
    ) -> None:
        self._capfd, self._metrics, self.coverage = capfd, metrics, coverage
        self.raw = ""

    async def lines(self) -> list[dict[str, object]]:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*self.coverage._looking)
        self.raw += self._capfd.readouterr().err
        found = [json.loads(line) for line in self.raw.splitlines() if line.startswith("{")]
        return [line for line in found if line["room"] == "coverage"]

    def counts(self) -> dict[str, float]:
        rows = [
            line
            for line in self._metrics.render().decode().splitlines()
            if "_unmatched_requests_total{" in line
        ]
        return {
            row.partition("{")[2].rpartition("}")[0]: float(row.rpartition(" ")[2]) for row in rows
        }

    def suspected(self) -> str:
        return "\n".join(
            row for row in self._metrics.render().decode().splitlines() if "_suspected{" in row
        )


@asynccontextmanager
async def telling(capfd, *replies: bytes, unmatched: Unmatched = Unmatched.REPORT):
    logs.configure(logs.Style())
    metrics = Metrics()
    coverage = Coverage(metrics, RULES)
    try:
        async with (
            RawServer(says(*replies)) as server,
            gateway(server.url, coverage=coverage, unmatched=unmatched) as (port, _),
            RawClient(port) as client,
        ):
            yield client, Told(capfd, metrics, coverage)
    finally:
        await coverage.close()


async def test_a_shape_is_told_once_and_counted_ever_after(capfd):
    async with telling(capfd, *[reply()] * 6) as (client, told):
        for number in range(6):
            await client.ask(get(f"/api/orders/{number}"))
        (line,) = await told.lines()
        assert (line["event"], line["level"], line["path"]) == (
            "no rule names this request",
            "info",
            "/api/orders/{id}",
        )
        assert (line["endpoint"], line["method"], line["status"]) == ("crm", "GET", 200)
        assert (line["content_type"], line["request_kinds"], line["answer_kinds"]) == (
            "application/json",
            [],
            [],
        )
        assert told.counts() == {'endpoint="crm",method="GET",path="/api/orders/{id}"': 6.0}


async def test_kinds_are_named_and_values_are_not(capfd):
    async with telling(capfd, reply(PERSON)) as (client, told):
        await client.ask(
            post(
                "/zorb/ann@example.com?card=4111111111111111",
                PERSON,
                "Content-Type: application/json",
            )
        )
        (line,) = await told.lines()
        assert (line["level"], line["path"]) == ("warning", "/{word}/{id}")
        assert line["request_kinds"] == ["email", "phone", "name", "card"]
        assert line["answer_kinds"] == ["email", "phone", "name"]
        assert 'kind="card"' in told.suspected()
        shown = told.raw + str(told.counts()) + told.suspected()
        assert not any(
            value in shown
            for value in ('"Ann"', "ann@example.com", "4111111111111111", "70 123 45 67")
        )


@pytest.mark.parametrize("coding", ["gzip", "pieces", "request in pieces"])
async def test_bodies_that_stream_by_are_looked_at_and_not_changed(capfd, coding):
    body = PERSON * 200
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(PERSON), PERSON) for _ in range(200)) + b"0\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n"
    )
    packed = gzip.compress(body)
    sent = {"gzip": reply(packed, b"Content-Encoding: gzip"), "pieces": head + chunks}.get(
        coding, reply()
    )
    async with telling(capfd, sent) as (client, told):
        answer = await client.ask(
            chunked("/page", PERSON, PERSON) if coding == "request in pieces" else get("/page")
        )
        assert answer.body == {"gzip": packed, "pieces": body}.get(coding, b"{}")
        (line,) = await told.lines()
        kinds = line["request_kinds"] if coding == "request in pieces" else line["answer_kinds"]
        assert kinds == ["email", "phone", "name"]


RAW = zlib.compressobj(wbits=-15)
CODED = [
    ("gzip", gzip.compress(PERSON, mtime=0)),  # the time would differ between workers
    ("deflate", RAW.compress(PERSON) + RAW.flush()),
    ("gzip, br", brotli.compress(gzip.compress(PERSON, mtime=0))),
    ("identity", PERSON.decode().encode("utf-16")),
]


@pytest.mark.parametrize(("coding", "packed"), CODED)
async def test_bodies_in_a_coding_or_a_wide_charset_are_looked_at_both_ways(capfd, coding, packed):
    named = f"Content-Encoding: {coding}"
    async with telling(capfd, reply(packed, named.encode())) as (client, told):
        answer = await client.ask(post("/page", packed, "Content-Type: application/json", named))
        assert answer.body == packed
        (line,) = await told.lines()
        assert line["request_kinds"] == line["answer_kinds"] == ["email", "phone", "name"]


async def test_what_header_fields_hold_is_told_by_its_place(capfd):
    fields = ("X-User: ann@example.com", "Slug: Ann Quibblethwaite.pdf")
    async with telling(capfd, reply()) as (client, told):
        await client.ask(post("/files", b"%PDF", "Content-Type: application/pdf", *fields))
        (line,) = await told.lines()
        assert line["request_kinds"] == ["email", "file_name"]
        (path,) = told.coverage.report().unknown
        assert path.places == {"header": ("email", "file_name")}
        assert not any(one in told.raw + told.suspected() for one in ("ann@", "Quibblethwaite"))


async def test_only_the_beginning_of_a_body_is_kept():
    sample = Sample(b"/")
    for _ in range(100):
        sample.take(b"x" * 10_000)
    sample.asking(b"y" * 1_000_000)
    assert (len(sample.answer), len(sample.request)) == (16384, 16384)


async def test_kinds_that_a_later_answer_shows_are_told_then(capfd):
    async with telling(capfd, reply(), reply(PERSON), reply(PERSON), reply(PERSON)) as (
        client,
        told,
    ):
        for _ in range(4):
            await client.ask(get("/list"))
            await told.lines()
        first, second = await told.lines()
        assert (first["answer_kinds"], second["answer_kinds"]) == ([], ["email", "phone", "name"])
        assert second["event"] == "values are suspected in what no rule names"


async def test_a_shape_that_was_told_takes_the_short_way(capfd, monkeypatch):
    begun: list[bytes] = []
    begin = Gateway.begin

    def noted(self, incoming):
        quick = begin(self, incoming)
        if quick is not None:
            begun.append(incoming.target)
        return quick

    monkeypatch.setattr(Gateway, "begin", noted)
    async with telling(capfd, *[reply()] * 8) as (client, told):
        for _ in range(3):
            await client.ask(get("/static/app.js"))
            await told.lines()
        assert begun == []
        for name in ("app.js", "other.js", "app.js"):
            await client.ask(get(f"/static/{name}"))
        assert begun == [b"/static/app.js", b"/static/other.js", b"/static/app.js"]
        assert list(told.counts().values()) == [6.0]


async def test_a_remembered_head_is_not_looked_up_again(capfd, monkeypatch):
    async with telling(capfd, *[reply()] * 10) as (client, told):
        for _ in range(4):
            await client.ask(get("/static/app.js"))
            await told.lines()

        def never(*_: object) -> None:
            raise AssertionError("looked up again")

        monkeypatch.setattr(Coverage, "find", never)
        for _ in range(3):
            assert (await client.ask(get("/static/app.js"))).status == 200
        assert list(told.counts().values()) == [7.0]


async def test_nothing_is_told_where_that_is_not_wanted(capfd):
    async with telling(capfd, reply(PERSON), unmatched=Unmatched.PASS) as (client, told):
        await client.ask(get("/list"))
        assert (await told.lines(), told.counts()) == ([], {})


async def test_what_was_denied_is_told_once_by_its_shape(capfd):
    async with telling(capfd, reply(PERSON), unmatched=Unmatched.DENY) as (client, told):
        for _ in range(2):
            assert (await client.ask(get("/list"))).status == 403
        (line,) = await told.lines()
        assert (line["event"], line["path"], line["status"]) == (
            "no rule names this request",
            "/list",
            403,
        )


async def test_a_rule_that_passes_is_not_reported(capfd):
    async with telling(capfd, reply(PERSON)) as (client, told):
        await client.ask(get("/open"))
        assert (await told.lines(), told.counts()) == ([], {})


async def test_memory_and_series_are_bounded_against_somebody_who_asks_for_everything(capfd):
    words = (
        "api app auth batch css data docs edit feed files fonts forms home html icons images js "
        "list login tags"
    ).split()
    shapes = [
        f"/{first}/{second}/{third}" for first in words for second in words for third in words[:3]
    ]
    metrics = Metrics()
    logs.configure(logs.Style())
    coverage = Coverage(metrics, RULES)
    for status, prefix in ((404, "/search"), (200, "")):
        for shape in shapes:
            found = coverage.find("crm", "GET", (prefix + shape).encode())
            coverage.note(found, status, None)
    rows = [
        row for row in metrics.render().decode().splitlines() if "_unmatched_requests_total{" in row
    ]
    assert 200 < len(rows) <= 500
    assert sum(float(row.rpartition(" ")[2]) for row in rows) == 2 * len(shapes)
    assert sum('path="/search' in row for row in rows) <= 100
    assert len(coverage._paths) <= 4096
    assert capfd.readouterr().err.count("too many paths") == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, ""),
        (b"Application/JSON; charset=utf-8", "application/json"),
        (b"image/png", "image/*"),
        (b"application/ann.lee", "other"),
        (b"\xff", "other"),
    ],
)
def test_a_content_type_is_told_by_a_name_that_nobody_made_up(value, told):
    assert media_type(value) == told


async def test_a_method_that_a_caller_made_up_is_not_told(capfd):
    async with telling(capfd, reply()) as (client, told):
        await client.ask(get("/list", method="Quibblethwaite"))
        assert [line["method"] for line in await told.lines()] == ["other"]
        assert "Quibblethwaite" not in str(told.counts())


def test_the_classes_of_answers_are_told_and_go_on_from_the_process_before():
    coverage = Coverage(Metrics(), RULES)
    for path, statuses in (
        (b"/export", (200, 204, 404)),
        (b"/api/list", (403, 404)),
        (b"/a", (0,)),
    ):
        for status in statuses:
            coverage.note(coverage.find("crm", "GET", path), status, None)
    told = [(one.path, one.answers) for one in coverage.report().unknown]
    assert told == [("/api/list", ("4xx",)), ("/export", ("2xx", "4xx"))]
    again = Coverage(Metrics(), RULES, coverage.report())
    again.note(again.find("crm", "GET", b"/api/list"), 302, None)
    assert [one.answers for one in again.report().unknown] == [("3xx", "4xx"), ("2xx", "4xx")]
    joined = joined_reports([coverage.report(), again.report()])
    assert [one.answers for one in joined.unknown] == [("3xx", "4xx"), ("2xx", "4xx")]


def test_shapes_with_words_that_rules_have_made_public_are_forgotten_until_met_again():
    metrics = Metrics()
    coverage = Coverage(metrics, RULES)
    for method, path in (("GET", b"/kunder/17"), ("GET", b"/fakturor/17"), ("GET", b"/export")):
        coverage.note(coverage.find("crm", method, path), 200, None)
    assert [one.path for one in coverage.report().unknown] == ["/export", "/{word}/{id}"]
    head = 'version: 1\nendpoint: {name: crm, upstream: "http://a"}\n'
    head += "entities: {person: {fields: {name: {kind: name}}}}\noperations:\n"
    text = head + '  - {match: "PUT /kunder/{id}", update: person}\n'
    coverage.announce(load_text(text))
    assert [one.path for one in coverage.report().unknown] == ["/export"]
    for path in (b"/kunder/17", b"/fakturor/17", b"/fakturor/18"):
        coverage.note(coverage.find("crm", "GET", path), 200, None)
    told = [(one.path, one.count) for one in coverage.report().unknown]
    assert told == [("/export", 1), ("/kunder/{id}", 1), ("/{word}/{id}", 2)]
    former = coverage.report()
    again = Coverage(Metrics(), load_text(text), former).report().unknown
    assert [one.path for one in again] == [one.path for one in former.unknown]
    more = load_text(text + '  - {match: "GET /fakturor/{id}", read: person}\n')
    assert [one.path for one in Coverage(Metrics(), more, former).report().unknown] == [
        "/export", "/kunder/{id}",
    ]  # fmt: skip

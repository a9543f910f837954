"""How others leaked, lost or broke (``../shared/design/failures.md``), repeated: one test for each
line about HTTP, named after it.

Lines about rule files, keys, the vault and tokens have their tests with the code that answers for
them.
"""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support.application import found_in
from tests.support.instance import Instance, running
from tests.support.patience import PATIENCE
from tests.support.people import rules
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawhttp import Message, Wire
from tests.support.rawserver import RawServer
from tests.support.scraping import LINE

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
NAME = "Quibblethwaite"
BODY = json.dumps({"name": NAME}).encode()


def answer(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """A JSON answer as bytes."""
    head = [
        b"HTTP/1.1 " + status,
        b"Content-Type: application/json",
        *fields,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join([*head, b"", b""]) + body


def created(request: Message) -> bytes:
    """What the application says to a create: the record with an id of its own."""
    return answer(b'{"id": %d, ' % next(IDS) + request.body.lstrip()[1:], status=b"201 Created")


IDS = iter(range(1, 1_000_000))


@dataclass
class Bench:
    """One installation before an application that answers as the test says."""

    port: int
    server: RawServer
    instance: Instance
    say: Callable[[Message], bytes]

    async def ask(self, request: bytes) -> Message:
        async with RawClient(self.port) as client:
            return await client.ask(request, 20)

    async def create(self, person: dict[str, object]) -> tuple[int, dict[str, str]]:
        """Create a person; its id, and what the application holds of it."""
        self.say = created
        made = await self.ask(post("/people", json.dumps(person).encode(), JSON))
        assert made.status == 201
        return json.loads(made.body)["id"], json.loads(self.server.requests[-1].body)

    async def untouched(self, request: bytes) -> Message:
        """The answer to a request of which the application must get nothing."""
        count = len(self.server.requests)
        refused = await self.ask(request)
        assert len(self.server.requests) == count
        assert refused.one("Domicile-Answer") == b"proxy"
        assert not found_in(refused.raw, NAME)
        return refused


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    bench: list[Bench] = []

    async def behave(wire: Wire, server: RawServer) -> None:
        while True:
            request = await server.read(wire)
            said = bench[0].say(request)
            await wire.send(said)
            if b"\r\nConnection: close" in said:
                return

    async with (
        RawServer(behave) as server,
        running(tmp_path_factory.mktemp("failures"), rules(server.url)) as instance,
    ):
        bench.append(Bench(int(instance.proxy.rpartition(":")[2]), server, instance, created))
        yield bench[0]


@pytest.fixture
def bench(installed: Bench) -> Bench:
    installed.say = created
    installed.server.requests.clear()
    return installed


NOT_UNDERSTOOD = {
    "text": (BODY, "Content-Type: text/plain"),
    "no type": (BODY, "X: y"),
    "XML": (b"<name>%b</name>" % NAME.encode(), "Content-Type: text/xml"),
    "a place that holds something else": (b'{"address": "%b"}' % NAME.encode(), JSON),
    "a part of the mapping": (b'[{"name": "x"}, "%b"]' % NAME.encode(), JSON),
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
async def test_default_forwards_what_it_cannot_type_check(bench: Bench, name: str) -> None:
    body, kind = NOT_UNDERSTOOD[name]
    assert (await bench.untouched(post("/people", body, kind))).status in (415, 422)


async def test_everything_works_nothing_encrypted_one_log_line(bench: Bench) -> None:
    await bench.create({"name": NAME})
    async with RawClient(int(bench.instance.admin.rpartition(":")[2])) as client:
        text = (await client.ask(get("/metrics", LINE))).body.decode()
    fired = dict(
        re.findall(r'operation_fired_timestamp_seconds\{.*operation="([^"]*)"\} (\S+)', text)
    )
    assert float(fired["POST /people"]) > 0
    assert float(fired["POST /people/bulk"]) == 0
    assert re.search(r'protected_values_total\{entity="person",field="name"\} [1-9]', text)


@pytest.mark.parametrize("coding", [b"gzip", b"x-gzip"])
async def test_gzip_answer_body_rule_does_nothing(bench: Bench, coding: bytes) -> None:
    ident, held = await bench.create({"name": NAME})
    packed = gzip.compress(json.dumps({"id": ident, **held}).encode())
    bench.say = lambda _: answer(packed, b"Content-Encoding: " + coding)
    plain = await bench.ask(get(f"/people/{ident}"))
    assert json.loads(plain.body)["name"] == NAME
    still = await bench.ask(get(f"/people/{ident}", "Accept-Encoding: gzip"))
    assert json.loads(gzip.decompress(still.body))["name"] == NAME


async def test_array_at_the_root_and_nested_members_not_reached(bench: Bench) -> None:
    people = [
        {
            "name": NAME,
            "address": {"street": NAME},
            "tags": [NAME, NAME],
            "matrix": [[NAME], [NAME, NAME]],
        }
    ] * 2
    bench.say = lambda _: answer(b"[]", status=b"201 Created")
    await bench.ask(post("/people/bulk", json.dumps(people).encode(), JSON))
    assert len(bench.server.requests) == 1
    assert not found_in(bench.server.requests[0].raw, NAME)


TOO_MUCH = {
    "a body over the limit": (
        b'{"x": "' + b"y" * (2 << 20) + b'", "name": "%b"}' % NAME.encode(), "/people", JSON,
    ),
    "form members over the limit": (
        b"a=b&" * 1000 + b"name=" + NAME.encode(), "/people/form", FORM,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
async def test_body_over_1_mib_skipped_only_first_100_form_args_masked(
    bench: Bench, name: str
) -> None:
    body, path, kind = TOO_MUCH[name]
    assert (await bench.untouched(post(path, body, kind))).status == 413
    mebibyte = b'{"x": "' + b"y" * (3 << 19) + b'", "name": "%b"}' % NAME.encode()
    assert (await bench.ask(post("/people", mebibyte, JSON))).status == 201
    await bench.ask(post("/people/form", b"a=b&" * 900 + b"name=" + NAME.encode(), FORM))
    assert not any(found_in(request.raw, NAME) for request in bench.server.requests)


async def test_rewriter_changed_mode_after_n_bytes(bench: Bench) -> None:
    ident, held = await bench.create({"name": NAME})
    items = [{"id": ident, **held, "filler": "x" * 1000}] * 3000
    bench.say = lambda _: answer(json.dumps({"items": items}).encode())
    got = await bench.ask(get("/people"))
    assert got.body.count(NAME.encode()) == 3000
    assert held["name"].encode() not in got.body


@pytest.mark.parametrize("piece", [1, 7, 64])
async def test_placeholder_cut_by_a_chunk_border_leaked(bench: Bench, piece: int) -> None:
    ident, held = await bench.create({"name": NAME})
    body = json.dumps({"id": ident, **held}).encode()
    pieces = [body[at : at + piece] for at in range(0, len(body), piece)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    bench.say = lambda _: head + framed
    assert json.loads((await bench.ask(get(f"/people/{ident}"))).body) == {
        "id": ident,
        "name": NAME,
    }
    await bench.ask(
        chunked(
            "/people", *(BODY[at : at + piece] for at in range(0, len(BODY), piece)), fields=(JSON,)
        )
    )
    assert not found_in(bench.server.requests[-1].raw, NAME)


async def test_token_map_shared_across_turns_of_one_connection(bench: Bench) -> None:
    async with RawClient(bench.port) as client:
        await client.send(
            b"".join(post("/people", b'{"name": "N %d"}' % turn, JSON) for turn in range(8))
        )
        names = [json.loads((await client.answer("POST")).body)["name"] for _ in range(8)]
    assert names == [f"N {turn}" for turn in range(8)]
    tokens = [json.loads(request.body)["name"] for request in bench.server.requests]
    assert len(set(tokens)) == 8


@pytest.mark.parametrize("framing", [b"Content-Length: 500", b"Transfer-Encoding: chunked"])
async def test_a_failed_step_dropped_the_final_chunk_and_clients_hung(
    bench: Bench, framing: bytes
) -> None:
    ident, _ = await bench.create({"name": NAME})
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n" + framing
    bench.say = lambda _: head + b'\r\n\r\n1f4\r\n{"id": 1, '
    got = await bench.ask(get(f"/people/{ident}"))
    assert got.status == 502
    assert json.loads(got.body)["code"] == "upstream_broken"


DIGESTS = (
    "Content-MD5: eA==", "Digest: sha-256=eA==", "Content-Digest: sha-256=:eA==:",
    "Repr-Digest: sha-256=:eA==:",
)  # fmt: skip


async def test_mutated_body_with_the_old_content_length(bench: Bench) -> None:
    await bench.ask(post("/people", BODY, JSON, *DIGESTS))
    await bench.ask(
        chunked(
            "/people", BODY, trailers=b"Digest: sha-256=eA==\r\n", fields=(JSON, "Trailer: Digest")
        )
    )
    for request in bench.server.requests:
        assert request.one("Content-Length") == b"%d" % len(request.body)
        assert not [
            name
            for name, _ in [*request.fields, *request.trailers]
            if b"digest" in name.lower() or b"md5" in name.lower()
        ]
    ident, held = await bench.create({"name": NAME})
    bench.say = lambda _: answer(
        json.dumps({"id": ident, **held}).encode(), *(field.encode() for field in DIGESTS)
    )
    got = await bench.ask(get(f"/people/{ident}"))
    assert got.one("Content-Length") == b"%d" % len(got.body)
    assert not [
        name for name, _ in got.fields if b"digest" in name.lower() or b"md5" in name.lower()
    ]


async def test_unchanged_etag_gave_304_with_a_stale_body_and_range_against_another_length(
    bench: Bench,
) -> None:
    ident, held = await bench.create({"name": NAME})
    validators = (b'ETag: "v1"', b"Accept-Ranges: bytes")
    bench.say = lambda _: answer(json.dumps({"id": ident, **held}).encode(), *validators)
    got = await bench.ask(get(f"/people/{ident}", "Range: bytes=0-5", 'If-Range: "v1"'))
    assert (got.status, json.loads(got.body)["name"]) == (200, NAME)
    assert got.all("Accept-Ranges") + got.all("Content-Range") == []
    assert b'"v1"' not in got.all("ETag")
    assert bench.server.requests[-1].all("Range") + bench.server.requests[-1].all("If-Range") == []


PATHS = [
    "/orders/../people", "/people/..;/people", "/%2e%2e/people", "/x%2F..%2Fpeople", "/people%2F",
    "/./people/",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_dot_segments_and_escaped_slashes_matched_another_policy(
    bench: Bench, path: str
) -> None:
    got = await bench.ask(post(path, BODY, JSON))
    assert got.status in (201, 400)
    assert not any(found_in(request.raw, NAME) for request in bench.server.requests)
    assert all(
        request.start == f"POST {path} HTTP/1.1".encode() for request in bench.server.requests
    )


DISAGREEING = [
    *(
        '{"name": "x", "name": "%s"}', '{"name": "x", "n\\u0061me": "%s"}',
        '{"name": "x", "NAME": "%s"}',
    ),
    *(
        '{"name": "%s\\ud800"}', '{"name": /**/ "%s"}', '{"a": NaN, "name": "%s"}',
        '{"name": "%s"} {}', "{'name': '%s'}",
    ),
]  # fmt: skip


@pytest.mark.parametrize("document", DISAGREEING)
async def test_duplicate_json_keys_proxy_and_app_disagree_anonymous_became_admin(
    bench: Bench, document: str
) -> None:
    assert (await bench.untouched(post("/people", (document % NAME).encode(), JSON))).status in (
        400,
        415,
    )


PARSERS = [
    (BODY.decode().encode("utf-16"), JSON),
    (BODY, "Content-Type: application/json; charset=utf-7"),
    (BODY.decode().encode("cp037"), "Content-Type: application/json; charset=ibm037"),
    (b"\xef\xbb\xbf" + BODY, JSON),
    (b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n%b\r\n--x--' % NAME.encode(), "Content-Type: multipart/form-data; boundary=x"),
    (BODY, FORM),
    (b"name=" + NAME.encode(), JSON),
]  # fmt: skip


@pytest.mark.parametrize(("body", "kind"), PARSERS)
async def test_parsers_of_gateway_and_app_disagree_on_multipart_json_charset(
    bench: Bench, body: bytes, kind: str
) -> None:
    assert (await bench.untouched(post("/people", body, kind))).status in (400, 415)


async def test_validators_echo_the_input(bench: Bench) -> None:
    bench.say = lambda request: answer(
        b'{"errors": {"name": "no ' + request.body + b'"}}', status=b"422 No"
    )
    bench.say = lambda request: answer(
        json.dumps(
            {"input": json.loads(request.body), "text": f"not {json.loads(request.body)['name']}."}
        ).encode(),
        status=b"422 Unprocessable Content",
    )
    got = await bench.ask(post("/people", BODY, JSON))
    assert json.loads(got.body) == {"input": {"name": NAME}, "text": f"not {NAME}."}
    assert not found_in(bench.server.requests[-1].raw, NAME)


async def test_gateway_loggers_wrote_full_bodies_and_urls(bench: Bench) -> None:
    await bench.ask(post(f"/people?q={NAME}", BODY, JSON, f"X-Name: {NAME}"))
    await bench.ask(post(f"/{NAME}?q={NAME}", BODY, JSON))
    await bench.ask(post("/people", BODY[:-1], JSON))
    await bench.ask(f"GET /{NAME} HTTP/1.1\r\nHost: {NAME} x\r\n\r\n".encode())
    assert not found_in(bytes(bench.instance.log), NAME)
    async with RawClient(int(bench.instance.admin.rpartition(":")[2])) as client:
        assert not found_in((await client.ask(get("/metrics", LINE))).raw, NAME)


@pytest.mark.parametrize(
    "name", ["Domicile-Answer", "domicile-user", "DOMICILE_ANSWER", "Domicile-Role"]
)
async def test_identity_taken_from_request_headers_the_caller_controls(
    bench: Bench, name: str
) -> None:
    for request in (get("/x", f"{name}: admin"), post("/people", BODY, JSON, f"{name}: admin")):
        await bench.ask(request)
        assert b"admin" not in bench.server.requests[-1].head


async def test_non_ascii_names_and_duplicate_query_parameters_lost(bench: Bench) -> None:
    target = "/people?a=1&email=A%40x.example&a=2&%C3%A5=%F0%9F%98%80&a=1&email=B%40x.example&&=&b"
    bench.say = lambda _: answer(b'{"items": []}')
    await bench.ask(get(target))
    sent = bench.server.requests[-1].start.split(b" ")[1].decode()
    parts, wanted = sent.partition("?")[2].split("&"), target.partition("?")[2].split("&")
    swapped = [at for at, part in enumerate(wanted) if part.startswith("email=")]
    assert len(parts) == len(wanted)
    assert all((parts[at] == wanted[at]) is (at not in swapped) for at in range(len(wanted)))
    assert len({parts[at] for at in swapped}) == 2


BOMBS = {
    "a zip bomb": (gzip.compress(b'{"name": "' + b"x" * 17_000_000 + b'"}', mtime=0), 413),
    "zip bombs in each other": (
        gzip.compress(gzip.compress(bytes(15_000_000), mtime=0), mtime=0),
        413,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_zip_bombs(bench: Bench, name: str) -> None:
    body, status = BOMBS[name]
    coding = "gzip, gzip" if "each" in name else "gzip"
    assert (
        await bench.untouched(post("/people", body, JSON, f"Content-Encoding: {coding}"))
    ).status == status


@pytest.mark.parametrize(
    "field", ["Host: other", "Content-Length: 0", f"Content-Length: {len(BODY) + 1}"]
)
async def test_duplicate_host_or_content_length_differing_between_parsers(
    bench: Bench, field: str
) -> None:
    assert (await bench.untouched(post("/people", BODY, JSON, field))).status == 400


async def test_one_tenants_batch_degraded_all(bench: Bench) -> None:
    people = json.dumps([{"name": f"N {number}"} for number in range(3000)]).encode()
    bench.say = lambda request: (
        answer(b"[]", status=b"201 Created") if b"bulk" in request.start else created(request)
    )
    batches = [asyncio.create_task(bench.ask(post("/people/bulk", people, JSON))) for _ in range(3)]
    served = 0
    while not all(batch.done() for batch in batches):
        async with asyncio.timeout(PATIENCE):
            assert (await bench.ask(get("/next"))).status == 201
        served += 1
    assert served
    assert [batch.result().status for batch in batches] == [201] * 3


async def test_same_value_tokens_across_fields_confuse_rights_and_erasure(bench: Bench) -> None:
    text = "a.b@wexlomere.example"
    _, held = await bench.create({"name": text, "email": text})
    assert held["name"] != held["email"]
    assert text not in held.values()

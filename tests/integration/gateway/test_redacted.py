"""What a rule names: read whole, redacted, forwarded, settled, restored; by raw bytes on both
sides.
"""

import asyncio
import gzip
import json
import socket
from dataclasses import replace

import pytest

from proxy.errors import Code, Detail, VaultError
from proxy.gateway.bodies import BodyTimeouts
from proxy.net.entity_tags import restored_tag
from proxy.net.reply import CallLimits
from proxy.redactor.rules import BodyLimits, OnError, Verb
from tests.support.gateway import TOKEN, VALUE, gateway, keyed
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, closes, says, silent

#: Only for a test that waits for one of them to pass.
QUICK = CallLimits(connect=60, head=0.4, idle=0.4)
BODY = b'{"name": "Ann"}'
TOKENS = BODY.replace(VALUE, TOKEN)


def answer(body: bytes = TOKENS, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    head = [b"HTTP/1.1 " + status, *fields, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*head, b"", b""]) + body


async def exchange(request: bytes, said: bytes = OK, **more):
    """One matched request: what the application got, what the caller got, what steered it."""
    async with RawServer(says(said)) as server, gateway(server.url, **more) as (port, steered):
        async with RawClient(port) as client:
            got = await client.ask(request)
            return (server.requests[0] if server.requests else None), got, steered


async def test_values_go_out_as_tokens_and_come_back_as_values():
    request, got, steered = await exchange(
        post("/people/1?x=%2f", BODY, "X-a: 1", "x-A: 2"), answer()
    )
    assert request.head == post("/people/1?x=%2f", TOKENS, "X-a: 1", "x-A: 2")[: -len(TOKENS)]
    assert request.body == TOKENS
    assert got.body == BODY
    assert got.all("content-length") == [b"%d" % len(BODY)]
    assert steered.exchange_.names == ["outgoing", "incoming"]
    assert (steered.notes[0].outcome, steered.notes[0].operation) == ("matched", "PUT /people/{id}")


async def test_a_body_in_chunks_is_forwarded_with_its_length():
    request, _, _ = await exchange(chunked("/people/1", BODY[:5], BODY[5:]))
    assert (request.body, request.all("transfer-encoding")) == (TOKENS, [])


async def test_a_body_that_comes_slowly_is_waited_for():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(post("/people/1", BODY), 20, 0.01)
        assert (await client.answer()).status == 200
        assert server.requests[0].body == TOKENS


async def test_no_body_stays_none():
    request, _, _ = await exchange(get("/people/1"))
    assert request.head == get("/people/1")


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
async def test_a_coded_body_is_read_and_forwarded_in_no_coding(coding):
    request, _, _ = await exchange(
        post("/people/1", gzip.compress(BODY), f"Content-Encoding: {coding}")
    )
    assert (request.body, request.all("content-encoding")) == (TOKENS, [])


async def test_a_coded_answer_is_restored_in_the_coding_the_caller_takes():
    said = answer(gzip.compress(TOKENS), b"Content-Encoding: gzip", b"Vary: Accept-Encoding")
    request, got, _ = await exchange(
        get("/people/1", "Accept-Encoding: gzip, compress, br;q=0.5"), said
    )
    assert request.all("accept-encoding") == [b"gzip, br;q=0.5"]
    assert gzip.decompress(got.body) == BODY
    assert got.all("content-encoding") == [b"gzip"]
    _, got, _ = await exchange(get("/people/1"), said)
    assert (got.body, got.all("content-encoding")) == (BODY, [])


async def test_what_described_the_old_bodies_is_dropped():
    asked = [
        "Digest: a",
        "Content-MD5: b",
        "Content-Digest: c",
        "Repr-Digest: d",
        "Want-Digest: e",
        "Range: bytes=0-1",
    ]
    told = [
        b"Digest: a",
        b'ETag: "b"',
        b"Accept-Ranges: bytes",
        b"Content-MD5: c",
        b"X: y",
        b"Cache-Control: public, max-age=5",
    ]
    request, got, _ = await exchange(
        post("/people/1", BODY, *asked, "If-Range: f", "X: y"), answer(TOKENS, *told)
    )
    assert request.fields == [
        (b"Host", b"app.test"),
        (b"X", b"y"),
        (b"Content-Length", b"%d" % len(TOKENS)),
    ]
    assert got.fields == [
        (b"ETag", restored_tag(b'"b"', BODY, None, keyed)),
        (b"X", b"y"),
        (b"Cache-Control", b"private, max-age=5"),
        (b"Content-Length", b"%d" % len(BODY)),
    ]


async def test_an_answer_without_a_token_comes_back_as_it_was():
    said = answer(b"{}", b'ETag: "b"', b"Accept-Ranges: bytes", b"Cache-Control: public")
    _, got, _ = await exchange(get("/people/1"), said)
    assert got.raw == said
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n"
    _, got, _ = await exchange(get("/people/1"), said)
    assert got.raw == said


async def test_an_unwanted_answer_is_settled_first_and_streamed():
    async def slow(wire, server):
        await server.read(wire)
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX: y\r\n\r\nabc")
        await go.wait()
        await wire.send(b"def")

    go = asyncio.Event()
    async with (
        RawServer(slow) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.exchange_.wanted = False
        await client.send(get("/people/1"))
        assert (await client.head()).status == 200
        assert await client.exactly(3) == b"abc"
        assert steered.exchange_.calls[1][:2] == ("settled", 200)
        go.set()
        assert await client.exactly(3) == b"def"


async def test_continue_is_granted_by_us_and_not_asked_of_the_application():
    async with (
        RawServer(says(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)) as server,
        gateway(server.url) as (port, _),
    ):
        async with RawClient(port) as client:
            await client.send(
                get("/people/1", "Expect: 100-continue", "Content-Length: 15", method="PUT")
            )
            assert (await client.head()).status == 100
            await client.send(BODY)
            assert (await client.head()).status == 200
        assert server.requests[0].all("expect") == []


async def test_an_upgrade_is_not_forwarded_where_a_rule_must_see_the_bodies():
    request, got, _ = await exchange(
        get("/people/1", "Connection: Upgrade, TE", "Upgrade: websocket", "TE: trailers")
    )
    assert request.fields == [(b"Host", b"app.test")]
    assert got.status == 200


async def test_an_answer_to_head_keeps_no_length_of_tokens():
    _, got, steered = await exchange(
        get("/people/1", method="HEAD"),
        b'HTTP/1.1 200 OK\r\nETag: "x"\r\nContent-Length: 99\r\n\r\n',
    )
    assert got.fields == [(b"ETag", b'W/"x-domicile.s"'), (b"Cache-Control", b"private")]
    assert steered.exchange_.calls[1][1].body == b""


@pytest.mark.parametrize("given", ['"v1"', 'W/"v1"', '"a,b"', "v1"])
@pytest.mark.parametrize("target", ["/people/1", "/other"])
async def test_an_update_may_expect_the_version_that_its_caller_read(given, target):
    _, got, _ = await exchange(get("/people/1"), answer(TOKENS, b"ETag: " + given.encode()))
    tag = got.one("ETag").decode()
    request, _, _ = await exchange(
        post(target, BODY, f'If-Match: "x", {tag}', method="PUT"), answer(TOKENS)
    )
    assert request.all("If-Match") == [f'"x", {given}'.encode()]


async def test_a_caller_that_has_the_restored_answer_gets_it_no_second_time():
    said = answer(TOKENS, b'ETag: "v1"', b"Content-Type: text/plain", b"X: y")
    _, got, _ = await exchange(get("/people/1"), said)
    tag = got.one("ETag").decode()
    conditions = [
        f'If-None-Match: "x", W/{tag}',
        "If-Modified-Since: Tue, 15 Nov 1994 12:45:26 GMT",
    ]
    request, got, steered = await exchange(get("/people/1", *conditions), said)
    assert (request.all("If-None-Match"), request.all("If-Modified-Since")) == ([], [])
    assert (got.status, got.body) == (304, b"")
    assert got.fields == [(b"ETag", tag.encode()), (b"X", b"y"), (b"Cache-Control", b"private")]
    assert steered.exchange_.names == ["outgoing", "incoming"]
    changed = answer(TOKENS + b"!", b'ETag: "v1"')  # the tokens' tag is the same
    _, got, _ = await exchange(get("/people/1", *conditions), changed)
    assert (got.status, got.body) == (200, BODY + b"!")
    _, got, _ = await exchange(post("/people/1", BODY, conditions[0], method="PUT"), said)
    assert got.status == 200


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_caller_that_has_an_answer_without_tokens_gets_it_no_second_time(wanted):
    async with (
        RawServer(says(answer(b"{}", b'ETag: "v1"'))) as server,
        gateway(server.url) as (port, steered),
    ):
        steered.exchange_.wanted = wanted
        async with RawClient(port) as client:
            got = await client.ask(get("/people/1", 'If-None-Match: "v1"'))
            assert (got.status, server.requests[0].all("If-None-Match")) == (304, [])
            got = await client.ask(get("/people/1", 'If-None-Match: "v2"'))
            assert (got.status, got.body) == (200, b"{}")


async def test_no_interim_answer_says_that_what_follows_may_be_kept():
    async def hints(wire, server):
        await server.read(wire)
        await wire.send(
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-Accel-Expires: 60\r\nCache-Control: "
            b"public\r\n\r\n"
        )
        await wire.send(answer())

    async with (
        RawServer(hints) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(get("/people/1"))
        assert (await client.head()).fields == [(b"Link", b"</x>")]


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (post("/people/1", b"x" * 101), 413, Code.TOO_LARGE),
        (chunked("/people/1", b"x" * 60, b"y" * 60), 413, Code.TOO_LARGE),
        (
            post("/people/1", gzip.compress(b"x" * 5000, mtime=0), "Content-Encoding: gzip"),
            413,
            Code.TOO_LARGE,
        ),
        (post("/people/1", b"x", "Content-Encoding: rot13"), 422, Code.UNREADABLE_BODY),
        (post("/people/1", b"x", "Content-Encoding: gzip"), 422, Code.UNREADABLE_BODY),
    ],
)
async def test_what_cannot_be_read_is_refused_and_nothing_is_sent(request_, status, code):
    async with RawServer(says(OK)) as server:
        async with gateway(server.url, on_error=OnError(unreadable_body=422)) as (port, steered):
            steered.endpoint = replace(steered.endpoint, limits=BodyLimits(body=100, inflated=1000))
            async with RawClient(port) as client:
                got = await client.ask(request_)
                assert (got.status, got.one("domicile-answer")) == (status, b"proxy")
            assert (steered.notes[0].code, steered.notes[0].outcome) == (code, "refused")
            assert server.wires == []
            assert steered.exchange_.calls == []
            async with RawClient(port) as client:
                assert (await client.ask(get("/people/1"))).status == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(
            get("/people/1", "Expect: 100-continue", "Content-Length: 999999999", method="PUT")
        )
        got = await client.head()
        assert (got.status, got.one("connection")) == (413, b"close")


@pytest.mark.parametrize(
    ("target", "fields"),
    [("/people/1", ()), ("/staff/1", ("Content-Type: text/plain; charset=utf-16",))],
)
@pytest.mark.parametrize("coding", ["identity", "rot13"])
async def test_what_its_head_refuses_is_refused_before_the_body_is_asked_for(
    target, fields, coding
):
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.exchange_.refusal = VaultError(Code.UNREADABLE_BODY, "x")
        head = get(
            target,
            "Expect: 100-continue",
            "Content-Length: 9",
            f"Content-Encoding: {coding}",
            *fields,
            method="POST",
        )
        await client.send(head)
        got = await client.head()
        assert (got.status, got.one("connection")) == (415, b"close")
        assert (server.wires, steered.exchange_.calls) == ([], [])


async def test_a_browser_gets_a_page_in_place_of_a_document():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        got = await client.ask(
            post(
                "/people/1",
                b"x",
                "Content-Encoding: rot13",
                "Accept: text/html",
                "Accept: */*;q=0.5",
            )
        )
        assert (got.status, got.one("content-type")) == (415, b"text/html; charset=utf-8")
        assert b"<code>unreadable_body</code>" in got.body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/people/1", "Content-Length: 40000000", method="PUT"), 413),
        (b"GET / HTTP/1.1\r\nX: ", 431),
        (b"GET /", 414),
    ],
)
async def test_who_sends_everything_before_it_reads_sees_the_refusal_and_no_reset(request_, status):
    def blast(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as caller:
            caller.sendall(request_ + b"x" * 40_000_000)  # raises where the connection is reset
            return caller.recv(100)

    async with RawServer(says(OK)) as server, gateway(server.url) as (port, steered):
        steered.endpoint = replace(steered.endpoint, limits=BodyLimits(body=100))
        answer = await asyncio.to_thread(blast, port)
        assert answer[:12] == f"HTTP/1.1 {status}".encode()
        assert server.wires == []


async def test_a_body_that_does_not_come_is_refused_in_time():
    options = {"timeouts": BodyTimeouts(body=0.2)}
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, options=options) as (port, steered),
    ):
        async with RawClient(port) as client:
            await client.send(get("/people/1", "Content-Length: 10", method="PUT") + b"abc")
            assert (await client.answer()).status == 408
        assert server.wires == []
        assert steered.exchange_.calls == []


async def test_a_request_that_cannot_be_redacted_is_never_sent():
    def refuse(request):
        details = (Detail("/people/0/email", "stands twice"),)
        raise VaultError(Code.AMBIGUOUS_JSON, "The member is there twice.", details)

    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.exchange_.out = refuse
        got = await client.ask(post("/people/1", BODY))
        assert got.status == 400
        assert server.wires == []
        assert steered.notes[0].source == "/people/0/email"
        assert steered.exchange_.names == ["outgoing"]
        steered.exchange_.out = None
        assert (await client.ask(post("/people/1", BODY))).status == 200


@pytest.mark.parametrize(
    ("verb", "on_error", "status"),
    [
        (Verb.CREATE, OnError(), 503),
        (Verb.READ, OnError(), 503),
        (Verb.READ, OnError(vault_down_read="502"), 502),
        (Verb.DELETE, OnError(vault_down_write=500), 500),
    ],
)
async def test_the_rule_says_which_status_a_fault_has(verb, on_error, status):
    def refuse(request):
        raise VaultError(Code.VAULT_DOWN, "The vault cannot be reached.")

    async with (
        RawServer(says(OK)) as server,
        gateway(server.url, on_error=on_error) as (port, steered),
    ):
        steered.exchange_.out = refuse
        steered.verb = verb
        async with RawClient(port) as client:
            assert (await client.ask(post("/people/1", BODY))).status == status


@pytest.mark.parametrize(
    ("behaviour", "status", "limits"),
    [
        (closes(), 502, None),
        (closes(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"), 502, None),
        (says(b"rubbish\r\n\r\n"), 502, None),
        (silent(), 504, QUICK),
    ],
)
async def test_no_answer_is_told_to_the_exchange(behaviour, status, limits):
    async with (
        RawServer(behaviour) as server,
        gateway(server.url, limits=limits) as (port, steered),
    ):
        async with RawClient(port) as client:
            assert (await client.ask(post("/people/1", BODY))).status == status
        assert steered.exchange_.calls[1:] == [("failed", True)]
        await server.until(lambda: server.wires != [] and server.open == 0)
        assert len(server.requests) == 1


async def test_an_application_that_was_not_reached_did_not_act():
    with closed_port() as nobody:
        async with (
            gateway(f"http://127.0.0.1:{nobody}") as (port, steered),
            RawClient(port) as client,
        ):
            assert (await client.ask(post("/people/1", BODY))).status == 502
            assert steered.exchange_.calls[1:] == [("failed", False)]


@pytest.mark.parametrize(
    "said",
    [
        answer(b"x" * 1001, status=b"201 Created"),
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n"
        + b"x" * 1000
        + b"\r\n1\r\nx\r\n0\r\n\r\n",
        answer(
            gzip.compress(b"x" * 5000, mtime=0), b"Content-Encoding: gzip", status=b"201 Created"
        ),
    ],
)
async def test_an_answer_over_the_limit_is_settled_and_not_passed_on(said):
    async with (
        RawServer(says(said)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.endpoint = replace(steered.endpoint, limits=BodyLimits(inflated=1000))
        got = await client.ask(post("/people/1", BODY))
        assert (got.status, steered.notes[0].code) == (502, Code.ANSWER_TOO_LARGE)
        assert steered.exchange_.calls[1][:2] == ("settled", 201)


@pytest.mark.parametrize("coding", [b"gzip", b"compress"])
async def test_an_answer_that_cannot_be_inflated_passes_as_it_is(coding):
    said = answer(b"not what it says", b"Content-Encoding: " + coding)
    _, got, steered = await exchange(get("/people/1"), said)
    assert got.raw == said
    assert steered.exchange_.names == ["outgoing", "settled"]


@pytest.mark.parametrize("coding", [b"gzip", b"compress"])
async def test_an_answer_that_cannot_be_inflated_is_withheld_where_the_rule_says_so(coding):
    said = answer(TOKEN, b"Content-Encoding: " + coding)
    async with (
        RawServer(says(said)) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.exchange_.strict = True
        got = await client.ask(get("/people/1"))
        assert (got.status, steered.notes[0].code) == (502, Code.UNREADABLE_ANSWER)
        assert TOKEN not in got.raw
        assert steered.exchange_.names == ["outgoing", "settled"]


async def test_a_fault_while_restoring_is_told_in_place_of_the_answer():
    def refuse(got):
        raise VaultError(Code.VAULT_DOWN, "The vault cannot be reached.")

    async with (
        RawServer(says(answer())) as server,
        gateway(server.url) as (port, steered),
        RawClient(port) as client,
    ):
        steered.exchange_.back = refuse
        got = await client.ask(post("/people/1", BODY))
        assert (got.status, TOKEN in got.raw) == (503, False)


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_caller_that_leaves_does_not_stop_the_settling(wanted):
    left = asyncio.Event()

    async def slow(wire, server):
        await server.read(wire)
        await left.wait()
        await wire.send(answer(status=b"201 Created"))

    async with RawServer(slow) as server, gateway(server.url) as (port, steered):
        steered.exchange_.wanted = wanted
        async with RawClient(port) as client:
            await client.send(post("/people/1", BODY))
            await server.until(lambda: server.requests != [])
            client.reset()
        await server.until(lambda: [caller.transport for caller in steered.callers] == [None])
        left.set()
        await server.until(lambda: len(steered.exchange_.calls) == 2)
        assert steered.exchange_.names == ["outgoing", "incoming" if wanted else "settled"]
        await server.until(lambda: steered.notes != [])


async def test_a_caller_that_leaves_in_the_middle_of_its_body_is_forgotten():
    async with RawServer(says(OK)) as server, gateway(server.url) as (port, steered):
        async with RawClient(port) as client:
            await client.send(get("/people/1", "Content-Length: 10", method="PUT") + b"abc")
            await server.until(lambda: steered.asked != [])
            client.reset()
        await server.until(lambda: steered.notes != [])
        assert server.wires == []
        assert steered.exchange_.calls == []


async def test_a_fault_of_our_own_is_500_and_tells_nothing(capfd):
    def stumble(request):
        raise KeyError("Ann")

    async with RawServer(says(OK)) as server, gateway(server.url) as (port, steered):
        steered.exchange_.out = stumble
        async with RawClient(port) as client:
            got = await client.ask(post("/people/1", BODY))
            assert (got.status, got.one("domicile-answer")) == (500, b"proxy")
            assert b"Ann" not in got.raw
        assert server.wires == []
        steered.exchange_.out = None
        async with RawClient(port) as client:
            assert (await client.ask(post("/people/1", BODY))).status == 200
    assert "Ann" not in capfd.readouterr().err


async def test_callers_of_http_1_0_are_answered_and_kept_or_closed():
    async with RawServer(says(answer())) as server, gateway(server.url) as (port, _):
        async with RawClient(port) as client:
            await client.send(b"GET /people/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            got = await client.answer()
            assert (got.body, got.one("connection")) == (BODY, b"keep-alive")
            await client.send(b"GET /people/1 HTTP/1.0\r\n\r\n")
            assert (await client.until_close()).endswith(BODY)
        assert server.requests[0].all("host") == [b"127.0.0.1:%d" % server.port]


async def test_a_refusal_has_the_form_that_the_rules_say_but_for_browsers_that_want_a_page():
    form = '{"ok": false, "error": {"code": "{code}", "status": "{status}"}}'
    with closed_port() as nobody:
        async with (
            gateway(f"http://127.0.0.1:{nobody}", refusals=form) as (port, _),
            RawClient(port) as client,
        ):
            for request in (post("/people/1", BODY), get("/people/1")):
                told = await client.ask(request)
                assert told.all("content-type") == [b"application/json"]
                assert told.all("domicile-answer") == [b"proxy"]
                error = {"code": "upstream_unreachable", "status": 502}
                assert json.loads(told.body) == {"ok": False, "error": error}
            page = await client.ask(get("/people/1", "Accept: text/html"))
            assert page.all("content-type") == [b"text/html; charset=utf-8"]

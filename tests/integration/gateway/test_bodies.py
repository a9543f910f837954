"""A POST without a rule whose body may name another method: read, judged, and passed on as it came
if nothing is in it.
"""

import gzip
from dataclasses import replace

import pytest

from proxy.errors import Code
from proxy.gateway.bodies import BodyTimeouts
from proxy.redactor.rules import BodyLimits, OnError, Unmatched
from tests.support.gateway import TOKEN, gateway
from tests.support.rawclient import RawClient, chunked, get, post
from tests.support.rawserver import OK, RawServer, says

FORM = "Content-Type: application/x-www-form-urlencoded"
BODY = b"_method=put&name=Ann"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def exchange(request: bytes, said: bytes = OK, **more):
    """One request: what the application got, what the caller got, what steered it."""
    async with RawServer(says(said)) as server, gateway(server.url, **more) as (port, steered):
        async with RawClient(port) as client:
            got = await client.ask(request)
            return (server.requests[0] if server.requests else None), got, steered


@pytest.mark.parametrize(
    "request_",
    [
        post("/staff/1", BODY, FORM),
        post("/staff/1", BODY),
        post("/staff/1", b'{"_method": "PUT", "name": "Ann"}', "content-type: application/json"),
        post("/staff/1", gzip.compress(BODY, mtime=0), FORM, "Content-Encoding: gzip"),
        chunked("/staff/1", BODY[:9], BODY[9:], fields=(FORM,)),
    ],
)
async def test_a_body_that_names_a_method_is_redacted_by_its_rule(request_):
    request, _, steered = await exchange(request_)
    assert TOKEN in request.body
    assert b"Ann" not in request.body
    assert request.start.split(b" ")[:2] == [b"POST", b"/staff/1"]
    assert steered.asked[1] == steered.asked[0]
    assert (steered.notes[0].outcome, steered.notes[0].operation) == ("matched", "PUT /people/{id}")


async def test_such_a_body_may_come_slowly():
    async with (
        RawServer(says(OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        for _ in range(2):
            await client.send(post("/staff/1", BODY, FORM), 20, 0.01)
            assert (await client.answer()).status == 200
            assert server.requests[-1].body == BODY.replace(b"Ann", TOKEN)


@pytest.mark.parametrize(
    "request_",
    [
        post("/staff/1", b"", FORM),
        post("/staff/1", b"name=Ann&_method=POST", FORM, "X-a: 1", "x-A: 2"),
        post("/staff/1", b"name=Ann", FORM, "Expect: 100-continue"),
        post("/staff/1", gzip.compress(b"name=Ann", mtime=0), FORM, "Content-Encoding: gzip"),
        post("/staff/1", b"--x\r\n\r\nAnn", "Content-Type: multipart/form-data; boundary=x"),
        post("/staff/1", b"\xff" * 3_000_000, "Content-Type: image/png"),
        post("/staff/1", BODY, FORM, method="PROPFIND"),
        post("/elsewhere", BODY, FORM),
        get("/staff/1", method="POST"),
    ],
)
async def test_what_names_none_passes_byte_for_byte(request_):
    request, _, steered = await exchange(request_)
    assert request.head + request.body == request_
    assert len(steered.asked) <= 2
    assert steered.notes[0].outcome == "passed"


async def test_a_body_in_chunks_that_names_none_stays_in_chunks():
    for pieces in ((), (b"name=", b"Ann")):
        request, _, _ = await exchange(chunked("/staff/1", *pieces, fields=(FORM,)))
        assert (request.body, request.all("transfer-encoding")) == (b"".join(pieces), [b"chunked"])
        assert request.all("content-length") == []


async def test_a_caller_that_waits_for_leave_gets_it_once():
    async with (
        RawServer(says(CONTINUE + OK)) as server,
        gateway(server.url) as (port, _),
        RawClient(port) as client,
    ):
        await client.send(
            get("/staff/1", FORM, "Expect: 100-continue", "Content-Length: 8", method="POST")
        )
        assert (await client.head()).head == CONTINUE
        await client.send(b"name=Ann")
        assert (await client.head()).status == 200
        assert server.requests[0].body == b"name=Ann"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post("/staff/1", b"_method=PUT&_method=DELETE", FORM), 400),
        (
            post(
                "/staff/1",
                b'; name="_method"\r\n\r\nPUT',
                "Content-Type: multipart/form-data; boundary=x",
            ),
            415,
        ),
        (post("/staff/1", BODY, FORM, "Content-Encoding: compress"), 415),
        (post("/staff/1", BODY, FORM + "; charset=utf-16"), 415),
        (post("/staff/1", b"a" * 101, FORM), 413),
        (
            post("/staff/1", gzip.compress(b"a" * 1001, mtime=0), FORM, "Content-Encoding: gzip"),
            413,
        ),
        (get("/staff/1", FORM, "Content-Length: 9", method="POST"), 408),
    ],
)
async def test_what_is_not_understood_is_refused_and_nothing_is_sent(request_, status):
    async with RawServer(says(OK)) as server:
        patience = BodyTimeouts(body=0.1) if status == 408 else BodyTimeouts()
        async with gateway(server.url, options={"timeouts": patience}) as (port, steered):
            steered.endpoint = replace(steered.endpoint, limits=BodyLimits(body=100, inflated=1000))
            async with RawClient(port) as client:
                assert (await client.ask(request_)).status == status
        assert server.requests == []
    assert (steered.notes[0].outcome, steered.notes[0].endpoint) == ("refused", "crm")


async def test_the_endpoint_chooses_the_status():
    broken = post("/staff/1", BODY, FORM, "Content-Encoding: gzip")
    _, got, steered = await exchange(broken, on_error=OnError(unreadable_body=422))
    assert (got.status, steered.notes[0].code) == (422, Code.UNREADABLE_BODY)


async def test_an_endpoint_that_denies_the_rest_lets_the_named_method_through():
    request, got, _ = await exchange(post("/staff/1", BODY, FORM), unmatched=Unmatched.DENY)
    assert (got.status, request.body) == (200, BODY.replace(b"Ann", TOKEN))
    request, got, _ = await exchange(post("/staff/1", b"name=Ann", FORM), unmatched=Unmatched.DENY)
    assert (got.status, request) == (403, None)

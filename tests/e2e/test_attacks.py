"""Attempts to lead a value past a rule, to read what belongs to others, and to hurt the service
with little effort.

Each table is named after the line of ``../shared/design/failures.md`` that it repeats, where there
is one. All tests share one installation; ``Scene.fresh`` clears what the application remembers, not
the vault.
"""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import brotli
import pytest
from backports import zstd

from bench.processes import processor_seconds
from tests.e2e.conftest import Scene
from tests.support.application import Misbehaviour, found_in
from tests.support.files import rewrite
from tests.support.patience import PATIENCE, until
from tests.support.people import ANN
from tests.support.rawclient import RawClient, get, post
from tests.support.real.inside import counts

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "Quibblethwaite"
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"
BODY = json.dumps({"name": NAME}).encode()
MEMBER = b"name=" + NAME.encode()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


# ---------------------------------------------------------------------- how the body is said to be written

TYPES = [
    "text/json", "application/json;;", "application/json; charset", "application/vnd.api+json",
    "application/jsonx",
    "APPLICATION/JSON", "application/json, text/plain", "application/json;charset=UTF-16",
    "json", "", "text/plain+json",
    'application/json;charset="utf-8"', "application/json ; charset=iso-8859-1",
    "application/*+json", "*/*",
    "multipart/form-data; boundary=x", "application/x-www-form-urlencoded",
    "application/json\tx", "text/plain",
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
async def test_a_type_that_gateway_and_application_read_differently(
    scene: Scene, kind: str
) -> None:
    await scene.send(post("/people", BODY, f"Content-Type: {kind}"))
    scene.nowhere()


@pytest.mark.parametrize(
    "fields", [[], [JSON, FORM], [FORM, JSON], [JSON, JSON], ["Content_Type: application/json"]]
)
async def test_a_type_that_is_missing_or_doubled(scene: Scene, fields: list[str]) -> None:
    await scene.send(post("/people", BODY, *fields))
    scene.nowhere()


PACKED = gzip.compress(BODY, mtime=0)  # the time would differ between the workers of one run
#: A frame of zstd that no reader looks into.
SKIPPED = b"\x50\x2a\x4d\x18" + len(BODY).to_bytes(4, "little") + BODY
CODINGS = [
    ("GZIP", PACKED),
    ("gzip, gzip", gzip.compress(PACKED, mtime=0)),
    ("x-gzip", PACKED),
    ("identity, gzip", PACKED),
    ("gzip, identity", PACKED), ("snappy", BODY), ("gzip", BODY), ("", BODY),
    ("deflate", PACKED), ("gzip;q=1", PACKED),
    ("aws-chunked", BODY), ("compress", BODY), ("gzip, gzip, gzip, gzip", PACKED),
    ("gzip", PACKED[:-4]), ("gzip", gzip.compress(b"{}", mtime=0) + BODY),
    ("gzip", gzip.compress(b"", mtime=0) + PACKED), ("deflate", zlib.compress(b"{}") + BODY),
    ("deflate", zlib.compress(BODY)), ("zstd", SKIPPED + zstd.compress(b"{}")), ("br", PACKED),
    ("zstd", zstd.compress(BODY) + BODY), ("gzip, br", brotli.compress(PACKED)),
    ("br, gzip", brotli.compress(PACKED)), ("identity;q=0", BODY),
]  # fmt: skip


@pytest.mark.parametrize(("coding", "body"), CODINGS)
async def test_a_compressed_body_to_which_a_body_rule_did_nothing(
    scene: Scene, coding: str, body: bytes
) -> None:
    await scene.send(post("/people", body, JSON, f"Content-Encoding: {coding}"))
    scene.nowhere()


# ---------------------------------------------------------------------- what the body holds

DOCUMENTS = [
    # arrays, objects and scalars where the rule expects something else
    '"%s"',
    '["%s"]',
    '[{"name": "x"}, "%s"]',
    '[[{"name": "%s"}]]',
    '{"name": ["%s"]}',
    '{"name": {"a": "%s"}}',
    '{"tags": "%s"}',
    '{"tags": {"0": "%s"}}',
    '{"tags": [["%s"]]}',
    '{"tags": {"0": {"a": "%s"}}}',
    '{"matrix": "%s"}',
    '{"matrix": ["%s"]}',
    '{"matrix": [["x"], "%s"]}',
    '{"matrix": {"a": {"b": "%s"}}}',
    '{"address": "%s"}',
    '{"address": ["%s"]}',
    '{"address": [{"street": "%s"}]}',
    '{"address": {"street": {"x": "%s"}}}',
    # names that some readers take for the declared one
    '{"n\\u0061me": "%s"}',
    '{"NAME": "%s"}',
    '{"addre\u017fs": {"street": "%s"}}',
    '{"address": {"Street": "%s"}}',
    # letters of another width or style, and signs of no width, which some take away
    *('{"ｎame": "%s"}', '{"𝐧ａmᵉ": "%s"}', '{"\ufeffname": "%s"}', '{"na\u200bme": "%s"}'),
    *('{"address": {"ｓtreet": "%s"}}', '{"ａddress": {"street": "%s"}}'),
    '{"name\\u0000": "%s"}',
    '{"name\\u0000x": "%s"}',
    '{"name\\ud800": "%s"}',
    '{"address\\u0000": {"street": "%s"}}',
    # one member that names a nested place
    '{"address.street": "%s"}',
    '{"address[street]": "%s"}',
    '{"address/street": "%s"}',
    '{"address->street": "%s"}',
    '{"tags.0": "%s"}',
    '{"tags[]": "%s"}',
    '{"tags[0]": "%s"}',
    '{"tags.$[]": "%s"}',
    '{"name.first": "%s"}',
    '{"matrix[0]": ["%s"]}',
    '{"matrix": {"0.1": "%s"}}',
    '{"matrix": [{"0.x": "%s"}]}',
    '{"/name": "%s"}',
    *('{"address\\u002estreet": "%s"}', '{"vip.x": 1, "Address.Street": "%s"}'),
    # one name twice, also on the way to the place
    *('{"name": "x", "name": "%s"}', '{"address": {"street": "x"}, "address": {"street": "%s"}}'),
    # what only some parsers take for JSON
    "{'name': \"%s\"}",
    '/**/{"name": "%s"}',
    '{"name": "%s"}//',
    '{"a": 1}{"name": "%s"}',
    '{"a": NaN, "name": "%s"}',
    '{"name": "%s",}',
    '{name: "%s"}',
    '\ufeff{"name": "%s"}',
    '{"name": "%s"}\0',
    '{"a": 01, "name": "%s"}',
    # values that fit no token of their field
    '{"born": "%s"}',
    '{"phone": "%s"}',
    '{"card": "%s"}',
    '{"email": ["%s"]}',
    '{"phone": {"a": "%s"}}',
    '{"born": ["%s"]}',
]


@pytest.mark.parametrize("document", DOCUMENTS)
async def test_json_in_which_proxy_and_application_may_disagree(
    scene: Scene, document: str
) -> None:
    await scene.send(post("/people", (document % NAME).encode(), JSON))
    scene.nowhere()


HARMLESS: list[dict[str, Any]] = [
    {"tags": []}, {"tags": None}, {"tags": ""}, {"address": {}}, {"address": []},
    {"address": None}, {"address": False},
    {
        "address.city": "Visby", "name.verified": True, "x.name": "y", "tag.0": "z",
        "a": {"tags[]": ["b"]},
    },
    {"matrix": [[]]}, {"matrix": [None, ["a"]]}, {"name": {"first": "a"}}, {"name": ["a", "b"]},
    {"name": 5}, {},
]  # fmt: skip


@pytest.mark.parametrize("person", HARMLESS)
async def test_places_that_hold_nothing_are_let_through(
    scene: Scene, person: dict[str, Any]
) -> None:
    created = await scene.call("POST", "/people", status=201, json=person)
    assert created == {**person, "id": created["id"]}
    assert await scene.call("GET", f"/people/{created['id']}", status=200) == created


FORMS = [
    "name=%s",
    "Name=%s",
    "n%%61me=%s",
    "%%20name=%s",
    "name+=%s",
    "name%%00x=%s",
    "name%%09=%s",
    *("%%EF%%BD%%8Eame=%s", "%%EF%%BB%%BFname=%s"),
    "x=1;name=%s",
    *("n%%u0061me=%s", "n%%c1%%a1me=%s", "name=x&name=%s", "&&name=%s", "name==%s"),
    # nested names, as PHP, Rails and Express read them
    "name[]=%s",
    "name[0]=%s",
    "name%%5B%%5D=%s",
    "name[first]=%s",
    "name[][a]=%s",
    "NAME[]=%s",
    "x=1;name[]=%s",
    *("name.first=%s", "[name]=%s", "name/first=%s", "/name=%s", "name%%2efirst=%s"),
    # content type and body must agree
    *('{"name": "%s"}', ' \r\n{"name":"%s"}', '[{"name":"%s"}]', "<name>%s</name>", '"%s"'),
    *("name=%s&_charset_=utf-7",),
]


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_in_which_proxy_and_application_may_disagree(scene: Scene, form: str) -> None:
    await scene.send(post("/people/form", (form % NAME).encode(), FORM))
    scene.nowhere()


MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n' + NAME.encode() + b"\r\n--x--\r\n"
)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (MULTIPART, "multipart/form-data; boundary=x"),
        (MEMBER.decode().encode("utf-16"), FORM),
        (MEMBER.decode().encode("utf-16-le"), FORM),
        (MEMBER.decode().encode("utf-16-be"), FORM),
        (MEMBER, "application/x-www-form-urlencoded; charset=ebcdic"),
        (MEMBER, "text/plain"),
    ],
)
async def test_a_form_in_another_format_or_charset(scene: Scene, body: bytes, kind: str) -> None:
    answer = await scene.send(
        post("/people/form", body, f"Content-Type: {kind.removeprefix('Content-Type: ')}")
    )
    assert answer.status in (400, 415)
    scene.nowhere()
    assert scene.application.requests == 1  # the one that ``send`` adds


QUERIES = [
    "email=%s", "Email=%s", "e%%6dail=%s", "email=a&email=%s", "a;email=%s", "%%20email=%s",
    "email%%00=%s", "&&email=%s",
    "email[]=%s", "email[0]=%s", "email%%5b%%5d=%s", "email[eq]=%s", "EMAIL[]=%s",
    "email.equals=%s", "[email]=%s",
    *("x=1#&email=%s", "#&email=%s", "x#?email=%s"),
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
async def test_a_parameter_in_another_spelling(scene: Scene, query: str) -> None:
    await scene.send(get("/people?" + query % (NAME + "%40wexlomere.example")))
    scene.nowhere()


# ---------------------------------------------------------------------- where one request ends and the next begins

HEAD = b"Host: app.test\r\nContent-Type: application/json\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
HIDDEN = b"POST /people HTTP/1.1\r\n" + HEAD + LENGTH + b"\r\n" + BODY


def framed(*fields: bytes, body: bytes = BODY, line: bytes = b"POST /people HTTP/1.1") -> bytes:
    return line + b"\r\n" + HEAD + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


CL, TE = LENGTH.strip(), b"Transfer-Encoding: chunked"
REFUSED = {
    "CL.TE": framed(CL, TE, body=b"0\r\n\r\n" + BODY),
    "TE.CL": framed(TE, CL, body=CHUNKS),
    "two lengths": framed(CL, b"Content-Length: 0"),
    "one length twice": framed(CL, CL),
    "a list of lengths": framed(CL + b", " + CL.split()[1]),
    "a sign in the length": framed(CL.replace(b": ", b": +")),
    "an unknown transfer coding": framed(b"Transfer-Encoding: xchunked", body=CHUNKS),
    "gzip in the transfer": framed(b"Transfer-Encoding: gzip, chunked", body=CHUNKS),
    "chunked twice": framed(TE, TE, body=CHUNKS),
    "a control byte before chunked": framed(b"Transfer-Encoding: \x0bchunked", body=CHUNKS),
    "bare LF": framed(CL).replace(b"\r\n", b"\n"),
    "a folded field": framed(b"X: a\r\n b", CL),
    "a space before the colon": framed(b"Content-Length : %d" % len(BODY)),
    "a field before the first": framed(CL).replace(b"Host", b" X: y\r\nHost", 1),
    "NUL": framed(b"X: a\0b", CL),
    "bare CR": framed(b"X: a\rContent-Length: 0", CL),
    "no host": framed(CL).replace(b"Host: app.test\r\n", b""),
    "two hosts": framed(b"Host: other", CL),
    "another host in the target": framed(CL, line=b"POST http://other/people HTTP/1.1"),
    "a space in the target": framed(CL, line=b"POST /x /people HTTP/1.1"),
    "tabs": framed(CL, line=b"POST\t/people\tHTTP/1.1"),
    "HTTP/0.9": b"POST /people\r\n\r\n" + BODY,
    "HTTP/1.0 with chunks": framed(TE, body=CHUNKS, line=b"POST /people HTTP/1.0"),
    "identity in the transfer": framed(b"Transfer-Encoding: identity", CL),
    "an empty transfer coding": framed(b"Transfer-Encoding:", CL),
    "a weight in the transfer": framed(TE + b";q=1", body=CHUNKS),
    "no number for a length": framed(b"Content-Length:"),
    "a length in C's hexadecimal": framed(b"Content-Length: 0x11"),
    "space before a chunk's end": framed(TE, body=CHUNKS.replace(b"\r\n", b" \r\n", 1)),
    "a path in the host": framed(CL).replace(b"Host: app.test", b"Host: app.test/people"),
    "HTTP/2.0": framed(CL, line=b"POST /people HTTP/2.0"),
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": framed(line=b"CONNECT people:80 HTTP/1.1", body=b""),
    "a negative chunk": framed(TE, body=b"-1\r\n\r\n"),
    "a chunk in C's hexadecimal": framed(TE, body=b"0x5\r\nabcde\r\n0\r\n\r\n"),
    "a chunk beyond all numbers": framed(TE, body=b"f" * 17 + b"\r\nabcde\r\n0\r\n\r\n"),
    "LF in a chunk extension": framed(TE, body=b"5;\n\r\nabcde\r\n0\r\n\r\n"),
    "bare LF between chunks": framed(TE, body=CHUNKS.replace(b"\r\n", b"\n")),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_request_that_parsers_frame_differently(scene: Scene, name: str) -> None:
    assert (await scene.send(REFUSED[name])).status == 400
    scene.nowhere()
    assert scene.application.requests == 1  # the one that ``send`` adds


TAKEN = {
    "HTTP/1.0": framed(CL, line=b"POST /people HTTP/1.0"),
    "empty lines before": b"\r\n\r\n" + framed(CL),
    "a chunk extension": framed(TE, body=CHUNKS.replace(b"\r\n", b";a=%b\r\n" % NAME.encode(), 1)),
    "zeros before chunk lengths": framed(TE, body=b"000" + CHUNKS),
    "a trailer": framed(TE, b"Trailer: X-N", body=CHUNKS[:-2] + b"X-N: %b\r\n\r\n" % NAME.encode()),
    "trailers of a request": framed(
        TE, body=CHUNKS[:-2] + b"Content-Type: text/plain\r\nContent-Length: 3\r\n\r\n"
    ),
    "an early body": framed(b"Expect: 100-continue", CL),
    "an upgrade": framed(b"Connection: Upgrade", b"Upgrade: websocket", CL),
    "h2c": framed(
        b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk", CL
    ),
    "named by Connection": framed(b"Connection: content-type, content-length, host", CL),
    "two in a row": get("/people") + HIDDEN,
    "behind an empty body": post("/elsewhere", b"") + HIDDEN,
    "behind a body no rule reads": post("/elsewhere", b"0\r\n\r\n", "Transfer_Encoding: chunked")
    + HIDDEN,
    "behind a switch of protocols": get("/ws", "Connection: Upgrade", "Upgrade: websocket")
    + HIDDEN,
}


@pytest.mark.parametrize("name", TAKEN)
async def test_a_request_that_is_read_in_one_way_only(scene: Scene, name: str) -> None:
    async with RawClient(scene.port) as client:
        assert (await client.ask(TAKEN[name])).status in (200, 201)
        client.half_close()
        await client.until_close()  # by then, what follows on the same connection was answered too
    assert (await scene.send(get("/next"))).status == 200
    scene.nowhere()


# ---------------------------------------------------------------------- whose values are read, and by whom


async def tokens_of(scene: Scene) -> dict[str, Any]:
    await scene.call("POST", "/people", status=201, json=ANN)
    stored: dict[str, Any] = scene.application.records[max(scene.application.records)]
    return stored


@pytest.mark.parametrize("field", ["name", "email", "phone", "card"])
async def test_an_error_that_repeats_what_was_sent_reads_no_token_out(
    scene: Scene, field: str
) -> None:
    token = (await tokens_of(scene))[field]
    escaped = "".join(f"\\u{ord(char):04x}" for char in token)
    for sent in (json.dumps({"vip": token}), f'{{"vip": "{escaped}"}}', f'{{"vip": "x {token}."}}'):
        scene.application.plan = [
            Misbehaviour(status=422, answer=lambda _: {"input": json.loads(sent)})  # noqa: B023  # used at once
        ]
        answer = await scene.call(
            "POST", "/people", status=422, data=sent, headers={"Content-Type": "application/json"}
        )
        assert answer["input"] == json.loads(sent)
        assert not found_in(json.dumps(answer).encode(), str(ANN[field]))


async def test_a_token_of_another_person_is_refused_or_a_text_like_any_other(scene: Scene) -> None:
    stored = await tokens_of(scene)
    texts = {name: stored[name] for name in ("card", "born")}  # digits cannot be told from values
    created = await scene.call("POST", "/people", status=201, json=texts)
    assert created == {**texts, "id": created["id"]}
    sent = scene.application.records[created["id"]]
    assert not {sent[name] for name in texts} & set(texts.values())
    for name in ("name", "email"):
        for method, path in (("POST", "/people"), ("PATCH", f"/people/{created['id']}")):
            refused = await scene.call(method, path, status=422, json={name: stored[name]})
            assert refused["code"] == "value_unfit"
            assert str(ANN[name]) not in json.dumps(refused)
    listed = await scene.call("GET", "/people", params={"email": ANN["email"]}, status=200)
    assert [item["email"] for item in listed["items"]] == [ANN["email"]]


async def test_an_id_that_is_given_again_belongs_to_the_new_record(scene: Scene) -> None:
    stored = await tokens_of(scene)
    ident = stored["id"]
    scene.application.following = ident
    await scene.call("POST", "/people", status=201, json={"name": "Bo", "born": "2001-02-03"})
    assert await scene.call("GET", f"/people/{ident}") == {
        "name": "Bo",
        "born": "2001-02-03",
        "id": ident,
    }
    # The one before is in doubt: its e-mail may still be there.
    await until(lambda: counts(scene.world.instance.data).staged == 1)
    await scene.call("DELETE", f"/people/{ident}", status=204)
    await until(lambda: counts(scene.world.instance.data).staged == 0)


async def test_many_at_once_create_change_and_delete_one_record(scene: Scene) -> None:
    path = f"/people/{scene.application.following + 100}"
    people = [{"name": f"N {number}", "born": f"19{number}-01-01"} for number in range(40, 64)]
    for step in (1, 3):
        await asyncio.gather(
            *(
                scene.call("DELETE" if step == 3 and index % 3 == 2 else "PUT", path, json=person)
                for index, person in enumerate(people)
            )
        )
        seen = await scene.call("GET", path)
        assert "error" in seen or {"name": seen["name"], "born": seen["born"]} in people
    await until(lambda: counts(scene.world.instance.data).staged == 0)


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(1, None), slice(0, 0)])
async def test_a_bulk_answered_in_another_order_or_in_part(scene: Scene, order: slice) -> None:
    people = [
        {"name": f"Wexlo {number}", "born": f"19{number}-01-01", "vip": number}
        for number in range(40, 52)
    ]
    await bulk(scene, people, order)


async def test_a_bulk_of_tokens_that_mean_nothing_without_an_id_answered_in_another_order(
    scene: Scene,
) -> None:
    await bulk(
        scene,
        [{"born": f"19{number}-01-01", "vip": number} for number in range(40, 52)],
        slice(None, None, -1),
    )


async def bulk(scene: Scene, people: list[dict[str, Any]], order: slice) -> None:
    scene.application.reply = lambda made: made[order]
    try:
        answered = await scene.call("POST", "/people/bulk", status=201, json=people)
    finally:
        scene.application.reply = None
    assert [{**person, "id": 0} for person in people[order]] == [
        {**item, "id": 0} for item in answered
    ]
    listed = await scene.call("GET", "/people", status=200)
    assert [{**item, "id": 0} for item in listed["items"]] == [
        {**person, "id": 0} for person in people
    ]


# ---------------------------------------------------------------------- small effort, great harm

HEAVY: dict[str, tuple[bytes, list[str], int]] = {
    "a list without end": (b"[" + b",".join([b"{}"] * 20_000) + b"]", [], 413),
    "one field without end": (b'{"tags": [' + b",".join([b'"a"'] * 110_000) + b"]}", [], 413),
    "members without end": (
        b"{" + b",".join(b'"k%d":1' % number for number in range(80_000)) + b"}", [], 201,
    ),
    "escaped names": (
        b"{" + b",".join(b'"\\u006b%d": 1' % number for number in range(60_000)) + b"}", [], 201,
    ),
    "nested without end": (b'{"x":' + b"[" * 900_000 + b"]" * 900_000 + b"}", [], 413),
    "a number of 900 kB": (b'{"name":' + b"9" * 900_000 + b"}", [], 201),
    "a phone of 500 kB": (b'{"phone":"' + b"9" * 500_000 + b'"}', [], 422),
    "an exponent": (b'{"name":1e999999,"born":"' + b"1-" * 50_000 + b'"}', [], 422),
    "a bomb": (
        gzip.compress(b'{"name":"' + b"x" * 15_000_000 + b'"}'),
        ["Content-Encoding: gzip"],
        413,
    ),
    "letters that grow": (json.dumps({"email": "\ufdfa" * 100_000}).encode(), [], 201),
}  # fmt: skip


#: Seconds of a slow processor. All of it takes a tenth; what grows faster than its input takes
#: minutes.
_CHEAP = 10.0


@asynccontextmanager
async def cheaply(scene: Scene) -> AsyncIterator[None]:
    """The service takes little processor time meanwhile.

    What it waits for a processor is not its own.
    """
    process = scene.world.instance.process
    assert process is not None
    before = processor_seconds([process.pid])
    async with asyncio.timeout(PATIENCE):
        yield
    after = processor_seconds([process.pid])
    if before is not None and after is not None:
        assert after - before < _CHEAP


@pytest.mark.parametrize("name", HEAVY)
async def test_heavy_bodies_cost_little_and_others_are_served(scene: Scene, name: str) -> None:
    body, fields, status = HEAVY[name]
    path = "/people/bulk" if body[:1] == b"[" else "/people"
    async with cheaply(scene), RawClient(scene.port) as client:
        heavy = asyncio.create_task(client.ask(post(path, body, JSON, *fields)))
        while not heavy.done():
            await scene.call("GET", "/next", status=200)
        assert (await heavy).status == status


LOOK_ALIKES = {
    "cards": b" 4929 4212 3460 0821" * 5_000,
    "numbers": b",".join(b"%d" % (4929421234600000 + 7 * number) for number in range(10_000)),
    "addresses": b"a.b@c.d," * 20_000, "signs": b"@+1-" * 50_000, "letters": b"aB3" * 60_000,
    "digits": b"7" * 200_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LOOK_ALIKES)
async def test_an_error_full_of_look_alikes_is_passed_on_soon(scene: Scene, name: str) -> None:
    text = LOOK_ALIKES[name].decode()
    scene.application.plan = [Misbehaviour(status=422, answer=lambda _: {"text": text})]
    async with cheaply(scene):
        assert await scene.call("POST", "/people", status=422, json={}) == {"text": text}


@pytest.mark.parametrize(
    "piece", ["%2e%2e%2f", "a%252fb;x//./", "a;b//%2561/", "%2561/%2e;/", "/%00//;/%2500"]
)
async def test_a_path_of_many_readings_is_read_soon_or_refused(scene: Scene, piece: str) -> None:
    async with cheaply(scene):
        answer = await scene.send(get("/" + piece * (15_000 // len(piece))))
    assert answer.status in (200, 400)


# ---------------------------------------------------------------------- while something changes


async def test_rules_that_change_while_a_request_is_with_the_application(scene: Scene) -> None:
    file = scene.world.instance.rules / "rules.yaml"
    good = file.read_text()
    ident = (await tokens_of(scene))["id"]
    scene.application.gate = asyncio.Event()
    seen = scene.application.requests
    changing = asyncio.create_task(
        scene.call("PUT", f"/people/{ident}", status=200, json={**ANN, "tags": ["Wexlo"]})
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while scene.application.requests == seen:  # noqa: ASYNC110  # the application knows no event for it
                await asyncio.sleep(0.01)
        await took_effect(scene, good.replace('      tags:   {kind: text, at: "$.tags[*]"}\n', ""))
        scene.application.gate.set()
        assert (await changing)["tags"] == ["Wexlo"]
        await took_effect(scene, good)
        assert (await scene.call("GET", f"/people/{ident}", status=200))["tags"] == ["Wexlo"]
    finally:
        scene.application.gate = None
        rewrite(file, good)
    scene.nowhere("Wexlo")


async def test_a_field_that_rules_lose_for_a_while_loses_no_value(scene: Scene) -> None:
    file = scene.world.instance.rules / "rules.yaml"
    good = file.read_text()
    path = f"/people/{(await tokens_of(scene))['id']}"
    try:
        await took_effect(scene, good.replace('      tags:   {kind: text, at: "$.tags[*]"}\n', ""))
        seen = await scene.call("GET", path, status=200)
        await scene.call("PUT", path, status=200, json={**seen, "name": "Bo"})
        await took_effect(scene, good)
        assert await scene.call("GET", path, status=200) == {**ANN, "id": seen["id"], "name": "Bo"}
    finally:
        rewrite(file, good)


async def took_effect(scene: Scene, text: str) -> None:
    event = "rules are active"
    count = len(scene.world.instance.events(event)) + 1
    rewrite(scene.world.instance.rules / "rules.yaml", text)
    await scene.world.instance.logged(event, count)

"""Whatever is sent comes back byte for byte: ``restore(redact(d))`` is ``d`` for a caller who sees
values clear, in every kind of body; one who sees masks sees nothing clear, and one who sees tokens
what the application said.

Three kinds of bodies: those that an application may answer as it was sent them, those that are only
sent, and those that are only answered.
"""

import csv
import io
import json
import re
import tracemalloc
from collections.abc import Callable, Sequence
from email import message_from_bytes
from email.policy import HTTP
from itertools import pairwise
from typing import Any, NamedTuple, cast
from urllib.parse import quote

import pytest
from graphql import ObjectValueNode, parse
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.redactor.exchange.event_stream import MessageExchange, StreamExchange
from proxy.redactor.form import write_form_value
from proxy.redactor.message import RawHeaders
from tests.support.effort import examples
from tests.support.exchanges import FORM, HTML, JSON, PLAIN, Call, Desk, desk

FIELDS = (
    "name: {kind: name}",
    "note: {kind: text, mask: {}}",
    "born: {kind: date, token: {shape: date}}",
)
OTHER = "  other: {fields: {name: {kind: name}, note: {kind: text, mask: {}}}}"
VIEWS = "views:\n  - {who: [boss], p: clear, other: clear}\n  - {who: [desk], p: mask, other: mask}"
NO_GUARD = "\non_error: {guard: off}"

#: Whatever a field of text may hold. With these, nothing is looked for beside the places.
ODD = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\t"),
    min_size=1,
    max_size=30,
)
#: Nobody's, and long enough for a mask to hide something.
TEXTS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"), exclude_characters="*"),
    min_size=1,
    max_size=30,
).map(lambda text: f"Wq-{text}-qW")
DAYS = st.dates().map(str)
#: How one value is spelled in a body.
Spell = Callable[[str], bytes]


def spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


BASE = (
    "{match: POST /p, create: p}",
    '{match: "GET /p/{id}", read: p}',
    '{match: GET /ps, read: p, response: {each: "$[*]", id: $.id}}',
    '{match: POST /batch, envelope: {each: "$[*]", answers: "$[*]"}}',
)


async def office(rule: str, more: str = VIEWS) -> Desk:
    return await desk(*BASE, *filter(None, [rule]), fields=FIELDS, more=more, entities=(OTHER,))


# ------------------------------------------------------------------ answered as they were sent


class Echoed(NamedTuple):
    """A kind of body: the target that takes it, how it is written, its rule and its type."""

    target: str
    write: Callable[[str, str], bytes]
    rule: str
    headers: RawHeaders = JSON


def as_json(name: str, note: str) -> bytes:
    return b' {"x": 1e2,\n"name":%b , "note" : %b,"\\u00e9":[1.0]}' % (spelled(name), spelled(note))


def as_form(name: str, note: str) -> bytes:
    return b"a=%%41&name=%b&&note=%b&b" % (write_form_value(name), write_form_value(note))


def as_text(name: str, note: str) -> bytes:
    deep = spelled({"o": note}).decode()
    inner = spelled({"n": name, "deep": deep}).decode()
    return b'{"payload":%b, "x": 1.0}' % spelled(inner)


def as_objects(name: str, note: str) -> bytes:
    return b'{"one":{"name":%b}, "two" : {"note":%b,"y":[]}}' % (spelled(name), spelled(note))


def as_batch(name: str, note: str) -> bytes:
    return b'[{"method":"POST","path":"/p","status":201, "body" :%b}]' % as_json(name, note)


INNER = "{json: {$.n: name, $.deep: {json: {$.o: note}}}}"
ECHOED = {
    "json": Echoed("POST /p", as_json, ""),
    "form": Echoed("POST /form", as_form,
        ("{match: POST /form, create: p, request: {form: {name: name, note: note}}, "
        "response: {success: 200, form: {name: name, note: note}, id: $.id}}"), FORM),
    "text of json": Echoed("POST /text", as_text,
        ("{match: POST /text, create: p, request: {values: {$.payload: " + INNER + "}}, "
        "response: {values: {$.payload: " + INNER + "}, id: $.id}}")),
    "objects": Echoed("POST /objects", as_objects,
        ("{match: POST /objects, objects: ["
        "{create: p, request: {object: $.one}, response: {object: $.one, id: $.id}}, "
        "{create: other, request: {object: $.two}, response: {object: $.two, id: $.id}}]}")),
    "envelope": Echoed("POST /batch", as_batch, ""),
}  # fmt: skip
each_echoed = pytest.mark.parametrize("kind", ECHOED.values(), ids=ECHOED.keys())


async def echoed(one: Desk, kind: Echoed, raw: bytes, role: str) -> tuple[bytes, bytes]:
    """What the application was sent, and what the caller got when it answered just that."""
    call = await one.send(kind.target, raw, kind.headers, one.view(role))
    answer = await call.answer(201 if kind.headers is JSON else 200, call.sent.body, kind.headers)
    assert one.idle
    return call.sent.body, answer.body


@each_echoed
@examples(20)
@given(name=ODD, note=ODD)
async def test_what_is_sent_comes_back_byte_for_byte(kind: Echoed, name: str, note: str) -> None:
    raw = kind.write(name, note)
    sent, seen = await echoed(await office(kind.rule, VIEWS + NO_GUARD), kind, raw, "boss")
    assert sent != raw
    assert seen == raw


@each_echoed
@examples(20)
@given(name=TEXTS, note=TEXTS)
async def test_nobody_but_who_sees_values_is_shown_one(kind: Echoed, name: str, note: str) -> None:
    sent, seen = await echoed(await office(kind.rule), kind, kind.write(name, note), "desk")
    assert seen != sent, "masks, and no tokens"
    assert not re.search(rb"Wq-|-qW", sent + seen)
    sent, seen = await echoed(await office(kind.rule), kind, kind.write(name, note), "nobody")
    assert seen == sent


# ------------------------------------------------------------------ only sent


class Sent(NamedTuple):
    """A kind of body of a request: how the values in it are written, and read again."""

    target: str
    write: Callable[[str, str], bytes]
    read: Callable[[bytes], tuple[str, str]]
    rule: str
    headers: RawHeaders = JSON
    answer: bytes = b'{"id": 1}'
    refused: str = "\0"  #: what programs read differently there


BOUNDARY = b"--bx\r\nContent-Disposition: form-data; name="
MULTIPART: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=bx"),)
CSV: RawHeaders = ((b"Content-Type", b"text/csv; charset=utf-8"),)
PATCH: RawHeaders = ((b"Content-Type", b"application/json-patch+json"),)


def as_upload(name: str, note: str) -> bytes:
    photo = (
        BOUNDARY + b'"photo"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n\x89\r\n\x00\r\n'
    )
    parts = [BOUNDARY + b'"%b"\r\n\r\n%b\r\n' % pair for pair in
             ((b"name", name.encode()), (b"x", b" 1"), (b"note", note.encode()))]  # fmt: skip
    return parts[0] + photo + parts[1] + parts[2] + b"--bx--\r\n"


def parts_of(body: bytes) -> dict[str, bytes]:
    message = message_from_bytes(
        b"Content-Type: " + MULTIPART[0][1] + b"\r\n\r\n" + body, policy=HTTP
    )
    return {
        str(part.get_param("name", header="content-disposition")): cast(bytes, part.get_payload(decode=True))
        for part in message.iter_parts()
    }  # fmt: skip


def of_upload(body: bytes) -> tuple[str, str]:
    parts = parts_of(body)
    assert parts["photo"] == b"\x89\r\n\x00"
    return parts["name"].decode(), parts["note"].decode()


def as_table(name: str, note: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";", quoting=csv.QUOTE_ALL)
    writer.writerows([("Made", "Name", "Note"), ("=1", name, note)])
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def of_table(body: bytes) -> tuple[str, str]:
    _, (_, name, note) = csv.reader(io.StringIO(body.decode("utf-8-sig"), ""), delimiter=";")
    return name, note


def as_import(name: str, note: str) -> bytes:
    head = BOUNDARY + b'"file"; filename="a.csv"\r\nContent-Type: text/csv\r\n\r\n'
    return head + as_table(name, note) + b"\r\n--bx--\r\n"


def as_graph(name: str, note: str) -> bytes:
    query = b"mutation ($n: String) { add(input: {name: $n, vip: true, note: %b}) { id } }"
    text = spelled((query % spelled(note)).decode())
    return b'{"variables" : {"n":%b},"query":%b}' % (spelled(name), text)


def of_graph(body: bytes) -> tuple[str, str]:
    document = json.loads(body)
    operation: Any = parse(document["query"]).definitions[0]
    given = cast(ObjectValueNode, operation.selection_set.selections[0].arguments[0].value)
    values: dict[str, Any] = {one.name.value: one.value for one in given.fields}
    return document["variables"]["n"], values["note"].value


def as_steps(name: str, note: str) -> bytes:
    step = b'{"op":"replace", "path":"/name","value":%b}, {"op":"add","path":"/note","value" :%b}'
    return (
        b'[{"op": "test","path":"/vip","value":1.0},' + step % (spelled(name), spelled(note)) + b"]"
    )


def of_steps(body: bytes) -> tuple[str, str]:
    return json.loads(body)[1]["value"], json.loads(body)[2]["value"]


def as_scim(name: str, note: str) -> bytes:
    step = b'{"op":"replace","path":"name","value":%b}, {"op":"Add","value":{"note" :%b, "x":1.0}}'
    schema = b'"schemas":["urn:ietf:params:scim:api:messages:2.0:PatchOp"]'
    return b'{%b,"Operations":[' % schema + step % (spelled(name), spelled(note)) + b"]}"


def of_scim(body: bytes) -> tuple[str, str]:
    first, second = json.loads(body)["Operations"]
    return first["value"], second["value"]["note"]


def as_dotted(name: str, note: str) -> bytes:
    return b'{"$set":{"name":%b, "y.z":1.0, "note":%b}}' % (spelled(name), spelled(note))


def of_dotted(body: bytes) -> tuple[str, str]:
    return json.loads(body)["$set"]["name"], json.loads(body)["$set"]["note"]


def of_json(body: bytes) -> tuple[str, str]:
    return json.loads(body)["name"], json.loads(body)["note"]


UPLOAD = "{match: POST /%s, create: p, request: {%s}, response: {id: $.id}}"
CHANGE = '{match: "PATCH /%s/{id}", update: p, request: {patch: %s}}'
SENT = {
    "multipart": Sent("POST /upload", as_upload, of_upload,
        UPLOAD % ("upload", "multipart: {name: name, note: note}, files: pass"), MULTIPART),
    "csv": Sent("POST /csv", as_table, of_table,
        UPLOAD % ("csv", "csv: {Name: name, Note: note}"), CSV, refused="\\"),
    "csv in a form": Sent("POST /import", as_import, lambda body: of_table(parts_of(body)["file"]),
        UPLOAD % ("import", "csv: {Name: name, Note: note}, part: file"), MULTIPART, refused="\\"),
    "graphql": Sent("POST /g", as_graph, of_graph,
        "{match: POST /g, graphql: {Mutation.add: {create: p, object: input}}}",
        answer=b'{"data": {"add": {"id": "1"}}}'),
    "json patch": Sent("PATCH /jp/1", as_steps, of_steps, CHANGE % ("jp", "json"), PATCH),
    "merge patch": Sent("PATCH /mp/1", as_json, of_json, CHANGE % ("mp", "merge")),
    "scim patch": Sent("PATCH /sp/1", as_scim, of_scim, CHANGE % ("sp", "scim")),
    "dotted members": Sent("PATCH /dp/1", as_dotted, of_dotted, CHANGE % ("dp", "dotted")),
}  # fmt: skip


@pytest.mark.parametrize("kind", SENT.values(), ids=SENT.keys())
@examples(20)
@given(name=ODD, note=ODD)
async def test_only_values_change_on_the_way_in_and_all_come_back(
    kind: Sent, name: str, note: str
) -> None:
    assume(kind.refused not in name + note)
    one = await office(kind.rule, VIEWS + NO_GUARD)
    if kind.target.startswith("PATCH"):
        await one.create({"name": "Before", "note": "this"})
    call = await one.send(kind.target, kind.write(name, note), kind.headers, one.view("boss"))
    tokens = kind.read(call.sent.body)
    assert not {name, note} & {*tokens}
    assert kind.write(*tokens) == call.sent.body, "every other byte stays"
    await call.answer(200, kind.answer)
    assert one.idle
    stored = {"id": 1, "name": tokens[0], "note": tokens[1]}
    for role, wanted in (("boss", {"id": 1, "name": name, "note": note}), ("nobody", stored)):
        assert await (await one.send("GET /p/1", view=one.view(role))).seen(200, stored) == wanted


#: What browsers escape in the name of a file.
ESCAPED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
SCANS = (
    "name: {kind: name, token: filename}",
    "note: {kind: text, token: {shape: filename, same: true}}",
)
SCAN = (
    "{match: POST /scans, create: p, request: {multipart: {name: {filename: name}, "
    '"note*": {filename: note}}}, response: {id: $.id}}'
)  # fmt: skip


def as_files(name: str, note: str) -> bytes:
    """Two files, the name of the second one coded."""
    plain = BOUNDARY + b'"name"; filename="%b.pdf"\r\n\r\n\x00'
    coded = BOUNDARY + b'"note[]"; filename=""; filename*=UTF-8\'\'%b.tar.gz\r\n\r\n'
    parts = plain % name.translate(ESCAPED).encode(), coded % quote(note, safe="").encode()
    return b"\r\n".join((*parts, b"--bx--\r\n"))


def of_files(body: bytes) -> tuple[str, str]:
    """The names of both without their endings."""
    said = re.search(rb'filename="(.+)\.pdf"\r\n(?s:.*)UTF-8\x27\x27(.+)\.tar\.gz\r\n', body)
    assert said is not None
    return said[1].decode(), said[2].decode()


@examples(40)
@given(
    name=ODD.filter(lambda text: not re.match(r"/|\\\\|.:", text)),
    note=ODD.filter(lambda text: not re.match(r"/|\\\\|.:", text)),
)
async def test_of_an_upload_the_names_of_files_alone_change_and_come_back(
    name: str, note: str
) -> None:
    assume(not re.search(r"\t|=\?|%22|%0[DA]", name + note))
    one = await desk(SCAN, *BASE, fields=SCANS, more=VIEWS + NO_GUARD, entities=(OTHER,))
    call = await one.send("POST /scans", as_files(name, note), MULTIPART, one.view("boss"))
    tokens = of_files(call.sent.body)
    assert not {name, note} & {*tokens}
    assert as_files(*tokens) == call.sent.body, "every other byte stays"
    await call.answer(200, b'{"id": 1}')
    stored = {"id": 1, "name": f"{tokens[0]}.pdf", "note": f"{tokens[1]}.tar.gz"}
    seen = await (await one.send("GET /p/1", view=one.view("boss"))).seen(200, stored)
    assert seen == {"id": 1, "name": f"{name}.pdf", "note": f"{note}.tar.gz"}


# ------------------------------------------------------------------ only answered


class Shown(NamedTuple):
    """A kind of body of an answer: how a record is written in it, with values spelled so."""

    target: str
    write: Callable[[dict[str, str], Spell], bytes]
    rule: str
    headers: RawHeaders = JSON
    spell: Spell = spelled  #: of values; tokens need no escapes


def in_json(record: dict[str, str], spell: Spell) -> bytes:
    name, note, born = (spell(record[one]) for one in ("name", "note", "born"))
    return b'{"id":1, "name" :%b,"x":[1e2],"note":%b, "born":%b}' % (name, note, born)


def in_list(record: dict[str, str], spell: Spell) -> bytes:
    return b"[%b ,{}, null]" % in_json(record, spell)


def in_call(record: dict[str, str], spell: Spell) -> bytes:
    return b"/**/ a.b[0](%b );\n" % in_json(record, spell)


def in_guarded(record: dict[str, str], spell: Spell) -> bytes:
    return b")]}',\n" + in_json(record, spell)


def in_text(record: dict[str, str], spell: Spell) -> bytes:
    return b'{"id":1, "payload" :%b}' % spelled(in_json(record, spell).decode())


def in_lines(record: dict[str, str], spell: Spell) -> bytes:
    return b" %b\r\n\n{broken\n%b" % ((in_json(record, spell),) * 2)


def in_events(record: dict[str, str], spell: Spell) -> bytes:
    first, second = in_json(record, spell).split(b',"x"', 1)
    return b': c\nid: 4\ndata: %b,\ndata:"x"%b\r\n\r\ndata: ping\n\n' % (first, second)


def in_parts(record: dict[str, str], spell: Spell) -> bytes:
    document = in_json(record, spell)
    head = b"--b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(document)
    return b"%b%b\r\n--b\r\n\r\n%b\r\n--b--\r\nbye" % (head, document, document)


def in_table(record: dict[str, str], spell: Spell) -> bytes:
    name, note, born = (spell(record[one]) for one in ("name", "note", "born"))
    return b'\xef\xbb\xbfID,Made,Name,Note,Born\r\n1,"=1",%b,%b,%b\r\n2,,,,' % (name, note, born)


def in_page(record: dict[str, str], spell: Spell) -> bytes:
    name, note, born = (spell(record[one]) for one in ("name", "note", "born"))
    page = (
        b"<!doctype html><p class=x>%b, %b<br></p><input name=born value='%b'><b title=\"%b\">1</b>"
    )
    return page % (name, note, born, note)


def in_prose(record: dict[str, str], spell: Spell) -> bytes:
    return b"Dear %b, (%b)\r\n1e2\n" % (spell(record["name"]), spell(record["note"]))


def in_answers(record: dict[str, str], spell: Spell) -> bytes:
    return b'[{"status":200, "body": %b},{"status" :404}]' % in_json(record, spell)


def in_graph(record: dict[str, str], spell: Spell) -> bytes:
    name, note, born = (spell(record[one]) for one in ("name", "note", "born"))
    return b'{"data":{"a":{"n":%b,"k" :"1","note":%b,"born":%b}},"extensions":{"x":1e2}}' % (
        name,
        note,
        born,
    )


def in_several(record: dict[str, str], spell: Spell) -> bytes:
    return b'{"one": %b,"two":{"id":7,"name":null}}' % in_json(record, spell)


def references(value: str) -> bytes:
    """As a page shows it: all but letters and digits as references."""
    each = (one if one.isascii() and one.isalnum() else f"&#{ord(one)};" for one in value)
    return "".join(each).encode()


def cell(value: str) -> bytes:
    needed = re.search(r'[",\r\n]|^[ \t]|[ \t]$', value) is not None
    return ('"' + value.replace('"', '""') + '"' if needed else value).encode()


NDJSON: RawHeaders = ((b"Content-Type", b"application/x-ndjson"),)
SSE: RawHeaders = ((b"Content-Type", b"text/event-stream"),)
PARTS: RawHeaders = ((b"Content-Type", b"multipart/mixed; boundary=b"),)
JSONP: RawHeaders = ((b"Content-Type", b"text/javascript"),)
ANSWER = '{match: "GET /%s/{id}", read: p, response: {%s}}'
LIST = "{match: GET /%s, read: p, response: {%s}}"
GRAPH = {"query": "{ a: p { n: name k: id note born } }"}
SHOWN = {
    "list": Shown("GET /ps", in_list, ""),
    "jsonp": Shown("GET /p/1", in_call, "", JSONP),
    "behind a prefix": Shown("GET /p/1", in_guarded, ""),
    "text of json": Shown("GET /payload", in_text,
        LIST % ("payload", "values: {$.payload: {json: {$.name: name, $.note: note, $.born: born}}}, id: $.id")),
    "ndjson": Shown("GET /lines", in_lines, LIST % ("lines", 'each: "$", stream: ndjson, id: $.id'), NDJSON),
    "sse": Shown("GET /events", in_events, LIST % ("events", 'each: "$", stream: sse, id: $.id'), SSE),
    "parts": Shown("GET /parts", in_parts, LIST % ("parts", 'each: "$", stream: multipart, id: $.id'), PARTS),
    "csv": Shown("GET /table", in_table,
        LIST % ("table", "restore: csv, columns: {Name: name, Note: note, Born: born}, id: column ID"),
        CSV, cell),
    "html": Shown("GET /page/1", in_page, ANSWER % ("page", "restore: html, form: {born: born}"), HTML, references),
    "text": Shown("GET /prose/1", in_prose, ANSWER % ("prose", "restore: text, only: [name, note]"), PLAIN, str.encode),
    "websocket": Shown("GET /live", in_json, LIST % ("live", "websocket: $, id: $.id")),
    "graphql": Shown("POST /graph", in_graph, "{match: POST /graph, graphql: {p: {entity: p}}}"),
    "objects": Shown("GET /several", in_several,
        ("{match: GET /several, objects: [{read: p, response: {object: $.one, id: $.id}}, "
        "{read: other, response: {object: $.two, id: $.id}}]}")),
    "envelope": Shown("POST /batch", in_answers, ""),
}  # fmt: skip
BODIES: dict[str, Any] = {
    "POST /graph": GRAPH,
    "POST /batch": [{"method": "GET", "path": "/p/1"}, {"method": "GET", "path": "/p/2"}],
}
each_shown = pytest.mark.parametrize("kind", SHOWN.values(), ids=SHOWN.keys())


async def shown(one: Desk, kind: Shown, role: str, body: bytes, cuts: Sequence[int]) -> bytes:
    """What a caller of that role sees of an answer, which comes in pieces where it is a stream."""
    call = await one.send(kind.target, BODIES.get(kind.target, b""), view=one.view(role))
    status = 101 if kind.write is in_json else 200
    stream = await call.exchange.stream(status, kind.headers)
    if stream is None:
        return (await call.answer(status, body, kind.headers)).body
    return await streamed(call, cast(StreamExchange, stream), body, cuts)


async def streamed(call: Call, stream: StreamExchange, body: bytes, cuts: Sequence[int]) -> bytes:
    try:
        if isinstance(stream, MessageExchange):
            return await stream.restore(body)
        ends = [0, *sorted({cut % len(body) for cut in cuts}), len(body)]
        pieces = [await stream.restore(body[start:end]) for start, end in pairwise(ends)]
        return b"".join([*pieces, await stream.rest()])
    finally:
        await stream.end()


async def created(one: Desk, record: dict[str, str]) -> dict[str, str]:
    """What the application has of it."""
    call = await one.send("POST /p", record, view=one.view("boss"))
    await call.answer(201, {"id": 1})
    return {**call.json}


CUTS = st.lists(st.integers(0, 10_000), max_size=4)


@each_shown
@examples(20)
@given(name=ODD, note=ODD, born=DAYS, cuts=CUTS)
async def test_an_answer_is_what_it_would_be_with_values_in_it(
    kind: Shown, name: str, note: str, born: str, cuts: list[int]
) -> None:
    one = await office(kind.rule, VIEWS + NO_GUARD)
    record = {"name": name, "note": note, "born": born}
    stored = await created(one, record)
    body = kind.write(stored, spelled if kind.spell is spelled else str.encode)
    assert await shown(one, kind, "boss", body, cuts) == kind.write(record, kind.spell)
    assert await shown(one, kind, "nobody", body, cuts) == body
    assert one.idle


@each_shown
@examples(20)
@given(name=TEXTS, note=TEXTS, born=DAYS, cuts=CUTS)
async def test_who_sees_masks_sees_nothing_clear(
    kind: Shown, name: str, note: str, born: str, cuts: list[int]
) -> None:
    one = await office(kind.rule)
    stored = await created(one, {"name": name, "note": note, "born": born})
    body = kind.write(stored, spelled if kind.spell is spelled else str.encode)
    seen = await shown(one, kind, "desk", body, cuts)
    assert seen != body, "masks, and no tokens"
    assert not re.search(rb"Wq(-|&#45;)|(-|&#45;)qW", seen)
    assert stored["name"].encode() not in seen
    assert stored["note"].encode() not in seen
    assert born.encode() not in seen


# ------------------------------------------------------------------ hostile streams

STREAMS = {name: SHOWN[name] for name in ("ndjson", "sse", "parts", "csv")}
each_stream = pytest.mark.parametrize("kind", STREAMS.values(), ids=STREAMS.keys())
#: What opens and closes things in one of the kinds.
RECORD = {"name": 'A "q", ;é\u2028', "note": "x\ty\\", "born": "1931-02-27"}


@each_stream
async def test_a_stream_may_be_cut_at_every_byte(kind: Shown) -> None:
    one = await office(kind.rule, VIEWS + NO_GUARD)
    stored = await created(one, RECORD)
    body = kind.write(stored, spelled if kind.spell is spelled else str.encode)
    wanted = kind.write(RECORD, kind.spell)
    assert await shown(one, kind, "boss", body, range(len(body))) == wanted
    for at in range(1, len(body)):
        assert await shown(one, kind, "boss", body, [at]) == wanted


@each_stream
@examples(20)
@given(st.lists(st.sampled_from([b'"', b"\r", b"\n", b",", b"{", b"}", b"data:", b" ", b"1", b"\xef\xbb\xbf", b"\xff", b"TOKEN"])), CUTS)  # fmt: skip
async def test_whatever_a_stream_is_no_byte_gets_lost(
    kind: Shown, pieces: list[bytes], cuts: list[int]
) -> None:
    """Where it holds no token in a place of the rule, it passes as it came."""
    one = await office(kind.rule, VIEWS + NO_GUARD)
    body = b"".join(pieces) + b"\n"
    assert await shown(one, kind, "boss", body, cuts) == body


@each_stream
async def test_very_many_small_records_and_one_without_an_end_take_no_room(kind: Shown) -> None:
    one = await office(kind.rule, VIEWS + NO_GUARD)
    head = b"ID,Name\r\n" if kind.spell is cell else b""
    line = b"1,x\r\n" if kind.spell is cell else b"data: {}\n\n" if "sse" in kind.rule else b"{}\n"
    line = b"--b\r\n\r\n{}\r\n" if "multipart" in kind.rule else line
    call = await one.send(kind.target, view=one.view("boss"))
    stream = cast(StreamExchange, await call.exchange.stream(200, kind.headers))
    tracemalloc.start()
    try:
        size = len(await stream.restore(head))
        for piece in (line * 5_000, b'data: "' + b"x" * 100_000):
            for _ in range(4 if piece[-1:] == b"\n" else 60):
                size += len(await stream.restore(piece))
        size += len(await stream.rest())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await stream.end()
    assert size == len(head) + 4 * len(line * 5_000) + 60 * 100_007
    assert most < 12 << 20  # the longest record that is held has 2 MiB

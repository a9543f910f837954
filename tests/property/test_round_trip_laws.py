"""Whatever is sent comes back byte for byte: ``restore(redact(d))`` is ``d`` for a caller who sees
values clear, in every kind of body; for one who sees masks, nothing clear is left.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redactor.form import write_form_value
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import FORM, JSON, desk

FIELDS = ("name: {kind: name}", "note: {kind: text, mask: {}}")
OTHER = "  other: {fields: {name: {kind: name}, note: {kind: text, mask: {}}}}"
VIEWS = "views:\n  - {who: [boss], p: clear, other: clear}\n  - {who: [desk], p: mask, other: mask}"


def spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


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
    return b'[{"method":"POST","path":"/json","status":201, "body" :%b}]' % as_json(name, note)


class Kind(NamedTuple):
    """A kind of body: the target that takes it, how it is written, and its type."""

    target: str
    write: Callable[[str, str], bytes]
    headers: RawHeaders = JSON


INNER = "{json: {$.n: name, $.deep: {json: {$.o: note}}}}"
RULES = (
    "{match: POST /json, create: p}",
    ("{match: POST /form, create: p, request: {form: {name: name, note: note}}, "
        "response: {success: 200, form: {name: name, note: note}, id: $.id}}"),
    ("{match: POST /text, create: p, request: {values: {$.payload: " + INNER + "}}, "
        "response: {values: {$.payload: " + INNER + "}, id: $.id}}"),
    ("{match: POST /objects, objects: [{create: p, request: {object: $.one}, response: {object: $.one, id: $.id}}, "
        "{create: other, request: {object: $.two}, response: {object: $.two, id: $.id}}]}"),
    '{match: POST /batch, envelope: {each: "$[*]", answers: "$[*]"}}',
)  # fmt: skip
KINDS = {
    "json": Kind("POST /json", as_json),
    "form": Kind("POST /form", as_form, FORM),
    "text of json": Kind("POST /text", as_text),
    "objects": Kind("POST /objects", as_objects),
    "envelope": Kind("POST /batch", as_batch),
}
#: Nobody's, and long enough for a mask to hide something.
TEXTS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"), exclude_characters="*"),
    min_size=1,
    max_size=30,
).map(lambda text: f"Wq-{text}-qW")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@given(name=TEXTS, note=TEXTS)
async def test_what_is_sent_comes_back_byte_for_byte(kind: Kind, name: str, note: str) -> None:
    one = await desk(*RULES, fields=FIELDS, more=VIEWS, entities=(OTHER,))
    raw = kind.write(name, note)
    call = await one.send(kind.target, raw, kind.headers, one.view("boss"))
    assert b"Wq-" not in call.sent.body
    assert b"-qW" not in call.sent.body
    answer = await call.answer(201 if kind.headers is JSON else 200, call.sent.body, kind.headers)
    assert answer.body == raw
    assert one.idle


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@given(name=TEXTS, note=TEXTS)
async def test_who_sees_masks_sees_nothing_clear(kind: Kind, name: str, note: str) -> None:
    one = await desk(*RULES, fields=FIELDS, more=VIEWS, entities=(OTHER,))
    call = await one.send(kind.target, kind.write(name, note), kind.headers, one.view("desk"))
    answer = await call.answer(201 if kind.headers is JSON else 200, call.sent.body, kind.headers)
    assert answer.body != call.sent.body, "masks, and no tokens"
    assert b"Wq-" not in answer.body
    assert b"-qW" not in answer.body
    assert one.idle

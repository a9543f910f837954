"""Forms of parts: texts are swapped as members of a form are, files pass or are refused."""

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import USUAL, Desk, desk

PHOTO = (
    '{match: "POST /p/{id}/photo", update: p, id: path id, '
    'request: {multipart: {caption: name, "mail_*": email}, files: pass}}'
)
STRICT = "{match: POST /strict, create: p, request: {object: $, multipart: {caption: name}}}"
NAMED = "{match: POST /by-form, update: p, id: form key, request: {multipart: {caption: name}}}"
TYPE: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=b"),)
PICTURE = b"\x89PNG\r\n\x1a\n\x00--\xff"


def part(head: str, content: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; %b\r\n\r\n%b\r\n" % (head.encode(), content)


def text(name: str, content: str) -> bytes:
    return part(f'name="{name}"', content.encode())


FILE = part('name="photo"; filename="a.png"\r\nContent-Type: image/png', PICTURE)
END = b"--b--\r\n"


async def uploads() -> Desk:
    return await desk(*USUAL, PHOTO, STRICT, NAMED)


async def refused(match: str, body: bytes) -> VaultError:
    one = await uploads()
    with pytest.raises(VaultError) as fault:
        await one.send(match, body, TYPE)
    assert one.idle
    assert await one.counts() == (0, 0, 0)
    return fault.value


async def test_texts_are_swapped_and_every_other_byte_stays():
    one = await uploads()
    body = (
        text("vip", "1") + text("caption", "Ann å") + FILE + text("mail_1", "Ann@x.example") + END
    )
    call = await one.send("POST /p/7/photo", body, TYPE)
    assert b"Ann" not in call.sent.body
    shown = await call.seen(200, {"id": 7, "name": _content(call.sent.body, "caption")})
    assert shown["name"] == "Ann å"
    before, _, rest = call.sent.body.partition(_content(call.sent.body, "caption").encode())
    after, _, last = rest.partition(_content(call.sent.body, "mail_1").encode())
    assert before + "Ann å".encode() + after + b"Ann@x.example" + last == body
    assert one.idle
    assert call.sent.headers == TYPE


def _content(body: bytes, name: str) -> str:
    _, _, rest = body.partition(b'name="%b"\r\n\r\n' % name.encode())
    return rest.partition(b"\r\n--b")[0].decode()


async def test_a_value_is_durable_before_the_application_is_sent_its_token():
    one = await uploads()
    await one.send("POST /p/7/photo", text("caption", "Ann") + END, TYPE)
    assert (await one.counts())[0] + (await one.counts())[2] == 1


async def test_the_id_may_be_a_part():
    one = await uploads()
    call = await one.send("POST /by-form", text("key", "9") + text("caption", "Eve") + END, TYPE)
    await call.answer(200, {"id": 9})
    assert await one.shown({"id": 9, "name": _content(call.sent.body, "caption")}, "GET /p/9") == {
        "id": 9,
        "name": "Eve",
    }


@pytest.mark.parametrize(
    ("match", "body", "code"),
    [
        ("POST /strict", text("caption", "Ann") + FILE, Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"; filename="x"', b"Ann"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"\r\nContent-Type: application/json', b'"Ann"'), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", text("Caption", "Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", text("caption[]", "Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", part('name="Caption"; filename="x"', b"Ann"), Code.AMBIGUOUS_JSON),
        ("POST /p/1/photo", text("_charset_", "utf-16") + text("caption", "Ann"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", part('name="caption"', b"\xff"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", text("caption", "Ann").replace(b"form-data", b"attachment"), Code.UNREADABLE_BODY),
        ("POST /p/1/photo", b"", Code.UNREADABLE_BODY),
        ("POST /p/1/photo", b"".join(text(f"n{one}", "") for one in range(1001)), Code.TOO_LARGE),
    ],
)  # fmt: skip
async def test_a_form_that_could_be_read_otherwise_is_refused(match, body, code):
    assert (await refused(match, body + END)).code is code


async def test_another_kind_of_body_is_refused_by_its_name():
    one = await uploads()
    with pytest.raises(VaultError) as fault:
        await one.send("POST /p/1/photo", b"x", ((b"Content-Type", b"image/png"),))
    assert "multipart/form-data" in fault.value.message


async def test_a_value_that_does_not_fit_is_told_by_its_part():
    one = await desk(
        "{match: POST /b, create: p, request: {multipart: {born_on: born}}}", *USUAL[2:]
    )
    with pytest.raises(VaultError) as fault:
        await one.send("POST /b", text("born_on", "no date") + END, TYPE)
    assert [detail.source for detail in fault.value.details] == ["born_on"]

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import RawHeaders, is_foreign
from tests.support.exchanges import USUAL, desk

UPLOAD = (
    b'--x\r\nContent-Disposition: form-data; name="photo"; '
    b'filename="a.png"\r\n\r\n\x89PNG\r\n--x--\r\n'
)
MULTIPART: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=x"),)
PASSING = '{match: "PATCH /p/{id}", update: p, request: {other_kinds: pass}}'


def typed(kind: bytes) -> RawHeaders:
    return ((b"content-type", kind),)


@pytest.mark.parametrize(
    "kind", [b"multipart/form-data; boundary=x", b"image/png", b"application/octet-stream"]
)
def test_an_upload_is_foreign(kind):
    assert is_foreign(typed(kind), UPLOAD)


@pytest.mark.parametrize(
    "kind",
    [
        b"", b"png", b"/png", b"text/plain", b"text/csv", b"application/xml", b"application/soap+xml", b"application/x-json",
        b"application/x-www-form-urlencoded2", b"application/graphql", b"Application/X-NDJSON",
    ],
)  # fmt: skip
def test_a_type_that_some_application_reads_is_not(kind):
    assert not is_foreign(typed(kind), UPLOAD)


@pytest.mark.parametrize(
    "body",
    [b'{"name": 1}', b" \n[1]", b"<a/>", b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b"\0{\0}", b'"a"'],
)
def test_a_body_that_looks_like_a_text_of_data_is_not(body):
    assert not is_foreign(MULTIPART, body)


def test_a_missing_type_tells_nothing():
    assert not is_foreign((), UPLOAD)


async def test_an_upload_passes_where_the_rule_says_so():
    one = await desk(*USUAL[:1], PASSING)
    created = await one.create({"name": "Ann"}, 1)
    call = await one.send("PATCH /p/1", UPLOAD, headers=MULTIPART)
    assert call.sent.body == UPLOAD
    # the record is as it was, and restored
    assert await call.seen(200, created) == {"name": "Ann", "id": 1}


@pytest.mark.parametrize(
    "operation", [USUAL[3], '{match: "PATCH /p/{id}", update: p, request: {other_kinds: refuse}}']
)
async def test_an_upload_is_refused_where_it_does_not(operation):
    one = await desk(*USUAL[:1], operation)
    with pytest.raises(VaultError) as refusal:
        await one.send("PATCH /p/1", UPLOAD, headers=MULTIPART)
    assert refusal.value.code is Code.UNREADABLE_BODY


@pytest.mark.parametrize(
    "kind", [b"text/plain", b"application/json; charset=utf-16", b"multipart/form-data; boundary=x"]
)
async def test_json_under_another_name_is_refused_all_the_same(kind):
    one = await desk(*USUAL[:1], PASSING)
    with pytest.raises(VaultError) as refusal:
        await one.send("PATCH /p/1", b'{"name": "Ann"}', headers=typed(kind))
    assert refusal.value.code is Code.UNREADABLE_BODY

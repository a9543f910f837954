import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import (
    Media,
    RawHeaders,
    Spellings,
    canonical_uuid,
    classify,
    header,
    is_foreign,
    modified_later,
    numeric_id,
)
from tests.support.exchanges import USUAL, desk
from tests.support.table import table


def test_a_header_is_found_by_its_lower_case_name_and_the_first_wins():
    headers = ((b"X-A", b"1"), (b"CONTENT-type", b"text/html"), (b"content-type", b"text/plain"))
    assert header(headers, b"content-type") == b"text/html"
    assert header(headers, b"x-b") is None


def test_what_a_name_means_is_asked_once_for_each_spelling():
    asked: list[bytes] = []

    def meaning(name: bytes) -> int:
        asked.append(name)
        return len(name)

    names = Spellings(meaning)
    assert [names[b"A-b"], names[b"a-B"], names[b"A-b"], names[b""]] == [3, 3, 3, 0]
    assert asked == [b"a-b", b"a-b", b""]


def test_spellings_do_not_grow_beyond_their_bounds():
    names = Spellings(len)
    long = b"x" * (Spellings.LONGEST + 1)
    assert names[long] == len(long)
    assert long not in names
    for number in range(Spellings.MOST + 10):
        assert names[b"%07d" % number] == 7
    assert len(names) == 10


# ---- foreign


UPLOAD = (
    b'--x\r\nContent-Disposition: form-data; name="photo"; '
    b'filename="a.png"\r\n\r\n\x89PNG\r\n--x--\r\n'
)
MULTIPART: RawHeaders = ((b"Content-Type", b"multipart/form-data; boundary=x"),)
PASSING = '{match: "PATCH /p/{id}", update: p, request: {other_kinds: pass}}'


def typed(kind: bytes) -> RawHeaders:
    return ((b"content-type", kind),)


@table("kind", [b"multipart/form-data; boundary=x", b"image/png", b"application/octet-stream"])
def test_an_upload_is_foreign(kind):
    assert is_foreign(typed(kind), UPLOAD)


@table(
    "kind",
    [
        b"", b"png", b"/png", b"text/plain", b"text/csv", b"application/xml", b"application/soap+xml", b"application/x-json",
        b"application/x-www-form-urlencoded2", b"application/graphql", b"Application/X-NDJSON",
        b'Multipart/Related; boundary=x; Type="application/xop+XML"', b"multipart/related; type=text/xml",
    ],
)  # fmt: skip
def test_a_type_that_some_application_reads_is_not(kind):
    assert not is_foreign(typed(kind), UPLOAD)


@table(
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


@table(
    "operation", [USUAL[3], '{match: "PATCH /p/{id}", update: p, request: {other_kinds: refuse}}']
)
async def test_an_upload_is_refused_where_it_does_not(operation):
    one = await desk(*USUAL[:1], operation)
    with pytest.raises(VaultError) as refusal:
        await one.send("PATCH /p/1", UPLOAD, headers=MULTIPART)
    assert refusal.value.code is Code.UNREADABLE_BODY


@table(
    "kind", [b"text/plain", b"application/json; charset=utf-16", b"multipart/form-data; boundary=x"]
)
async def test_json_under_another_name_is_refused_all_the_same(kind):
    one = await desk(*USUAL[:1], PASSING)
    with pytest.raises(VaultError) as refusal:
        await one.send("PATCH /p/1", b'{"name": "Ann"}', headers=typed(kind))
    assert refusal.value.code is Code.UNREADABLE_BODY


# ---- idents


UUID = "0192F3A4-7B6C-7D8E-9FA0-B1C2D3E4F506"


@table("text", [UUID, UUID.replace("-", ""), "507F1F77BCF86CD799439011", UUID.title()])
def test_letter_case_of_long_hexadecimal_ids_means_nothing(text):
    assert canonical_uuid(text) == text.lower()


@table(
    "text", ["", "17", "ABCDEF", "Ann-Smith", "AAAAAAAAAAAAAAAAAAAAAAAG", UUID + " x", UUID.lower()]
)
def test_other_ids_stay_as_they_are(text):
    assert canonical_uuid(text) == text


@table(
    ("text", "plainly"),
    [
        ("01", "1"), ("+1", "1"), (" 1", "1"), ("1_0", "10"), ("\uff11", "1"), ("00", "0"),
        ("-07", "-7"),
    ],
)  # fmt: skip
def test_a_number_in_another_spelling(text, plainly):
    assert numeric_id(text) == plainly


@table("text", ["1", "0", "-7", "", "a", "1.0", "0x1", "0" * 41, "9" * 5000, UUID])
def test_what_is_written_so_or_is_no_number(text):
    assert numeric_id(text) is None


# ---- media


def of(*types: bytes, body: bytes = b"x") -> Media:
    return classify((*((b"Content-Type", value) for value in types), (b"X-Other", b"1")), body)


@table(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b"application/json ; charset=us-ascii ; odata=verbose",
        b"application/json;",
        b"application/json; ;charset=utf8;",
        b'application/json; x="a;b=\\"c\\""; charset=utf-8',
        b"application/vnd.api+json",
        b"application/scim+json",
        b"application/merge-patch+json;charset=UTF-8",
        b" application/json ",
    ],
)
def test_json_types(value):
    assert of(value) is Media.JSON


@table(
    "value",
    [b"application/x-www-form-urlencoded", b"application/x-www-form-urlencoded; charset=UTF-8"],
)
def test_form_types(value):
    assert of(value) is Media.FORM


@table(
    "value",
    [
        b"text/html; charset=iso-8859-1", b"multipart/form-data; boundary=x", b"text/plain; oops",
        b"application/jsonx", b"json", b"", b"application/json-seq", b"application/x-ndjson",
        b"application json", b"text/html; charset",
    ],
)  # fmt: skip
def test_other_types(value):
    assert of(value) is Media.OTHER


def test_a_body_without_a_type_is_other_and_no_body_is_none_whatever_its_type():
    assert of() is Media.OTHER
    assert of(body=b"") is Media.NONE
    assert of(b"application/json", body=b"") is Media.NONE


@table(
    "types",
    [
        (b"application/json", b"application/json"),
        (b"text/html", b"application/json"),
        (b"application/json, text/html",),
        (b"text/html, application/json",),
        (b"application/json; charset=utf-16",),
        (b"application/json; charset=utf-8; charset=utf-16",),
        (b"application/json; charset=iso-8859-1",),
        (b"application/json; charset",),
        (b"application/json; charset = utf-8",),
        (b'application/json; charset="utf-8',),
        (b"application/json charset=utf-8",),
        (b"application/json/x",),
        (b"application/x-www-form-urlencoded; charset=windows-1252",),
        (b"application/x-www-form-urlencoded; charset=",),
    ],
)
def test_types_that_can_be_read_in_two_ways_are_unreadable(types):
    with pytest.raises(VaultError) as caught:
        of(*types)
    assert caught.value.code is Code.UNREADABLE_BODY


def test_what_was_changed_without_the_application_was_modified_later():
    head = ((b"Last-Modified", b"Sun, 06 Nov 1994 08:49:37 GMT"), (b"A", b"b"))
    at = 784_111_777_000
    assert modified_later(head, at + 9_500, at + 10_000) == (
        (b"Last-Modified", b"Sun, 06 Nov 1994 08:49:47 GMT"),
        (b"A", b"b"),
    )
    assert modified_later(head, at + 9_500, at + 9_999) is head  # that second has not begun
    assert modified_later(head, at - 1_000, at + 10_000) is head  # the application changed it later
    assert modified_later(head[1:], at, at + 10_000) == head[1:]

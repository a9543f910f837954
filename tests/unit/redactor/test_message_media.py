import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.message import Media, classify


def of(*types: bytes, body: bytes = b"x") -> Media:
    return classify((*((b"Content-Type", value) for value in types), (b"X-Other", b"1")), body)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "value",
    [b"application/x-www-form-urlencoded", b"application/x-www-form-urlencoded; charset=UTF-8"],
)
def test_form_types(value):
    assert of(value) is Media.FORM


@pytest.mark.parametrize(
    "value",
    [
        b"text/html; charset=iso-8859-1",
        b"multipart/form-data; boundary=x",
        b"text/plain; oops",
        b"application/jsonx",
        b"json",
        b"",
        b"application/json-seq",
        b"application/x-ndjson",
        b"application json",
        b"text/html; charset",
    ],
)
def test_other_types(value):
    assert of(value) is Media.OTHER


def test_a_body_without_a_type_is_other_and_no_body_is_none_whatever_its_type():
    assert of() is Media.OTHER
    assert of(body=b"") is Media.NONE
    assert of(b"application/json", body=b"") is Media.NONE


@pytest.mark.parametrize(
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

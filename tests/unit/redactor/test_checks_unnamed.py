import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.checks import Unnamed
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import FORM, JSON, PLAIN, rule_text


@pytest.fixture(scope="module")
def unnamed() -> Unnamed:
    return Unnamed(load_text(rule_text('{match: "DELETE /p/{id}", delete: p}')).operations[0])


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b""),
        (PLAIN, b""),
        (JSON, b'{"reason": "x", "force": true}'),
        (JSON, b'[{"id": 1}]'),
        (JSON, b'{"name": null, "email": "", "tags": [], "born": {}}'),
        (FORM, b"reason=x&_method=delete&names=y"),
    ],
)
def test_a_body_without_fields_of_the_entity_passes(unnamed, headers, body):
    unnamed.refuse(headers, body)


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        (JSON, b'{"name": "Ann"}', Code.UNREADABLE_BODY),
        (JSON, b'{"a": [{"b": {"n\\u0061me": "Ann"}}]}', Code.UNREADABLE_BODY),
        (JSON, b'{"x": {"tags": ["Ann"]}}', Code.UNREADABLE_BODY),
        (JSON, b'{"Name": "Ann"}', Code.AMBIGUOUS_JSON),
        (JSON, b"{'name': 'Ann'}", Code.MALFORMED_JSON),
        (FORM, b"name=Ann", Code.UNREADABLE_BODY),
        (FORM, b"p%5BNAME%5D[]=Ann", Code.UNREADABLE_BODY),
        (FORM, b"p.name=Ann", Code.UNREADABLE_BODY),
        (FORM, b' {"name": "Ann"}', Code.UNREADABLE_BODY),
        (PLAIN, b'{"name": "Ann"}', Code.UNREADABLE_BODY),
        ((), b"Ann", Code.UNREADABLE_BODY),
        ((*JSON, *JSON), b"{}", Code.UNREADABLE_BODY),
    ],
)
def test_a_body_that_may_carry_one_is_refused(
    unnamed: Unnamed, headers: RawHeaders, body: bytes, code: Code
):
    with pytest.raises(VaultError) as caught:
        unnamed.refuse(headers, body)
    assert caught.value.code is code
    assert "Ann" not in caught.value.message


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("{to: email}", "to"),
        ("{to: {field: email, send: {param: mail}}}", "to"),
        ("{to: {field: email, send: {param: mail}}}", "mail"),
        ("{q: {refuse: always}}", "q"),
        ("{'f[to]': {field: email}}", "f[to]"),
    ],
)
def test_a_body_that_may_carry_a_parameter_of_the_query_is_refused(query: str, name: str):
    rule = f"{{match: GET /p, read: p, query: {query}, response: {{id: $.id}}}}"
    search = Unnamed(load_text(rule_text(rule)).operations[0])
    for headers, body in ((FORM, f"{name}=Ann"), (JSON, f'{{"{name}": "Ann"}}')):
        with pytest.raises(VaultError):
            search.refuse(headers, body.encode())
    search.refuse(FORM, b"page=2&other=Ann")

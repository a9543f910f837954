from typing import Any

import pytest

from proxy.errors import VaultError
from proxy.model.schema import PathStep
from proxy.redactor.load import load_text
from proxy.redactor.rules import RuleSet
from proxy.redactor.views import CallerRule, CallerSource, Level
from proxy.tokenization.mask import Mask, Visible
from tests.support.table import table

JWT = '{from: jwt, jwks: "https://id.example/keys"}'
FIELDS = (
    "{name: {kind: name}, email: {kind: email, mask: {last: 2}}, code: {kind: text, token: plain}}"
)


def rules(caller: str = JWT, views: str = "[{who: [a], p: mask}]", more: str = "") -> RuleSet:
    said = f", caller: {caller}" if caller else ""
    return load_text(
        f'version: 1\nendpoint: {{name: crm, upstream: "http://a:80"{said}}}\n'
        f"entities: {{p: {{fields: {FIELDS}}}, q: {{fields: {{name: {{kind: name}}}}}}}}\n"
        + (f"views: {views}\n" if views else "")
        + "operations: [{match: POST /p, create: p}, {match: GET /q, read: q}]\n"
        + more
    )


def caller(text: str) -> CallerRule | None:
    return rules(text).endpoints[0].caller


def faults(*given: Any, **named: Any) -> str:
    with pytest.raises(VaultError) as caught:
        rules(*given, **named)
    return "\n".join(f"{one.source} {one.text}" for one in caught.value.details)


def test_what_is_not_said_of_callers_has_its_default():
    assert caller(JWT) == CallerRule(CallerSource.JWT, "https://id.example/keys")
    assert caller("{from: certificate}") == CallerRule(CallerSource.CERTIFICATE)
    assert rules("", "").endpoints[0].views == ()


def test_everything_may_be_said_of_callers(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "proxy:pa:ss")
    made = caller(
        '{from: introspection, url: "http://localhost:9/ask", credentials: "${env:SECRET}", '
        'roles: "$.apps[*].roles", issuer: https://id.example, audience: [crm, web]}'
    )
    assert made == CallerRule(
        CallerSource.INTROSPECTION,
        "http://localhost:9/ask",
        ("apps", PathStep.EACH, "roles"),
        issuer="https://id.example",
        audience=frozenset({"crm", "web"}),
        credentials="proxy:pa:ss",
    )
    assert "pa:ss" not in repr(made)
    certified = caller("{from: certificate, roles: san URI}")
    assert certified is not None
    assert certified.part == ("subjectAltName", "URI")


@table(
    "text, words",
    [
        ("{from: header}", "'header' is not known here"),
        ("{from: jwt}", "'from: jwt' needs 'jwks'"),
        ("{from: introspection}", "'from: introspection' needs 'url'"),
        ('{from: jwt, jwks: "http://id.example/keys"}', "http:// is for this machine alone"),
        ('{from: jwt, jwks: "id.example/keys"}', "write the address at https://"),
        ('{from: jwt, jwks: "https://a:b@id.example/keys"}', "write the address at https://"),
        (
            '{from: jwt, jwks: "https://id.example", url: "https://id.example"}',
            "'url' means nothing with 'from: jwt'",
        ),
        (
            '{from: introspection, url: "https://i.example", credentials: "a:b"}',
            "a secret stands in no rule file",
        ),
        ('{from: jwt, jwks: "https://id.example", roles: roles}', "write $.roles"),
        ('{from: jwt, jwks: "https://id.example", roles: "$..roles"}', "without '..'"),
        ('{from: jwt, jwks: "https://id.example", roles: "$"}', "name the claim"),
        ('{from: jwt, jwks: "https://id.example", roles: subject OU}', "roles stand in a claim"),
        ("{from: certificate, roles: $.roles}", "roles stand in a part of the certificate"),
        ("{from: certificate, issuer: a}", "'issuer' means nothing with 'from: certificate'"),
        ("{from: none, roles: $.roles}", "'roles' means nothing with 'from: none'"),
        ("{from: none}", "nothing proves a role"),
        ("", "nothing proves a role"),
        ("{jwks: a}", "caller lacks 'from'"),
    ],
)
def test_what_is_wrong_with_callers_is_told(text, words):
    assert words in faults(text)


def test_a_caller_without_views_is_a_fault():
    assert "roles mean nothing without views" in faults(JWT, "")


def test_fields_are_as_their_entity_but_where_excepted():
    view, other = (
        rules(views="[{who: [a, b], p: mask, except: {name: clear}}, {who: c, q: clear, p: clear}]")
        .endpoints[0]
        .views
    )
    assert (view.name, set(view.who)) == ("a|b", {"a", "b"})
    assert view.levels == {"p": {"name": Level.CLEAR, "email": Level.MASK, "code": Level.MASK}}
    assert set(other.levels["q"].values()) == {Level.CLEAR}
    one = rules(views="[{who: a, p: clear}, {who: b, p: clear, q: clear, except: {name: mask}}]")
    views = (view, other, *one.endpoints[0].views)
    assert [each.whole for each in views] == [False, True, False, False]
    assert one.endpoints[0].viewed


@table(
    ("views", "words"),
    [
        ("[{who: [a], x: mask}]", "there is no entity 'x'"),
        ("[{who: [a], p: masked}]", "'masked' is not known here; did you mean 'mask'"),
        (
            "[{who: [a], p: mask, except: {nam: clear}}]",
            "no entity of this view has a field 'nam'; did you mean 'name'",
        ),
        (
            "[{who: [a], q: mask, except: {email: clear}}]",
            "no entity of this view has a field 'email'",
        ),
        ("[{who: [a], p: token}]", "the token of code is its value itself"),
        ("[{who: [a], p: clear, except: {code: token}}]", "the token of code is its value itself"),
        ("[{who: [a]}]", "a view says what its callers see"),
        ("[{p: mask}]", "view lacks 'who'"),
        ("[{who: [a, b], p: mask}, {who: [b], p: clear}]", "a view before this one"),
        ("[]", "this list is empty"),
    ],
)
def test_what_is_wrong_with_views_is_told(views, words):
    assert words in faults(views=views)


def test_roles_in_tests_need_views():
    case = "tests: [{name: x, as: a, call: {match: POST /p, json: {name: Ann}}}]\n"
    assert rules(more=case).tests[0].content["as"] == ["a"]
    assert "roles mean nothing; leave it out" in faults("", "", case)


def test_masks_are_those_of_the_kind_or_of_the_field():
    fields = rules().entities[0].fields
    assert fields["name"].mask == Mask(Visible(first=1))
    assert fields["email"].mask == Mask(Visible(last=2))


def test_fields_kept_in_the_record_schema_go_by_its_names():
    made = load_text(
        f'version: 1\nendpoint: {{name: crm, upstream: "http://a:80", caller: {JWT}}}\n'
        "entities: {p: {schema: records, fields: {name: {kind: name, keep_as: key1}}}}\n"
        "views: [{who: [a], p: mask}]\noperations: [{match: POST /p, create: p}]\n"
    )
    assert made.endpoints[0].views[0].levels == {"p": {"key1": Level.MASK}}
    assert made.entities[0].fields["key1"].mask == Mask(Visible(first=1))


@table(
    ("mask", "words"),
    [
        ("{first: -1}", "whole number from 0 to 1000"),
        ("{char: ab}", "does not fit here"),
        ("{char: x}", "char of a mask is a sign"),
        ("{domain: false}", "this must be true"),
        ("{middle: 1}", "unknown key 'middle' in mask"),
    ],
)
def test_what_is_wrong_with_masks_is_told(mask, words):
    with pytest.raises(VaultError) as caught:
        load_text(
            'version: 1\nendpoint: {name: crm, upstream: "http://a:80"}\n'
            f"entities: {{p: {{fields: {{name: {{kind: name, mask: {mask}}}}}}}}}\n"
        )
    assert words in "\n".join(one.text for one in caught.value.details)

from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.policy import (
    AccessPolicy,
    Act,
    FieldVisibility,
    MaskRule,
    Visibility,
    write_policy,
)
from proxy.model.policy_reader import read_policy
from tests.support.table import table

EXAMPLE: dict[str, Any] = {
    "name": "support",
    "schema": "contact",
    "actions": ["read", "write"],
    "fields": {
        "email": {"valueType": "redacted", "format": "[a-z]{8}@example.org"},
        "phone": {"valueType": "masked", "mask": {"last": 2}},
        "passport": "hidden",
        "city": "clear",
    },
    "rows": {"filter": {"region": "north"}},
    "external_acl": "https://app.example.com/allowed",
    "firewall": {"mode": "mask"},
    "cors": {"origins": ["https://app.example.com"]},
}


def faults(raw: Any, name: str = "support") -> list[str]:
    with pytest.raises(VaultError) as refused:
        read_policy(name, raw)
    assert refused.value.code is Code.INVALID_POLICY
    return [detail.source for detail in refused.value.details]


def test_the_example_of_the_interface_is_read():
    assert read_policy("support", EXAMPLE) == AccessPolicy(
        "support",
        "contact",
        (Act.READ, Act.WRITE),
        {
            "email": FieldVisibility(Visibility.REDACTED, "[a-z]{8}@example.org"),
            "phone": FieldVisibility(Visibility.MASKED, mask=MaskRule(0, 2)),
            "passport": FieldVisibility(Visibility.HIDDEN),
            "city": FieldVisibility(Visibility.CLEAR),
        },
        {"region": "north"},
        "https://app.example.com/allowed",
        "mask",
        ("https://app.example.com",),
    )


def test_what_is_written_is_read_back_as_the_same():
    policy = read_policy("support", EXAMPLE)
    assert read_policy("support", write_policy(policy)) == policy
    least = read_policy("least", {"schema": "contact", "actions": ["delete"]})
    assert write_policy(least) == {
        "name": "least",
        "schema": "contact",
        "actions": ["delete"],
        "fields": {},
    }


def test_a_mask_without_more_leaves_nothing_readable():
    policy = read_policy(
        "p",
        {
            "schema": "s",
            "actions": ["read"],
            "fields": {"a": "masked", "b": {"valueType": "masked"}},
        },
    )
    assert policy.fields == {
        "a": FieldVisibility(Visibility.MASKED),
        "b": FieldVisibility(Visibility.MASKED),
    }


@table(
    "change, places",
    [
        ({"name": "other"}, ["/name"]),
        ({"schema": None}, ["/schema"]),
        ({"actions": []}, ["/actions"]),
        ({"actions": "read"}, ["/actions"]),
        ({"actions": ["read", "read", "admin", 5]}, ["/actions/1", "/actions/2", "/actions/3"]),
        ({"fields": []}, ["/fields"]),
        ({"fields": {f"f{number}": "hidden" for number in range(201)}}, ["/fields"]),
        ({"fields": {"a": None, "b/c": 5}}, ["/fields/a", "/fields/b~1c"]),
        ({"fields": {"a": "invisible", "b": {}}}, ["/fields/a/valueType", "/fields/b/valueType"]),
        ({"fields": {"a": "redacted"}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": 5}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": "[a-z]"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": "constant"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": "[a]{9}"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": "[a-z]{8}\n"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "redacted", "format": "[\ud7fe-\ue001]{2}"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "clear", "format": "[a-z]{8}"}}}, ["/fields/a/format"]),
        ({"fields": {"a": {"valueType": "hidden", "mask": {}}}}, ["/fields/a/mask"]),
        ({"fields": {"a": {"valueType": "masked", "mask": 2}}}, ["/fields/a/mask"]),
        (
            {"fields": {"a": {"valueType": "masked", "mask": {"first": -1, "last": True, "char": "**", "year": 1}}}},
            ["/fields/a/mask/year", "/fields/a/mask/char", "/fields/a/mask/first", "/fields/a/mask/last"],
        ),
        ({"rows": 5}, ["/rows"]),
        ({"rows": {}}, ["/rows/filter"]),
        ({"rows": {"filter": {}}}, ["/rows/filter"]),
        ({"rows": {"filter": {"a": 1}, "limit": 5}}, ["/rows/limit"]),
        ({"external_acl": 5}, ["/external_acl"]),
        ({"external_acl": "http://app.example.com/allowed"}, ["/external_acl"]),
        ({"external_acl": "https://me:secret@app.example.com/"}, ["/external_acl"]),
        ({"external_acl": "https://app.example.com/#here"}, ["/external_acl"]),
        ({"external_acl": "ftp://app.example.com/"}, ["/external_acl"]),
        ({"external_acl": "https://[::1"}, ["/external_acl"]),
        ({"firewall": {"mode": "off"}}, ["/firewall/mode"]),
        ({"firewall": "mask"}, ["/firewall"]),
        ({"cors": {}}, ["/cors/origins"]),
        ({"cors": ["https://a"]}, ["/cors"]),
        (
            {"cors": {"origins": ["*", "https://a/", "https://a:443", "HTTPS://a", "null", 5, "https://A.example"]}},
            [f"/cors/origins/{number}" for number in range(7)],
        ),
        ({"acl": "https://a"}, ["/acl"]),
        ({"purpose": "fraud"}, ["/purpose"]),
        ({"purpose": []}, ["/purpose"]),
        ({"purpose": ["fraud", "", " x", "a\nb", 5, "x" * 201]}, [f"/purpose/{number}" for number in range(1, 6)]),
    ],
)  # fmt: skip
def test_every_fault_is_told_where_it_is(change, places):
    assert faults({**EXAMPLE, **change}) == places


def test_all_faults_are_told_at_once():
    assert faults({"actions": ["fly"], "fields": {"a": 1}, "more": 1}, "no-name") == [
        "name",
        "/more",
        "/schema",
        "/actions/0",
        "/fields/a",
    ]
    assert faults([]) == [""]


@table(
    ("member", "hint"),
    [
        ("feilds", "did you mean fields?"),
        ("zzz", "known are: name, schema, actions"),
        ("x" * 5000, "known are: name"),
    ],
)
def test_a_member_that_is_misspelt_is_answered_with_the_nearest_one(member, hint):
    with pytest.raises(VaultError) as refused:
        read_policy("p", {"schema": "s", "actions": ["read"], member: {}})
    (detail,) = refused.value.details
    assert hint in detail.text


@table(
    "address",
    ["http://127.0.0.1:9/allowed", "http://localhost/", "http://[::1]:80/x", "https://a.b/c?d"],
)
def test_a_filter_endpoint_on_this_machine_needs_no_tls(address):
    assert read_policy("support", {**EXAMPLE, "external_acl": address}).external_acl == address


@table(
    "origin",
    ["http://localhost:3000", "https://app.example.com", "http://[::1]:8080", "http://10.0.0.1"],
)
def test_origins_are_taken_as_browsers_send_them(origin):
    assert read_policy("support", {**EXAMPLE, "cors": {"origins": [origin, origin]}}).origins == (
        origin,
    )


@table(("written", "read"), [("any", ()), (["fraud", "fraud", "Ärende 5"], ("fraud", "Ärende 5"))])
def test_a_purpose_is_anything_or_one_of_a_list(written, read):
    policy = read_policy("support", {**EXAMPLE, "purpose": written})
    assert policy.purposes == read
    assert read_policy("support", write_policy(policy)) == policy
    assert read_policy("support", EXAMPLE).purposes is None


# ---------------------------------------------------------------------- against a schema

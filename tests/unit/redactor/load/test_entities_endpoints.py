from proxy.redactor.load import load_text
from proxy.redactor.rules import BodyLimits, Endpoint, OnError, Unmatched


def endpoint(keys: str = "", rest: str = "") -> Endpoint:
    return load_text(
        f'version: 1\nendpoint: {{name: crm, upstream: "http://a:80"{keys}}}\n{rest}'
    ).endpoints[0]


def test_what_is_not_said_has_its_default():
    assert endpoint() == Endpoint(
        "crm", "http://a:80", frozenset(), "", Unmatched.REPORT, BodyLimits(), OnError()
    )


def test_everything_may_be_said():
    made = endpoint(
        ", host: [A.example, b.example.], prefix: /crm/, unmatched: deny, limits: {body: 1KiB, "
        "inflated: 2KiB, json_depth: 3, form_fields: 4}",
        "on_error: {vault_down: {write: 500, read: 502}, unreadable_body: 400, ambiguous_json: "
        "422, too_large: 400, field_absent: refuse, upstream_not_2xx: pass, unreadable_answer: "
        "503}\n",
    )
    assert made.hosts == {"a.example", "b.example"}
    assert (made.prefix, made.unmatched) == ("/crm", Unmatched.DENY)
    assert made.limits == BodyLimits(1024, 2048, 3, 4)
    assert made.on_error == OnError(500, "502", 400, 422, 400, "refuse", "leave", "pass", "503")


def test_parts_leave_the_other_defaults_alone():
    made = endpoint(", limits: {body: 1KiB}", "on_error: {vault_down: {read: tokens}}\n")
    assert made.limits == BodyLimits(body=1024)
    assert made.on_error == OnError()


def test_one_host_may_stand_alone():
    assert endpoint(", host: a.example").hosts == {"a.example"}


def test_addresses_come_from_outside_by_reference(tmp_path):
    (tmp_path / "url").write_text("https://crm.internal:8443\n")
    text = 'version: 1\nendpoint: {name: crm, upstream: "${file:url}", host: "${env:HOST}"}\n'
    made = load_text(text, str(tmp_path / "rules.yaml"), {"HOST": "crm.example"}).endpoints[0]
    assert made.upstream == "https://crm.internal:8443"
    assert made.hosts == {"crm.example"}

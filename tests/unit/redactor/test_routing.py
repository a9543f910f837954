import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.routing import Router
from proxy.redactor.rules import Endpoint, Operation, PassRule
from tests.support.rules import matched, rules_of
from tests.support.table import table

OPERATIONS = (
    "{match: GET /contacts, read: note}",
    "{match: POST /contacts, create: note}",
    '{match: "GET /contacts/{id}", read: note}',
    '{match: "PUT|PATCH /contacts/{id}", update: note}',
    '{match: "DELETE /contacts/{id}", delete: note}',
    "{match: GET /contacts/new, read: note}",
    '{match: "POST /contacts/{id}/change/", update: note}',
    '{match: "GET /files/{path*}", read: note}',
    '{match: "GET /export/{name}.csv", read: note}',
)


@pytest.fixture(scope="module")
def router() -> Router:
    rules = rules_of(*OPERATIONS)
    return Router(rules.operations, rules.endpoints)


def hit(
    router: Router, method: str, target: str, override: str | None = None
) -> tuple[str, dict[str, str]] | None:
    found = router.match(method, "crm.example", target.encode(), override)
    return None if found is None else (matched(found).operation.label, dict(matched(found).params))


@table(
    ("method", "target", "label", "params"),
    [
        ("GET", "/contacts", "GET /contacts", {}),
        ("GET", "/contacts?page=2", "GET /contacts", {}),
        ("HEAD", "/contacts", "GET /contacts", {}),
        ("post", "/contacts", "POST /contacts", {}),
        ("GET", "/contacts/17", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/contacts/new", "GET /contacts/new", {}),
        ("PATCH", "/contacts/new", "PUT|PATCH /contacts/{id}", {"id": "new"}),
        ("GET", "/contacts/a%20b", "GET /contacts/{id}", {"id": "a b"}),
        ("GET", "/contacts/%C3%A5", "GET /contacts/{id}", {"id": "å"}),
        ("GET", "/contacts/x%ff", "GET /contacts/{id}", {"id": "x\udcff"}),
        ("GET", "/contacts/a%2Fb", "GET /contacts/{id}", {"id": "a/b"}),
        ("GET", "/Contacts/AbC", "GET /contacts/{id}", {"id": "AbC"}),
        ("POST", "/contacts/17/change", "POST /contacts/{id}/change/", {"id": "17"}),
        ("GET", "/files/a/b/c.txt", "GET /files/{path*}", {"path": "a/b/c.txt"}),
        ("GET", "/export/all.csv", "GET /export/{name}.csv", {"name": "all"}),
        ("GET", "http://crm.example/contacts/17", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/x/../contacts/17", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/x/..;a/contacts//17/", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/%2563ontacts", "GET /contacts", {}),
        # What follows a dot at the end is no part of the name to Rails, dots and spaces there are
        # none to IIS.
        ("POST", "/contacts.json", "POST /contacts", {}),
        ("POST", "/contacts.", "POST /contacts", {}),
        ("POST", "/contacts%20", "POST /contacts", {}),
        ("POST", "/Contacts..%20.", "POST /contacts", {}),
        ("POST", "/%20contacts.xml?a=b", "POST /contacts", {}),
        ("POST", "/contacts%2ejson", "POST /contacts", {}),
        ("POST", "/%u0063ontacts", "POST /contacts", {}),
        ("POST", "/contacts/17./change.html", "POST /contacts/{id}/change/", {"id": "17"}),
        ("PUT", "/contacts./17", "PUT|PATCH /contacts/{id}", {"id": "17"}),
        ("PUT", "/Contacts./17", "PUT|PATCH /contacts/{id}", {"id": "17"}),
        ("GET", "/contacts/17.json", "GET /contacts/{id}", {"id": "17.json"}),
        ("GET", "/export/all.csv.gz", "GET /export/{name}.csv", {"name": "all"}),
        ("GET", "/other.json", None, {}),
        # PHP serves an application below its program, and page libraries ask for a page's data.
        ("POST", "/index.php/contacts", "POST /contacts", {}),
        ("GET", "/index.php/contacts/17", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/contacts/__data.json", "GET /contacts", {}),
        ("GET", "/contacts/17/__data.json?x=1", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/_next/data/b1/contacts.json?email=a", "GET /contacts", {}),
        ("GET", "/_next/data/b1/contacts/17.json", "GET /contacts/{id}", {"id": "17"}),
        ("GET", "/_next/static/b1/contacts.json", None, {}),
    ],
)
def test_a_request_hits_its_most_specific_rule(router, method, target, label, params):
    assert hit(router, method, target) == (None if label is None else (label, params))


def test_an_ending_that_leads_to_another_rule_than_its_placeholder_is_refused(router):
    with pytest.raises(VaultError) as caught:
        hit(router, "GET", "/contacts/new.json")
    assert caught.value.code is Code.BAD_REQUEST


def test_an_ending_that_a_rule_names_is_beyond_doubt():
    rules = rules_of(
        "{match: POST /contacts, create: note}",
        "{match: POST /contacts.json, create: note}",
        '{match: "GET /contacts/{id}", read: note}',
        '{match: "GET /contacts/{id}.{format}", read: note}',
    )
    router = Router(rules.operations, rules.endpoints)
    assert hit(router, "POST", "/contacts.json") == ("POST /contacts.json", {})
    assert hit(router, "POST", "/contacts.xml") == ("POST /contacts", {})
    assert hit(router, "GET", "/contacts/1.json") == (
        "GET /contacts/{id}.{format}",
        {"id": "1", "format": "json"},
    )


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/contact"),
        ("PUT", "/contacts"),
        ("OPTIONS", "*"),
        ("GET", "/contacts/1/2"),
        ("GET", "/files"),
        ("GET", "/export/.csv"),
        ("BREW", "/contacts"),
    ],
)
def test_what_no_rule_names_is_a_miss(router, method, target):
    assert hit(router, method, target) is None


@pytest.mark.parametrize("target", ["/contacts/%6eew", "/contacts/new;v=1", "/contacts/n%2565w"])
def test_two_readings_with_two_rules_are_refused(router, target):
    with pytest.raises(VaultError) as caught:
        hit(router, "GET", target)
    assert caught.value.code is Code.BAD_REQUEST
    assert target not in f"{caught.value} {caught.value.details}"


def test_an_override_counts_beside_the_method(router):
    assert hit(router, "POST", "/contacts/17", "delete ") == ("DELETE /contacts/{id}", {"id": "17"})
    patched = ("PUT|PATCH /contacts/{id}", {"id": "17"})
    assert hit(router, "POST", "/contacts/17?_method=patch") == patched
    assert hit(router, "POST", "/contacts/17?a=b;_METHOD=patch%00x") == patched
    assert hit(router, "POST", "/contacts/17?%5fmethod%5b%5d=patch") == patched
    assert hit(router, "POST", "/contacts/17?x-http-method-override=patch") == patched
    assert hit(router, "POST", "/contacts/17?_HttpMethod=PATCH") == patched
    for foreign in ("%FF", "\udcff", "%ED%A0%80"):  # some applications drop it
        found = router.match(
            "POST",
            "h",
            f"/contacts/17?_met{foreign}hod=pat{foreign}ch".encode(errors="surrogateescape"),
        )
        assert found is not None
        assert found.operation.label == patched[0]
    assert hit(router, "POST", "/contacts/17?method=patch") is None
    assert hit(router, "POST", "/contacts/17?%5fmethod=put") == (
        "PUT|PATCH /contacts/{id}",
        {"id": "17"},
    )
    assert hit(router, "GET", "/contacts/17?_method=put") == ("GET /contacts/{id}", {"id": "17"})
    assert hit(router, "POST", "/contacts", "PROPFIND") == ("POST /contacts", {})


def test_a_patch_that_only_an_override_names_is_refused_where_a_real_one_would_be():
    rules = rules_of('{match: "PUT /contacts/{id}", update: note}')
    router = Router(rules.operations, rules.endpoints)
    for target, override in (("/contacts/17?_method=patch", None), ("/contacts/17", "PATCH")):
        with pytest.raises(VaultError) as caught:
            hit(router, "POST", target, override)
        assert caught.value.code is Code.OPERATION_DENIED
    assert hit(router, "POST", "/elsewhere?_method=patch") is None


@table(
    ("method", "target", "override", "hits"),
    [
        # A method that an override names counts beside POST, whatever follows it.
        ("POST", "/contacts/17", "DELETE", True),
        ("POST", "/contacts/17", "PATCH", True),
        ("PUT", "/contacts/17", "PATCH", True),  # of one rule
        ("POST", "/contacts/17/change/", "PUT", True),
        ("GET", "/contacts/17", "HEAD", True),
        ("OPTIONS", "/contacts/17", "DELETE", False),
        ("OPTIONS", "/contacts/17", "PUT", False),
        ("OPTIONS", "/contacts", "POST", False),
        ("REPORT", "/contacts/17", "DELETE", False),
        ("DELETE", "/contacts/17", "OPTIONS", False),
        ("POST", "/contacts/17/change/", "OPTIONS", False),
        ("POST", "/contacts/17/change/?_method=options", None, False),
        ("delete", "/contacts/17", None, False),
        ("patch", "/contacts/17", None, True),
        # A record changes only by a path that every application reads as its own.
        ("DELETE", "/contacts/17/", None, True),
        ("DELETE", "//contacts//17", None, True),
        ("DELETE", "/Contacts/17", None, True),
        ("DELETE", "/%63ontacts/17;v=1", None, True),
        ("PUT", "/contacts;v=1/a%2Fb", None, True),
        ("DELETE", "/index.php/contacts/17", None, True),
        ("DELETE", "http://crm.example/contacts/17", None, True),
        ("DELETE", "/files/../contacts/17", None, False),
        ("DELETE", "/files/..%2fcontacts%2f17", None, False),
        ("PUT", "/files%5c..%5ccontacts%5c17", None, False),
        ("DELETE", "/files/..;/contacts/17", None, False),
        ("DELETE", "//files/contacts/17", None, False),
        ("DELETE", "/%2563ontacts/17", None, False),
        ("DELETE", "/contacts%2f17", None, False),
        ("DELETE", "/contacts/17#/../18", None, False),
        ("DELETE", "/files#/../contacts/17", None, False),
        ("DELETE", "/contacts/17#x", None, True),
        ("POST", "/x#/../contacts", None, True),
        ("POST", "/x/../contacts/17/change", None, False),
        ("POST", "/x/../contacts", None, True),  # a create ends nobody's values
        ("GET", "/x/../contacts/17", None, True),
    ],
)
def test_nothing_ends_values_that_applications_may_take_for_another_request(
    router, method, target, override, hits
):
    if hits:
        assert hit(router, method, target, override) is not None
        return
    with pytest.raises(VaultError) as caught:
        hit(router, method, target, override)
    assert caught.value.code is Code.BAD_REQUEST


def test_an_override_that_hits_another_rule_is_refused(router):
    with pytest.raises(VaultError) as caught:
        hit(router, "POST", "/contacts", "GET")
    assert caught.value.code is Code.BAD_REQUEST
    with pytest.raises(VaultError):
        hit(router, "POST", "/contacts?_method=GET")


def test_bytes_that_are_no_text_lead_past_no_rule(router):
    for target in (
        b"/cont%FFacts",
        b"/contacts%ff",
        b"/\xfecontacts",
        b"/%ED%A0%80contacts",
        b"/con%25FFtacts",
    ):
        found = router.match("POST", "h", target)
        assert found is not None
        assert found.operation.label == "POST /contacts"
        assert router.overridable("h", target + b"/17")
    assert router.match("POST", "h", b"/elsewhere/%FF") is None


def test_a_path_with_rules_of_other_methods_can_be_overridden(router):
    assert router.overridable("h", b"/contacts/17")
    assert router.overridable("h", b"/x/../contacts/17")
    assert router.overridable("h", b"/Contacts/17?x=1")
    assert router.overridable("h", b"http://h/contacts/17")
    assert not router.overridable("h", b"/contacts")
    assert not router.overridable("h", b"/contacts/17/change")
    assert not router.overridable("h", b"/elsewhere")


def test_a_post_with_a_rule_is_contested_where_its_body_may_lead_to_another():
    rules = rules_of(
        "{match: POST /contacts, create: note}",
        "{match: POST /contacts/bulk, create: note}",
        '{match: "PATCH|POST /notes/{id}", update: note}',
        '{match: "PATCH /contacts/{id}", update: note}',
    )
    router = Router(rules.operations, rules.endpoints)
    for _ in range(2):
        assert [router.may_change_operation(operation, b"/") for operation in rules.operations] == [
            False,
            True,
            False,
            False,
        ]


def test_a_search_can_be_overridden_and_another_read_need_not():
    rules = rules_of(
        "{match: GET /contacts, read: contact, query: {email: {field: email}}, response: {each: "
        '"$[*]", id: $.id}}',
        '{match: "GET /contacts/{id}", read: contact}',
    )
    router = Router(rules.operations, rules.endpoints)
    assert router.overridable("h", b"/contacts")
    assert not router.overridable("h", b"/contacts/17")


def test_a_path_can_be_overridden_at_the_endpoint_it_belongs_to():
    router = _two("host: a.example", "host: b.example", method="PUT")
    assert router.overridable("A.example:80", b"/notes")
    assert not router.overridable("c.example", b"/notes")
    router = _two("prefix: /crm", "prefix: /crm/two", method="PUT")
    assert router.overridable("h", b"/crm/two/notes")
    assert router.overridable("h", b"/x/../crm/two/notes")
    assert not router.overridable("h", b"/crm/three/notes")


def _two(first: str, second: str, path: str = "/notes", method: str = "GET") -> Router:
    texts = [
        f'version: 1\nendpoint: {{name: {name}, upstream: "http://{name}", {keys}}}\nentities: '
        f"{{{name}: {{fields: {{t: {{kind: text}}}}}}}}\n"
        f"operations: [{{match: {method} {prefix}{path}, "
        f"{'read' if method == 'GET' else 'update'}: {name}, id: query id}}]\n"
        for name, keys, prefix in (("one", first, _prefix(first)), ("two", second, _prefix(second)))
    ]
    loaded = [load_text(text) for text in texts]
    operations: list[Operation] = [operation for rules in loaded for operation in rules.operations]
    endpoints: list[Endpoint] = [endpoint for rules in loaded for endpoint in rules.endpoints]
    return Router(operations, endpoints)


def _prefix(keys: str) -> str:
    return keys.partition("prefix: ")[2].partition(",")[0]


def chosen(router: Router, host: str, target: str) -> tuple[str | None, str | None]:
    endpoint = router.endpoint(host, target.encode())
    match = router.match("GET", host, target.encode())
    return endpoint.name if endpoint else None, matched(
        match
    ).operation.endpoint.name if match else None


def test_hosts_choose_the_endpoint_in_any_spelling():
    router = _two("host: [a.example, A2.example]", "host: b.example")
    for host in ("a.example", "A.Example", "a.example:8080", "a.example.", "a2.example"):
        assert chosen(router, host, "/notes") == ("one", "one")
    assert chosen(router, "b.example", "/notes") == ("two", "two")
    assert chosen(router, "c.example", "/notes") == (None, None)


def test_an_endpoint_without_host_takes_what_no_host_names():
    router = _two("host: a.example", "unmatched: pass")
    assert chosen(router, "a.example", "/notes") == ("one", "one")
    assert chosen(router, "c.example", "/notes") == ("two", "two")


def test_prefixes_choose_the_endpoint_by_whole_segments():
    router = _two("prefix: /crm", "prefix: /crm/two")
    assert chosen(router, "h", "/crm/notes") == ("one", "one")
    assert chosen(router, "h", "/crm/two/notes") == ("two", "two")
    assert chosen(router, "h", "/crm/twofold") == ("one", None)
    assert chosen(router, "h", "/crmx/notes") == (None, None)
    assert chosen(router, "h", "/crm") == ("one", None)


@table(
    ("first", "second", "path", "expected"),
    [
        ("prefix: /crm", "unmatched: pass", "/CRM/notes", ("one", "one")),
        ("prefix: /crm", "unmatched: pass", "/Crm/Notes", ("one", "one")),
        ("prefix: /crm", "unmatched: pass", "/crmx/notes", ("two", None)),
        ("prefix: /crm", "prefix: /CRM", "/CRM/notes", ("two", "two")),
        ("prefix: /crm", "prefix: /CRM", "/crm/notes", ("one", "one")),
        ("prefix: /crm", "prefix: /CRM/two", "/crm/two/notes", ("two", "two")),
    ],
)
def test_a_prefix_in_other_letter_case_leads_past_no_rule(first, second, path, expected):
    """Applications that ignore case serve it: an endpoint without prefix would pass it unread."""
    assert chosen(_two(first, second), "h", path) == expected


def test_readings_for_two_applications_are_refused():
    router = _two("prefix: /crm", "unmatched: pass")
    with pytest.raises(VaultError) as caught:
        router.endpoint("h", b"/x/../crm/notes")
    assert caught.value.code is Code.BAD_REQUEST
    assert chosen(_two("prefix: /crm", "prefix: /erp"), "h", "//crm/notes") == ("one", "one")


def test_an_absolute_target_whose_host_is_another_counts_twice():
    router = _two("host: a.example", "host: b.example")
    with pytest.raises(VaultError):
        router.match("GET", "a.example", b"http://b.example/notes")
    with pytest.raises(VaultError):
        router.endpoint("a.example", b"http://b.example/notes")
    assert router.endpoint("a.example", b"http://A.example:80/notes") is not None


def test_without_rules_nothing_matches():
    router = Router((), ())
    assert router.match("GET", "h", b"/") is None
    assert router.endpoint("h", b"/") is None


PASSING = (
    "{match: GET /contacts, read: note}",
    '{match: "GET /contacts/{id}", read: note}',
    '{match: "GET /contacts/export", pass: true}',
    '{match: "GET|POST /{rest*}", pass: true}',
    '{match: "PUT /scim/Users/{id}", update: note}',
)


@table(
    ("method", "target", "label"),
    [
        ("GET", "/static/app.js", "GET|POST /{rest*}"),
        ("HEAD", "/static/app.js", "GET|POST /{rest*}"),
        ("GET", "/contacts/export", "GET /contacts/export"),
        ("GET", "/contacts/17", "GET /contacts/{id}"),
        # Another reading hits an operation: that counts, whatever passes in the first one.
        ("GET", "/contacts/", "GET /contacts"),
        ("GET", "/Contacts", "GET /contacts"),
        ("GET", "/static/..%2fcontacts/17", "GET /contacts/{id}"),
        ("GET", "/x//contacts", "GET|POST /{rest*}"),
        ("GET", "/contacts.json", "GET /contacts"),
        ("POST", "/scim/Users/1?_method=put", "PUT /scim/Users/{id}"),
        ("PUT", "/scim/users/1", "PUT /scim/Users/{id}"),
        ("DELETE", "/contacts", None),
    ],
)
def test_a_rule_that_passes_never_hides_an_operation(method, target, label):
    rules = rules_of(*PASSING)
    found = Router(rules.rules, rules.endpoints).match(method, "crm.example", target.encode())
    assert (
        found
        if found is None
        else found.label
        if isinstance(found, PassRule)
        else found.operation.label
    ) == label


def test_a_rule_with_capitals_names_requests_without_them():
    rules = rules_of('{match: "GET /scim/Users/{id}", read: note}')
    router = Router(rules.operations, rules.endpoints)
    for target in ("/scim/users/1", "/SCIM/users/1", "/scim/users/1/", "/scim/users/1.json"):
        assert router.match("GET", "crm.example", target.encode()) is not None


@table(
    ("target", "ruled"),
    [
        ("/contacts", True),
        ("/contacts/", True),
        ("/Contacts/17", True),
        ("/x/%2e%2e/contacts", True),
        ("/contacts.json", True),
        ("/scim/users/1", True),
        ("/static/app.js", False),
        ("/contacts/17/photo", False),
    ],
)
def test_a_ruled_path_is_one_that_an_operation_names_in_any_reading(target, ruled):
    rules = rules_of(*PASSING)
    assert Router(rules.rules, rules.endpoints).ruled("crm.example", target.encode()) is ruled

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.exchange.matcher import Matcher, carries, matcher_parts
from proxy.redactor.load import load_files, load_text
from proxy.redactor.rules import Match, PassRule
from tests.support.exchanges import USUAL, rule_text
from tests.support.table import table

FORKED = (
    '{match: POST /rpc, when: {"$.do": add}, create: p, request: {object: $.p}}',
    '{match: POST /rpc, when: {"$.do": ping}, pass: true}',
)


def test_whoever_reads_the_same_rules_counts_the_same_operations():
    one, other = (Matcher(*matcher_parts(load_text(rule_text(*USUAL, *FORKED)))) for _ in "ab")
    assert [item.label for item in one.operations] == [item.label for item in other.operations]
    _, match = one.match("POST", "app", b"/rpc", ())
    assert isinstance(match, Match)
    assert match.scope is one
    assert match.operation in one.operations, "also where a body has to tell which one it is"
    assert match.operation.branches


def test_addresses_with_values_are_told_by_a_sign():
    assert carries(((b"referer", b"http://app/p?q=1"),))
    assert not carries(((b"Referer", b"http://app/p"), (b"A", b"?")))


def both(upstream: str) -> Matcher:
    """The rules of two endpoints: of one host, and of all others."""
    first = rule_text(*USUAL).replace("name: app", "name: own, host: own.example")
    second = rule_text("{match: GET /p, pass: true}").replace("http://127.0.0.1:3000", upstream)
    files = {"one.yaml": first.encode(), "two.yaml": second.encode()}
    return Matcher(*matcher_parts(load_files(files)))


@table(
    ("method", "target", "override"),
    [
        ("POST", "/p", None), ("GET", "/p/1", None), ("PATCH", "/p/1", None),
        ("HEAD", "/P/1", None), ("POST", "/p/1", "PATCH"), ("GET", "/x/../p/1", None),
        ("GET", "/p/%31", None), ("GET", "//p/1", None),
    ],
)  # fmt: skip
def test_a_rule_of_another_endpoint_before_the_same_application_is_not_evaded(
    method, target, override
):
    for upstream, refused in (
        ("http://127.0.0.1:3000", True),
        ("http://127.0.0.1:3001", False),
        ("http://127.0.0.2:3000", False),
    ):
        rules = both(upstream)
        asked = method, "evil.example", target.encode(), (), override
        if refused:
            with pytest.raises(VaultError) as caught:
                rules.match(*asked)
            assert caught.value.code is Code.OPERATION_DENIED
        else:
            assert rules.match(*asked)[1] is None
        assert rules.ruled("evil.example", b"/p/1") is refused
        assert rules.overridable("evil.example", b"/p/1") is refused
        assert isinstance(rules.match("GET", "own.example", b"/p/1", ())[1], Match)
        # what the other file names itself, or nobody
        assert isinstance(rules.match("GET", "evil.example", b"/p", ())[1], PassRule)
        assert rules.match("GET", "evil.example", b"/q", ())[1] is None


@table(
    ("target", "refused"),
    [
        ("/index.php?/users/1", True), ("/?/users/1&x=2", True), ("/a/b.php?/Users/%31", True),
        ("/?rest_route=/wp/v2/people", True), ("/?x=1&rest_route=%2Fwp%2Fv2%2Fpeople", True),
        ("/index.php?rest_route=/users/1", True), ("/?rest_route=/wp/v2/posts", False),
        ("/?x&rest.route=/users/1", True), ("/?%72est%5Froute=/users/1", True),
        ("/?+rest%20route=/users/1", True), ("/?unrest_route=/users/1&y=%20", False),
        ("/?rest_route=/wp/v2/clients", True), ("/x/?rest_route=/wp/v2/clients", True),
        ("/?rest_route=/wp/v2/customers", True), ("/?rest_route=/wp/v2/others", False),
        ("/index.php?/other", False), ("/?q=/users/1", False), ("/login?next=/users/1", False),
    ],
)  # fmt: skip
def test_a_path_in_the_query_that_an_application_may_serve_is_refused(target, refused):
    text = rule_text(
        '{match: "GET /users/{id}", read: p}',
        '{match: GET /wp-json/wp/v2/people, read: p, response: {each: "$[*]", id: $.id}}',
        '{match: GET /api/wp/v2/clients, read: p, response: {each: "$[*]", id: $.id}}',
        '{match: GET /rest/api/wp/v2/customers, read: p, response: {each: "$[*]", id: $.id}}',
        "{match: GET /, pass: true}",
    )
    rules = Matcher(*matcher_parts(load_text(text)))
    if refused:
        with pytest.raises(VaultError) as caught:
            rules.match("GET", "app", target.encode(), ())
        assert caught.value.code is Code.BAD_REQUEST
    else:
        assert not isinstance(rules.match("GET", "app", target.encode(), ())[1], Match)


SCRIPTS = (
    "{match: POST /index.php?r=p/add, create: p, request: {form: {name: name}}, response: {id: $.id}}",
    "{match: POST /index.php, pass: true}",
    "{match: POST /save.php, create: p, request: {form: {name: name}}, response: {id: $.id}}",
    '{match: "PUT /shop/{id}", update: p}',
)


@table(
    ("target", "named"),
    [
        ("/?r=p/add", True), ("/index.php/x?r=p/add", True), ("/index%2Ephp/x/y?r=p/add", True),
        ("/save.php/x", True), ("/SAVE.php/x?y=1", True), ("/?r=p/list", False),
        ("/index.php/x", False), ("/saved", False), ("/shop", False),
    ],
)  # fmt: skip
def test_a_program_is_found_by_whatever_path_php_runs_it(target, named):
    rules = Matcher(*matcher_parts(load_text(rule_text(*SCRIPTS))))
    _, match = rules.match("POST", "app", target.encode(), ())
    assert isinstance(match, Match) is named
    _, match = rules.match("PUT", "app", b"/shop", ())
    assert match is None, "which is no program"


def test_what_is_left_over_is_as_if_no_rule_named_it():
    left = SCRIPTS[:1], '{match: "GET|POST /index.php", unmatched: true}'
    rules = Matcher(*matcher_parts(load_text(rule_text(*left[0], left[1]))))
    for method, target in (("POST", b"/index.php"), ("GET", b"/index.php?r=p/add"), ("GET", b"/")):
        assert rules.match(method, "app", target, ())[1] is None
    assert rules.ruled("app", b"/index.php")

from proxy.redactor.exchange.matcher import Matcher, carries, matcher_parts
from proxy.redactor.load import load_text
from proxy.redactor.rules import Match
from tests.support.exchanges import USUAL, rule_text

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

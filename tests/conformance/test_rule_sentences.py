"""Each sentence of the design of the rule language has tests that show it (``rule_sentences.txt``),
and those that no other file has stand here.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders
from proxy.redactor.routing import Router
from proxy.redactor.rules import Match, PassRule, Unmatched
from tests.support.exchanges import FORM, Desk, desk, rule_text
from tests.support.rules import faults_of, with_fields, with_operations
from tests.support.table import table
from tests.support.tree import ROOT

# ------------------------------------------------------------------ the table

TABLE = Path(__file__).with_name("rule_sentences.txt")


class Row(NamedTuple):
    """A sentence of a section, and the tests that show it."""

    section: str
    sentence: str
    tests: list[tuple[str, str]]


def rows() -> list[Row]:
    section, read = "", list[Row]()
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("  "):
            file, _, test = line.strip().partition(" ")
            read[-1].tests.append((file, test))
        elif line and not line.startswith("# "):
            read.append(Row(section, line, []))
    return read


ROWS = rows()
#: Sections of the page, in its order.
SECTIONS = (
    "Two ideas", "The whole language, by example", "Beyond JSON and forms", "Matching", "Where things sit", "Nothing silent",
    "Token shapes", "Two ways to restore", "Two-step writes", "JSON and forms", "Splice, do not re-serialise",
    "Empty, null, absent, own token, own mask", "HTTP around a rewritten message", "Own answers", "Settled details", "Working with rules",
)  # fmt: skip


def test_the_table_has_each_section_and_each_sentence_once():
    assert tuple(dict.fromkeys(row.section for row in ROWS)) == SECTIONS
    sentences = [(row.section, row.sentence) for row in ROWS]
    assert len(set(sentences)) == len(sentences) >= 140


@table("row", ROWS)
def test_each_sentence_has_tests_that_are_there(row: Row):
    assert row.tests, "no test shows it"
    assert len(set(row.tests)) == len(row.tests)
    for file, test in row.tests:
        text = (ROOT / "tests" / file).read_text("utf-8")
        found = re.search(rf"(?m)((?:^@.*\n(?:^[ )].*\n)*)*)^(?:async )?def test_{test}\(", text)
        assert found, f"{file} has no such test: {test}"
        assert "mark.skip" not in found[1], f"{file}: {test} may be left out"


# ------------------------------------------------------------------ callers, figures


def test_callers_may_have_no_roles_at_all():
    text = rule_text("{match: POST /p, create: p}")
    text = text.replace('3000"', '3000", caller: {from: none}')
    rules = load_text(text)
    assert "from: none" in text
    assert rules.endpoints[0].caller is None
    assert not rules.endpoints[0].views


async def test_figures_over_tokens_are_refused_or_pass_on_purpose():
    """Domains of addresses, or ages, that an application counts: the operator decides."""
    listed = (
        "{match: GET /p, read: p, query: {group_by: {refuse: [email, born]}, domain: {refuse: always}}, "
        'response: {each: "$[*]", id: $.id}}'
    )
    text = rule_text(listed, "{match: GET /figures, pass: true}")
    text = text.replace("name: app,", "name: app, unmatched: deny,")
    rules = load_text(text)
    router = Router(rules.rules, rules.endpoints)
    assert isinstance(router.match("GET", "app", b"/figures"), PassRule)
    assert isinstance(router.match("GET", "app", b"/p"), Match)
    assert router.match("GET", "app", b"/ages") is None
    assert rules.endpoints[0].unmatched is Unmatched.DENY
    one = await desk(listed)
    for target in ("/p?group_by=email", "/p?group_by=-born,city", "/p?domain=x.example"):
        with pytest.raises(VaultError) as refused:
            await one.send(f"GET {target}")
        assert refused.value.code is Code.SEARCH_REFUSED
    assert (await one.send("GET /p?group_by=city")).sent.target == b"/p?group_by=city"


# ------------------------------------------------------------------ faults of a load


@table(
    ("text", "place", "words"),
    [
        (with_operations('{match: GET /n, read: note, response: {each: "$.n[*]", id: $.id, fields: {text: $.t}}}'), "13:", "write $.n[*].t"),
        (with_operations('{match: "PATCH /n/{id}", update: note, id: path number}'), "13:", "id"),
        (with_fields('x: {kind: text, token: {template: "P[0-9]{6}"}}'), "6:", "has room for 1,000,000 different tokens"),
        (with_operations("{match: POST /n, create: note, request: {form: {t: text}}}"), "13:", "does not say where its answer carries the id"),
        (with_operations("{match: GET /n, read: contact, response: {each: \"$[*]\"}}"), "13:", "born has the token shape date"),
        (with_fields("born: {kind: date, find: [range]}"), "6:", "stored: plain"),
    ],
)  # fmt: skip
def test_what_can_never_match_is_a_fault_at_its_place(text, place, words):
    faults = faults_of(text)
    assert any(words in one.text for one in faults), [one.text for one in faults]
    assert all(re.fullmatch(r"rules\.yaml:\d+:\d+", one.source) for one in faults)
    assert faults[0].source.startswith(f"rules.yaml:{place}")


# ------------------------------------------------------------------ words of searches

FIELDS = (
    "name: {kind: name, find: [exact, partial]}",
    "email: {kind: email, token: {shape: email, same: true}, find: [exact]}",
)
EVE = {"name": "Evelina Quist", "email": "eve@quist.example"}
LISTED = 'response: {each: "$[*]", id: $.id}'
#: What a parameter says, and what a caller sends in it.
WORDS = {
    "field": ("{field: email}", "eve@quist.example"),
    "expression": ("{expression: scim, fields: {userName: email}}", 'userName eq "eve@quist.example"'),
    "json": ("{json: {$.who.mail: email}}", '{"who": {"mail": "eve@quist.example"}}'),
    "split": ('{field: email, split: ","}', "eve@quist.example,bo@quist.example"),
    "send": ('{field: email, split: ",", send: {param: e, repeat: true}}', "eve@quist.example,bo@quist.example"),
    "via": ('{field: [name, email], via: vault, send: {param: ids, join: ",", none: "-1"}}', "velina"),
    "refuse": ("{refuse: [name]}", "-name"),
    "refuse always": ("{refuse: always}", "eve@quist.example"),
}  # fmt: skip
CLEAR = re.compile(r"(?i)quist|velina")


async def asked(one: Desk, side: str, text: str) -> str:
    """What the application is asked when a parameter on that side holds the text."""
    body: object = b""
    headers: RawHeaders | None = None
    target = "GET /query"
    if side == "query":
        target += f"?q={_escaped(text)}"
    elif side == "form":
        target, body, headers = "POST /form", f"q={_escaped(text)}".encode(), FORM
    else:
        target, body = "POST /values", {"q": text}
    sent = (await one.send(target, body, headers)).sent
    return f"{sent.target.decode()} {sent.body.decode()}"


def _escaped(text: str) -> str:
    return "".join(
        char if char.isalnum() else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )


@table("side", ["query", "form", "values"])
@table("word", WORDS)
async def test_each_word_of_a_search_works_in_queries_forms_and_bodies(side, word):
    rule, text = WORDS[word]
    places = {
        "query": f"{{match: GET /query, read: p, query: {{q: {rule}}}, {LISTED}}}",
        "form": f"{{match: POST /form, read: p, request: {{form: {{q: {rule}}}}}, {LISTED}}}",
        "values": f"{{match: POST /values, read: p, request: {{values: {{$.q: {rule}}}}}, {LISTED}}}",
    }
    one = await desk("{match: POST /p, create: p}", places[side], fields=FIELDS)
    token = (await one.create(EVE))["email"]
    if word.startswith("refuse"):
        with pytest.raises(VaultError) as refused:
            await asked(one, side, text)
        assert refused.value.code is Code.SEARCH_REFUSED
        assert not CLEAR.search(refused.value.message)
        return
    sent = await asked(one, side, text)
    assert not CLEAR.search(sent), sent
    if word == "via":
        assert re.search(r"ids(=|\": ?\"?)1", sent), sent
    else:
        assert token.partition("@")[0] in sent, sent


# ------------------------------------------------------------------ descent


async def test_a_descent_works_both_ways_and_its_cost_is_told():
    fields = (FIELDS[0], FIELDS[1].replace("{kind", '{at: "$..email", kind'))
    operations = (
        "{match: POST /p, create: p}",
        '{match: GET /deep, read: p, response: {each: "$..people[*]", id: $.id}}',
    )
    one = await desk(*operations, fields=fields)
    deep = {"name": "Evelina", "more": {"mails": [{"email": "eve@quist.example"}]}}
    stored = await one.create(deep)
    assert "quist.example" not in json.dumps(stored)
    body = {"a": [{"people": [stored]}]}
    seen = await (await one.send("GET /deep")).seen(200, body)
    assert seen == {"a": [{"people": [{**deep, "id": 1}]}]}
    warned = [
        one for one in load_text(rule_text(*operations, fields=fields)).warnings if "'..'" in one
    ]
    assert {part for one in warned for part in re.findall(r"of each (\w+)", one)} == {
        "request",
        "answer",
    }
    assert all("many times slower" in one for one in warned)

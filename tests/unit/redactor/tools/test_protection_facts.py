"""States of fields, and their ranks."""

from proxy.redactor.load import load_text
from proxy.redactor.tools.protection_facts import field_facts, protection
from tests.support.rules import with_fields
from tests.support.table import table
from tests.unit.redactor.tools.test_difference import CHANGES, LOSES, RULES, changes


def ranked(*declared: str) -> list[float]:
    """The protection of fields, in the order of their declarations."""
    texts = [f"f{number}: {one}" for number, one in enumerate(declared)]
    (entity,) = load_text(with_fields(*texts, entity="population: 1000")).entities
    return [protection(one) for one in entity.fields.values()]


@table(
    ("more", "less"),
    [
        ("{kind: email}", "{kind: email, token: {shape: email, same: true}}"),
        ("{kind: name}", "{kind: name, token: plain}"),
        ("{kind: name}", "{kind: name, stored: plain}"),
        ("{kind: phone, token: {shape: numeric, keep_last: 2}}", "{kind: phone, token: {shape: numeric, keep_last: 4}}"),
        ("{kind: name, token: {shape: opaque, same: true}, find: [exact]}",
         "{kind: name, token: {shape: opaque, same: true}, find: [exact, partial]}"),
    ],
)  # fmt: skip
def test_a_field_that_tells_less_ranks_higher(more, less):
    higher, lower = ranked(more, less)
    assert higher > lower


def test_the_state_of_a_field_is_in_words():
    facts = field_facts(load_text(with_fields("f: {kind: name, stored: plain}")))
    (of,) = [one for subject, one in facts.items() if subject.endswith(".f")]
    assert {what: fact.text for what, fact in of.items() if what in ("kind", "stored", "find exact")} == {
        "kind": "name", "stored": "plain", "find exact": "impossible",
    }  # fmt: skip


REWRITTEN = """version: 1
endpoint:
  upstream: "http://127.0.0.1:3000"
  name: sales
  caller: {jwks: "https://id.example/keys", from: jwt}
  unmatched: report
entities:
  member:
    schema: person
    population: 1000
    expires: 30d
    fields:
      mail:  {find: [exact], token: {same: true, shape: email}, kind: email, at: $.email}
      phone: {kind: phone, token: {keep_last: 2, shape: numeric}}
      name:  {kind: name}
views:
  - {member: clear, who: [sales], except: {phone: mask}}
operations:
  - {match: GET /static, pass: true}
  - {read: member, match: POST /find, response: {each: "$[*]"}, request: {form: {mail: mail}}}
  - {match: "PUT /people/{person}", update: member, id: path person}
  - {match: "GET /people/{key}", update: member, id: path key}
  - {match: GET /people, read: member, query: {email: mail}, response: {each: "$[*]"}}
  - {match: POST /people, create: member}
"""


def test_a_rewrite_is_told_by_its_new_names_alone():
    found = changes(RULES, REWRITTEN)
    assert [(one.subject, one.text.partition(":")[0]) for one in found] == [
        ("endpoint crm", "it is called now"),
        ("entity person", "it is called now"),
        ("person.email", "it is called now"),
    ], found
    assert {one.effect for one in found} == {CHANGES}


@table(
    ("before", "after", "subject", "text"),
    [
        ("{find: [exact], token: {same: true, shape: email}", "{find: [exact], token: plain",
         "person.email", "token: email (same) becomes plain"),
        ("request: {form: {mail: mail}}", "request: {form: {other: mail}}",
         "crm: POST /find", "form field mail is not named any more (email)"),
        ("population: 1000", "population: 1000", "", ""),
        ("expires: 30d", "expires: 60d", "entity person", "expires: 2592000000 ms becomes"),
        ("unmatched: report", "unmatched: pass", "endpoint crm", "unmatched: report becomes pass"),
        (", except: {phone: mask}}", "}", "crm: sales", "sees person.phone: mask becomes"),
        ('"GET /people/{key}", update: member, id: path key', '"GET /people/{key}", pass: true',
         "crm: GET /people/{id}", "it passes unchanged now"),
    ],
)  # fmt: skip
def test_the_one_loss_of_a_rewrite_is_the_one_that_is_told(before, after, subject, text):
    assert before in REWRITTEN
    losses = [one for one in changes(RULES, REWRITTEN.replace(before, after)) if one[0] is LOSES]
    assert len(losses) == bool(subject), losses
    assert all((one.subject, text in one.text) == (subject, True) for one in losses)


def test_another_schema_of_a_renamed_entity_is_told():
    found = changes(RULES, REWRITTEN.replace("    schema: person\n", ""))
    (told,) = [one for one in found if one.subject == "entity person"]
    assert "would not be found, and an instance refuses it; write schema: person" in told.text


def test_a_rule_for_the_rest_of_a_path_that_becomes_one_for_a_segment_loses_the_deeper_paths():
    wide = RULES.replace(
        "  - {match: GET /static, pass: true}", '  - {match: "POST /a/{p*}", create: person}'
    )
    one = wide.replace("/a/{p*}", "/a/{p}")
    assert [(c.effect, c.subject) for c in changes(wide, one)] == [(LOSES, "crm: POST /a/{p*}")]


def test_a_place_that_becomes_one_of_a_weaker_field_loses():
    wider = RULES.replace(
        "      phone:",
        "      alias: {kind: email, token: {shape: email, same: true}, find: [exact], stored: plain}\n      phone:",
    )
    new = wider.replace("{form: {mail: email}}", "{form: {mail: alias}}")
    told = {one[::2] for one in changes(wider, new)}
    assert (LOSES, "the request's form field mail: email becomes alias") in told


def test_a_rule_of_several_conditions_is_the_same_as_one_of_each():
    rule = "  - {match: POST /rpc, when: {$.method: [add, make]}, create: person, request: {object: $.params}}\n"
    both = RULES + rule
    split = RULES + rule.replace("[add, make]", "add") + rule.replace("[add, make]", "make")
    assert changes(both, split) == changes(split, both) == []
    less = RULES + rule.replace("[add, make]", "add")
    assert [one.text for one in changes(both, less)] == ["no rule names it any more: it is refused"]

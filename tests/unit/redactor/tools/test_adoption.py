import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.tools.adoption import WalkChoice, clear_for, plan_walk
from proxy.redactor.tools.adoption_records import RecordState, WalkPlan
from tests.support.rules import ENTITIES, HEAD, rules_of, with_operations

LIST = '{match: "GET /people", read: contact, response: {each: "$.data[*]", id: $.id}}'
ONE = '{match: "GET /people/{id}", read: contact, response: {object: $.data}}'
PATCH = '{match: "PATCH /people/{id}", update: contact, request: {object: $.data}}'
PUT = '{match: "PUT /people/{id}", update: contact, request: {object: $.data}}'


def plan(*operations: str, entity: str = "contact", target: str = "") -> WalkPlan:
    return plan_walk(rules_of(*operations), WalkChoice(entity, "", target))


def refusal(*operations: str, entity: str = "contact", target: str = "") -> str:
    with pytest.raises(VaultError) as refused:
        plan(*operations, entity=entity, target=target)
    assert refused.value.code is Code.BAD_RULES
    return refused.value.message


def test_ruled_members_alone_are_written_where_the_application_takes_changes():
    found = plan(LIST, ONE, PUT, PATCH)
    assert (found.method, found.content_type, found.whole) == ("PATCH", "application/json", False)
    record = found.reading.record(
        "a/b", b'{"data": {"name": "Ann", "city": "Visby", "email": "x"}}'
    )
    assert found.update_body(record) == b'{"data":{"name":"Ann","email":"x"}}'
    assert found.update_target("a/b") == found.read_target("a/b") == "/people/a%2Fb"
    assert found.target == "/people"


def test_otherwise_the_whole_object_is_written_as_it_was_read_byte_for_byte():
    found = plan(LIST, ONE, PUT)
    assert (found.method, found.whole) == ("PUT", True)
    record = found.reading.record("1", b'{"data": {"n": 1.50, "name":  "\\u0041nn", "b": [1,  2]}}')
    assert found.update_body(record) == (
        b'{"data":{"n": 1.50, "name":  "\\u0041nn", "b": [1,  2]}}'
    )


def test_the_member_in_which_a_place_lies_is_written_whole():
    rules = load_text(
        f"{HEAD}entities: {{contact: {{fields: {{street: {{kind: text, at: $.home.street}}}}}}}}\n"
        f"operations:\n  - {LIST}\n  - {ONE}\n  - {PATCH}\n"
    )
    found = plan_walk(rules, WalkChoice())
    record = found.reading.record(
        "1", b'{"data": {"home": {"street": "S 1", "city": "V"}, "x": 1}}'
    )
    assert found.update_body(record) == b'{"data":{"home":{"street": "S 1", "city": "V"}}}'
    assert found.changed(record, record) == ([], [])


def test_what_shares_the_path_of_the_list_is_preferred():
    other = [one.replace("/people/", "/archive/") for one in (ONE, PATCH)]
    found = plan(*other, LIST, ONE, PUT)
    assert (found.read_target("1"), found.update_target("1")) == ("/people/1", "/people/1")
    assert plan(*other, LIST, ONE).update_target("1") == "/archive/1"


def test_merge_patches_go_by_their_type():
    merge = (
        '{match: "PATCH /people/{id}", update: contact, when: {type: '
        "application/merge-patch+json}, request: {object: $.data, patch: merge}}"
    )
    other = (
        '{match: "PATCH /people/{id}", update: contact, when: {type: '
        "application/json-patch+json}, request: {patch: json}}"
    )
    assert plan(LIST, ONE, merge, other).content_type == "application/merge-patch+json"
    assert "changes of the kind json" in refusal(LIST, ONE, other)


def test_a_list_below_another_record_is_named_by_its_path():
    below = [one.replace("/people", "/offices/{office}/people") for one in (LIST, ONE, PUT)]
    assert "--list" in refusal(*below)
    found = plan(*below, target="/offices/7%20b/people?limit=5")
    assert found.target == "/offices/7%20b/people?limit=5"
    assert found.update_target("x") == "/offices/7%20b/people/x"
    mixed = refusal(*below, LIST, target="/people")
    assert "placeholder {office}" in mixed
    assert "no list of this entity" in refusal(LIST, ONE, PUT, target="/people/7")


def test_what_the_rules_lack_is_told_with_the_reason_of_each_that_is_there():
    assert "no list of this entity" in refusal(ONE, PUT)
    assert "to read one" in refusal(LIST, PUT)
    assert "to update of this entity" in refusal(LIST, ONE)
    elsewhere = PATCH.replace("{object: $.data}", "{object: $.data, fields: {name: $.full}}")
    assert "outside of the object" in refusal(LIST, ONE, elsewhere)
    form = '{match: "POST /people/{id}", update: contact, request: {form: {name: name}}}'
    assert "POST /people/{id}: it takes no JSON object" in refusal(LIST, ONE, form)
    bulk = "{match: PUT /people, update: contact, id: $.id, request: {object: $.data}}"
    assert "id stands outside of its path" in refusal(LIST, ONE, bulk)
    header = PUT.replace("update:", "when: {header X-Way: save}, update:")
    assert "under conditions" in refusal(LIST, ONE, header)


def test_an_entity_is_named_where_there_are_several():
    note = '{match: GET /notes, read: note, response: {each: "$[*]", id: $.id}}'
    assert "contact of crm, note of crm" in refusal(LIST, ONE, PUT, note, entity="")
    assert "there are: contact of crm, note of crm" in refusal(LIST, note, entity="person")
    assert plan(LIST, ONE, PUT, note).entity.name == "contact"
    with pytest.raises(VaultError, match="nothing to go through"):
        plan_walk(
            load_text(f"{HEAD}{ENTITIES}operations:\n  - {{match: GET /, pass: true}}\n"),
            WalkChoice(),
        )


def test_what_both_sides_show_and_nobody_sent_was_altered_by_the_application():
    found = plan(LIST, ONE, PUT)
    sent, token, part = (
        found.reading.record("1", b'{"data": {"name": "%b", "email": "%b"}}' % pair)
        for pair in ((b"Ann", b"a@b.c"), (b"k3", b"x@y.z"), (b"k3", b"a@b.c"))
    )
    assert found.altered(sent, token, sent) == []
    assert found.altered(sent, token, token) == ["email", "name"]
    assert found.altered(sent, part, part) == ["name"]
    assert found.altered(sent, found.reading.record("1", b'{"data": {}}'), token) == []
    assert found.state(part, sent) is RecordState.MIXED
    assert found.complete(sent) is False  # a birth date is nowhere to be seen


def test_a_role_sees_clearly_where_its_view_shows_every_field():
    text = with_operations(LIST, ONE, PUT).replace(
        "operations:",
        "views:\n  - {who: [dpo], contact: clear}\n  - {who: [sales], contact: clear, except: "
        "{born: mask}}\noperations:",
    )
    text = text.replace(
        "upstream:", 'caller: {from: jwt, jwks: "https://id.example.com/jwks.json"}, upstream:'
    )
    found = plan_walk(load_text(text), WalkChoice("contact"))
    assert [clear_for(found, role) for role in ("dpo", "sales", "")] == [True, False, False]
    assert clear_for(plan(LIST, ONE, PUT), "")
    masked = found.reading.record("1", b'{"data": {"name": "A**", "email": "ann@b.example"}}')
    clear = found.reading.record("1", b'{"data": {"name": "Ann", "email": "ann@b.example"}}')
    assert [found.masked(one) for one in (masked, clear)] == [True, False]


def test_the_list_of_the_records_is_preferred_to_one_of_suggestions():
    suggestions = LIST.replace("GET /people", "GET /people/autocomplete")
    assert suggestions != LIST
    assert plan(suggestions, LIST, ONE, PATCH).target == "/people"
    assert plan(suggestions, LIST, ONE, PATCH, target="/people/autocomplete").target != "/people"

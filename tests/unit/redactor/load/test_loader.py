from pathlib import Path

import pytest

from proxy.errors import VaultError
from proxy.redactor.load import load_rule_set, load_text
from tests.support.files import mounted
from tests.support.rules import ENTITIES, HEAD, with_operations
from tests.support.table import table

ROOT = Path(__file__).parents[4]
SMALLEST = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
entities:
  contact:
    fields:
      name:  {kind: name}
      email: {kind: email, find: [exact]}
operations:
  - {match: POST /contacts,          create: contact}     # object at $, id at $.id of the answer
  - {match: GET /contacts,           read: contact, response: {each: "$[*]"}}
  - {match: "GET /contacts/{id}",    read: contact}       # id: path id
  - {match: "PATCH /contacts/{id}",  update: contact}
  - {match: "DELETE /contacts/{id}", delete: contact}
"""


def test_the_smallest_useful_file_loads_without_a_warning():
    rules = load_text(SMALLEST)
    assert [operation.label.split()[0] for operation in rules.operations] == [
        "POST",
        "GET",
        "GET",
        "PATCH",
        "DELETE",
    ]
    assert [entity.name for entity in rules.entities] == ["contact"]
    assert rules.warnings == ()
    assert len(rules.version) == 12


@table("path", sorted((ROOT / "rules").rglob("*.yaml")))
def test_every_example_loads_without_a_warning_but_those_that_it_means(path):
    rules = load_rule_set(path, {"WORDS_CLIENT": "proxy:secret"})
    assert rules.operations
    meant = (
        "birth_date has the token shape date",
        "'other_kinds: pass' sends uploads",
        "in $.filter..* reads every value",
        "api::customer.customer/actions/publish is ruled and GET",
        "api::customer.customer/{id}/actions/",
    )
    assert [text for text in rules.warnings if not any(one in text for one in meant)] == []


def test_a_folder_loads_all_or_nothing(tmp_path):
    (tmp_path / "one.yaml").write_text(SMALLEST)
    other = SMALLEST.replace("name: crm,", "name: erp, host: erp.example,").replace(
        "  contact:", "  contact:\n    schema: erp_contact"
    )
    (tmp_path / "two.yaml").write_text(other)
    rules = load_rule_set(tmp_path)
    assert [endpoint.name for endpoint in rules.endpoints] == ["crm", "erp"]
    assert len(rules.operations) == 10
    assert rules.operations[0].endpoint is rules.endpoints[0]
    (tmp_path / "two.yaml").write_text("version: 2\n")
    with pytest.raises(VaultError) as caught:
        load_rule_set(tmp_path)
    assert {Path(detail.source.split(":")[0]).name for detail in caught.value.details} == {
        "two.yaml"
    }


def test_faults_of_all_files_are_named_together(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"{HEAD}x: 1\n")
    with pytest.raises(VaultError) as caught:
        load_rule_set(tmp_path)
    sources = [Path(detail.source.split(":")[0]).name for detail in caught.value.details]
    assert sources == ["a.yaml", "b.yaml", "b.yaml"]  # and the two endpoints have one name


def test_a_fault_of_the_endpoint_hides_none_of_the_operations():
    for endpoint in ("endpoint: {name: crm}", "entities: {}"):
        with pytest.raises(VaultError) as caught:
            load_text(
                f"version: 1\n{endpoint}\noperations:\n  - {{match: POST /p, create: persn}}\n"
            )
        texts = [detail.text for detail in caught.value.details]
        assert any("endpoint" in text or "upstream" in text for text in texts)
        assert any("there is no entity 'persn'" in text for text in texts)


def test_the_version_changes_with_the_content():
    assert load_text(SMALLEST).version == load_text(SMALLEST, "other/rules.yaml").version
    assert load_text(SMALLEST).version != load_text(SMALLEST + "\n").version


def test_tests_are_kept_with_their_content():
    text = with_operations("{match: GET /n, read: note}") + (
        "tests:\n  - name: shows\n    call: {match: GET /n, query: {a: b}}\n    app_sees: "
        "{without: [Ann], query: {a: {shape: opaque}}}\n"
        "    app_answers: {status: 200, json: {t: null}}\n    caller_sees: {status: 200, json: "
        "null}\n"
    )
    test = load_text(text).tests[0]
    assert (test.name, test.endpoint, str(test.position)) == ("shows", "crm", "rules.yaml:15:5")
    assert test.content == {
        "name": "shows",
        "call": {"match": "GET /n", "query": {"a": "b"}},
        "app_sees": {"without": ["Ann"], "query": {"a": {"shape": "opaque"}}},
        "app_answers": {"status": 200, "json": {"t": None}},
        "caller_sees": {"status": 200, "json": None},
    }


def test_a_file_may_hold_nothing_but_an_endpoint():
    rules = load_text(HEAD)
    assert rules.endpoints[0].name == "crm"
    assert (rules.entities, rules.operations, rules.tests) == ((), (), ())
    assert load_text(HEAD + ENTITIES).entities[0].fields.keys() == {"name", "email", "born"}


def test_the_environment_is_that_of_the_process_unless_given(monkeypatch):
    monkeypatch.setenv("DOMICILE_TEST_URL", "http://from-process")
    text = 'version: 1\nendpoint: {name: crm, upstream: "${env:DOMICILE_TEST_URL}"}\n'
    assert load_text(text).endpoints[0].upstream == "http://from-process"
    assert (
        load_text(text, environ={"DOMICILE_TEST_URL": "http://given"}).endpoints[0].upstream
        == "http://given"
    )


def test_a_test_that_expects_null_is_kept():
    text = (
        HEAD + "tests: [{name: a, call: {match: POST /n, form: {a: b}}, app_sees: {form: {a: "
        "null}}, caller_sees: {json: null}}]\n"
    )
    assert [test.name for test in load_text(text).tests] == ["a"]


def test_a_test_with_a_fault_gets_no_second_one():
    text = HEAD + "tests: [{name: a, call: {match: 17}, app_sees: {without: 17}}]\n"
    with pytest.raises(VaultError) as caught:
        load_text(text)
    assert [detail.source for detail in caught.value.details] == [
        "rules.yaml:3:33",
        "rules.yaml:3:58",
    ]


TYPOS = (
    ("entities:", "entites:"), ("endpoint:", "endpont:"), ("fields:", "feilds:"),
    ("match: POST", "mach: POST"), ("kind: name", "kid: name"), ("upstream:", "upstrem:"),
    ("version:", "vesion:"), ("  contact:", "  contcat:"), ("name:  {", "nam:  {"),
)  # fmt: skip


@table(("word", "typo"), TYPOS)
def test_one_typo_is_one_fault(word, typo):
    text = (
        'version: 1\nendpoint: {name: crm, upstream: "http://a"}\nentities:\n  contact:\n'
        "    fields:\n      name:  {kind: name}\noperations:\n"
        "  - {match: POST /p, create: contact, request: {fields: {name: $.a}}}\n"
        '  - {match: GET /p, read: contact, response: {each: "$[*]", fields: {name: "$[*].a"}}}\n'
    )
    assert load_text(text).operations
    with pytest.raises(VaultError) as caught:
        load_text(text.replace(word, typo, 1))
    assert len(caught.value.details) == 1


@table(
    ("one", "other", "shared"),
    [
        ("", "prefix: /x", True),
        ("host: app.example", "host: erp.example", False),
        ("host: app.example", "", True),
        ("", "host: erp.example", True),
        ("host: [app.example, erp.example]", "host: erp.example, prefix: /x", True),
    ],
)
def test_an_endpoint_is_told_the_searches_and_cookies_of_others_at_its_hosts(
    tmp_path, one, other, shared
):
    """A browser sends the address of a page, and cookies, with whatever it asks of the same host."""
    searches = (
        "  - {match: GET /found, read: contact, query: {email: {field: email}}}\n"
        "  - {match: POST /login, read: contact, request: {form: {email: email}}, "
        'response: {carriers: ["cookie last email"]}}\n'
    )
    first = SMALLEST.replace("find:", "token: {shape: email, same: true}, find:") + searches
    second = SMALLEST.replace("/contacts", "/x/erps").replace("contact", "erp")
    for name, text, at in (("crm", first, one), ("erp", second, other)):
        head = f"name: {name}, {at}," if at else f"name: {name},"
        (tmp_path / f"{name}.yaml").write_text(text.replace("name: crm,", head))
    rules = load_rule_set(tmp_path)
    assert [endpoint.searched for endpoint in rules.endpoints] == [True, shared]
    assert [[*endpoint.cookies] for endpoint in rules.endpoints] == [["last"], ["last"] * shared]
    assert all(one.endpoint in rules.endpoints for one in rules.operations)
    assert not any(endpoint.viewed for endpoint in rules.endpoints)


def test_files_that_are_replaced_while_they_are_read_are_never_mixed(tmp_path):
    """A config map is swapped under all its files at once, between two of them as anywhere.

    An operation that moves from the second file to the first is in neither half of a mixture.
    """
    other = SMALLEST.replace("name: crm,", "name: erp, host: erp.example,").replace(
        "  contact:", "  contact:\n    schema: erp_contact"
    )
    move = '  - {match: "DELETE /contacts/{id}", delete: contact}\n'
    versions = [(SMALLEST, other.replace(move, "")), (SMALLEST.replace(move, ""), other)]
    folder = mounted(tmp_path, ("one.yaml", "two.yaml"), versions)
    for most in (2, 3, 5):
        type(folder).swaps = most
        assert len(load_rule_set(folder).operations) == 9
    type(folder).swaps = 99
    with pytest.raises(VaultError, match="changes while it is read"):
        load_rule_set(folder)

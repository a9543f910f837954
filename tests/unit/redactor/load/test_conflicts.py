import sys
from pathlib import Path
from types import FrameType

import pytest

from proxy.errors import VaultError
from proxy.redactor.load import load_rule_set, load_text
from proxy.redactor.rules import RuleSet
from tests.support.rules import HEAD, faults_of, rules_of, with_fields, with_operations
from tests.support.table import table


def two(folder: Path, first: str, second: str) -> RuleSet:
    for name, keys in (("one", first), ("two", second)):
        (folder / f"{name}.yaml").write_text(
            f'version: 1\nendpoint: {{name: {name}, upstream: "http://{name}", {keys}}}\n'
            f"entities: {{e: {{schema: {name}, fields: {{t: {{kind: text}}}}}}}}\noperations: "
            "[{match: GET /crm/n, read: e}]\n"
        )
    return load_rule_set(folder)


def fault(folder: Path, first: str, second: str) -> str:
    with pytest.raises(VaultError) as caught:
        two(folder, first, second)
    assert len(caught.value.details) == 1
    return f"{Path(caught.value.details[0].source).name} {caught.value.details[0].text}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("host: a", "host: b"),
        ("host: a", "unmatched: pass"),
        ("host: [a, c]", "host: a, prefix: /crm"),
    ],
)
def test_endpoints_are_told_apart_by_host_or_prefix(tmp_path, first, second):
    if "prefix" in second:
        assert "never matches" in fault(tmp_path, "host: a", second)
        (tmp_path / "one.yaml").unlink()
    assert len(two(tmp_path, first, second).endpoints) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("unmatched: pass", "unmatched: pass"),
        ("host: [a, b]", "host: [b, c]"),
        ("prefix: /crm", "prefix: /crm/"),
    ],
)
def test_endpoints_that_cannot_be_told_apart_are_a_fault(tmp_path, first, second):
    text = fault(tmp_path, first, second)
    assert text.startswith("two.yaml:2:1 ")
    assert "cannot be told from those of 'one'" in text
    assert "one.yaml:2:1" in text


def test_one_name_for_two_endpoints_is_a_fault(tmp_path):
    (tmp_path / "a.yaml").write_text(HEAD)
    (tmp_path / "b.yaml").write_text(HEAD)
    with pytest.raises(VaultError) as caught:
        load_rule_set(tmp_path)
    assert "'crm' is already defined at" in caught.value.details[0].text


def test_a_rule_whose_requests_another_prefix_takes_is_a_fault(tmp_path):
    text = fault(tmp_path, "unmatched: pass", "prefix: /crm")
    assert text.startswith("one.yaml:4:14 ")
    assert "never matches" in text


def test_one_schema_is_the_same_in_all_files(tmp_path):
    for name, kind in (("one", "text"), ("two", "name")):
        (tmp_path / f"{name}.yaml").write_text(
            f'version: 1\nendpoint: {{name: {name}, upstream: "http://a", host: '
            f"{name}}}\nentities: {{e: {{schema: Person, fields: {{t: {{kind: {kind}}}}}}}}}\n"
        )
    with pytest.raises(VaultError) as caught:
        load_rule_set(tmp_path)
    assert "one.yaml:3:12" in caught.value.details[0].text
    (tmp_path / "two.yaml").write_text((tmp_path / "one.yaml").read_text().replace("one", "two"))
    assert [entity.schema.name for entity in load_rule_set(tmp_path).entities] == [
        "Person",
        "Person",
    ]


def test_a_file_in_good_order_has_no_warnings():
    rules = (
        '{match: "GET /n/{id}", read: note}',
        "{match: GET /c, read: contact, response: {id: $.id}}",
        "{match: GET /n.csv, read: note, response: {restore: csv, columns: {Text: text}}}",
        "{match: GET /v1.2, read: note}",
    )
    assert (
        load_text(
            with_operations(*rules).replace("born:  {kind: date}", "born:  {kind: text}")
        ).warnings
        == ()
    )


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        (('{match: "GET /n/{id}", read: note}',), "no operation names the entity 'contact'"),
        (
            ('{match: "GET /n/{id}", read: note, response: {object: $..note}}',),
            "reads every value of each answer",
        ),
        (("{match: POST /n, create: note}",), "GET /n is not"),
        (("{match: GET /export.csv, read: note}",), "shows tokens; write response: {restore: csv}"),
        (('{match: "GET /n/{id}.pdf", read: note}',), "shows tokens; nothing restores them there"),
        (
            (
                "{match: POST /i, create: contact, request: {csv: {Mail: email}}, response: {id: $.id}}",
            ),
            "names no column for name, born; a file that has such a column",
        ),
        (('{match: "PATCH /n/{id}", update: note}',), "GET /n/{id} is not"),
        ((), "has no operations"),
    ],
)
def test_what_is_seldom_meant_is_a_warning_with_its_place(operations, words, tmp_path):
    loaded = rules_of(*operations) if operations else load_text_of_head()
    found = [text for text in loaded.warnings if words in text]
    assert len(found) == 1
    assert found[0].startswith("rules.yaml:")


def load_text_of_head() -> RuleSet:
    from proxy.redactor.load import load_text

    return load_text(HEAD)


def test_the_shape_plain_is_a_warning():
    from proxy.redactor.load import load_text

    warnings = load_text(with_fields("a: {kind: text, token: plain}")).warnings
    assert any(
        text.startswith("rules.yaml:6:") and "sends the value of a itself" in text
        for text in warnings
    )


def test_two_endpoints_before_one_application_are_a_warning(tmp_path):
    loaded = two(tmp_path, "host: a", "host: b")
    assert not any("same application" in text for text in loaded.warnings)
    path = tmp_path / "two.yaml"
    path.write_text(path.read_text().replace("http://two", "http://one"))
    assert any("same application as 'one'" in text for text in load_rule_set(tmp_path).warnings)


@table(("field", "warned"), [("{kind: date}", True), ("{kind: date, token: opaque}", False)])
def test_an_entity_whose_tokens_tell_nobodys_record_is_a_warning(field, warned):
    from proxy.redactor.load import load_text

    text = with_fields(f"born: {field}") + "operations:\n  - {match: POST /p, create: person}\n"
    assert any("is not found again" in text for text in load_text(text).warnings) is warned


def test_a_read_whose_pages_are_no_success_is_told_what_to_write():
    def warned(response: str) -> list[str]:
        rules = rules_of(f"{{match: GET /n, read: note, response: {response}}}")
        return [text for text in rules.warnings if "restore: anywhere" in text]

    assert len(warned("{success: [204]}")) == 1
    assert (
        warned("{success: [204], restore: anywhere}")
        == warned("{success: [200, 201]}")
        == warned("{object: $}")
        == []
    )


SMALL = """version: 1
endpoint: {name: crm, upstream: "http://a"MORE}
entities:
  person:
    fields:
      name: {kind: name}
      born: {kind: date}
      age:  {kind: number, token: zero}
      note: {kind: text, token: {shape: fixed, value: hidden}}
operations:
  - {match: POST /people, create: person}
  - {match: "GET /people/{id}", read: person}
"""


def told_of(text: str) -> list[str]:
    return [line for line in load_text(text).warnings if "people would believe" in line]


def test_false_dates_and_numbers_that_people_would_believe_are_told():
    born, age = told_of(SMALL.replace("MORE", ""))
    assert born.startswith("rules.yaml:7:")
    assert "born has the token shape date" in born
    assert "a false one in the answer to GET /people, which no rule names. Write" in born
    assert "Write token: opaque" in born
    assert "age has the token shape zero" in age
    assert "looks like a number" in age


@table("unmatched", ["", ", unmatched: pass", ", unmatched: deny"])
def test_where_the_answers_of_a_ruled_path_are_named_none_is_told(unmatched: str):
    named = "  - {match: GET /people, read: person, response: {each: '$[*]', id: $.id}}\n"
    assert told_of(SMALL.replace("MORE", unmatched) + named) == []


def test_where_every_request_is_named_nobody_sees_one():
    assert told_of(SMALL.replace("MORE", ", unmatched: deny")) == []


def test_errors_that_pass_as_they_come_are_named():
    (born, _) = told_of(
        SMALL.replace("MORE", ", unmatched: deny") + "on_error: {upstream_not_2xx: pass}\n"
    )
    assert "in errors, which 'upstream_not_2xx: pass' shows" in born


def test_pages_whose_tokens_are_restored_anywhere_are_named():
    text = SMALL.replace("MORE", ", unmatched: deny").replace(
        "  - {match: POST",
        '  - {match: "GET /page/{id}", read: person, response: {restore: anywhere}}\n  - {match: '
        "POST",
    )
    (born, _) = told_of(text)
    assert "in the page of GET /page/{id}" in born


PAGE = """version: 1
endpoint: {name: crm, upstream: "http://a", unmatched: deny}
entities: {person: {fields: {code: {kind: text, token: TOKEN}}}}
operations:
  - {match: GET /people, read: person, response: {restore: anywhere}}
"""


@table(
    ("token", "told"),
    [
        ("{shape: template, template: 'PP-[A-Z0-9]{9}', same: true}", 1),
        ("{shape: template, template: '+44771[0-9]{12}', same: true}", 1),
        ("{shape: template, template: '[A-Z]{4}'}", 1),
        ("{shape: template, template: 'PP-[A-Z0-9]{9}'}", 0),
        ("{shape: template, template: '[A-Z0-9]{12}', same: true}", 1),
        ("{shape: template, template: '[A-Z0-9]{13}', same: true}", 0),
    ],
)
def test_a_template_that_pages_show_and_nothing_restores_is_told(token: str, told: int):
    text = told_of(PAGE.replace("TOKEN", token))
    assert len(text) == told
    assert all("a million tokens, and with same: true of 2^64" in one for one in text)


def test_a_format_that_nobody_takes_for_a_value_is_safe():
    text = (
        SMALL.replace("MORE", "")
        .replace("{kind: date}", "{kind: date, token: opaque}")
        .replace("token: zero", "token: opaque")
    )
    assert told_of(text) == []


# ---- rivals


def read(path: str) -> str:
    return f'{{match: "GET {path}", read: note}}'


@table(
    "paths",
    [
        ("/a/{x}", "/a/b"),
        ("/a/{x}", "/a/{x}.json", "/a/b.json"),
        ("/{r*}", "/a/{x}", "/a/b/{r*}"),
        ("/a/{x}", "/{y}/b", "/a/b"),
        ("/{x}/b/{z}", "/a/{y}/{z}", "/a/b/{q}"),
        ("/a/{x}/{r*}", "/{y}/b/{r*}", "/a/b/{r*}"),
        ("/a", "/a/b", "/b"),
    ],
)
def test_rules_of_which_one_is_more_specific_live_together_in_any_order(paths):
    for order in (paths, paths[::-1]):
        assert len(rules_of(*map(read, order)).operations) == len(paths)


@table(
    ("first", "second", "words"),
    [
        ("/a/{x}", "/a/{y}", "keep one of the two"),
        ("/a", "/a/", "keep one of the two"),
        ("/a/{x}", "/{y}/b", "add a rule for GET /a/b"),
        ("/a/{x}/{z}", "/{y}/b/{r*}", "add a rule for GET /a/b/{p3}"),
        ("/a{x}", "/{y}b", "longer"),
    ],
)
def test_a_tie_is_named_at_the_later_rule(first, second, words):
    for one, other in ((first, second), (second, first)):
        details = faults_of(with_operations(read(one), read(other)))
        assert [detail.source for detail in details] == ["rules.yaml:14:13"]
        assert words in details[0].text
        assert "line 13" in details[0].text


def test_rules_of_different_methods_are_no_rivals():
    assert (
        len(
            rules_of(
                '{match: "GET /a/{x}", read: note}',
                '{match: "PUT /{y}/b", update: note, id: path y}',
            ).operations
        )
        == 2
    )


def calls_for(count: int) -> int:
    """Calls of functions to load so many rules."""
    lines = "".join(
        f'  - {{match: "PUT /api/v{n % 10}/r{n}/{{id}}", update: note}}\n' for n in range(count)
    )
    text = with_operations('{match: "PUT /api/{v}/r0/old/{id}", update: note}') + lines
    calls = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        assert len(load_text(text).operations) == count + 1
    finally:
        sys.setprofile(None)
    return calls


def test_ten_times_as_many_rules_are_compared_in_about_ten_times_the_work():
    few, many = calls_for(100), calls_for(1_000)
    assert many < 15 * few, f"{few} and {many} calls: each rule is compared with each other one"


@pytest.mark.parametrize(
    ("order", "warned"),
    [
        ("refuse: [text]", True),
        ("drop: text", True),
        ("refuse: [text, contact.name, contact.email, contact.born]", False),
        ("refuse: always", False),
        ("pass: true", False),
    ],
)
def test_an_order_that_leaves_out_fields_of_another_object_is_a_warning(order, warned):
    warnings = rules_of(
        f"{{match: GET /n, objects: [{{read: note, query: {{sort: {{{order}}}}}, response: {{each: "
        '"$.data[*]", id: $.id}}, {read: contact, response: {each: "$.data[*].person", id: $.id}}]}'
    ).warnings
    told = [one for one in warnings if "contact.name, contact.email, contact.born" in one]
    assert len(told) == warned, warnings


@pytest.mark.parametrize(
    ("more", "unread"),
    [
        ('{match: "PUT /n/{doc}", update: note, id: path doc}', []),
        ('{match: "POST /n/{id}/actions/publish", update: note}', []),
        ("{match: POST /n/actions/publish, create: note}", ["/n/actions/publish"]),
        ('{match: "POST /n/{id}/contacts", create: contact}', ["/n/{id}/contacts"]),
        ('{match: "PUT /n/{id}/text", update: note}', ["/n/{id}/text"]),
    ],
)
def test_a_path_is_read_by_whatever_name_and_an_action_by_that_of_its_record(more, unread):
    warnings = rules_of('{match: "GET /n/{id}", read: note}', more).warnings
    told = [f"GET {path} is not" for path in unread]
    assert [one for one in told if any(one in text for text in warnings)] == told
    assert sum(" is ruled and GET " in one for one in warnings) == len(told)

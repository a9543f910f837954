from proxy.redactor.load import load_text
from proxy.redactor.tools.difference import differences
from proxy.redactor.tools.rule_data import changes_data, results_data, rules_data
from tests.support.rules import HEAD
from tests.support.table import table

RULES = """\
version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:1"}
entities:
  contact: {fields: {name: {kind: name}, email: {kind: email}}}
operations:
  - {match: POST /contacts, create: contact}
"""


def test_a_rule_set_is_told_with_its_hints() -> None:
    data = rules_data(load_text(RULES))
    assert data["ok"]
    assert (data["endpoints"], data["operations"]) == (["crm"], ["POST /contacts"])
    assert any("check" in hint for hint in data["hints"])
    assert not any("is sent as" in hint for hint in data["hints"])
    asks = RULES.replace("{kind: name}", "{kind: name, find: [partial]}") + (
        '  - {match: GET /contacts, read: contact, query: {q: {field: name, via: vault, send: {param: ids, none: "0"}}},'
        ' response: {each: "$[*]", id: $.id}}\n'
    )
    assert "sent as ids: " in rules_data(load_text(asks))["hints"][1]


def test_tests_are_in_order_where_every_one_holds() -> None:
    assert results_data({"a": []}) == {"ok": True, "tests": [{"name": "a", "problems": []}]}
    assert not results_data({"a": [], "b": ["does not hold"]})["ok"]


def test_changes_are_in_order_where_no_value_loses_protection() -> None:
    less = load_text(RULES.replace(", email: {kind: email}", ""))
    lost = changes_data(differences(load_text(RULES), less))
    assert not lost["ok"]
    assert lost["loses"]
    gained = changes_data(differences(less, load_text(RULES)))
    assert gained["ok"]
    assert gained["gains"]


def test_names_that_applications_lower_case_are_hinted_at_unless_their_tokens_survive_it() -> None:
    rules = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
entities:
  person: {fields: {login: {kind: name}, slug: {kind: text, token: lower}, email: {kind: email}, name: {kind: name}}}
operations:
  - {match: GET /people, read: person, response: {each: "$[*]", id: $.id}}
"""
    (hint,) = [one for one in rules_data(load_text(rules))["hints"] if "lower case" in one]
    assert hint.startswith("login of person: ")


def test_addresses_of_the_web_whose_tokens_are_none_are_hinted_at() -> None:
    rules = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
entities:
  person: {fields: {author_url: {kind: text}, website: {kind: text, token: {shape: template, template: "https://[a-z0-9]{22}.example/"}}, name: {kind: name}}}
operations:
  - {match: GET /people, read: person, response: {each: "$[*]", id: $.id}}
"""
    (hint,) = [one for one in rules_data(load_text(rules))["hints"] if "http://" in one]
    assert hint.startswith("author_url of person: ")


@table(
    ("answer", "hinted"),
    [("{id: $.id}", True), ("{id: $.result.id}", False), ("{object: $.result, id: $.id}", False)],
)
def test_the_number_of_a_call_is_hinted_to_be_no_id_of_a_record(answer: str, hinted: bool) -> None:
    rules = f"""version: 1
endpoint: {{name: crm, upstream: "http://127.0.0.1:3000"}}
entities: {{person: {{fields: {{name: {{kind: name}}}}}}, place: {{fields: {{street: {{kind: text}}}}}}}}
operations:
  - match: POST /rpc
    when: {{$.method: person.add}}
    objects:
      - {{create: person, request: {{object: $.params}}, response: {{object: $.result, id: $.id}}}}
      - {{create: place, request: {{each: $.params..places}}, response: {answer.replace("$.result,", "$.result.place,")}}}
  - {{match: POST /places, create: place, response: {{id: $.id}}}}
"""
    hints = [one for one in rules_data(load_text(rules))["hints"] if "number of the call" in one]
    assert [one.partition(":")[0] for one in hints] == ["POST /rpc"] * hinted


def test_a_pattern_of_a_telephone_number_is_hinted_to_be_not_all_that_is_required() -> None:
    checked = RULES.replace("{kind: email}", "{kind: phone, check: {pattern: '07.*'}}")
    (hint,) = [one for one in rules_data(load_text(checked))["hints"] if "pattern" in one]
    assert hint.startswith("email of contact: beside the pattern of check, a value has to be an")
    assert not any("pattern" in one for one in rules_data(load_text(RULES))["hints"])


def test_rules_that_tell_of_versions_are_hinted_at() -> None:
    more = """  - {match: "POST /contacts/{id}/publish", update: contact}
  - {match: "PATCH /contacts/{id}", update: contact, query: {locale: {pass: true}}}
"""
    rules = RULES + more
    (hint,) = [one for one in rules_data(load_text(rules))["hints"] if "versions: keep" in one]
    assert hint.startswith("contact: /publish, ?locale= in its rules; ")
    for text in (RULES, rules.replace("{fields:", "{versions: keep, fields:")):
        assert not any("versions: keep" in one for one in rules_data(load_text(text))["hints"])


def test_a_list_that_shows_no_date_as_its_rule_says_is_hinted_at() -> None:
    dated = RULES.replace("name: {kind: name}", "name: {kind: name}, born: {kind: date%s}")
    page = "  - {match: %s, read: contact, response: {restore: html, only: [name%s}}\n"
    for token, match, rest, hinted in (
        ("", "GET /list", "]", True),
        (", token: opaque", "GET /list", "]", False),
        ("", '"GET /list/{id}"', "]", True),
        ("", '"GET /list/{id}"', ", born], form: {birthday: born}", False),
    ):
        hints = rules_data(load_text(dated % token + page % (match, rest)))["hints"]
        said = [one for one in hints if "by its rule" in one]
        assert [one.split(":")[0] for one in said] == ["born of contact"] * hinted
        assert all("columns: {Born: born}" in one for one in said)


def test_an_export_that_leaves_out_a_date_is_hinted_at() -> None:
    dated = RULES.replace("name: {kind: name}", "name: {kind: name}, born: {kind: date}")
    rule = "  - {match: GET /e, read: contact, response: {restore: csv, columns: {%s}, id: column ID}}\n"
    for columns, hinted in (("Name: name", True), ("Name: name, Born: born", False)):
        hints = rules_data(load_text(dated + rule % columns))["hints"]
        said = [one for one in hints if "the answer of GET /e has none" in one]
        assert bool(said) is hinted


def test_an_update_that_any_redirect_confirms_is_hinted_at() -> None:
    form = '  - {match: "POST /contacts/{id}", update: contact, request: {form: {name: name}}, response: {success: %s}}\n'
    for success, hinted in (
        ("[302]", True),
        ("[200]", False),
        ('{status: 302, location: "/contacts/{id}"}', False),
    ):
        hints = rules_data(load_text(RULES + form % success))["hints"]
        (told,) = [one for one in hints if "redirect" in one] or [""]
        assert told.startswith("any redirect confirms POST /contacts/{id}, ") is hinted


def test_an_upload_whose_files_pass_is_hinted_at() -> None:
    form = '  - {match: "POST /c/{id}/photo", update: contact, request: {multipart: {n: name}%s}}\n'
    for files, hinted in ((", files: pass", True), ("", False)):
        hints = rules_data(load_text(RULES + form % files))["hints"]
        told = [one for one in hints if "files pass with their names" in one]
        assert [one.partition(":")[0] for one in told] == ["POST /c/{id}/photo"] * hinted


@table(
    ("match", "hinted"),
    [
        ('"POST /c/{id}/photo", pass: true', True),
        ("POST /media/upload, pass: true", True),
        ('"PUT|POST /profile-pictures/{name}", pass: true', True),
        (
            (
                "POST /contacts, when: {type: multipart/form-data}, pass: true}\n"
                "  - {match: POST /contacts, when: {type: application/json}, create: contact"
            ),
            True,
        ),
        ('"GET /c/{id}/photo", pass: true', False),
        ("POST /logout, pass: true", False),
        ("POST /profiles, pass: true", False),
    ],
)
def test_an_upload_that_passes_is_hinted_at_by_its_path(match, hinted) -> None:
    hints = rules_data(load_text(f"{RULES}  - {{match: {match}}}\n"))["hints"]
    assert any("files pass with their names" in one for one in hints) is hinted


def test_a_read_of_many_paths_that_names_no_parameter_is_hinted_at() -> None:
    read = '  - {match: "GET /admin/{page*}", read: contact, %sresponse: {restore: anywhere}}\n'
    rules = RULES.replace("kind: email", "kind: email, token: {shape: email, same: true}")
    named = "query: {email: email}, ", 'query: {"*name*": {refuse: always}}, '
    for query, hinted in (("", True), *((one, False) for one in named)):
        hints = rules_data(load_text(rules + read % query))["hints"]
        assert any(one.startswith("GET /admin/{page*}: ") for one in hints) is hinted


def test_numbers_of_unknown_records_that_people_would_believe_are_hinted_at() -> None:
    rules = RULES.replace(
        "name: {kind: name}",
        "name: {kind: name}, tel: {kind: phone, token: {shape: numeric, else: opaque}}",
    )
    export = "  - {match: GET /e, read: contact, response: {restore: csv, columns: {T: %s}}}\n"
    page = "  - {match: GET /p, read: contact, response: {restore: html, only: [%s]}}\n"
    for read in (export, page):
        for text, hinted in (
            ((rules + read) % "tel", True),
            ((rules + read) % "name", False),
            ((rules.replace("{shape: numeric, else: opaque}", "opaque") + read) % "tel", False),
        ):
            hints = rules_data(load_text(text))["hints"]
            assert any(one.startswith("tel of contact: GET /") for one in hints) is hinted


def test_a_path_whose_pages_below_are_named_and_itself_is_not_is_hinted_at() -> None:
    read = '  - {match: "GET /admin/{page*}", read: contact, response: {restore: anywhere}}\n'
    itself = "  - {match: GET /admin/, pass: true}\n"
    for rules, hinted in ((read, True), (read + itself, False)):
        hints = rules_data(load_text(RULES + rules))["hints"]
        assert any(one.startswith("GET /admin/: no rule names") for one in hints) is hinted


def test_one_box_for_protected_and_other_columns_is_hinted_at() -> None:
    asks = "{field: name, via: vault, send: {param: ids, none: '-'}}"
    whole = "mail: {kind: email, token: {shape: email, same: true}}"
    for name, how, said in (
        ("q", asks, "q of GET /find looks in name (not in mail)"),
        ("'q[search_term]'", asks, "q[search_term] of GET /find looks in name (not in mail)"),
        ("search", "mail", "search of GET /find looks in mail (not in name)"),
        ("name", asks, ""),
        ("q", "{refuse: always}", ""),
    ):
        rules = (
            f"{HEAD}entities:\n  p:\n    fields:\n"
            f"      name: {{kind: name, find: [partial]}}\n      {whole}\n"
            "operations:\n  - {match: POST /p, create: p}\n"
            f"  - {{match: GET /find, read: p, query: {{{name}: {how}}}}}\n"
        )
        hints = [one for one in rules_data(load_text(rules))["hints"] if "a box that" in one]
        assert [one.partition(": a box")[0] for one in hints] == [said] * bool(said)

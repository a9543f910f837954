from proxy.redactor.load import load_text
from proxy.redactor.rules import IdSource, Operation, Restore
from tests.support.exchanges import rule_text
from tests.support.rules import faults_of, operation_of, with_operations
from tests.support.table import table

PAGE = '{match: "GET /n/{id}", read: note, response: RESPONSE}'


def response_of(text: str):
    return operation_of(PAGE.replace("RESPONSE", text)).response


@table(
    "response",
    [
        "{restore: cvs, columns: {a: name}, formulas: escape, id: column ID}",
        "{restore: htlm, only: [text]}",
        "{restore: htlm, form: {a: text}}",
        "{restore: htlm, carriers: [href]}",
    ],
)
def test_a_misspelt_word_of_restore_is_one_fault(response):
    faults = faults_of(with_operations(f"{{match: GET /n, read: note, response: {response}}}"))
    assert len(faults) == 1, faults


def test_a_page_restores_all_fields_unless_some_are_listed():
    rule = response_of("{restore: html, only: [text]}")
    assert (rule.restore, rule.only, rule.members, rule.body) == (
        Restore.HTML,
        {"text"},
        {},
        None,
    )


EXPORT = "{match: GET /c, read: contact, response: RESPONSE}"
CARD = '{match: "GET /c/{id}", read: contact, response: RESPONSE}'


def test_a_page_names_the_elements_that_hold_small_tokens():
    text = CARD.replace("RESPONSE", "{restore: html, form: {birth: born, mail: email}}")
    rule = operation_of(text).response
    assert rule.members == {"birth": "born", "mail": "email"}


def test_a_page_names_the_heads_of_its_tables_and_its_labels():
    rule = operation_of(CARD.replace("RESPONSE", "{restore: html, columns: {Born: born}}")).response
    assert (rule.heads, rule.columns, rule.in_parts) == ({"Born": "born"}, {}, False)
    for ident in ("column #", "link /c/{id}"):
        text = f'{{restore: html, columns: {{Born: born}}, id: "{ident}"}}'
        rule = operation_of(EXPORT.replace("RESPONSE", text)).response
        assert rule.id is not None
        assert rule.id.source is IdSource.COLUMN
    both = "{restore: html, columns: {Born: born, Mail: email}, form: {b: born, m: email}}"
    rule = operation_of(EXPORT.replace("RESPONSE", both)).response
    assert (rule.heads["Mail"], rule.members["m"]) == ("email", "email")


def test_a_form_of_one_new_record_names_them_too():
    create = "{match: POST /c, create: contact, request: REQUEST, response: RESPONSE}"
    said = '{id: "header Location /c/{id}", restore: html, form: {born: born}}'
    create = create.replace("RESPONSE", said)
    for request in ("{form: {born: born}}", "{multipart: {born: born}, files: pass}"):
        rule = operation_of(create.replace("REQUEST", request)).response
        assert rule.members == {"born": "born"}
    found = faults_of(with_operations(create.replace("REQUEST", '{each: "$[*]"}')))
    assert "nobody can tell from other data of the page" in " ".join(one.text for one in found)


@table(
    ("operation", "text"),
    [
        (CARD.replace("RESPONSE", "{restore: html}"), "element that holds it: form: {born: born}"),
        (CARD.replace("RESPONSE", "{restore: html, form: {a: name}}"), "born has the token shape"),
        (CARD.replace("RESPONSE", "{restore: text}"), "other data of the text; give it a larger"),
        (
            "{match: GET /c, read: contact, response: {restore: html, form: {born: born}, id: $.id}}",
            "other data of the page",
        ),
        (PAGE.replace("RESPONSE", "{only: [text]}"), "'only' goes with restore: html"),
        (
            CARD.replace("RESPONSE", "{restore: html, only: [name], form: {birth: born}}"),
            "the page shows born in an element, and 'only' leaves it out; add born to 'only'",
        ),
        (
            CARD.replace("RESPONSE", "{restore: html}"),
            "or the label before it, as people read them: columns: {Born: born}; or the element",
        ),
        (
            EXPORT.replace("RESPONSE", "{restore: html, columns: {Born: born}}"),
            "columns: {Born: born, Name: name}; or the element that holds it",
        ),
        (
            EXPORT.replace("RESPONSE", "{restore: html, form: {b: born}, columns: {Name: name}}"),
            "born has the token shape",
        ),
        (
            CARD.replace("RESPONSE", "{restore: html, only: [name], columns: {Born: born}}"),
            "'columns' names born, and 'only' leaves it out; add born to 'only'",
        ),
        (
            CARD.replace("RESPONSE", '{restore: html, columns: {Born: born, "BORN:": name}}'),
            "'BORN:' and 'Born' are the same head",
        ),
        (
            CARD.replace("RESPONSE", '{restore: html, columns: {Born: born, " ": name}}'),
            "a head has a text",
        ),
        (CARD.replace("RESPONSE", "{restore: html, columns: {Born: bron}}"), "no field 'bron'"),
        (CARD.replace("RESPONSE", "{restore: text, columns: {Born: born}}"), "'columns' goes with"),
        (PAGE.replace("RESPONSE", "{restore: html, only: [test]}"), "note has no field 'test'"),
        (
            CARD.replace("RESPONSE", "{restore: text, only: [name], form: {n: name}}"),
            "'form' names the elements of a page of HTML; leave it out of text",
        ),
        (PAGE.replace("RESPONSE", "{restore: xml}"), "'xml' is not known here"),
    ],
)
def test_what_cannot_be_told_from_other_data_is_a_fault(operation, text):
    assert text in " ".join(one.text for one in faults_of(with_operations(operation)))


def test_an_export_says_which_column_holds_which_field():
    text = "{restore: csv, columns: {Born: born, Name: name}, id: column ID}"
    rule = operation_of(EXPORT.replace("RESPONSE", text)).response
    assert (rule.columns, rule.in_parts) == ({"Born": "born", "Name": "name"}, True)
    assert rule.id is not None
    assert (rule.id.source, rule.id.name) == (IdSource.COLUMN, "ID")


@table(
    ("operation", "text"),
    [
        (EXPORT.replace("RESPONSE", "{restore: csv}"), "write columns:"),
        (EXPORT.replace("RESPONSE", "{columns: {a: name}}"), "'columns' goes with restore: csv"),
        (EXPORT.replace("RESPONSE", "{formulas: escape}"), "'formulas' goes with restore: csv"),
        (EXPORT.replace("RESPONSE", "{restore: csv, columns: {a: nam}}"), "no field 'nam'"),
        (EXPORT.replace("RESPONSE", "{restore: csv, columns: {a: born}}"), "name its column"),
        (
            EXPORT.replace("RESPONSE", "{restore: csv, columns: {a: name}, id: $.id}"),
            "the id of an export is a column",
        ),
        (
            EXPORT.replace("RESPONSE", "{restore: csv, columns: {a: name}, id: column a}"),
            "an id must be a value that no rule names",
        ),
        (EXPORT.replace("RESPONSE", "{id: column ID}"), "a column is one of an export"),
        (
            EXPORT.replace("RESPONSE", "{restore: html, only: [name], id: column ID}"),
            "write restore: csv, or restore: html and 'columns'",
        ),
        (
            EXPORT.replace("RESPONSE", '{restore: html, columns: {Born: born}, id: "column BORN"}'),
            "an id must be a value that no rule names",
        ),
        (
            EXPORT.replace("RESPONSE", '{restore: csv, columns: {a: name}, id: "link /c/{id}"}'),
            "a link is one of a page",
        ),
        (
            EXPORT.replace("RESPONSE", '{restore: html, columns: {Born: born}, id: "link /c"}'),
            "the id",
        ),
        (
            '{match: POST /c, create: contact, response: {restore: html, columns: {Born: born}, id: "column #"}}',
            "a column is one of an export",
        ),
        ('{match: "PUT /c/{id}", update: contact, id: column ID}', "a column is one of an export"),
        (
            "{match: POST /c, create: contact, response: {id: $.id, restore: csv, columns: {a: name}}}",
            "an export is read, and this is a create",
        ),
    ],
)
def test_what_an_export_cannot_be_is_a_fault(operation, text):
    assert text in " ".join(one.text for one in faults_of(with_operations(operation)))


LIST = '{match: GET /n, read: note, response: {each: "$.items[*]", REST}}'


def test_carriers_are_header_fields_and_places_of_addresses():
    rule = operation_of(LIST.replace("REST", "carriers: [header Link, Location, $.next]")).response
    assert rule.carriers == {b"link", b"location"}
    assert rule.carried == (("next",),)
    assert rule.special
    assert operation_of(LIST.replace("REST", "scan: true")).response.scan


@table(
    ("rest", "text"),
    [
        ("carriers: [Set-Cookie]", "write its name and the field of its value"),
        ("carriers: [header Set-Cookie]", "write its name and the field of its value"),
        ("carriers: [cookie]", "write its name and the field of its value"),
        ("carriers: [cookie a b c]", "write its name and the field of its value"),
        ("carriers: [cookie who]", "note has no field 'who'"),
        ("carriers: [cookie who text]", "equal values need equal tokens"),
        ("carriers: [X-Next]", "'X-Next' is none of location"),
        ('carriers: ["$.items[*].text"]', "this is a protected place"),
        ("carriers: [$.next], stream: ndjson", "restored as it arrives has no 'carriers'"),
        ("scan: true, stream: ndjson", "restored as it arrives has no 'scan'"),
        ("scan: false", "this must be true"),
    ],
)
def test_what_no_carrier_can_be_is_a_fault(rest, text):
    faults = faults_of(with_operations(LIST.replace("REST", rest)))
    assert text in " ".join(one.text for one in faults)


def test_a_cookie_has_one_field_whose_tokens_can_be_told_from_values():
    fields = "{kind: text, token: {shape: opaque, same: true}}"
    text = with_operations(LIST.replace("REST", "carriers: [cookie text, cookie who text]"))
    rules = load_text(text.replace("{kind: text}", fields))
    (operation,) = rules.operations
    assert operation.response.cookies == {"text": "text", "who": "text"}
    assert operation.response.carriers == {b"set-cookie"}
    assert rules.endpoints[0].cookies == operation.endpoint.cookies
    assert rules.endpoints[0].cookies["who"] == ("note", "text")
    digits = text.replace("{kind: text}", "{kind: number, token: {shape: numeric, same: true}}")
    assert "cannot be told from a value" in " ".join(one.text for one in faults_of(digits))
    other = text + "  - {match: GET /c, read: contact, response: {carriers: [cookie who email]}}\n"
    found = faults_of(other.replace("{kind: text}", fields))
    assert "holds note.text by another rule" in " ".join(one.text for one in found)


def test_addresses_in_json_need_an_object_beside_them():
    text = "{match: GET /n, read: note, response: {restore: html, carriers: [$.next]}}"
    assert "names no object of JSON" in faults_of(with_operations(text))[0].text


PHONE = "phone: {kind: phone, token: TOKEN}"
DIGITS = PHONE.replace("TOKEN", "{shape: numeric, keep_last: 2}")
WORDS = PHONE.replace("TOKEN", "{shape: numeric, keep_last: 2, else: opaque}")
ONE_PAGE = '{match: "GET /p/{id}", read: p, response: RESPONSE}'


def phone_page(field: str, response: str) -> str:
    return rule_text(ONE_PAGE.replace("RESPONSE", response), fields=("name: {kind: name}", field))


@table(("response", "medium"), [("{restore: html}", "page"), ("{restore: text}", "text")])
def test_short_numbers_of_a_page_need_a_word_or_a_place(response, medium):
    (fault,) = faults_of(phone_page(DIGITS, response))
    assert f"short numbers nobody can tell from other data of the {medium}" in fault.text
    assert "token: {shape: numeric, else: opaque}" in fault.text
    assert load_text(phone_page(WORDS, response)).rules
    assert load_text(phone_page(DIGITS, response.replace("}", ", only: [name]}"))).rules


def test_the_element_that_holds_a_short_number_may_be_named():
    text = phone_page(DIGITS, "{restore: html, form: {tel: phone}}")
    (operation,) = load_text(text).rules
    assert isinstance(operation, Operation)
    assert operation.response.members == {"tel": "phone"}


def test_pages_of_anybody_warn_of_short_numbers():
    (warning,) = [
        one
        for one in load_text(phone_page(DIGITS, "{restore: anywhere}")).warnings
        if "phone" in one
    ]
    assert "people would believe the tokens of short numbers in the page of" in warning
    warnings = load_text(phone_page(WORDS, "{restore: anywhere}")).warnings
    assert not [one for one in warnings if "phone" in one]

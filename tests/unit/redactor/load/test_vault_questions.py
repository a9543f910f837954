from proxy.redactor.load import load_text
from proxy.redactor.request_rules import ListSpelling
from tests.support.rules import faults_of, marked, rules_of, with_operations
from tests.support.table import table

HEAD = """version: 1
endpoint: {name: crm, upstream: "http://127.0.0.1:3000"}
entities:
  contact:
    fields:
      name:  {kind: name, find: [exact, partial]}
      email: {kind: email, token: {shape: email, same: true}, find: [exact]}
      born:  {kind: date, token: opaque, stored: plain, find: [range]}
      size:  {kind: number, token: opaque, stored: plain, find: [range]}
      tags:  {kind: text, at: "$.tags[*]", find: [exact]}
      note:  {kind: text}
  kept:
    schema: records
    fields:
      mail: {kind: email, keep_as: key3}
operations:
"""
SEND = 'send: {param: ids, none: "-1"}'


def test_a_question_says_how_each_field_is_looked_for():
    text = (
        f"{HEAD}  - {{match: GET /n, read: contact, query: {{q: {{field: [name, email], via: vault, {SEND}}}, "
        f"f: {{field: born, via: vault, find: from, {SEND}}}, o: {{via: vault, {SEND}}}}}, response: {{id: $.id}}}}\n"
    )
    search = load_text(text).operations[0].request.search
    assert search is not None
    q, f, o = (search.query[name] for name in ("q", "f", "o"))
    assert q.vault_fields == {"name": "partial", "email": "exact"}
    assert q.send == ListSpelling("ids", ",", "-1", 500)
    assert f.vault_fields == {"born": "from"}
    assert o.vault is not None
    assert o.vault.order == {"born": "born", "size": "size"}
    assert o.vault.orderless == {name: name for name in ("name", "email", "tags", "note")}


@table(
    ("operation", "fault"),
    [
        ("GET /n|read: contact|q: {field: name, ▲via: vault}", "write send:"),
        ("GET /n|read: contact|q: {field: name, ▲via: vault, send: {param: ids}}", "finds nobody"),
        ("GET /n|read: contact|q: {field: ▲note, via: vault, SEND}", "write find: [exact]"),
        ("GET /n|read: contact|q: {field: ▲email, via: vault, find: partial, SEND}", "write find: [partial]"),
        ("GET /n|read: contact|q: {field: ▲name, via: vault, find: to, SEND}", "write find: [range]"),
        ("GET /n|read: contact|q: {field: ▲size, via: vault, find: to, SEND}", "no order that means"),
        ("GET /n|read: contact|q: {field: ▲tags, via: vault, SEND}", "several values"),
        ("GET /n|read: contact|q: {via: vault, ▲split: ',', SEND}", "says an order"),
        ("GET /n|read: contact|q: {field: [email, ▲name]}", "write via: vault"),
        ("GET /n|read: contact|q: {field: email, ▲find: exact}", "write via: vault"),
        ("GET /n|read: kept|q: {field: mail, ▲via: vault, SEND}", "record-based interface"),
        ("DELETE /n|delete: contact|q: ▲{field: name, via: vault, SEND}", "belongs to reads"),
        (
            ("GET /n|read: contact|q: {field: name, via: vault, SEND}, r: ▲{field: name, via: vault, send: "
            '{param: id, none: "-1"}}'),
            "one list of ids",
        ),
    ],
)  # fmt: skip
def test_what_the_vault_cannot_answer_is_told_with_its_place(operation, fault):
    match, verb, query = operation.replace("SEND", SEND).split("|")
    text, places = marked(
        f"{HEAD}  - {{match: {match}, {verb}, query: {{{query}}}, id: query id, response: {{id: $.id}}}}\n"
    )
    told = faults_of(text)
    assert any(
        fault in one.text and one.source.endswith(f":{place}") for one in told for place in places
    ), told


def test_an_entity_without_an_order_is_told():
    text = HEAD.replace(", stored: plain, find: [range]", "")
    (fault,) = faults_of(
        f"{text}  - {{match: GET /n, read: contact, query: {{o: {{via: vault, {SEND}}}}}, response: {{id: $.id}}}}\n"
    )
    assert "no field of contact has an order" in fault.text


ASKING = (
    "{match: GET /n, read: contact, query: {q: {field: email, via: vault, send: {param: ids, "
    "none: '0'}}}, response: {each: '$[*]', id: $.id}}"
)


def warned(*operations: str) -> list[str]:
    """What is said of searches of the vault."""
    warnings = rules_of(*operations).warnings
    return [one for one in warnings if "asks the vault" in one or "tells no id" in one]


def test_a_search_for_records_that_nothing_brings_into_the_vault_is_warned_of():
    (warning,) = warned(ASKING)
    assert "GET /n asks the vault for contact, and no operation creates or updates" in warning
    assert warned(ASKING, "{match: POST /n, create: contact}") == []


def test_a_search_for_records_whose_creates_tell_no_id_is_warned_of():
    shown = "response: {restore: html, only: [email]}"
    asking = ASKING.replace("response: {each: '$[*]', id: $.id}", shown)
    page = "{match: POST /n, create: contact, response: {restore: anywhere}}"
    (warning,) = warned(asking, page)
    assert "POST /n is answered by a page" in warning
    told = page.replace("{restore", '{id: "header Location /n/{id}", restore')
    assert warned(asking, told) == []
    listed = "{match: GET /l, read: contact, response: {each: '$[*]', id: $.id}}"
    assert warned(asking, page, listed) == []


@table(
    "operation",
    [
        "{match: GET /n, read: contact, query: {born: born}, response: {each: '$[*]', id: $.id}}",
        "{match: GET /n, read: contact, query: {b: {field: born, split: ','}}, response: {each: '$[*]', id: $.id}}",
        "{match: 'GET /n/{b}', read: contact, path: {b: born}, response: {each: '$[*]', id: $.id}}",
        "{match: POST /n, read: contact, request: {fields: {born: $.b}}, response: {each: '$[*]', id: $.id}}",
    ],
)
def test_a_search_by_tokens_that_several_values_share_is_warned_of(operation):
    small = "born:  {kind: date, token: {shape: date, same: true}}"
    for token, told in (("{shape: date, same: true}", 1), ("{shape: opaque, same: true}", 0)):
        text = with_operations(operation).replace(
            "born:  {kind: date}", small.replace("{shape: date, same: true}", token)
        )
        warned_of = [
            one for one in load_text(text).warnings if "share one of the shape date" in one
        ]
        assert len(warned_of) == told

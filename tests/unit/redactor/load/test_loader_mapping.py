from proxy.redactor.load import load_text
from tests.support.rules import HEAD, fields_searched

TEXT = f"""{HEAD}entities:
  person:
    schema: records
    fields:
      name:  {{kind: name, keep_as: profile_key}}
      email: {{kind: email, token: {{shape: email, same: true}}, keep_as: key3}}
      spare: {{kind: text}}
  pet:
    fields:
      name: {{kind: name}}
operations:
  - {{match: POST /people, create: person, request: {{object: $.it, form: {{mail: email}}, fields: {{spare: $.else}}}}, response: {{id: $.id}}}}
  - {{match: GET /people, read: person, query: {{q: {{field: email}}}}, response: {{each: "$[*]", id: $.id}}}}
  - {{match: GET /pets, read: pet}}
"""


def test_operations_and_entities_go_by_the_fields_of_the_record_schema():
    rules = load_text(TEXT)
    person, pet = rules.entities
    assert list(person.fields) == ["profile_key", "key3", "spare"]
    assert [rule.name for rule in person.fields.values()] == ["profile_key", "key3", "spare"]
    assert person.fields["key3"].at == ("email",)
    assert person.schema.name == "records/person"
    assert [(field.name, field.kind) for field in person.schema.fields] == [
        ("profile_key", "name"),
        ("key3", "email"),
        ("spare", "text"),
    ]
    create, read, of_pets = rules.operations
    assert create.entity is read.entity is person
    assert create.request.body is not None
    assert create.request.body.fields == {"profile_key": ("name",), "key3": ("email",)}
    assert (create.request.body.anchored, create.request.body.form) == (
        {"spare": ("else",)},
        {"mail": "key3"},
    )
    assert fields_searched(read) == {"q": "key3"}
    assert read.response.body is not None
    assert set(read.response.body.fields) == {"profile_key", "key3", "spare"}
    assert (of_pets.entity, pet.kept_as) == (pet, None)


def test_columns_heads_and_elements_of_answers_go_by_them_as_well():
    """Without it a page was answered with 500, and an export showed the dates of tokens."""
    text = TEXT.replace("spare: {kind: text}", "born: {kind: date, keep_as: key1}").replace(
        ", fields: {spare: $.else}", ""
    )
    page = (
        "{match: GET /list, read: person, response: {restore: html, only: [name, email, born], "
        "columns: {Name: name, Born: born}, form: {mail: email, birthday: born}}}"
    )
    export = (
        "{match: GET /export, read: person, "
        "response: {restore: csv, columns: {Name: name, Born: born}, id: column ID}}"
    )
    rules = load_text(text + f"  - {page}\n  - {export}\n").operations
    shown, exported = (one.response for one in rules[-2:])
    assert shown.heads == exported.columns == {"Name": "profile_key", "Born": "key1"}
    assert shown.members == {"mail": "key3", "birthday": "key1"}
    assert shown.only == {"profile_key", "key3", "key1"}

from proxy.redactor.load import load_text
from tests.support.rules import HEAD

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
    assert read.request.query == {"q": "key3"}
    assert read.response.body is not None
    assert set(read.response.body.fields) == {"profile_key", "key3", "spare"}
    assert (of_pets.entity, pet.kept_as) == (pet, None)

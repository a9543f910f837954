from proxy.redactor.load import load_text
from tests.support.rules import HEAD
from tests.support.table import table

TEXT = f"""{HEAD}entities:
  c:
    fields:
      name: {{kind: name}}
      FIELD
operations:
  - {{match: POST /c, create: c}}
  - {{match: GET /l, read: c, response: {{restore: html, columns: {{Name: name, "Född:": x}}}}}}
  - {{match: GET /e, read: c, response: {{restore: csv, columns: {{Day: x}}, id: column ID}}}}
"""


@table(
    ("field", "some"),
    [
        ("birth_date: {kind: date}", {"birth date", "birthdate", "birth_date", "date of birth"}),
        ("day: {kind: date, at: $.person.dayOfEntry}", {"day", "day of entry", "dayofentry"}),
        ("no: {kind: number, token: {shape: numeric}}", {"no"}),
        ("birth_date: {kind: date, token: opaque}", set()),
    ],
)
def test_what_people_read_above_a_field_is_known_where_they_would_believe_its_token(field, some):
    name = field.partition(":")[0]
    text = TEXT.replace("FIELD", field).replace("x}", f"{name}}}")
    if "numeric" in field:  # a list cannot tell its short tokens
        text = "".join(one for one in text.splitlines(keepends=True) if "GET /l" not in one)
    (entity,) = load_text(text).entities
    labels = entity.fields[name].labels
    assert labels >= some
    assert bool(labels) is bool(some)
    assert not entity.fields["name"].labels
    assert ("född" in labels) is ("date" in field and bool(some))
    assert ("day" in labels) is bool(some)


@table(
    ("first", "second", "field", "warned"),
    [
        ("{name: name}", "{born: born}", "{kind: date}", True),
        ("{name: name}", "{born: born}", "{kind: date, token: {shape: opaque, same: true}}", False),
        (
            "{name: name}",
            "{name: name, born: born}",
            "{kind: date}",
            False,
        ),  # a short form, a long one
    ],
)
def test_steps_of_a_form_that_make_a_record_each_are_warned_of(first, second, field, warned):
    steps = "".join(
        f"  - {{match: POST /{step}, create: c, request: {{form: {form}}}, response: {{id: $.id}}}}\n"
        for step, form in (("one", first), ("two", second))
    )
    text = (
        f"{HEAD}entities:\n  c: {{fields: {{name: {{kind: name}}, born: {field}}}}}\noperations:\n"
    )
    rules = load_text(text + steps)
    said = [one for one in rules.warnings if "create a record each" in one]
    assert bool(said) is warned
    assert rules.entities[0].scattered == ({"born"} if warned else set())

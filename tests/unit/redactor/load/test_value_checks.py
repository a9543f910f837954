import datetime as dt
import json
from decimal import Decimal

from proxy.redactor.load import load_text
from proxy.redactor.validation import FieldCheck, RelativeDay
from tests.support.rules import faults_of, with_fields
from tests.support.table import table


@table(
    ("field", "check"),
    [
        ("{kind: email}", None),
        ("{kind: email, check: true}", FieldCheck("email")),
        ("{kind: text, check: iban}", FieldCheck("text", standards=("iban",))),
        ("{kind: text, check: {is: [iban, se.orgnr]}}", FieldCheck("text", standards=("iban", "se.orgnr"))),
        ("{kind: phone, check: {region: se}}", FieldCheck("phone", regions=("SE",))),
        ("{kind: phone, check: {region: [SE, no]}}", FieldCheck("phone", regions=("SE", "NO"))),
        ("{kind: number, check: {min: 0, max: 1.5}}", FieldCheck("number", least=Decimal(0), most=Decimal("1.5"))),
        ("{kind: name, check: {min: 2, max: 100}}", FieldCheck("name", least=2, most=100)),
        ('{kind: text, check: {pattern: "[A-Z]+"}}', FieldCheck("text", pattern="[A-Z]+")),
        (
            "{kind: date, check: {min: 1900-01-01, max: today - 18y}}",
            FieldCheck("date", least=RelativeDay(dt.date(1900, 1, 1)), most=RelativeDay(None, -18)),
        ),
        ("{kind: date, check: {max: today+30d}}", FieldCheck("date", most=RelativeDay(None, 0, 30))),
        ("{kind: date, check: {max: today}}", FieldCheck("date", most=RelativeDay(None))),
    ],
)  # fmt: skip
def test_what_a_field_says_of_its_values(field, check):
    (entity,) = load_text(with_fields(f"a: {field}")).entities
    assert entity.fields["a"].check == check


@table("bound", ["today-201y", "today+1m", "yesterday", "1900-13-01", "1900"])
def test_a_day_that_is_none_is_a_fault(bound):
    (fault,) = faults_of(with_fields(f"a: {{kind: date, check: {{min: {bound}}}}}"))
    assert "is no day; write 1900-01-01, today, or today-18y" in fault.text


REFUSALS = """version: 1
endpoint: {name: app, upstream: "http://127.0.0.1:3000", refusals: FORM}
operations: [{match: GET /a, pass: true}]
"""


def test_the_form_of_refusals_is_kept_as_text():
    form = '{ok: false, error: ["{code}", 7, "braces {} and { text } stay"]}'
    (endpoint,) = load_text(REFUSALS.replace("FORM", form)).endpoints
    told = {"ok": False, "error": ["{code}", 7, "braces {} and { text } stay"]}
    assert json.loads(endpoint.refusals) == told


@table(
    ("form", "text"),
    [
        ("{error: '{detial}'}", "'{detial}' is no part of a refusal; did you mean 'detail'?"),
        ("{error: 'sorry, {code} {name}'}", "'{name}' is no part of a refusal; known here: status"),
        ("['{code}']", "this is the object of a refusal, such as {ok: false"),
        ("{}", "this is the object of a refusal"),
        ("problem", "this is the object of a refusal"),
    ],
)
def test_a_form_of_refusals_that_says_nothing_is_a_fault(form, text):
    (fault,) = faults_of(REFUSALS.replace("FORM", form))
    assert text in fault.text
    assert fault.source == "rules.yaml:2:68"

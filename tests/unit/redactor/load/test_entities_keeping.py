import pytest

from proxy.redactor.load import load_text
from tests.support.rules import faults_of, with_fields

MAIL = "email: {kind: email, keep_as: key3}"


def kept(*fields: str) -> dict[str, str] | None:
    found = load_text(with_fields(*fields, entity="schema: records")).entities[0].kept_as
    return None if found is None else dict(found)


def test_a_field_is_kept_as_one_of_the_record_schema_or_by_its_own_name():
    fields = [
        "born: {kind: date, keep_as: range_key1, stored: plain}",
        "profile_key: {kind: name}",
        "spare: {kind: text}",
    ]
    assert kept(MAIL, *fields) == {
        "email": "key3",
        "born": "range_key1",
        "profile_key": "profile_key",
    }
    assert load_text(with_fields("email: {kind: email}")).entities[0].kept_as is None


def test_several_values_fit_into_a_body():
    assert kept('tags: {kind: text, at: "$.tags[*]", keep_as: body}') == {"tags": "body"}


@pytest.mark.parametrize(
    ("fields", "place", "sentence"),
    [
        (["email: {kind: email, keep_as: key33}"], "7:", "did you mean 'key3"),
        (["email: {kind: email, keep_as: record_key}"], "7:", "has no field 'record_key'"),
        ([MAIL, "mail: {kind: email, keep_as: key3}"], "8:", "email is kept as key3 already"),
        ([MAIL, "key3: {kind: email}"], "8:", "email is kept as key3 already"),
        (
            ['tags: {kind: text, at: "$.tags[*]", keep_as: key1}'],
            "7:",
            "keep it as body or precommit_body",
        ),
        (["born: {kind: date, keep_as: range_key1}"], "7:", "stored: plain"),
        (["email: {kind: email, keep_as: key3, find: [exact]}"], "7:", "leave find out"),
        (["email: {kind: email}"], "5:", "no field of person is kept"),
    ],
)
def test_what_cannot_be_kept_so_is_told_with_its_place(fields, place, sentence):
    faults = faults_of(with_fields(*fields, entity="schema: records"))
    assert any(place in fault.source and sentence in fault.text for fault in faults), faults


def test_keep_as_means_nothing_in_a_schema_of_its_own():
    (fault,) = faults_of(with_fields(MAIL))
    assert "write 'schema: records' at person" in fault.text


@pytest.mark.parametrize(
    "text",
    [
        with_fields("email: {kind: email}", entity="schema: Records"),
        with_fields("email: {kind: email}").replace("person:", "records:"),
    ],
)
def test_the_name_of_the_record_schema_is_taken(text):
    (fault,) = faults_of(text)
    assert "'records' is the schema of the record-based interface" in fault.text

from proxy.redactor.load.value_forms import (
    Anything,
    Block,
    Either,
    Form,
    Key,
    KeywordForm,
    ListOf,
    MapOf,
    PlacedValue,
    Section,
    Text,
    number_within,
)
from tests.support.rules import read_form
from tests.support.table import table

TEXT = Text("word", "small letters", "[a-z]+")
BLOCK = Block(
    "thing",
    "A thing.",
    (
        Key("name", TEXT, "its name", required=True),
        Key("size", number_within(1, 9), "its size", "1"),
    ),
)


def faults(form: Form, text: str) -> list[str]:
    return read_form(form, text)[1]


def test_a_text_fits_its_pattern_and_its_parser():
    assert read_form(TEXT, "abc") == ("abc", [])
    assert faults(TEXT, "ABC") == ["f:1:1: 'ABC' does not fit here: small letters"]
    assert faults(TEXT, "17") == ['f:1:1: this is read as a number; put it in quotes: "17"']
    assert faults(TEXT, "true") == [
        'f:1:1: this is read as a truth value; put it in quotes: "true"'
    ]
    assert faults(TEXT, "[a]") == ["f:1:1: this must be a text: small letters"]
    assert faults(TEXT, "~") == ["f:1:1: this must be a text: small letters"]
    assert read_form(Text("number", "a number", parse=int), "'17'") == (17, [])
    assert "invalid literal" in faults(Text("number", "a number", parse=int), "x")[0]


def test_references_are_resolved_only_where_they_may_stand():
    open_text = Text("word", "small letters", "[a-z]+", reference=True)
    assert read_form(open_text, "${env:A}", {"A": "abc"}) == ("abc", [])
    assert "not allowed here" in read_form(TEXT, "${env:A}", {"A": "abc"})[1][0]
    assert read_form(open_text, "${env:A}", {"A": "SECRET"})[1] == [
        "f:1:1: '${env:A}' does not fit here: small letters"
    ]


def test_a_long_text_is_not_repeated_in_its_fault():
    assert faults(TEXT, "A" * 100) == ["f:1:1: this text does not fit here: small letters"]


def test_a_word_is_one_of_its_choices():
    word = KeywordForm(("keep", "erase"))
    assert read_form(word, "keep") == ("keep", [])
    assert faults(word, "drop") == ["f:1:1: 'drop' is not known here; write keep or erase"]
    assert faults(word, "earse") == ["f:1:1: 'earse' is not known here; did you mean 'erase'?"]
    assert faults(word, "[keep]") == ["f:1:1: a list is not known here; write keep or erase"]
    assert faults(KeywordForm(("a",)), "{b: c}") == ["f:1:1: a mapping is not known here; write a"]
    assert word.label == "`keep` | `erase`"
    assert KeywordForm(("a",), title="letter").label == "letter"


@table("text", ["0", "10", "1.0", "true", "'5'", "[5]"])
def test_a_whole_number_stays_within_its_bounds(text):
    assert read_form(number_within(1, 9), "5") == (5, [])
    assert faults(number_within(1, 9), text) == ["f:1:1: this must be a whole number from 1 to 9"]
    assert faults(number_within(2, 2), text) == ["f:1:1: this must be 2"]
    assert (number_within(1, 9).label, number_within(2, 2).label) == ("number from 1 to 9", "`2`")


def test_anything_is_read_as_ordinary_values():
    assert read_form(Anything(), "{a: [1, no]}") == ({"a": [1, "no"]}, [])


def test_a_list_holds_items_with_places():
    value, found = read_form(ListOf(TEXT), "[a, b]")
    assert isinstance(value, list)
    assert found == []
    assert [(item.value, str(item.at)) for item in value] == [("a", "f:1:2"), ("b", "f:1:5")]
    assert faults(ListOf(TEXT), "a") == ["f:1:1: this must be a list: [a]"]
    assert faults(ListOf(TEXT), "{a: b}") == ["f:1:1: this must be a list"]
    assert "leave the key out" in faults(ListOf(TEXT), "[]")[0]
    single, _ = read_form(ListOf(TEXT, single=True), "a")
    assert isinstance(single, list)
    assert single[0].value == "a"


def test_a_mapping_has_names_of_the_operators_choice():
    form = MapOf(number_within(1, 9), "letter", "[a-z]", "one small letter")
    value, _ = read_form(form, "{a: 1, b: 2}")
    assert isinstance(value, dict)
    assert {name: item.value for name, item in value.items()} == {"a": 1, "b": 2}
    assert isinstance(value["a"], PlacedValue)
    assert str(value["b"].key) == "f:1:8"
    assert faults(form, "{B: 1}") == ["f:1:2: 'B' cannot be a letter: one small letter"]
    assert faults(form, "[a]") == ["f:1:1: this must be a mapping, one entry for each letter"]
    assert "name at least one letter" in faults(form, "{}")[0]


def test_a_scalar_or_a_mapping_is_read_by_its_own_form():
    form = Either(TEXT, BLOCK)
    assert read_form(form, "abc")[0] == "abc"
    assert isinstance(read_form(form, "{name: a}")[0], Section)
    assert form.label == "word, or [thing](#thing)"


def test_a_block_knows_its_keys():
    section, found = read_form(BLOCK, "{name: a, size: 0}")
    assert isinstance(section, Section)
    assert found == ["f:1:17: this must be a whole number from 1 to 9"]
    assert section.value("name") == "a"
    assert section.value("size", 3) == 3
    assert "size" in section
    assert list(section) == ["name", "size"]
    assert str(section.position("size")) == "f:1:17"
    assert str(section.key("size")) == "f:1:11"
    assert section.position("missing") == section.key("missing") == section.at
    assert not section.strange


def test_a_block_refuses_other_keys():
    assert faults(BLOCK, "{name: a, sizes: 1}") == [
        "f:1:11: unknown key 'sizes' in thing; did you mean 'size'?"
    ]
    assert faults(BLOCK, "{size: 1}") == ["f:1:1: thing lacks 'name': its name"]
    assert faults(BLOCK, "a") == ["f:1:1: thing must be a mapping with keys such as name, size"]
    section, _ = read_form(BLOCK, "{name: a, other: 1}")
    assert isinstance(section, Section)
    assert section.strange


def test_schemas_say_what_the_forms_read():
    assert TEXT.schema() == {
        "type": "string",
        "description": "small letters",
        "pattern": "^(?:[a-z]+)$",
    }
    assert Text("any", "anything").schema() == {"type": "string", "description": "anything"}
    assert ListOf(TEXT, single=True).schema()["anyOf"][1] == TEXT.schema()
    assert MapOf(TEXT, "letter", "[a-z]").schema()["propertyNames"] == {"pattern": "^(?:[a-z])$"}
    assert BLOCK.schema() == {"$ref": "#/$defs/thing"}
    defined = BLOCK.define()
    assert defined["required"] == ["name"]
    assert defined["properties"]["size"]["description"] == "its size Default: 1."
    assert Block("other thing", "x", ()).definition == "other_thing"

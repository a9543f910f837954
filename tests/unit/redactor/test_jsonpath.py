import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model.schema import Path, PathStep, spell
from proxy.redactor.jsonpath import parse_jsonpath
from tests.support.table import table

EACH, MEMBERS, DEEP = PathStep.EACH, PathStep.MEMBERS, PathStep.DEEP

READ: dict[str, Path] = {
    "$": (),
    "@": (),
    "$.email": ("email",),
    "@.email": ("email",),
    "email": ("email",),
    "address.street": ("address", "street"),
    "$.items[*].email": ("items", EACH, "email"),
    "[*]": (EACH,),
    "*": (MEMBERS,),
    "$.*.id": (MEMBERS, "id"),
    "$..email": (DEEP, "email"),
    "$..[*]": (DEEP, EACH),
    "$..*": (DEEP, MEMBERS),
    "$.a..b[0]..['c']": ("a", DEEP, "b", 0, DEEP, "c"),
    "$[0][12]": (0, 12),
    "$[9007199254740991]": (9007199254740991,),
    "$['first-name']": ("first-name",),
    '$["straße"].x': ("straße", "x"),
    "$['']": ("",),
    "$['*'][*].*": ("*", EACH, MEMBERS),
    "$['a.b'][\"it's\"]": ("a.b", "it's"),
    r"$['it\'s']['\\']['a\/b']": ("it's", "\\", "a/b"),
    "['where'].this": ("where", "this"),
}

REFUSED = {
    "": "empty", " $.a": "white space", "$ .a": "white space", "$.a-b": "['first-name']",
    "$.straße": "['first-name']", "$.0": "['first-name']", "$[-1]": "numbers from the end",
    "$[1:2]": "slices", "$[0,1]": "lists", "$['a','b']": "supported are", "$[?(@.vip)]": "filters",
    "$[?@.vip]": "filters", "$.a.length()": "functions", "$.a.`len`": "supported are",
    "`this`": "supported are", "$.a|$.b": "supported are", "$.a where $.b": "white space",
    "$.where": "['where']", "$..": "supported are", "$.": "supported are", "$[01]": "supported are",
    "$[9007199254740992]": "supported are", "$.a.$": "supported are", "$.a.@b": "supported are",
    r"$['\u0061']": "supported are", r"$['\n']": "supported are", "$['\n']": "supported are",
    "$a": "supported are", "$['a'": "supported are",
}  # fmt: skip


@table("text", READ)
def test_a_supported_selector_is_read(text):
    assert parse_jsonpath(text) == READ[text]


@table("text", REFUSED)
def test_anything_else_is_refused_with_a_word_on_what_to_write(text):
    with pytest.raises(ValueError) as caught:
        parse_jsonpath(text)
    assert REFUSED[text] in str(caught.value)
    assert "supported are" in str(caught.value) or "quotes" in str(caught.value)


NAMES = st.text("abz_09AZ", min_size=1, max_size=6).filter(
    lambda name: not name[0].isdigit() and name != "where"
)
STEPS = st.one_of(NAMES, st.integers(0, 99), st.sampled_from([EACH, MEMBERS]), st.just(DEEP))


@given(st.lists(STEPS, max_size=6))
def test_a_path_that_is_spelled_is_read_back(steps):
    path = tuple(
        step
        for i, step in enumerate(steps)
        if step is not DEEP or steps[i + 1 : i + 2] not in ([], [DEEP])
    )
    assert parse_jsonpath(spell(path)) == path


@given(st.text("$@.*[]'\"abé019-:,?()\\ \n", max_size=12))
def test_any_text_is_read_or_refused_and_what_is_read_means_what_is_written(text):
    try:
        path = parse_jsonpath(text)
    except ValueError:
        return
    assert parse_jsonpath(spell(path)) == path

import pytest

from proxy.errors import VaultError
from proxy.redactor.field_words import field_words, order_keys
from proxy.redactor.search_rules import Parameter, VaultQuestion

ORDER = Parameter("o", vault=VaultQuestion({}, {"born": "born", "size": "size"}, {"name": "name"}))


@pytest.mark.parametrize(
    "text",
    [
        "last_name", "-last_name", "+last_name", "id,-last_name", "lastName", "LAST_NAME", "last-name",
        "last_name:desc", "last_name desc", "last_name__asc", "lastNameDesc", "person.last_name",
        "person[last_name]", "person__last_name", '{"last_name": 1}', '["id", "last_name"]', "desc(last_name)",
    ],
)  # fmt: skip
def test_a_name_is_found_with_sign_direction_and_in_lists(text):
    assert "lastname" in field_words(text)


def test_another_name_is_not():
    assert "name" not in field_words("company_name")
    assert "name" not in field_words("lastname,-names")


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("born", [("born", False)]),
        ("-born, +Size", [("born", True), ("size", False)]),
        ("born:desc,size asc", [("born", True), ("size", False)]),
        ("born__descending", [("born", True)]),
        ("id,-created", []),
        (" ", []),
    ],
)
def test_an_order_is_read_with_its_directions(text, keys):
    assert order_keys(ORDER, text) == keys


@pytest.mark.parametrize("text", ["name", "born,id", "born.year", "lower(born)", "id,-name"])
def test_an_order_that_nobody_can_answer_whole_is_refused(text):
    with pytest.raises(VaultError, match="'o'"):
        order_keys(ORDER, text)

from proxy.model.schema import Value
from proxy.redactor.inner_texts import URL_VALUE
from proxy.redactor.search.sought import Searched, json_list, name_start, split_values, url_list
from proxy.redactor.search_rules import ListSpelling, Parameter
from tests.support.table import table

SEVERAL = Parameter("e", "email", ", ")


def test_separators_of_several_signs_are_found_in_every_spelling():
    data = b"e=a%2c%20b,+c,%20"
    found = split_values(SEVERAL, (data, 2, len(data)), URL_VALUE)
    assert [(one.value.text, data[one.start : one.end]) for one in found] == [
        ("a", b"a"),
        ("b", b"b"),
        ("c", b"c"),
    ]
    assert Searched(found).every == found


def test_what_has_no_token_stays():
    data = b"e=a,%20b"
    part = Searched(split_values(SEVERAL, (data, 2, len(data)), URL_VALUE))
    assert (
        part.written(data, lambda one: Value("T") if one.value.text == "b" else None) == b"e=a,%20T"
    )
    assert part.written(data, lambda _: None) == data


@table(
    ("send", "texts", "url", "json"),
    [
        (ListSpelling("p", ",", None), ["a", "b c"], b"p=a,b+c", b'"p":"a,b c"'),
        (ListSpelling("p", "", None), ["a", "b"], b"p=a&p=b", b'"p":["a","b"]'),
        (ListSpelling("p", "", None), [], b"p=", b'"p":[]'),
        (ListSpelling("p", ",", "-1"), [], b"p=-1", b'"p":"-1"'),
        (ListSpelling("", "", None), ["a"], b"p=a", b'["a"]'),
    ],
)
def test_lists_in_a_query_and_in_json(send, texts, url, json):
    assert url_list(send, "p", texts) == url
    assert json_list(send, texts) == json


def test_the_name_of_a_member_is_found_before_its_value():
    body = b'{"a\\"b" : 1, "c": [2]}'
    assert name_start(body, body.index(b"1")) == 1
    assert name_start(body, body.index(b"2")) == body.index(b"2"), "an element has no name"

import json
from urllib.parse import quote_plus

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Value
from proxy.redactor.message import Request
from proxy.redactor.search.search import SearchPlan, search_in_words
from tests.support.exchanges import FORM, JSON
from tests.support.rules import operation_of
from tests.support.table import table


def plan(rest: str, match: str = "GET /n") -> SearchPlan:
    operation = operation_of(f'{{match: "{match}", read: contact, {rest}, response: {{id: $.id}}}}')
    assert operation.request.search is not None
    return SearchPlan(operation, operation.request.search)


def texts(target: str, rest: str, match: str = "GET /n") -> list[str]:
    """The values of a target and the bytes that each of them stands in."""
    found = plan(rest, match).address(target.encode())
    for one in found.values:
        assert target.encode()[one.start : one.end] != b""
    return [one.value.text for one in found.every]


def refused(make: object, *arguments: object) -> VaultError:
    assert callable(make)
    with pytest.raises(VaultError) as caught:
        make(*arguments)
    return caught.value


@table("text", ["-name", "id,NAME", "name%3Adesc", "born"])
def test_a_parameter_that_names_a_refused_field_is_refused_by_its_name_alone(text):
    error = refused(
        plan("query: {sort: {refuse: [name, born]}}").address, f"/n?sort={text}".encode()
    )
    assert error.code is Code.SEARCH_REFUSED
    assert "'sort'" in error.message
    assert [detail.source for detail in error.details] == ["sort"]


def test_other_fields_and_an_empty_box_pass():
    rest = "query: {sort: {refuse: [name]}, q: {refuse: always}, email: {field: email}}"
    assert texts("/n?sort=id,-created&q=&email=ann@x.example", rest) == ["ann@x.example"]


def test_what_is_refused_always_tells_no_value():
    error = refused(plan("query: {q: {refuse: always}}").address, b"/n?q=Zorbina")
    assert error.code is Code.SEARCH_REFUSED
    assert "Zorbina" not in error.message + str(error.details)


def test_values_of_a_list_are_found_one_by_one():
    rest = 'query: {e: {field: email, split: ","}}'
    assert texts("/n?e=a@x.example,b@x.example&x=1", rest) == ["a@x.example", "b@x.example"]
    assert texts("/n?e=a@x.example%2C+b@x.example,,", rest) == ["a@x.example", "b@x.example"]


def test_a_list_keeps_every_other_byte():
    target = b"/n?e=a@x.example%2c%20b@x.example,&x=%7e"
    found = plan('query: {e: {field: email, split: ","}}').address(target)
    made = found.written(target, lambda one: one.value)
    assert made == b"/n?e=a%40x.example%2c%20b%40x.example,&x=%7e"


@table(
    ("send", "made"),
    [
        ("{param: ids}", b"/n?x=1&ids=a%40x,b%40x&y=2"),
        ('{param: ids, join: ";"}', b"/n?x=1&ids=a%40x%3Bb%40x&y=2"),
        ("{param: ids, repeat: true}", b"/n?x=1&ids=a%40x&ids=b%40x&y=2"),
        ("{repeat: true}", b"/n?x=1&e=a%40x&e=b%40x&y=2"),
    ],
)
def test_a_list_is_sent_as_the_rule_says(send, made):
    search = plan(f'query: {{e: {{field: email, split: ",", send: {send}}}}}')
    target = b"/n?x=1&e=a@x,b@x&y=2"
    assert search.address(target).written(target, lambda one: one.value) == made
    repeated = b"/n?x=1&e=a@x&y=2&e=b@x"
    written = search.address(repeated).written(repeated, lambda one: one.value)
    assert written == made


def test_an_empty_list_sends_what_stands_for_none():
    search = plan('query: {e: {field: email, split: ",", send: {param: ids, none: "-1"}}}')
    assert search.address(b"/n?e=,").written(b"/n?e=,", lambda one: one.value) == b"/n?ids=-1"


def test_who_sends_by_themselves_what_the_proxy_sends_is_refused():
    search = plan('query: {e: {field: email, split: ",", send: {param: ids}}}')
    assert refused(search.address, b"/n?e=a@x&ids=1").code is Code.BAD_REQUEST
    assert search.address(b"/n?x=1").every == []


SENDING = 'query: {e: {field: email, send: {param: %s, none: "-1"}}}'


@table(
    ("send", "query", "made"),
    [
        ("mail", "x=1&mail=a@x,b@x", "x=1&mail=%3Ca@x%3E,%3Cb@x%3E"),
        ("mail, repeat: true", "mail=a@x&mail=b,c@x", "mail=%3Ca@x%3E&mail=%3Cb%2Cc@x%3E"),
        ("'mail[]', repeat: true", "mail[]=a@x", "mail[]=%3Ca@x%3E"),
        ("'mail[]', repeat: true", "mail=a@x", "mail=%3Ca@x%3E"),
        ("mail", "mail=-1&y=", "mail=-1&y="),
    ],
)
def test_what_the_proxy_sends_is_swapped_where_callers_send_it_alone(send, query, made):
    search, target = plan(SENDING % send), f"/n?{query}".encode()
    found = search.address(target)
    assert {one.field for one in found.every} <= {"email"}
    written = found.written(target, lambda one: Value(f"<{one.value.text}>"))
    assert written.replace(b"%40", b"@") == f"/n?{made}".encode()


@table(
    ("send", "query"),
    [
        ("mail", "Mail=a@x"), ("mail", "mail[]=a@x"), ("mail", "e=a@x&MAIL=b@x"), ("mail", "x;mail=a@x"),
        ("'mail[]', repeat: true", "mail[0]=a@x"), ("'mail[]', repeat: true", "e=a@x&mail=b@x"),
        ("'f[mail]'", "e=a@x&f=1"), ("'f[mail]'", "e=a@x&f[mail]=1"), ("'f[mail]'", "e=a@x&f.mail=1"),
        ("'f[mail][]', repeat: true", "e=a@x&F[]=1"),
    ],
)  # fmt: skip
def test_another_spelling_of_what_the_proxy_sends_is_refused(send, query):
    error = refused(plan(SENDING % send).address, f"/n?{query}".encode())
    assert error.code in (Code.AMBIGUOUS_JSON, Code.BAD_REQUEST)


def test_what_the_rule_says_of_the_name_that_is_sent_comes_first():
    sending = "e: {field: email, send: {param: mail}}"
    assert texts("/n?mail=a@x", f"query: {{{sending}, mail: {{pass: true}}}}") == []
    assert texts("/n?mail=a@x&m=1", f'query: {{{sending}, "m*": {{pass: true}}}}') == ["a@x"]
    always = plan(f'query: {{{sending}, "m*": {{refuse: always}}}}')
    assert refused(always.address, b"/n?mail=a@x").code is Code.SEARCH_REFUSED


def test_a_name_wins_over_a_pattern_and_a_doubtful_one_is_refused():
    rest = 'query: {"e*": {field: email}, e_x: {refuse: always}}'
    assert texts("/n?e_y=a@x", rest) == ["a@x"]
    assert refused(plan(rest).address, b"/n?e_x=a").code is Code.SEARCH_REFUSED
    assert refused(plan(rest).address, b"/n?E_x=a").code is Code.AMBIGUOUS_JSON
    assert refused(plan(rest).address, b"/n;e_y=a@x").code is Code.AMBIGUOUS_JSON
    assert texts("/n;jsessionid=e?e_y=a@x", rest) == ["a@x"]
    assert refused(plan(rest).address, b"/n?e_y=a#e=b").code is Code.BAD_REQUEST


@table(
    ("target", "value"),
    [
        ("/n/ann@x.example", "ann@x.example"), ("/n/ann%40x.example?x=1", "ann@x.example"),
        ("/n/J%C3%BCrgen@x/", "Jürgen@x"), ("http://crm/n/ann@x.example", "ann@x.example"),
        ("/N/ann+b@x", "ann+b@x"), ("http://n/n/n", "n"),
    ],
)  # fmt: skip
def test_a_value_in_the_path(target, value):
    search = plan("path: {email: email}", "GET /n/{email}")
    found = search.address(target.encode())
    assert [one.value.text for one in found.values] == [value]
    made = found.written(target.encode(), lambda one: one.value)
    assert search.address(made).values[0].value.text == value


def test_a_value_between_other_text_of_a_segment():
    assert texts("/n/ann%40x.json", "path: {email: {field: email}}", "GET /n/{email}.json") == [
        "ann@x"
    ]


@table(
    "target",
    ["/n/ann%2540x", "/n/a;b", "/n/a%2Fb", "/n//ann@x", "/n/./ann@x", "/n/%FF", "/n/%2e%2e", "/n/a%00"],
)  # fmt: skip
def test_a_path_of_several_readings_is_refused(target):
    search = plan("path: {email: email}", "GET /n/{email}")
    assert refused(search.address, target.encode()).code is Code.BAD_REQUEST


def test_a_token_is_escaped_for_its_segment():
    search = plan("path: {email: email}", "GET /n/{email}")
    (one,) = search.address(b"/n/ann@x").values
    assert one.write(Value("a b/ü@x")) == b"a%20b%2F%C3%BC@x"


BODY = (
    'request: {values: {$.q: {refuse: always}, "$.f.emails": {field: email, split: ";", send: '
    '{param: ids, repeat: true}}, "$.f.list[*]": email, $.names: {field: email, split: ","}}}'
)


def sent(body: str, rest: str = BODY) -> str:
    found = plan(rest, "POST /n").body(JSON, body.encode())
    return found.written(body.encode(), lambda one: Value(f"<{one.value.text}>")).decode()


def test_places_of_a_json_body():
    body = (
        '{"f": {"emails" : "a@x; b@x", "list": ["c@x", null, 5]}, "names":"d, \\u00e9", "k": 1.0}'
    )
    assert sent(body) == (
        '{"f": {"ids":["<a@x>","<b@x>"], "list": ["<c@x>", null, "<5>"]}, "names":"<d>, <é>", "k": 1.0}'
    )
    assert refused(sent, '{"q": "Zorbina"}').code is Code.SEARCH_REFUSED
    assert sent('{"q": ""}') == '{"q": ""}'


@table(
    "body",
    ['{"names": {"$in": ["a"]}}', '{"names": ["a"]}', '{"names": "a\\u002cb"}', '{"f": "a@x"}', '{"Names": "a"}'],
)  # fmt: skip
def test_a_json_body_of_another_form_is_refused(body):
    assert refused(sent, body).code in (Code.BAD_REQUEST, Code.AMBIGUOUS_JSON)


def test_a_member_that_the_proxy_sends_is_swapped_where_it_stands_alone():
    assert sent('{"f": {"ids": ["a@x", "b@x"]}}') == '{"f": {"ids": ["<a@x>", "<b@x>"]}}'
    joined = 'request: {values: {$.e: {field: email, send: {param: mail, none: "-"}}}}'
    assert sent('{"mail": "a@x, b@x"}', joined) == '{"mail": "<a@x>, <b@x>"}'
    assert sent('{"mail": "-", "k": ["a"]}', joined) == '{"mail": "-", "k": ["a"]}'
    both = 'request: {values: {$.e: {field: email, send: {param: mail}}, "$.mail[*]": email}}'
    assert sent('{"mail": ["a@x, b@x"]}', both) == '{"mail": ["<a@x, b@x>"]}'
    assert refused(sent, '{"mail": "a@x"}', both).code is Code.BAD_REQUEST


@table(
    "body",
    [
        '{"f": {"ids": "a@x"}}', '{"f": {"IDS": ["a@x"]}}', '{"f": {"ids": [["a@x"]]}}', '{"f": {"ids.0": "a@x"}}',
        '{"f": {"emails": "a@x", "ids": null}}', '{"f": {"emails": "a@x", "i\\u0064s": null}}',
        '{"f": {"emails": "a@x", "IDS": []}}', '{"f": {"emails": "a@x"}, "\\u0049ds": 1}',
        '{"f": {"emails": "a@x", "ids[]": []}}', '{"f": {"emails": "a@x"}, "k": [{"ids.0" : 1}]}',
    ],
)  # fmt: skip
def test_a_member_that_the_proxy_sends_is_refused_in_another_form_or_beside_its_parameter(body):
    assert refused(sent, body).code in (Code.BAD_REQUEST, Code.AMBIGUOUS_JSON)


def test_what_only_looks_like_a_member_passes():
    body = '{"f": {"emails": "a@x"}, "k": "\\"ids\\": 1", "idsx": ["ids"]}'
    assert sent(body) == body.replace('"emails": "a@x"', '"ids":["<a@x>"]')


def test_members_of_a_form():
    rest = 'request: {form: {e: {field: email, split: ","}, o: {refuse: [name]}}}'
    body = b"e=a@x,b@x&o=id"
    found = plan(rest, "POST /n").body(FORM, body)
    assert [one.value.text for one in found.values] == ["a@x", "b@x"]
    assert refused(plan(rest, "POST /n").body, FORM, b"o=name").code is Code.SEARCH_REFUSED
    assert refused(plan(rest, "POST /n").body, FORM, b'{"e": "a@x"}').code is Code.UNREADABLE_BODY
    assert refused(plan(rest, "POST /n").body, JSON, b'{"e": "a@x"}').code is Code.UNREADABLE_BODY


def test_the_head_tells_what_is_wrong_before_the_body():
    search = plan(BODY, "POST /n")
    head = Request("POST", b"/n", FORM, b"")
    assert refused(search.check_head, head).code is Code.UNREADABLE_BODY
    search.check_head(Request("POST", b"/n", JSON, b""))


def test_too_many_values_are_refused():
    search = plan('query: {e: {field: email, split: ","}}')
    assert refused(search.address, b"/n?e=" + b"a@x," * 10_001).code is Code.TOO_LARGE


def test_a_rule_in_words():
    operation = operation_of(
        '{match: "GET /n/{email}", read: contact, path: {email: email}, query: {q: {refuse: always}, '
        's: {refuse: [name]}, e: {field: email, split: ",", send: {param: ids, none: x}}}, response: {id: $.id}}'
    )
    assert operation.request.search is not None
    assert search_in_words(operation.request.search) == {
        "query": {
            "q": "refused",
            "s": "refused with name",
            "e": "email, several, split at ',', sent as ids, joined by ',', 'x' for none",
            "ids": "email, several, split at ','",
        },
        "path": {"email": "email"},
    }


# ---------------------------------------------------------------------- JSON in a text

WHERE = "{json: {$.email: email, '$.all[*]': email, $.many: {field: email, split: ','}, $.by: {refuse: [name]}}}"
DEEP = "{json: {$.email: email, $.inner: {json: {$.email: email, '$.inner[*]': {json: {$.email: email}}}}}}"


def swapped_in(text: str, rest: str, *, body: bool = False) -> str:
    """A target, or a body, with ``<value>`` in place of each value."""
    search, raw = plan(rest, "POST /n" if body else "GET /n"), text.encode()
    found = search.body(JSON, raw) if body else search.address(raw)
    return found.written(raw, lambda one: Value(f"<{one.value.text}>")).decode()


@table(
    ("target", "wanted"),
    [
        ('/n?w={"email":"a@x","n":1}', '/n?w={"email":%22%3Ca%40x%3E%22,"n":1}'),
        (
            "/n?a=1&w=%7B%22n%22:+%22%C3%A9%22,+%22email%22%3a+%22a%40x%22%7D&b=%7e",
            "/n?a=1&w=%7B%22n%22:+%22%C3%A9%22,+%22email%22%3a+%22%3Ca%40x%3E%22%7D&b=%7e",
        ),
        ('/n?w={"all":["a",+"b"],"many":"c,+d"}', '/n?w={"all":[%22%3Ca%3E%22,+%22%3Cb%3E%22],"many":"%3Cc%3E,+%3Cd%3E"}'),
        ("/n?w=", "/n?w="),
        ("/n?w={}&w=[]", "/n?w={}&w=[]"),
        ('/n?w={"email":null,"by":"id"}', '/n?w={"email":null,"by":"id"}'),
    ],
)  # fmt: skip
def test_values_of_a_json_text_in_an_address_are_swapped_and_nothing_else(target, wanted):
    assert swapped_in(target, f"query: {{w: {WHERE}}}") == wanted


def test_json_in_json_in_json_keeps_every_other_byte():
    inmost = r'{"email":"c","x":"\u00e9\/"}'
    inner = f'{{"email" : "b", "inner": [{json.dumps(inmost)}, null, ""]}}'
    outer = json.dumps({"email": "a", "inner": inner})
    body = f'{{"w": {json.dumps(outer)}, "n": 1.0}}'
    got = swapped_in(body, f"request: {{values: {{$.w: {DEEP}}}}}", body=True)
    first = json.loads(json.loads(got)["w"])
    second = json.loads(first["inner"])
    third = json.loads(second["inner"][0])
    assert (first["email"], second["email"], third["email"]) == ("<a>", "<b>", "<c>")
    back = got
    for value in "abc":
        back = back.replace(f"<{value}>", value)
    assert back == body


@table(
    ("text", "code"),
    [
        ("{", Code.MALFORMED_JSON),
        ("ann@x", Code.MALFORMED_JSON),
        ('{"email":"a","EMAIL":"b"}', Code.AMBIGUOUS_JSON),
        ('{"email":{"$eq":"a"}}', Code.BAD_REQUEST),
        ('{"all":"a"}', Code.BAD_REQUEST),
        ('{"by":"-name"}', Code.SEARCH_REFUSED),
        ('{"n":"' + "x" * (1 << 20) + '"}', Code.TOO_LARGE),
    ],
)
def test_a_text_that_is_not_the_json_of_its_rule_is_refused(text, code):
    for rest, sent in (
        (f"query: {{w: {WHERE}}}", f"/n?w={quote_plus(text)}"),
        (f"request: {{values: {{$.w: {WHERE}}}}}", json.dumps({"w": text})),
    ):
        with pytest.raises(VaultError) as caught:
            swapped_in(sent, rest, body=sent.startswith("{"))
        assert caught.value.code is code
    with pytest.raises(VaultError) as caught:
        swapped_in('{"w": {"email": "a"}}', f"request: {{values: {{$.w: {WHERE}}}}}", body=True)
    assert caught.value.code is Code.BAD_REQUEST


def test_a_json_text_is_explained():
    rule = plan(f"query: {{w: {WHERE}}}")._rule
    assert search_in_words(rule)["query"]["w"].startswith("a text of JSON, with $.email (email), ")
    assert not rule.query["w"].passes

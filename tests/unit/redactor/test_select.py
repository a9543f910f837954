import json

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep, Value
from proxy.redactor import select as selectors
from proxy.redactor.checks import Emptied
from proxy.redactor.json.tree import Leaf, Located, TreeSelection
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.select import Selection
from tests.support.table import table


def select(
    body: bytes, objects: str | None, *leaves: str, anchored: tuple[str, ...] = (), depth: int = 64
) -> TreeSelection:
    root = None if objects is None else parse_jsonpath(objects)
    return Selection(
        root, [parse_jsonpath(leaf) for leaf in leaves], [parse_jsonpath(path) for path in anchored]
    ).find(body, depth)


def texts(found: TreeSelection, body: bytes) -> list[list[tuple[int, bytes]]]:
    return [
        [(leaf.name, body[leaf.start : leaf.end]) for leaf in one.leaves] for one in found.objects
    ]


def refusal(body: bytes, objects: str | None = "$", *leaves: str, depth: int = 64) -> VaultError:
    with pytest.raises(VaultError) as caught:
        select(body, objects, *(leaves or ("email",)), depth=depth)
    return caught.value


def test_spans_are_those_of_the_raw_values():
    body = b' {"id": 7, "email" :\t"a@b" , "x": {"email": 1}}\n'
    found = select(body, "$", "email", "x.email", "missing")
    assert found == TreeSelection([Located(1, 47, (Leaf(0, 21, 26), Leaf(1, 44, 45)))], [])
    assert body[1:47].startswith(b"{")
    assert body[1:47].endswith(b"}}")


def test_a_leaf_may_be_any_value():
    body = '{"a":null,"b":[1, 2],"c":{"d" : "ü"},"e":-1.50e+3,"f":"","g":true}'.encode()
    found = select(body, "$", "a", "b", "c", "e", "f", "g")
    assert [raw for _, raw in texts(found, body)[0]] == [
        b"null", b"[1, 2]", '{"d" : "ü"}'.encode(), b"-1.50e+3", b'""', b"true",
    ]  # fmt: skip


def test_an_array_of_objects_means_each_of_them_however_nested():
    body = b'{"items":[{"email":"a"},[[{"email":"b"},{}],7],null,"x",{"email":"c","z":[{"email":"no"}]}]}'
    assert texts(select(body, "$.items", "email"), body) == [
        [(0, b'"a"')],
        [(0, b'"b"')],
        [],
        [(0, b'"c"')],
    ]
    assert select(body, "$.items[*]", "email") == select(body, "$.items", "email")
    assert select(b'[[{"email":1}]]', "$", "email").objects == [Located(2, 13, (Leaf(0, 11, 12),))]


@table("body", [b"1", b'"email"', b"null", b"[1,2]", b'{"data":5}', b"[]"])
def test_scalars_where_objects_are_expected_select_nothing(body):
    assert select(body, "$.data", "email").objects == []


def test_an_object_without_any_leaf_is_found():
    assert select(b'{"data":{}}', "$.data", "email").objects == [Located(8, 10, ())]


def test_one_selector_may_choose_several_values():
    body = b'{"tags":["a","b",["c"]],"by":{"x":1,"y":2}}'
    found = select(body, "$", "tags[*]", "by.*", "tags[9]")
    assert texts(found, body) == [[(0, b'"a"'), (0, b'"b"'), (0, b'["c"]'), (1, b"1"), (1, b"2")]]


def test_leaves_from_the_root_are_apart_from_those_of_objects():
    body = b'{"meta":{"by":"x"},"data":[{"email":"a"}],"filter":{"_eq":"e"}}'
    found = select(body, "$.data", "email", anchored=("$.filter._eq", "$.meta.by"))
    assert texts(found, body) == [[(0, b'"a"')]]
    assert [(leaf.name, body[leaf.start : leaf.end]) for leaf in found.anchored] == [
        (1, b'"x"'),
        (0, b'"e"'),
    ]


def test_without_objects_only_leaves_from_the_root_are_found():
    assert select(b'{"a":1}', None, "a", anchored=("a",)) == TreeSelection([], [Leaf(0, 5, 6)])


def test_of_leaves_inside_each_other_the_outermost_stays():
    body = b'{"a":{"b":1},"c":[{"d":2}]}'
    assert texts(select(body, "$", "a.b", "a", "c[*].d", "c[0]"), body) == [
        [(1, b'{"b":1}'), (3, b'{"d":2}')]
    ]
    found = select(body, "$", "a.b", anchored=("a",))
    assert found.objects[0].leaves == ()
    assert found.anchored == [Leaf(0, 5, 12)]
    same = select(body, "$", "a", "a")
    assert [leaf.name for leaf in same.objects[0].leaves] == [0]


def test_descent_finds_objects_and_values_at_any_depth():
    body = b'{"a":[{"contact":{"email":1,"contact":{"email":2}}}],"contact":5}'
    assert texts(select(body, "$..contact", "email"), body) == [[(0, b"1")], [(0, b"2")]]
    assert texts(select(body, "$", "$..email"), body) == [[(0, b"1"), (0, b"2")]]
    nested = select(body, "$..contact", "$..email")
    assert texts(nested, body) == [[(0, b"1"), (0, b"2")], []]


def test_a_name_is_found_however_it_is_escaped():
    body = rb'{"e\u006Dail":1,"a\/b":2,"\ud83d\ude00":3,"x":"\u0041"}'
    assert [raw for _, raw in texts(select(body, "$", "email", "['a/b']", "['😀']"), body)[0]] == [
        b"1",
        b"2",
        b"3",
    ]


@table(
    "body",
    [
        b'{"email":1,"email":2}',
        b'{"email":1,"x":{"email":3},"email":2}',
        b'{"email": 1, "email": 2}',
        rb'{"email":1,"\u0065mail":2}',
        rb'{"\u0065mail":1,"email":2}',
        rb'{"\u0065mail":1,"em\u0061il":2}',
        rb'{"note":"\u0041","\u0065mail":1,"email": 2}',
        b'{"email":1,"EMAIL":2}',
        b'{"Email":1}',
        '{"emaıl":1}'.encode(),
        '{"emaİl":1}'.encode(),
        rb'{"\u0045mail":1}',
    ],
)
def test_a_name_that_somebody_takes_for_another_one_is_ambiguous(body):
    assert refusal(body).code is Code.AMBIGUOUS_JSON


@table(("name", "other"), [("street", "\u017ftreet"), ("key", "\u212aey"), ("straße", "STRASSE")])
def test_letter_case_is_that_of_unicode(name, other):
    body = json.dumps({other: 1}, ensure_ascii=False).encode()
    assert refusal(body, "$", f"['{name}']").code is Code.AMBIGUOUS_JSON


def test_ambiguity_counts_on_the_way_to_a_value_and_not_beside_it():
    assert refusal(b'{"data":{"email":1},"data":{"email":2}}', "$.data").code is Code.AMBIGUOUS_JSON
    assert refusal(b'{"Data":{"email":1}}', "$.data").code is Code.AMBIGUOUS_JSON
    assert refusal(b'[{"id":1},{"email":1,"email":2}]').code is Code.AMBIGUOUS_JSON
    body = b'{"x":1,"x":2,"X":3,"sub":{"email":1,"EMAIL":2,"email":3},"email":"a"}'
    assert texts(select(body, "$", "email"), body) == [[(0, b'"a"')]]


def test_half_a_surrogate_pair_counts_in_selected_values_and_names():
    assert refusal(rb'{"email":"\ud800"}').code is Code.AMBIGUOUS_JSON
    assert refusal(rb'{"email":["\udc00\ud800"]}').code is Code.AMBIGUOUS_JSON
    assert refusal(rb'{"ema\ud800il":1,"email":2}').code is Code.AMBIGUOUS_JSON
    body = rb'{"x":"\ud800","y":{"\ud800":1},"email":"\\ud800\ud83d\ude00"}'
    assert texts(select(body, "$", "email"), body) == [[(0, rb'"\\ud800\ud83d\ude00"')]]


@table("body", [b'{"email":1}x', b'{"email":1} {}', b"1 2", b'{"email":1}\0'])
def test_data_behind_the_document_is_ambiguous(body):
    assert refusal(body).code is Code.AMBIGUOUS_JSON


@table(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"x":[1,]}',
        b'{"x":NaN}',
        b'{"x":-Infinity}',
        b'{"x":1/*c*/}',
        b'{"x":"\n"}',
        b"\xef\xbb\xbf{}",
        b'{"x":"\xff"}',
        '{"email":1}'.encode("utf-16"),
        '{"email":1}'.encode("utf-16-le"),
        b'{"x":01}',
        b"\x00",
    ],
)
def test_what_is_no_json_is_unreadable_although_nothing_is_selected(body):
    code = Code.UNREADABLE_BODY if b"\xff" in body else Code.MALFORMED_JSON
    assert refusal(body).code is code
    assert refusal(body, None).code is code


def test_syntax_comes_before_ambiguity():
    assert refusal(b'{"email":1,"email":2').code is Code.MALFORMED_JSON


@table("depth", [1, 2, 64, 3000])
def test_depth_is_limited_exactly_and_without_recursion(depth):
    inside = b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b',"email":"[[["}'
    if depth == 1:
        inside = b'{"x":0,"email":"[[["}'
    assert len(select(inside, "$", "email", depth=depth).objects[0].leaves) == 1
    assert refusal(b"[" + inside + b"]", "$", "email", depth=depth).code is Code.TOO_LARGE
    assert refusal(b"[" * 100_000, "$", "email", depth=depth).code is Code.TOO_LARGE


def test_no_message_tells_content():
    secret = "Quentin"
    for body in (
        f'{{"email":"{secret}"',
        f'{{"email":"{secret}","email":1}}',
        f'{{"email":"{secret}"}} x',
        f'["{secret}",]',
    ):
        fault = refusal(body.encode())
        assert secret not in fault.message
        assert secret not in repr(fault.details)
        assert fault.__context__ is None


def test_equal_selections_share_what_was_compiled():
    one, other = Selection((), [("email",)]), Selection((), [("email",)])
    one.find(b"{}")
    before = selectors._compile.cache_info().hits
    other.find(b"{}")
    assert selectors._compile.cache_info().hits == before + 1


# ---- emptied


STREET: Path = ("address", "street")
TAGS: Path = ("tags", PathStep.EACH)
NAMES: Path = ("people", PathStep.EACH, "name")


def among(path: Path, body: str, *given: str) -> dict[str, Value | None]:
    return dict(Emptied(["f"], [path]).among(given, body.encode(), 64))


@table(
    ("path", "empty", "silent"),
    [
        (TAGS, ['{"tags": []}', '{"tags":[ \n]}', '{"t\\u0061gs": []}', '{"tags": ""}'], ['{"x": []}', '{"tags": {}}', '{"tags": 5}']),
        (STREET, ['{"address": ""}'], ['{"address": []}', '{"address": {}}', '{"address": {"street2": []}}', "{}"]),
        (NAMES, ['{"people": []}'], ['{"people": [{}]}', '{"people": [[]]}', '{"x": {"people": []}}']),
        (("m", PathStep.EACH, PathStep.EACH), ['{"m": []}', '{"m": [[]]}', '{"m": [[], [ ]]}'], ['{"m": {}}']),
        (("l", 0), [], ['{"l": []}']),
        (("a", PathStep.DEEP, "n"), ['{"a": []}'], ['{"a": {}}', '{"a": [[]]}']),
        (("a", PathStep.MEMBERS), [], ['{"a": {}}', '{"a": []}']),
        ((PathStep.EACH, "n"), ['{"x": ""}'], ["{}"]),
    ],
)  # fmt: skip
def test_an_array_without_elements_holds_nothing(
    path: Path, empty: list[str], silent: list[str]
) -> None:
    assert [body for body in empty if among(path, body) != {"f": Value("")}] == []
    assert [body for body in silent if among(path, body)] == []


@table(
    ("path", "body"),
    [
        (TAGS, '{"tags": null}'),
        (STREET, '{"address": null}'),
        (NAMES, '{"people": [null]}'),
        (("l", 0), '{"l": null}'),
    ],
)
def test_null_on_the_way_holds_nothing(path: Path, body: str) -> None:
    assert among(path, body) == {"f": None}


def test_a_field_that_was_given_is_not_asked_about() -> None:
    assert among(TAGS, '{"tags": []}', "f") == {}


def test_there_is_nothing_to_ask_where_no_place_lies_behind_another() -> None:
    assert not Emptied(["a", "b", "c"], [("name",), (PathStep.DEEP, "n"), (PathStep.MEMBERS,)])
    assert Emptied(["a", "b"], [("name",), TAGS])

import json

import pytest

from proxy.errors import Code, VaultError
from proxy.redactor.json.tree import Leaf, TreeSelection, Undecided, Unsuitable
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.select import FastSelector
from tests.support.table import table


def levels(objects: str | None, *leaves: str, anchored: tuple[str, ...] = ()) -> FastSelector:
    root = None if objects is None else parse_jsonpath(objects)
    inside, rooted = ([parse_jsonpath(path) for path in paths] for paths in (leaves, anchored))
    return FastSelector((root, inside, rooted, ()))


def values(found: TreeSelection, body: bytes) -> list[list[bytes]]:
    return [[body[leaf.start : leaf.end] for leaf in one.leaves] for one in found.objects]


CONTACT = {
    "id": 1,
    "name": "Ann",
    "company": {"name": "ACME", "email": None},
    "tags": ["email", "name"],
    "email": "a@b",
}


@table("separators", [(",", ":"), (", ", ": "), (" ,\n ", "  :\t")])
@table(
    "extra",
    [{}, {"note": 'a "quoted" \\ \n line'}, {"é": 1}, {"wide": {str(n): n for n in range(200)}}],
)
def test_values_are_found_without_the_walker_however_a_document_is_written(separators, extra):
    body = json.dumps(
        {"data": [CONTACT | extra, extra | CONTACT]}, separators=separators, ensure_ascii=False
    ).encode()
    reader = levels("$.data", "email", "name", "company.name", "tags[1]", "missing")
    for _ in range(2):
        found = reader.find(body, 64)
        assert [sorted(one) for one in values(found, body)] == [
            [b'"ACME"', b'"Ann"', b'"a@b"', b'"name"']
        ] * 2
        assert all(
            list(one.leaves) == sorted(one.leaves, key=lambda leaf: leaf.start)
            for one in found.objects
        )


def test_the_names_of_a_wide_object_are_not_remembered_as_a_layout():
    reader = levels("$", "email")
    body = json.dumps(
        {f"k{n}": n for n in range(150)} | {"email": "x"}, separators=(",", ":")
    ).encode()
    assert values(reader.find(body, 64), body) == [[b'"x"']]
    assert reader.item.layouts == {}


def test_a_plain_name_is_found_among_escaped_ones():
    body = rb'{"n\u006Fte":"\u0041","email":"x", "x":{"email":1}}'
    assert values(levels("$", "email", "note").find(body, 64), body) == [[rb'"\u0041"', b'"x"']]


@table(
    ("body", "code"),
    [
        (b'{"email":1,"email":2}', Code.AMBIGUOUS_JSON),
        (b'{"email":1 ,"email":2}', Code.AMBIGUOUS_JSON),
        (b'{"email":1,"x":"email","email":2}', Code.AMBIGUOUS_JSON),
        (rb'{"\u0065mail":1,"email":2}', Code.AMBIGUOUS_JSON),
        (rb'{"\u0065mail":1, "email":2}', Code.AMBIGUOUS_JSON),
        (b'{"EMAIL":1}', Code.AMBIGUOUS_JSON),
        (rb'{"email":"\ud800"}', Code.AMBIGUOUS_JSON),
        (b'{"email":"\xff"}', Code.UNREADABLE_BODY),
        (b'{"email":[[1]]}', Code.TOO_LARGE),
        (b'{"EMAIL":[[1]]}', Code.TOO_LARGE),
    ],
)
def test_it_refuses_by_itself_what_can_be_decoded(body, code):
    with pytest.raises(VaultError) as caught:
        levels("$", "email").find(body, 2)
    assert caught.value.code is code


def test_names_that_nobody_selects_may_repeat():
    for body in (
        b'{"x":1,"x":2,"email":3}',
        b'{"x": 1, "email": 3, "x": [{"email":1}]}',
        b'{"x":1,"email":3,"X":2,"\\u0078":3}',
    ):
        assert values(levels("$", "email").find(body, 64), body) == [[b"3"]]


def test_half_a_surrogate_pair_beside_the_selected_values_does_not_matter():
    body = rb'{"note":"\ud83d","more":{"\udc00":"\\ud800"},"email":"\ud83d\ude00"}'
    assert values(levels("$", "email").find(body, 64), body) == [[rb'"\ud83d\ude00"']]
    with pytest.raises(Undecided):
        levels("$", "email").find(rb'{"\udc00":1,"email":2}', 64)


@table(
    "body",
    [
        b"",
        b" ",
        b'{"email":1',
        b'{"email":1}x',
        b'["\\ud800",]',
        b"[" * 70 + b"{}" + b"]" * 70,
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_what_it_cannot_tell_is_a_doubt(body):
    with pytest.raises(Undecided):
        levels("$", "email").find(body, 100)


def test_members_are_found_where_elements_are_expected():
    reader = levels("$.items[*]", "email")
    for body in (
        b'{"items":[{"email":1},{"email":2}]}',
        b'{"items": {"a": {"email": 1}, "b": {"email": 2}}}',
    ):
        assert values(reader.find(body, 64), body) == [[b"1"], [b"2"]]
    for twice in (b'{"items":{"a":{},"a":{}}}', b'{"items":{"a":{},"A":{}}}'):
        with pytest.raises(VaultError) as caught:
            reader.find(twice, 64)
        assert caught.value.code is Code.AMBIGUOUS_JSON
    mixed = levels(None, anchored=("$.a[*].b", "$.a.c"))
    assert len(mixed.find(b'{"a":[{"b":1}]}', 64).anchored) == 1
    with pytest.raises(Undecided):
        mixed.find(b'{"a":{"c":1}}', 64)


@table(
    ("objects", "leaves", "anchored"),
    [
        ("$..a", [], []),
        ("$", ["a.*"], []),
        ("$", ["a", "a"], []),
        ("$", ["a", "a.b"], []),
        ("$", ["a.b", "a"], []),
        ("$", ["[*].a"], []),
        ("$", ["a[*]", "a[0]"], []),
        ("$", ["a", "A"], []),
        ("$", ["a"], ["$.a"]),
        ("$", ["a"], ["$.A.b"]),
        ("$", ["a"], ["$[0]"]),
        ("$.x", ["a"], ["$.x"]),
        ("$.x.y", ["a"], ["$.x"]),
        ("$", ["$"], ["$.x"]),
    ],
)
def test_places_that_may_lie_inside_each_other_are_unsuitable(objects, leaves, anchored):
    with pytest.raises(Unsuitable):
        levels(objects, *leaves, anchored=tuple(anchored))


def test_places_from_the_root_may_stand_beside_the_objects_fields():
    body = b'{"email":"a","filter":{"email":"b"}}'
    found = levels("$", "email", anchored=("$.filter.email",)).find(body, 64)
    assert values(found, body) == [[b'"a"']]
    assert found.anchored == [Leaf(0, 31, 34)]


@table("body", [b"[" + b"{}," * 150_000 + b"{}]", b'{"a":[' + b"[1]," * 150_000 + b"1]}"])
def test_more_elements_than_a_document_of_its_size_may_have_are_refused(body):
    with pytest.raises(VaultError) as caught:
        levels("$", "name", anchored=("$.a[*][*]",)).find(body, 64)
    assert caught.value.code is Code.TOO_LARGE

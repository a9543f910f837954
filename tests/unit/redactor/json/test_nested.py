"""Names that write out a way, and what they lead to; read alike by the fast selection and by the
walker.
"""

import json
from typing import Any

import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Path
from proxy.redactor.json.nested import MOST_FOLLOWED, MOST_NAMES, Nested, is_nested, onward, pieces
from proxy.redactor.json.walk import walk, walk_nested
from proxy.redactor.jsonpath import parse_jsonpath
from proxy.redactor.select import Selection
from tests.support.table import table


@table(
    "name, steps",
    [
        ("address.street", ["address", "street"]),
        ("address[street]", ["address", "street"]),
        ("address['street']", ["address", "street"]),
        ("/address/street", ["address", "street"]),
        ("address/street", ["address", "street"]),
        ("address->street", ["address", "street"]),
        ("$.address.street", ["address", "street"]),
        ("tags[]", ["tags", ""]),
        ("tags[0].x", ["tags", "0", "x"]),
        ("tags.0", ["tags", "0"]),
        ("tags.$[].x", ["tags", "", "x"]),
        ("tags.", ["tags", ""]),
        ("tags[", ["tags", ""]),
        ("[tags][0]", ["tags", "0"]),
        ('emails[type eq "w.x"].value', ["emails", 'type eq "w.x', "value"]),
        ("urn:scim:2.0:User:name.familyName", ["urn", "scim", "2.0", "User", "name", "familyName"]),
        ("a..b", ["a", "b"]),
        ("a['b.c'][d/e]", ["a", "b", "c", "d", "e"]),
        (".", []),
        ("email:x", ["email:x"]),
        ("a-b>c", ["a-b>c"]),
    ],
)
def test_the_pieces_of_a_name(name: str, steps: list[str]) -> None:
    assert pieces(name) == steps


RULES: dict[str, tuple[str | None, list[str], list[str]]] = {
    "person": (
        "$",
        ["$.name", "$.address.street", "$.tags[*]", "$.a.b.c", "$.list[*].n", "$.m[1].x"],
        [],
    ),
    "data": ("$.data.x", ["$.name", "$.address.street"], ["$.meta.mail"]),
    "items": ("$.items[*]", ["$.name", "$.tags[*]"], []),
    "deep": (None, [], ["$..name", "$..address.street"]),
    "map": ("$", ["$.by.*.name", "$['dotted.name']"], []),
    "urn": ("$", ["$['urn:x:2.0:User'].department"], []),
}


def of(rule: str, *values: Any) -> list[tuple[str, Any]]:
    return [(rule, value) for value in values]


REACHING: list[tuple[str, Any]] = [
    *of("person", *({name: "Ann"} for name in ("address.street", "address[street]", "address/street", "/address/street", "address->street", "Address.STREET", "$.address.street", "address.stree\u0074", "addre\u017fs.street"))),
    *of("person", *({name: "Ann"} for name in ("tags.0", "tags[]", "tags[0]", "tags.$[]", "tags.", "tags/-", "name.first", "name[]", "name[0]", "[name]", ".name", "list.0.n", "list[].n", "list.n", "m.1.x", "m[].x"))),
    *of("person", {"a.b.c": "x"}, {"a": {"b.c": "x"}}, {"a.b": {"c": "x"}}, {"a.b": {"C": 1}}, {"a.b": "x"}, {"address.street": None}, {"list": [{}, {"n.x": "y"}]}, {"list.0": {"n": "x"}}, {"list[0]": {"x": 1, "n": True}}),
    *of("person", {"a": {"b": {"c.d": "x"}}}, {"a[b]": {"c[]": 1}}, [{"name": "x"}, {"tags[]": "x"}], {"name": "x", "other.y": 1, "address.street": "x"}),
    *of("data", {"data.x": {"name": "n"}}, {"data": {"x.name": "n"}}, {"data.x.name": "n"}, {"data.x": [{"name": 1}]}, {"data.x.0.name": 1}, {"data": {"x": {"address.street": 1}}}, {"meta.mail": "x"}, {"meta": {"mail.x": 1}}, {"data.x": "text"}),
    *of("items", {"items[0].name": "x"}, {"items.0.tags.1": "x"}, {"items": [{}, {"tags[]": "x"}]}, {"items[]": {"name": 1}}, {"items.0": {"tags.0": 1}}, {"items": {"0.name": "x"}}),
    *of("deep", {"x": {"y": {"name.first": "x"}}}, {"x.name": "y"}, {"x.address.street": 1}, {"x": [{"address.street": 1}]}, {"x.address": {"street": 1}}),
    *of("map", {"by.x.name": "y"}, {"by": {"x.name": "y"}}, {"by.x": {"name": 1}}, {"dotted[name]": "y"}, {"dotted/name": "y"}),
    *of("urn", {"urn:x:2.0:User:department": "d"}, {"urn:x:2.0:User.department": "d"}, {"URN:X:2.0:user:Department": "d"}),
]  # fmt: skip

HARMLESS: list[tuple[str, Any]] = [
    *of("person", *({name: "Ann"} for name in ("a.x", "address.city", "address[city]", "x.name", "names.first", "tag.0", "my.address.street", "a.b.x", "1.5", "e.g.", "http://x/y", "m.2.x", "m.0.x", ".", "[]", "//", "address_street", "address street", "name:x", "name-first"))),
    *of("person", {"a.b": {"x": "c"}}, {"a.b": {}}, {"a.b": None}, {"name.first": None}, {"name.verified": True}, {"tags": ["a.b", "tags[]"]}, {"note": "address.street", "x": {"address.street": 1}}, {"list": [{"x.n": 1}]}),
    *of("data", {"x.name": 1}, {"data.y": {"name": 1}}, {"data": {"y.name": 1}}, {"data.x": {}}, {"name.x": 1}, {"data.x": {"city": 1}}, {"meta.x": 1}),
    *of("items", {"name.x": 1}, {"items": [{"tag.x": 1}]}, {"items[0].x": 1}, {"items[0]": {"y": {"name": 1}}}),
    *of("deep", {"x.y": {"name": 1}}, {"x.y": 1}, {"address.city": 1}),
    *of("map", {"by": {"a.b": {"name": "x"}}}, {"by": {"a.b": {"x": 1}}}, {"dotted.name": "x"}, {"dotted.x": 1}),
    *of("urn", {"urn:x:2.0:User": {"department": "d"}}, {"urn:x:2.0:Group:department": "d"}, {"urn:x:3.0:User:department": "d"}),
]  # fmt: skip


def paths(rule: str) -> tuple[Path | None, list[Path], list[Path]]:
    objects, leaves, anchored = RULES[rule]
    return (
        None if objects is None else parse_jsonpath(objects),
        [parse_jsonpath(leaf) for leaf in leaves],
        [parse_jsonpath(p) for p in anchored],
    )


def refused(rule: str, body: bytes, *, nested: bool = True) -> list[bool]:
    """Whether the selection refuses the body, and whether the walker does."""
    found = []
    selection = Selection(*paths(rule), nested=nested)
    for find in (
        selection.find,
        selection.find,
        lambda text: (
            walk_nested((*paths(rule), ()), text, 64) if nested else walk(*paths(rule), text, 64)
        ),
    ):
        try:
            find(body)
            found.append(False)
        except VaultError as error:
            found.append(
                error.code is Code.AMBIGUOUS_JSON and "writes out the way" in error.message
            )
    return found


def spellings(value: Any) -> list[bytes]:
    text = json.dumps(value)
    escaped = (
        text.replace(".", "\\u002e").replace("[", "\\u005b")
        if not isinstance(value, list)
        else text
    )
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return [
        text.encode(),
        compact.encode(),
        escaped.encode() if json_is(escaped, value) else text.encode(),
    ]


def json_is(text: str, value: Any) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


@table(("rule", "value"), REACHING)
def test_a_name_that_leads_to_a_place_is_refused(rule: str, value: Any) -> None:
    for body in spellings(value):
        assert refused(rule, body) == [True] * 3, body
        assert refused(rule, body, nested=False) == [False] * 3, "answers are read as they are"


@table("rule, value", HARMLESS)
def test_a_name_that_leads_to_no_place_is_taken(rule: str, value: Any) -> None:
    for body in spellings(value):
        assert refused(rule, body) == [False] * 3, body


def test_whether_a_name_is_remembered_depends_on_what_it_may_hold() -> None:
    selection = Selection(*paths("person"), nested=True)
    for _ in range(2):
        selection.find(b'{"name":"x","a.b":{},"name.ok":true}')
    with pytest.raises(VaultError):
        selection.find(b'{"name":"x","a.b":{"c":1},"name.ok":true}')
    with pytest.raises(VaultError):
        selection.find(b'{"name":"x","a.b":{},"name.ok":"y"}')


def test_very_many_such_names_and_very_long_values_are_refused_unread() -> None:
    few = json.dumps({f"name.x{number}": True for number in range(MOST_NAMES)}).encode()
    many = json.dumps({f"name.x{number}": True for number in range(MOST_NAMES + 1)}).encode()
    assert (refused("person", few), refused("person", many)) == ([False] * 3, [True] * 3)
    assert refused("person", json.dumps({"a.b": {"x": "y" * 8000}}).encode()) == [False] * 3
    assert refused("person", json.dumps({"a.b": {"x": "y" * 9000}}).encode()) == [True] * 3
    assert refused("person", b'{"a.b":' + b'{"x":' * 50 + b"1" + b"}" * 51) == [False] * 3


def test_half_of_a_surrogate_pair_beside_such_a_name_hides_nothing() -> None:
    assert refused("person", b'{"x":"\\ud800","address.street":"Ann"}') == [True] * 3
    assert refused("person", b'{"a.b":{"x":"\\ud800"}}') == [False] * 3
    assert refused("person", b'{"a.b":{"x":"\\ud800","c":1}}') == [True] * 3


def test_text_without_separators_is_told_so() -> None:
    assert not is_nested("first_name:x-y>z")
    assert all(is_nested(name) for name in ("a.b", "a[", "a]", "a/b", "a->b"))


def test_more_names_than_are_followed_are_all_suspected(monkeypatch):
    nested = Nested(onward(("address", "street"), None))
    few, many = (
        [f"address.s{number}" for number in range(count)]
        for count in (MOST_FOLLOWED, MOST_FOLLOWED + 1)
    )
    assert nested.suspects(few) == []
    monkeypatch.setattr(Nested, "_lead", None)  # none is followed
    assert nested.suspects(many) == many
    assert nested.suspects(f"addressee.s{number}" for number in range(MOST_FOLLOWED * 2)) == []


@table("name", ["email ", " email", "  Email", "email\\t", "\\u0020email", "email\\u2003"])
@table("before", ["", '"a": 1, "b": "x", '])
def test_white_space_around_a_name_makes_a_document_doubtful(name, before):
    body = f'{{{before}"{name}": "ann@example.com"}}'.encode()
    with pytest.raises(VaultError) as caught:
        Selection(parse_jsonpath("$"), [parse_jsonpath("$.email")], []).find(body, 32)
    assert caught.value.code is Code.AMBIGUOUS_JSON

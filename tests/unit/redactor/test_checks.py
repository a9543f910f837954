import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.checks import Outline, Unnamed
from proxy.redactor.load import load_text
from proxy.redactor.message import RawHeaders
from tests.support.exchanges import FORM, JSON, PLAIN, desk, rule_text
from tests.support.table import table

STREET: Path = ("address", "street")
TAGS: Path = ("tags", PathStep.EACH)
ROOT: Path = ()


def strayed(
    body: str, *leaves: Path, objects: Path | None = ROOT, anchored: tuple[Path, ...] = ()
) -> str:
    return Outline(objects, leaves, anchored).strayed(body.encode())


@table(
    ("leaf", "fits", "strays"),
    [
        (("name",), ['{"name": [1]}', '{"a": 1}', "{}"], ['"x"', "5", '["x"]']),
        (STREET, ['{"address": {"street": {}}}', '{"address": {"x": 1}}'], ['{"address": "x"}', '{"address": [{"street": 1}]}']),
        (TAGS, ['{"tags": ["x", [1]]}', '{"tags": {"0": "x"}}'], ['{"tags": "x"}', '{"tags": 5}', '[{}, {"tags": -1}]']),
        (("m", PathStep.EACH, PathStep.EACH), ['{"m": [["x"], [], null]}'], ['{"m": ["x"]}', '{"m": [["x"], "y"]}', '{"m": {"a": 1}}']),
        (("l", 1, "n"), ['{"l": ["x", {"n": 1}, 5]}', '{"l": []}'], ['{"l": {"1": {"n": 1}}}', '{"l": ["x", "y"]}']),
        (("a", PathStep.DEEP, "n"), ['{"a": "x"}', '{"a": [{"n": 1}]}'], []),
        ((PathStep.MEMBERS, "n"), ['{"x": {"n": 1}}'], ['{"x": "y"}']),
    ],
)  # fmt: skip
def test_what_stands_on_the_way_to_a_place(leaf: Path, fits: list[str], strays: list[str]) -> None:
    assert [body for body in fits if strayed(body, leaf)] == []
    assert [body for body in strays if not strayed(body, leaf)] == []


@table("nothing", ["null", "true", "false", '""', "[]", "{}", "[ ]", "{ }"])
def test_what_holds_nothing_may_stand_anywhere(nothing: str) -> None:
    for body in (
        nothing,
        f'{{"address": {nothing}}}',
        f'{{"tags": {nothing}}}',
        f'[{nothing}, {{"tags": []}}]',
    ):
        assert not strayed(body, STREET, TAGS), body


def test_a_value_that_is_swapped_as_a_whole_may_hold_anything() -> None:
    assert not strayed('{"address": "x"}', STREET, ("address",))


def test_objects_in_arrays_are_all_looked_at() -> None:
    assert not strayed('[[{"tags": ["x"]}], {"tags": []}]', TAGS)
    assert strayed('[[{"tags": ["x"]}], {"tags": "x"}]', TAGS)
    assert strayed('[[{"tags": ["x"]}, 7]]', TAGS)


def test_objects_deeper_in_the_document_and_places_from_its_root() -> None:
    data: Path = ("data", PathStep.EACH, "x")
    assert not strayed(
        '{"data": [{"x": {"name": 1}}, {"x": [{}]}, {"y": 1}], "meta": {}}', ("name",), objects=data
    )
    assert strayed('{"data": [{"x": "Ann"}]}', ("name",), objects=data)
    assert strayed('{"data": {"x": "Ann"}, "a": 1}', ("name",), objects=data)
    assert strayed('{"meta": "x"}', objects=None, anchored=(("meta", "mail"),))
    assert not strayed(
        '{"meta": {"mail": "x"}, "data": 5}', objects=None, anchored=(("meta", "mail"),)
    )
    assert not strayed("5", objects=None)


def test_the_place_of_a_deviation_is_told_without_names_outside_the_rule() -> None:
    told = {'{"tags": 5}': "/tags", '[{}, {"tags": -1}]': "/1/tags", "7": "the body"}
    assert {body: strayed(body, TAGS) for body in told} == told
    assert strayed('{"Ann": "x"}', (PathStep.MEMBERS, "n")) == "/*"
    assert strayed('{"a/b": "x"}', ("a/b", "n")) == "/a~1b"


# Frameworks send what becomes of related records as commands (Tryton, Odoo).
COMMANDS = {"params": [[5], {"lines": [["write", [3], {"name": "Zorbina"}, [4], {"name": "Yrsa"}], ["create", [{"name": "Xenia"}]], ["delete", [9]]]}]}  # fmt: skip


async def test_a_list_of_commands_is_refused_with_the_place_or_followed_at_any_depth():
    way = "{{match: POST /rpc, create: p, request: {{each: '{}'}}, response: {{id: $.id}}}}"
    one = await desk(way.format("$.params[1].lines[*][1][*]"))
    with pytest.raises(VaultError) as caught:
        await one.send("POST /rpc", COMMANDS)
    assert caught.value.code is Code.VALUE_UNFIT
    assert [detail.source for detail in caught.value.details] == ["/params/1/lines/0/1/0"]
    assert "at /params/1/lines/0/1/0 something else" in caught.value.message
    one = await desk(way.format("$.params[1]..lines"))
    call = await one.send("POST /rpc", COMMANDS)
    assert [name in str(call.json) for name in ("Zorbina", "Yrsa", "Xenia")] == [False] * 3
    changed, added, gone = call.json["params"][1]["lines"]
    assert (changed[:2], changed[3], added[0], gone) == (["write", [3]], [4], "create", ["delete", [9]])  # fmt: skip


def test_two_paths_through_one_place_allow_what_either_expects() -> None:
    assert not strayed('{"a": {"n": 1}}', ("a", "n"), ("a", 0))
    assert not strayed('{"a": [1]}', ("a", "n"), ("a", 0))
    assert strayed('{"a": "x"}', ("a", "n"), ("a", 0))


def test_white_space_and_half_of_a_surrogate_pair_change_nothing() -> None:
    assert not strayed(' {"x": "\\ud800", "address": {"street": "x"}} ', STREET)
    assert strayed('\n{"x": "\\ud800", "address": "x"}\t', STREET)


# ---- patches


PATCH = '{match: "PATCH /p/{id}", update: p}'
BODIES = [
    b'[{"op": "replace", "path": "/name", "value": "Zorbina"}]',
    b'[ {"path": "/name", "op" : "add", "value": "Zorbina"} ]',
    (
        b'{"schemas": ["urn:x:PatchOp"], "Operations": [{"op": "replace", "path": "name", "value": '
        b'"Zorbina"}]}'
    ),
]


@table("body", BODIES)
@table("kind", [b"application/json-patch+json", b"application/json", b"application/scim+json"])
async def test_a_list_of_operations_is_refused_and_nothing_is_kept(body, kind):
    one = await desk("{match: POST /p, create: p}", PATCH)
    with pytest.raises(VaultError) as caught:
        await one.send("PATCH /p/1", body, ((b"Content-Type", kind),))
    assert caught.value.code is Code.UNREADABLE_BODY
    assert "Zorbina" not in caught.value.message
    assert await one.counts() == (0, 0, 0)


async def test_by_its_type_it_is_one_whatever_it_holds():
    one = await desk(PATCH)
    for kind in (b"application/json-patch+json", b"Application/JSON-Patch+JSON; charset=utf-8"):
        with pytest.raises(VaultError):
            await one.send("PATCH /p/1", b'{"name": "Zorbina"}', ((b"Content-Type", kind),))


async def test_other_documents_pass():
    one = await desk(PATCH)
    bodies = ({"vip": True}, {"op": "hidden"}, {"name": "Ann", "op": "x", "path": "/y"})
    for number, body in enumerate(bodies):
        await one.send(f"PATCH /p/{number}", body)
    assert one.events["staged"] == len(bodies)


# ---- unnamed


@pytest.fixture(scope="module")
def unnamed() -> Unnamed:
    return Unnamed(load_text(rule_text('{match: "DELETE /p/{id}", delete: p}')).operations[0])


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b""),
        (PLAIN, b""),
        (JSON, b'{"reason": "x", "force": true}'),
        (JSON, b'[{"id": 1}]'),
        (JSON, b'{"name": null, "email": "", "tags": [], "born": {}}'),
        (FORM, b"reason=x&_method=delete&names=y"),
    ],
)
def test_a_body_without_fields_of_the_entity_passes(unnamed, headers, body):
    unnamed.refuse(headers, body)


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        (JSON, b'{"name": "Ann"}', Code.UNREADABLE_BODY),
        (JSON, b'{"a": [{"b": {"n\\u0061me": "Ann"}}]}', Code.UNREADABLE_BODY),
        (JSON, b'{"x": {"tags": ["Ann"]}}', Code.UNREADABLE_BODY),
        (JSON, b'{"Name": "Ann"}', Code.AMBIGUOUS_JSON),
        (JSON, b"{'name': 'Ann'}", Code.MALFORMED_JSON),
        (FORM, b"name=Ann", Code.UNREADABLE_BODY),
        (FORM, b"p%5BNAME%5D[]=Ann", Code.UNREADABLE_BODY),
        (FORM, b"p.name=Ann", Code.UNREADABLE_BODY),
        (FORM, b' {"name": "Ann"}', Code.UNREADABLE_BODY),
        (PLAIN, b'{"name": "Ann"}', Code.UNREADABLE_BODY),
        ((), b"Ann", Code.UNREADABLE_BODY),
        ((*JSON, *JSON), b"{}", Code.UNREADABLE_BODY),
    ],
)
def test_a_body_that_may_carry_one_is_refused(
    unnamed: Unnamed, headers: RawHeaders, body: bytes, code: Code
):
    with pytest.raises(VaultError) as caught:
        unnamed.refuse(headers, body)
    assert caught.value.code is code
    assert "Ann" not in caught.value.message


@table(
    ("query", "name"),
    [
        ("{to: email}", "to"),
        ("{to: {field: email, send: {param: mail}}}", "to"),
        ("{to: {field: email, send: {param: mail}}}", "mail"),
        ("{q: {refuse: always}}", "q"),
        ("{'f[to]': {field: email}}", "f[to]"),
    ],
)
def test_a_body_that_may_carry_a_parameter_of_the_query_is_refused(query: str, name: str):
    rule = f"{{match: GET /p, read: p, query: {query}, response: {{id: $.id}}}}"
    search = Unnamed(load_text(rule_text(rule)).operations[0])
    for headers, body in ((FORM, f"{name}=Ann"), (JSON, f'{{"{name}": "Ann"}}')):
        with pytest.raises(VaultError):
            search.refuse(headers, body.encode())
    search.refuse(FORM, b"page=2&other=Ann")

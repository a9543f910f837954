import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.bodies.patch_kinds import CHANGES, PatchAct, PatchChange
from proxy.redactor.rules import PatchKind
from tests.support.table import table

PATHS: list[Path] = [("name",), ("emails", PathStep.EACH, "value"), ("urn:x:2.0:User", "unit")]


def refusal(text: str, code: Code = Code.VALUE_UNFIT) -> VaultError:
    return VaultError(code, text)


def changes(kind: PatchKind, body: bytes) -> list[PatchChange]:
    return list(CHANGES[kind]((), PATHS, refusal)(body, 64))


def test_paths_of_json_patch_are_pointers():
    body = (
        b'[{"op":"add","path":"/a~1b/m~0n/0","value":"x"},{"op":"remove","path":""},'
        b'{"op":"test","path":"/a","value":null},{"op":"move","path":"/a","from":"/b"}]'
    )
    start = body.index(b'"x"')
    null = body.index(b"null")
    assert changes(PatchKind.JSON, body) == [
        PatchChange(PatchAct.SET, ("a/b", "m~n", "0"), (start, start + 3)),
        PatchChange(PatchAct.REMOVE, ()),
        PatchChange(PatchAct.TEST, ("a",), (null, null + 4)),
        PatchChange(PatchAct.TRANSFER, ("a",), (0, 0), ("b",)),
    ]
    assert changes(PatchKind.JSON, b" [ ] ") == []


@table(
    ("path", "steps"),
    [
        ("name", ("name",)),
        ("a.b", ("a", "b")),
        ('emails[type eq "x" and (primary pr)].type', ("emails", "0", "type")),
        ("urn:ietf:params:scim:schemas:core:2.0:User:name", ("name",)),
        ("URN:X:2.0:user", ("URN:X:2.0:user",)),
        ("urn:x:2.0:User:unit.sub", ("urn:x:2.0:User", "unit", "sub")),
    ],
)
def test_paths_of_scim_are_attributes(path, steps):
    written = path.replace('"', '\\"')
    body = f'{{"Operations":[{{"op":"remove","path":"{written}"}}]}}'.encode()
    assert changes(PatchKind.SCIM, body) == [PatchChange(PatchAct.REMOVE, steps)]


@table("path", ["a[b]c", "a[b eq 'x']", "", "a..b", 'emails[VALUE eq \\"x\\"]'])
def test_paths_of_scim_that_cannot_be_followed_are_refused(path):
    with pytest.raises(VaultError):
        changes(PatchKind.SCIM, f'{{"Operations":[{{"op":"remove","path":"{path}"}}]}}'.encode())


def test_lists_of_scim_are_replaced_and_all_else_is_merged():
    body = b'{"Operations":[{"op":"%s","value":{"emails":[],"name":"x"}}]}'
    acts = {
        op: [one.act for one in changes(PatchKind.SCIM, body % op)] for op in (b"add", b"REPLACE")
    }
    assert acts == {
        b"add": [PatchAct.MERGE, PatchAct.MERGE],
        b"REPLACE": [PatchAct.SET, PatchAct.MERGE],
    }


def test_dotted_members_are_ways():
    body = b'{"a.b":1,"$set":{"c":2},"$unset":{"d.0":""}}'
    assert [(one.act, one.steps, body[slice(*one.span)]) for one in changes(PatchKind.DOTTED, body)] == [
        (PatchAct.SET, ("a", "b"), b"1"), (PatchAct.SET, ("c",), b"2"), (PatchAct.REMOVE, ("d", "0"), b'""'),
    ]  # fmt: skip
    many = b"{" + b",".join(b'"m%d":1' % number for number in range(201)) + b"}"
    with pytest.raises(VaultError) as caught:
        changes(PatchKind.DOTTED, many)
    assert caught.value.code is Code.TOO_LARGE

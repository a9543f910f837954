import json
import random
from typing import Any

import msgspec
import pytest

from proxy.errors import VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.json import arrays, fast
from proxy.redactor.json.arrays import in_parts
from proxy.redactor.json.walk import walk
from proxy.redactor.select import Selection
from tests.support.effort import rounds
from tests.support.native import use

SELECTIONS = (
    Selection((PathStep.EACH,), [("name",)]),
    Selection((), [("tags", PathStep.EACH), ("name",)]),
    Selection(("a", PathStep.EACH), [("b",)]),
    Selection(("a",), [("b",), ("name",)]),
)


def value(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.35:
        return chance.choice(
            [1, -12.5e10, True, None, "x" * chance.randrange(40), 'a\\"b\n],[', "},{", "é€"]
        )
    if chance.random() < 0.5:
        return [value(chance, depth - 1) for _ in range(chance.randrange(6))]
    names = ("name", "a", "Name", "tags", "b", "x")
    return {chance.choice(names): value(chance, depth - 1) for _ in range(chance.randrange(6))}


def document(chance: random.Random) -> bytes:
    """An array, alone or in an object; now and then damaged, or with something behind it."""
    array = [value(chance, 3) for _ in range(chance.randrange(8))]
    text = json.dumps(
        chance.choice([array, {"a": array}]),
        ensure_ascii=chance.random() < 0.5,
        indent=chance.choice([None, None, 1]),
    )
    body = bytearray(text.encode() + chance.choice([b"", b"", b"\n", b" x", b"]", b","]))
    if chance.random() < 0.3:
        place = chance.randrange(len(body))
        body[place : place + chance.randrange(3)] = chance.choice(
            [b'"', b"\\", b"}", b"]", b",", b"[", b"9"]
        )
    return bytes(body)


def found(selection: Selection, body: bytes) -> Any:
    try:
        told = selection.find(body, 20)
    except VaultError as error:
        return error.code, str(error)
    return told.objects, told.anchored


@pytest.mark.parametrize("part", [5, 17, 60])
def test_what_is_found_in_parts_is_what_is_found_at_once(monkeypatch, part):
    chance = random.Random(part)
    for _ in range(400):
        body, selection = document(chance), chance.choice(SELECTIONS)
        at_once = found(selection, body)
        with monkeypatch.context() as patch:
            patch.setattr(fast, "LONG_ARRAY", 1)
            patch.setattr(arrays, "_PART", part)
            patch.setattr(arrays, "_NEAR", 20)
            assert found(selection, body) == at_once, body


def test_no_call_of_the_decoder_takes_more_than_a_part(monkeypatch):
    sizes: list[int] = []
    decoder = msgspec.json.Decoder(list[msgspec.Raw])

    class Watched:
        @staticmethod
        def decode(text: bytes) -> list[msgspec.Raw]:
            sizes.append(len(text))
            return decoder.decode(text)

    monkeypatch.setattr(arrays, "_ELEMENTS", Watched)
    body = json.dumps(
        [{"id": number, "name": f"Ann {number}", "of": [{}, {}]} for number in range(60_000)]
    ).encode()

    elements = in_parts(body, 1, len(body) - 1)

    assert elements is not None
    assert [bytes(one) for one in elements[:2] + elements[-1:]] == [
        b'{"id": 0, "name": "Ann 0", "of": [{}, {}]}',
        b'{"id": 1, "name": "Ann 1", "of": [{}, {}]}',
        b'{"id": 59999, "name": "Ann 59999", "of": [{}, {}]}',
    ]
    assert len(elements) == 60_000
    assert max(sizes) <= 1024 * 1024 + 128 * 1024


@pytest.mark.parametrize("body", [b"{}", b"[1,2", b"[1,]", b"[,1]", b"[1,,2]"])
def test_what_is_no_array_has_no_parts(monkeypatch, body):
    monkeypatch.setattr(arrays, "_PART", 1)
    assert in_parts(body, 1, len(body) - 1) is None


# ---------------------------------------------------------------------- by patterns

PATHS = [("name",), ("a",)]
ALIKE = (
    (Selection((PathStep.EACH,), PATHS), (PathStep.EACH,)),
    (Selection((), PATHS), ()),
    (Selection(("data",), PATHS), ("data",)),
)


def alike(chance: random.Random) -> bytes:
    """Objects of the same members, of which some are different, in one of many spellings."""
    names = chance.sample(["name", "a", "note", "tags", "of", "é", "n me"], chance.randrange(2, 7))
    array: list[Any] = []
    for _ in range(chance.randrange(1, 30)):
        one = {name: value(chance, chance.choice([0, 0, 0, 2])) for name in names}
        match chance.randrange(25):
            case 0:
                one.pop(names[0])
            case 1:
                one["Name"] = 1
            case 2:
                one = dict(reversed(one.items()))
            case 3:
                one["note"] = chance.choice(["\ud83d\ude00", "\udead", "x" * 300_000, {"name": 1}])
        array.append(one if chance.random() < 0.97 else value(chance, 2))
    document = chance.choice([array, array, {"data": array}, array[0]])
    separators = chance.choice([(",", ":"), (", ", ": "), (" ,", " :")])
    text = json.dumps(
        document,
        ensure_ascii=b"\\ud" in json.dumps(document).encode() or chance.random() < 0.5,
        indent=chance.choice([None, None, None, 1]),
        separators=separators,
    )
    if chance.random() < 0.2:
        text = text.replace('"note"', '"name"', chance.randrange(3))
    body = bytearray(chance.choice([b"", b"", b" "]) + text.encode("utf-8", "replace"))
    if chance.random() < 0.3:
        at = chance.randrange(len(body))
        body[at : at + chance.randrange(3)] = chance.choice(
            [b'"', b"\\", b"}", b"]", b",", b"[", b"9", b"\x01", b"\n", b'\\u0061"', b"\xff"]
        )
    return bytes(body)


def walked(objects: Path, body: bytes) -> Any:
    try:
        selection = walk(objects, PATHS, (), body, 20)
    except VaultError as error:
        return error.code
    return selection.objects, selection.anchored


@pytest.mark.parametrize("seed", range(6))
def test_what_patterns_find_is_what_the_walker_finds(seed, monkeypatch):
    monkeypatch.setattr(arrays, "_BEFORE", 1)
    monkeypatch.setattr(arrays, "_PATTERNS", 200)
    chance = random.Random(seed)
    for _ in range(rounds(40)):
        body, (selection, objects) = alike(chance), chance.choice(ALIKE)
        expected = walked(objects, body)
        for _ in range(2):
            outcome = found(selection, body)
            assert (outcome if isinstance(expected, tuple) else outcome[0]) == expected, body


def test_a_list_is_read_by_a_pattern_and_not_decoded_at_all(monkeypatch):
    selection = Selection((PathStep.EACH,), PATHS)
    people = [{"id": n, "name": f"Ann {n}", "a": None, "of": [1, {}]} for n in range(300)]
    body = json.dumps([{**one, "of": [1, 2]} for one in people]).encode()
    expected = selection.find(body, 64)
    assert [body[leaf.start : leaf.end] for leaf in expected.objects[299].leaves] == [
        b'"Ann 299"',
        b"null",
    ]
    monkeypatch.setattr(fast, "OBJECT_DECODER", None)
    monkeypatch.setattr(fast, "_ELEMENTS", None)
    assert selection.find(body, 64) == expected
    assert selection.find(body[: body.index(b", {")] + b"]", 64).objects == expected.objects[:1]


def test_patterns_are_few_whatever_comes(monkeypatch):
    compiled: list[bytes] = []
    pattern = arrays._pattern

    def counted(*of: Any) -> Any:
        compiled.append(pattern(*of).pattern)
        return pattern(*of)

    monkeypatch.setattr(arrays, "_pattern", counted)
    use(None, monkeypatch)  # native code needs no patterns
    selection = Selection((), [*PATHS, ("of nobody else",)])
    for number in range(200):
        for _ in range(8):
            selection.find(b'{"name": "Ann", "x%d": 1}' % number, 64)
    assert len(compiled) == arrays._PATTERNS

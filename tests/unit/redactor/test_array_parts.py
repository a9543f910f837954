import json
import random
from typing import Any

import msgspec
import pytest

from proxy.errors import VaultError
from proxy.model.schema import PathStep
from proxy.redactor import array_parts
from proxy.redactor.array_parts import in_parts
from proxy.redactor.json import fast
from proxy.redactor.select import Selection

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
            patch.setattr(array_parts, "_PART", part)
            patch.setattr(array_parts, "_NEAR", 20)
            assert found(selection, body) == at_once, body


def test_no_call_of_the_decoder_takes_more_than_a_part(monkeypatch):
    sizes: list[int] = []
    decoder = msgspec.json.Decoder(list[msgspec.Raw])

    class Watched:
        @staticmethod
        def decode(text: bytes) -> list[msgspec.Raw]:
            sizes.append(len(text))
            return decoder.decode(text)

    monkeypatch.setattr(array_parts, "_ELEMENTS", Watched)
    body = json.dumps(
        [{"id": number, "name": f"Ann {number}", "of": [{}, {}]} for number in range(60_000)]
    ).encode()

    elements = in_parts(body, 0, len(body))

    assert elements is not None
    assert [bytes(one) for one in elements[:2] + elements[-1:]] == [
        b'{"id": 0, "name": "Ann 0", "of": [{}, {}]}',
        b'{"id": 1, "name": "Ann 1", "of": [{}, {}]}',
        b'{"id": 59999, "name": "Ann 59999", "of": [{}, {}]}',
    ]
    assert len(elements) == 60_000
    assert max(sizes) <= 1024 * 1024 + 128 * 1024


@pytest.mark.parametrize("body", [b"{}", b"[", b"[1,2", b"1", b"[1,]", b"[,1]", b"[1,,2]"])
def test_what_is_no_array_has_no_parts(monkeypatch, body):
    monkeypatch.setattr(array_parts, "_PART", 1)
    assert in_parts(body, 0, len(body)) is None

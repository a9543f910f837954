import re

import pytest

from proxy.model.schema import Value
from proxy.tokenization import make_shape
from proxy.tokenization.base import Resolution
from tests.support.shapes import bound
from tests.support.table import table


def token(template: str) -> str:
    return bound("template", template=template).mint(Value("Ann"), 1, 1).text


@table(
    ("template", "expression"),
    [
        ("PP-[A-Z0-9]{9}", r"PP-[A-Z0-9]{9}"),
        ("[a-c]{20}", r"[a-c]{20}"),
        ("[x]{2}-[0-9]{9}", r"xx-[0-9]{9}"),
        ("[a-]{30}[-b]{30}", r"[a-]{30}[-b]{30}"),
        (r"\[[0-9]{7}\]{2}", r"\[[0-9]{7}\]\{2\}"),
        (r"[\]\\\-a]{40}", r"[\]\\\-a]{40}"),
        ("Å[α-ω]{9}!", r"Å[α-ω]{9}!"),
        ("{x}[0-9]{8}.", r"\{x\}[0-9]{8}\."),
    ],
)
def test_a_token_is_what_the_template_says(template, expression):
    for _ in range(50):
        assert re.fullmatch(expression, token(template))
    tokenizer = bound("template", template=template)
    assert tokenizer.resembles(token(template))


def test_every_character_of_every_place_comes_up():
    seen = [
        set(place)
        for place in zip(*[token("[ab]{1}-[0-9]{2}[x-z]{1}") for _ in range(400)], strict=True)
    ]
    assert seen == [set("ab"), {"-"}, set("0123456789"), set("0123456789"), set("xyz")]


@table(
    ("template", "message"),
    [
        ("", "not empty"), ("constant", "shape fixed"), ("[x]{5}", "shape fixed"),
        ("[A-Z]", "how many"), ("[A-Z]{0}", "how many"), ("[A-Z]{x}", "how many"),
        ("[A-Z]{1000}", "how many"), ("[A-Z", "closing"), ("[]{3}", "closing"),
        ("[Z-A]{3}", "backwards"), ("[A-Z]{3}\\", "as it is"),
        ("[A-Z]{200}[A-Z]{57}", "at most 256"),
    ],
)  # fmt: skip
def test_a_template_that_is_none_says_what_to_write(template, message):
    with pytest.raises(ValueError, match=message):
        make_shape("template", {"template": template})


@table(
    ("template", "capacity", "random", "same"),
    [
        ("[0-9]{5}", 1e5, Resolution.BY_RECORD, Resolution.BY_RECORD),
        ("[0-9]{6}", 1e6, Resolution.INDEXED, Resolution.BY_RECORD),
        ("[ab]{64}", 2.0**64, Resolution.INDEXED, Resolution.INDEXED),
        ("[aab]{63}x", 2.0**63, Resolution.INDEXED, Resolution.BY_RECORD),
    ],
)
def test_the_number_of_tokens_decides_how_they_are_found(template, capacity, random, same):
    shape = make_shape("template", {"template": template})
    assert shape.capacity() == capacity
    assert shape.resolution is random
    assert make_shape("template", {"template": template, "same": True}).resolution is same

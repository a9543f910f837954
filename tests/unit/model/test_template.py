import re

import pytest

from proxy.model.template import Alphabet, TemplateGroup, can_produce, capacity, fill, read_template
from tests.support.table import table


def chosen(*ranges: str, count: int) -> TemplateGroup:
    return TemplateGroup(
        Alphabet(tuple((ord(first), ord(last)) for first, last in map(tuple, ranges))), count
    )


@table(
    ("text", "groups"),
    [
        ("", ()),
        ("constant", (TemplateGroup("constant"),)),
        ("PP-[A-C0]{9}!", (TemplateGroup("PP-"), chosen("AC", "00", count=9), TemplateGroup("!"))),
        ("[a-]{3}[-b]{2}", (chosen("aa", "--", count=3), chosen("--", "bb", count=2))),
        (
            r"\[x\]\{2\}[\]\\\-a]{4}",
            (TemplateGroup("[x]{2}"), chosen("]]", "\\\\", "--", "aa", count=4)),
        ),
        ("[aab]{1}", (chosen("ab", count=1),)),
        ("[m-p0-9k-za]{1}", (chosen("mp", "09", "kl", "qz", "aa", count=1),)),
    ],
)
def test_a_template_is_read_as_its_groups(text, groups):
    assert read_template(text) == groups


@table(
    "text, message",
    [
        ("[A-Z]", "how many"),
        ("[A-Z]{0}", "how many"),
        ("[A-Z]{٣}", "how many"),
        ("[A-Z]{2,3}", "how many"),
        ("[A-Z]{1000}", "how many"),
        ("[A-Z", "closing"),
        ("[]{3}", "closing"),
        ("[Z-A]{3}", "backwards"),
        ("[A-Z]{3}\\", "as it is"),
        ("[A-Z]{200}[A-Z]{57}", "at most 256"),
        ("x" * 1025, "at most 1024 characters itself"),
        ("[ab]{1}" * 33, "at most 32 groups"),
        ("[" + "".join(map(chr, range(0x21, 0x1000, 2))) + "]{1}", "at most"),
        ("[" + "".join(map(chr, range(0x1000, 0x1400, 2))) + "]{1}", "at most 256 ranges"),
        ("[\u0000-\U0010ffff]{1}" * 2, "65536 characters"),
        ("[\ud800-\udfff]{1}", "closing"),
    ],
)
def test_a_template_that_is_none_says_what_to_write(text, message):
    with pytest.raises(ValueError, match=message):
        read_template(text)


def test_every_number_below_the_capacity_gives_a_text_of_its_own():
    groups = read_template("a[xyz]{2}-[01]{3}")
    assert capacity(groups) == 72
    texts = [fill(groups, index) for index in range(72)]
    assert len(set(texts)) == 72
    assert all(re.fullmatch("a[xyz]{2}-[01]{3}", text) for text in texts)


def test_characters_of_an_alphabet_are_those_written_each_once_in_order():
    (group,) = read_template("[m-p0-9k-zàa-zB]{1}")
    assert isinstance(group.choices, Alphabet)
    characters = [group.choices[index] for index in range(len(group.choices))]
    assert "".join(characters) == "mnop0123456789klqrstuvwxyzàabcdefghijB"


def test_half_a_character_of_utf_16_belongs_to_no_alphabet():
    (group,) = read_template("[\ud7f0-\ue00f]{1}")
    assert isinstance(group.choices, Alphabet)
    assert group.choices.ranges == ((0xD7F0, 0xD7FF), (0xE000, 0xE00F))


def test_a_template_knows_its_own_texts():
    groups = read_template(r"a-[0-9]{2}\[z")
    assert all(can_produce(groups, fill(groups, number)) for number in range(100))
    assert not any(
        can_produce(groups, text)
        for text in ("", "a-1[z", "a-123[z", "a-12[z ", "b-12[z", "a-x2[z")
    )

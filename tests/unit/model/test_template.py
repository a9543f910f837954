import re

import pytest

from proxy.model.template import Group, capacity, fill, read_template


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ()),
        ("constant", (Group(("constant",), 1),)),
        ("PP-[A-C0]{9}!", (Group(("PP-",), 1), Group(("A", "B", "C", "0"), 9), Group(("!",), 1))),
        ("[a-]{3}[-b]{2}", (Group(("a", "-"), 3), Group(("-", "b"), 2))),
        (r"\[x\]\{2\}[\]\\\-a]{4}", (Group(("[x]{2}",), 1), Group(("]", "\\", "-", "a"), 4))),
        ("[aab]{1}", (Group(("a", "b"), 1),)),
    ],
)
def test_a_template_is_read_as_its_groups(text, groups):
    assert read_template(text) == groups


@pytest.mark.parametrize(
    ("text", "message"),
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

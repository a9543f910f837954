"""Whatever stands in a rule file, it loads whole or is refused with places; nothing else comes out."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.redactor.load import load_text
from proxy.redactor.load.yaml_tree import RuleFaults, plain_values, read_tree
from proxy.redactor.rules import RuleSet

EXAMPLE = Path(__file__).parents[2] / "rules" / "contacts.yaml"
TEXT = EXAMPLE.read_text("utf-8")
TREE = read_tree(TEXT, "f", RuleFaults())

WORDS = st.sampled_from(
    (
        "$|$.id|$..x|$[*]|path id|form id|header Location /x/{id}|GET /a/{b}|POST "
        "/contacts|contact|email|each|object|form|create|"
        "update|delete|read|same|plain|exact|range|2MiB|7y|${env:X}|template"
    ).split("|")
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def outcome(text: str) -> RuleSet | VaultError:
    fault: VaultError
    try:
        return load_text(text, "f", {})
    except VaultError as error:
        fault = error
    assert fault.code is Code.BAD_RULES
    assert fault.details
    assert all(detail.source.startswith("f:") and detail.text for detail in fault.details)
    return fault


def paths(node: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [prefix, *(path for key, value in inner for path in paths(value, (*prefix, key)))]


@st.composite
def damaged_documents(draw: st.DrawFn) -> str:
    """The example with a few places replaced, removed or given a stranger beside them; JSON is
    YAML.
    """
    assert TREE is not None
    document: Any = json.loads(json.dumps(plain_values(TREE)))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths(document)[1:]))
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        how = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if how == "remove":
            del holder[path[-1]]
        elif how == "add" and isinstance(holder, dict):
            holder[draw(WORDS)] = draw(VALUES)
        else:
            holder[path[-1]] = draw(VALUES)
        if not document:
            break
    return json.dumps(document)


@given(damaged_documents())
def test_a_damaged_document_loads_or_is_refused(text):
    outcome(text)


@given(
    st.integers(0, len(TEXT)),
    st.integers(0, 40),
    st.text(max_size=6) | st.sampled_from(["{", "]", "&a ", "*a", "\t", ": ", "!!x ", "- "]),
)
def test_a_damaged_text_loads_or_is_refused(start, length, instead):
    outcome(TEXT[:start] + instead + TEXT[start + length :])


@given(st.text(max_size=200))
def test_any_text_is_refused_with_places(text):
    assert isinstance(outcome(text), VaultError)


def test_the_document_that_is_damaged_loads_when_it_is_not():
    assert TREE is not None
    loaded = outcome(json.dumps(plain_values(TREE)))
    assert isinstance(loaded, RuleSet)
    assert len(loaded.operations) == len(load_text(TEXT).operations)

"""What holds for every document with names that write out a way: both ways of finding agree, and
what leads to a place is refused.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import Code, VaultError
from proxy.model.schema import Path, PathStep
from proxy.redactor.json.tree import TreeSelection
from proxy.redactor.json.walk import walk_nested
from proxy.redactor.select import Selection

LETTERS = st.sampled_from(["a", "b", "c", "A", "0", "1", "_", "-", "ab", "a_B"])
JOINTS = st.sampled_from([".", "/", "->", "[", "].", "[]", "]["])
NAMES = LETTERS | st.lists(LETTERS | JOINTS, min_size=1, max_size=6).map("".join)
VALUES = st.sampled_from([None, True, "", "x", 7])
DOCUMENTS = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)  # fmt: skip
STEPS: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "c", "a.b", "a_b", "_", "c->a"])
PATHS: st.SearchStrategy[Path] = st.builds(
    tuple, st.lists(STEPS | st.sampled_from([PathStep.EACH, 0]), min_size=1, max_size=3)
)
WILD: st.SearchStrategy[Path] = st.builds(
    lambda step, path: (step, *path), st.sampled_from([PathStep.DEEP, PathStep.MEMBERS]), PATHS
)


def outcome(find: Any, *order: Any) -> TreeSelection | Code:
    try:
        found: TreeSelection = find(*order)
        return found
    except VaultError as fault:
        return fault.code


@given(
    DOCUMENTS,
    st.none() | st.just(()) | PATHS,
    st.lists(PATHS, max_size=3),
    st.lists(PATHS | WILD, max_size=2),
    st.lists(PATHS | WILD, max_size=2),
)
def test_the_fast_path_refuses_the_names_that_the_walker_refuses(
    document, objects, leaves, anchored, spared
):
    body = json.dumps(document, separators=(",", ":")).encode()
    selection = Selection(objects, leaves, anchored, nested=True, spared=spared)
    selectors = objects, leaves, anchored, spared
    for _ in range(2):  # the second time with what the first one remembered
        assert outcome(selection.find, body, 64) == outcome(walk_nested, selectors, body, 64)


@given(
    st.lists(STEPS, min_size=2, max_size=4),
    st.integers(1, 3),
    st.sampled_from(["{}.{}", "{}[{}]", "{}/{}", "{}->{}"]),
)
def test_any_two_steps_of_a_way_that_are_written_as_one_name_are_refused(steps, at, joint):
    at = min(at, len(steps) - 1)
    written = [*steps[: at - 1], joint.format(steps[at - 1], steps[at]), *steps[at + 1 :]]
    document: Any = "x"
    for name in reversed(written):
        document = {name: document}
    body = json.dumps(document).encode()
    assert outcome(Selection((), [tuple(steps)], nested=True).find, body) is Code.AMBIGUOUS_JSON
    assert isinstance(outcome(Selection((), [tuple(steps)]).find, body), TreeSelection)


@given(DOCUMENTS, st.lists(PATHS, min_size=1, max_size=3))
def test_what_is_not_refused_is_found_where_it_is_without_such_names(document, leaves):
    plain = json.dumps(document).encode()
    if isinstance(outcome(Selection((), leaves, nested=True).find, plain), TreeSelection):
        assert outcome(Selection((), leaves).find, plain) == outcome(
            Selection((), leaves, nested=True).find, plain
        )

import pytest

from proxy.model.schema import PathStep
from proxy.redactor.json import tree
from proxy.redactor.json.tree import (
    LETTER_CASE,
    Ambiguous,
    ObjectLayout,
    PathNode,
    Unsuitable,
    check_tree,
    leaf_node,
)


def test_paths_with_a_common_beginning_share_nodes():
    root = PathNode()
    city, street = leaf_node(root, ("address", "city")), leaf_node(root, ("address", "street"))
    assert city is not street
    assert list(root.names) == ["address"]
    assert root.names["address"].children() == [city, street]
    assert leaf_node(root, ("list", PathStep.EACH)) is root.names["list"].each
    assert leaf_node(root, ("list", 3)) is root.names["list"].indexes[3]


@pytest.mark.parametrize("step", [PathStep.DEEP, PathStep.MEMBERS])
def test_steps_that_may_lead_anywhere_are_unsuitable(step):
    with pytest.raises(Unsuitable):
        leaf_node(PathNode(), (step, "a"))


def test_two_leaves_at_one_place_are_unsuitable():
    root = PathNode()
    leaf_node(root, ("a",)).leaf = 0
    with pytest.raises(Unsuitable):
        leaf_node(root, ("a",))


def test_a_leaf_above_others_and_names_that_differ_in_case_are_unsuitable():
    above, alike = PathNode(), PathNode()
    leaf_node(above, ("a", "b")).leaf = 0
    above.names["a"].leaf = 1
    leaf_node(alike, ("x", "key"))
    leaf_node(alike, ("x", "\u212aey"))
    for root in (above, alike):
        with pytest.raises(Unsuitable):
            check_tree(root)


def test_harmless_names_are_remembered_within_bounds_and_others_are_ambiguous(monkeypatch):
    monkeypatch.setattr(tree, "_KNOWN", 3)
    node = PathNode()
    node.child("email")
    node.admit({"id": b"1", "email": b"2", "x" * 100: b"3"})
    assert node._known == {"id", "email"}
    for name in ("Email", "EMAIL", "ema\u0131l"):
        with pytest.raises(Ambiguous, match=LETTER_CASE):
            node.admit({name: b"1"})
    node.admit({"a": b"1", "b": b"1"})
    node.admit({"c": b"1"})
    assert node._known == {"email", "c"}


def test_a_layout_tells_the_length_of_all_but_the_values_and_where_selected_ones_stand(monkeypatch):
    node = PathNode()
    child = node.child("ü")
    layout = node.layout({"id": b"1", "ü": b"2"})
    assert layout == ObjectLayout(
        len('{"id":,"ü":}'.encode()), (("ü", child, 1, len('{"id":,"ü":'.encode())),)
    )
    assert node.layout({"id": b"3", "ü": b"4"}) is layout
    monkeypatch.setattr(tree, "_LAYOUTS", 1)
    assert node.layout({"ü": b"1"}).fixed == len('{"ü":}'.encode())
    assert list(node._layouts) == [("ü",)]

import pytest

from proxy.model.path import Step
from proxy.redactor import tree
from proxy.redactor.tree import LETTER_CASE, Ambiguous, Layout, Node, Unsuitable, check, end_of


def test_paths_with_a_common_beginning_share_nodes():
    root = Node()
    city, street = end_of(root, ("address", "city")), end_of(root, ("address", "street"))
    assert city is not street
    assert list(root.names) == ["address"]
    assert root.names["address"].children() == [city, street]
    assert end_of(root, ("list", Step.EACH)) is root.names["list"].each
    assert end_of(root, ("list", 3)) is root.names["list"].indexes[3]


@pytest.mark.parametrize("step", [Step.DEEP, Step.MEMBERS])
def test_steps_that_may_lead_anywhere_are_unsuitable(step):
    with pytest.raises(Unsuitable):
        end_of(Node(), (step, "a"))


def test_two_leaves_at_one_place_are_unsuitable():
    root = Node()
    end_of(root, ("a",)).leaf = 0
    with pytest.raises(Unsuitable):
        end_of(root, ("a",))


def test_a_leaf_above_others_and_names_that_differ_in_case_are_unsuitable():
    above, alike = Node(), Node()
    end_of(above, ("a", "b")).leaf = 0
    above.names["a"].leaf = 1
    end_of(alike, ("x", "key"))
    end_of(alike, ("x", "\u212aey"))
    for root in (above, alike):
        with pytest.raises(Unsuitable):
            check(root)


def test_harmless_names_are_remembered_within_bounds_and_others_are_ambiguous(monkeypatch):
    monkeypatch.setattr(tree, "_KNOWN", 3)
    node = Node()
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
    node = Node()
    child = node.child("ü")
    layout = node.layout({"id": b"1", "ü": b"2"})
    assert layout == Layout(len('{"id":,"ü":}'.encode()), (("ü", child, 1, len('{"id":,"ü":'.encode())),))
    assert node.layout({"id": b"3", "ü": b"4"}) is layout
    monkeypatch.setattr(tree, "_LAYOUTS", 1)
    assert node.layout({"ü": b"1"}).fixed == len('{"ü":}'.encode())
    assert list(node._layouts) == [("ü",)]

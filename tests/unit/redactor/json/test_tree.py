import pytest

from proxy.errors import Code, VaultError
from proxy.model.schema import PathStep, Value
from proxy.redactor.json import tree
from proxy.redactor.json.tree import (
    LETTER_CASE,
    Ambiguous,
    Hit,
    Leaf,
    Located,
    ObjectLayout,
    PathNode,
    TreeSelection,
    Unsuitable,
    assemble,
    check_tree,
    leaf_node,
)
from proxy.redactor.message import CODECS, Media
from tests.support.table import table


def test_paths_with_a_common_beginning_share_nodes():
    root = PathNode()
    city, street = leaf_node(root, ("address", "city")), leaf_node(root, ("address", "street"))
    assert city is not street
    assert list(root.names) == ["address"]
    assert root.names["address"].children() == [city, street]
    assert leaf_node(root, ("list", PathStep.EACH)) is root.names["list"].each
    assert leaf_node(root, ("list", 3)) is root.names["list"].indexes[3]


@table("step", [PathStep.DEEP, PathStep.MEMBERS])
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
    monkeypatch.setattr(tree, "_CAPACITY", 3)
    node = PathNode()
    node.child("email")
    node.admit({"id": b"1", "email": b"2", "x" * 100: b"3"})
    assert node._admitted == {"id", "email"}
    for name in ("Email", "EMAIL", "ema\u0131l"):
        with pytest.raises(Ambiguous, match=LETTER_CASE):
            node.admit({name: b"1"})
    node.admit({"a": b"1", "b": b"1"})
    node.admit({"c": b"1"})
    assert node._admitted == {"email", "c"}


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
    assert list(node.layouts) == [("ü",)]


# ---- json


@table(
    ("raw", "value"),
    [
        (b'""', Value("")),
        ('"é \u2028"'.encode(), Value("é \u2028")),
        (rb'"\u0041\ud83d\ude00\n\/\u0000"', Value("A😀\n/\0")),
        (b"null", None),
        (b"1.0", Value("1.0", json=True)),
        (b"-1E+400", Value("-1E+400", json=True)),
        (b"true", Value("true", json=True)),
        (b'{"a" : [null]}', Value('{"a" : [null]}', json=True)),
        (b"[ ]", Value("[ ]", json=True)),
    ],
)
def test_a_value_is_read_and_what_is_no_string_keeps_its_spelling(raw, value):
    assert tree.read_json_value(raw) == value
    assert tree.read_json_value(memoryview(raw)) == value


def test_half_a_surrogate_pair_is_ambiguous_and_not_told():
    with pytest.raises(VaultError) as caught:
        tree.read_json_value(rb'"Quentin\ud800"')
    assert caught.value.code is Code.AMBIGUOUS_JSON
    assert "Quentin" not in caught.value.message
    assert caught.value.__context__ is None


def test_text_is_written_with_only_the_escapes_that_json_demands():
    assert tree.write_json_value(Value("é\u2028\x7f/😀")) == '"é\u2028\x7f/😀"'.encode()
    assert tree.write_json_value(Value('"\\\n\t\x01')) == rb'"\"\\\n\t\u0001"'


def test_other_json_is_written_as_it_was_spelled():
    assert tree.write_json_value(Value("1.50", json=True)) == b"1.50"
    assert tree.write_json_value(Value('{"é" : 1}', json=True)) == '{"é" : 1}'.encode()


def test_text_that_is_no_unicode_is_unfit_and_not_told():
    with pytest.raises(VaultError) as caught:
        tree.write_json_value(Value("Quentin\ud800"))
    assert caught.value.code is Code.VALUE_UNFIT
    assert "Quentin" not in caught.value.message
    assert caught.value.__context__ is None


@table("media", CODECS)
def test_every_registered_codec_reads_what_it_writes(media):
    codec = CODECS[media]
    for text in ("", "Ann & Söhne = 100 %", "a+b\nc", *(["\0"] if media is not Media.XML else [])):
        assert codec.read(codec.write(Value(text))) == Value(text)


def test_each_kind_of_texts_behind_one_another_has_a_codec():
    assert set(CODECS) == {Media.JSON, Media.FORM, Media.MULTIPART, Media.XML, Media.VOBJECT}


# ---- spans


def test_leaves_are_given_to_their_objects_in_order_of_the_document():
    hits = [Hit(7, 8, 0, 1), Hit(3, 5, 0, 0), Hit(12, 14, 1, 0), Hit(9, 10, -1, 4)]
    assert assemble([(2, 9), (11, 15)], hits) == TreeSelection(
        [Located(2, 9, (Leaf(0, 3, 5), Leaf(1, 7, 8))), Located(11, 15, (Leaf(0, 12, 14),))],
        [Leaf(4, 9, 10)],
    )


def test_only_the_outermost_leaf_stays():
    hits = [Hit(4, 5, 0, 0), Hit(3, 9, 0, 1), Hit(6, 9, -1, 2), Hit(9, 11, 0, 3)]
    assert assemble([(0, 12)], hits) == TreeSelection(
        [Located(0, 12, (Leaf(1, 3, 9), Leaf(3, 9, 11)))], []
    )


def test_one_place_goes_to_the_root_then_to_the_outer_object_then_to_the_earlier_selector():
    assert assemble([(0, 9)], [Hit(1, 2, 0, 0), Hit(1, 2, -1, 5)]) == TreeSelection(
        [Located(0, 9, ())], [Leaf(5, 1, 2)]
    )
    assert assemble([(0, 9), (1, 8)], [Hit(2, 3, 1, 0), Hit(2, 3, 0, 7)]).objects[0].leaves == (
        Leaf(7, 2, 3),
    )
    assert assemble([(0, 9)], [Hit(1, 2, 0, 3), Hit(1, 2, 0, 1)]).objects[0].leaves == (
        Leaf(1, 1, 2),
    )

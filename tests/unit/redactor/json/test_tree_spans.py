from proxy.redactor.json.tree import Hit, Leaf, Located, TreeSelection, assemble


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

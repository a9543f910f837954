"""JSON texts as bytes: the grammar, the fast way, the checking walk, and the tree of spans."""

"""JSON texts as bytes: the grammar, the fast way to values, the walk that checks it, and the tree
of spans.
"""

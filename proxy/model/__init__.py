"""The nouns of the house: schemas and fields, values, places in documents.

No I/O and no keys: everything here is data that every room above may hold. ``jsonpath`` is the one
door to the JSONPath parser, used while rules load and never per request. What callers of the vault's own interface
send is read here: ``reading`` makes drafts of records, ``filters`` (with ``conditions``) questions of searches, ``values`` the
values of both; ``faults`` collects what is wrong, ``limits`` has every bound.
"""

"""The nouns: schemas, fields, records, filters, policies.

Data without I/O and without keys, for every room above.

What callers of the interface send is parsed here (``record_reader``, ``filter_reader``); ``values``
collects what is wrong with it. ``jsonpath`` is the one door to the JSONPath parser, used while
rules load and never per request.
"""

"""Who is let in at the listeners before anything is told: by country and network (the data firewall).

Why it exists: what a caller may learn depends on where it is, and that must be decided in one place for both listeners, before a
request is read, routed or answered in any other way. Nothing here knows rules, records or tokens.

``networks`` says what the standards say of an address, ``countries`` keeps the database of countries and follows its file,
``firewall`` joins both with the settings into one answer: inside or outside. ``masked`` is what is left of a matched exchange
for a caller outside.

What it may touch: addresses and forwarding fields of requests, and the one database file.
"""

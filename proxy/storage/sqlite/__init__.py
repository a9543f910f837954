"""The SQLite engine: one writer thread with group commit (``writer``), readers beside it
(``select``).

``apply`` makes a batch of commits durable; ``plan`` translates queries, ``statements`` and
``inserts`` hold the SQL, ``migrations`` the format step by step, ``file`` owns the database file
and translates the driver's errors.
"""

"""The SQLite engine: one writer thread with group commit (``writer``), readers beside it
(``select``).

A commit waits in a ``batch`` and is made durable by ``apply``; ``plan`` translates queries,
``statements`` and ``inserts`` hold the SQL, ``file`` owns the database file and translates the
driver's errors.
"""

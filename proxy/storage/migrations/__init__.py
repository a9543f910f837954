"""The store's own format, step by step: numbered, append-only, never edited once released.

Each step is a file ``s<number>_<what>.py`` with ``apply(connection)``; its number is the format
that it leads to. Format N is what steps 1..N make of an empty file. Tables of schemas are not made
here (``sqlite_ddl``), but a step that changes their shape has to change every one that the table
``tables`` names. A store of a newer format than ``FORMAT`` is refused, never guessed at.
"""

from collections.abc import Callable
from sqlite3 import Connection

from proxy.storage.migrations import s001_initial, s002_beside, s003_replies, s004_tallies

#: Every step in order; the place in the tuple (from 1) is the format that the step leads to.
STEPS: tuple[Callable[[Connection], None], ...] = (
    s001_initial.apply,
    s002_beside.apply,
    s003_replies.apply,
    s004_tallies.apply,
)

#: The format that this program reads and writes; kept as the database's ``user_version``.
FORMAT = len(STEPS)

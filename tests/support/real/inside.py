"""What an instance of the proxy tells from outside: how much its vault keeps, and what went wrong
in it.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.instance import Instance


class Counts(NamedTuple):
    """Rows of all schemas together."""

    live: int  #: records that the application has named
    pending: int  #: records that it has not named yet
    staged: int  #: changes that wait for its answer
    tokens: int  #: entries of the token index


def counts(data: Path) -> Counts:
    """Count in the data folder of an instance, running or not."""
    with closing(sqlite3.connect(f"file:{data / 'vault.db'}?mode=ro", uri=True)) as base:
        names = [
            name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]

        def total(prefix: str, condition: str = "1") -> int:
            tables = [name for name in names if name.startswith(prefix)]
            return sum(
                base.execute(f"SELECT count(*) FROM {name} WHERE {condition}").fetchone()[0]
                for name in tables
            )

        return Counts(total("r_", "state = 0"), total("r_", "state = 1"), total("s_"), total("t_"))


def faults(instance: Instance) -> list[str]:
    """The lines of its log that name a fault of the proxy itself; there are none in a good run."""
    lines = [json.loads(line) for line in bytes(instance.log).splitlines() if line.startswith(b"{")]
    bad: list[dict[str, Any]] = [
        line for line in lines if line.get("level") in ("error", "critical")
    ]
    return [
        f"{line.get('event')}: {line.get('exception', '')} in {line.get('where', '')}"
        for line in bad
    ]

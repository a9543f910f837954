"""What could not be shown on this machine, said out loud and counted.

A test that needs a right or a tool the machine lacks (a container engine, a second user, a browser)
is skipped with what it would have shown and why it could not. A test that shows less than it might
(fewer connections, one peer of two) runs and says so. Both stand at the end of the run, with their
number, from every worker process.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, NoReturn

import pytest

#: Key under which a test report carries the sentence; reports travel from xdist's workers to the
#: terminal.
PROPERTY = "not run here"


class Unavailable(NamedTuple):
    """Of one test: what this machine lacks for it."""

    item: pytest.Item

    def __call__(self, what: str, why: str) -> NoReturn:
        """Skip the test: ``what`` is not shown, because of ``why``."""
        self.partly(what, why)
        pytest.skip(f"{what}: {why}")

    def partly(self, what: str, why: str) -> None:
        """Go on with less: ``what`` is not shown."""
        self.item.user_properties.append((PROPERTY, f"{what}: {why}"))


def sentences(stats: Mapping[str, Iterable[object]]) -> dict[str, int]:
    """Every recorded line of a finished run with the number of tests, in order of the alphabet."""
    tests: dict[str, set[str]] = {}
    for reports in stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == PROPERTY:
                    tests.setdefault(value, set()).add(getattr(report, "nodeid", ""))
    return {line: len(tests[line]) for line in sorted(tests)}

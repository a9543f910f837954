"""What could not be shown on this machine, said out loud.

A test that needs a right or a tool the machine lacks (a container engine, a second user, a browser)
calls the fixture ``unavailable`` with what it did not run and why, and returns. Nothing is skipped:
the closing lines of the run name each such thing, from every worker process, so that a green run
never hides what it did not look at.
"""

from collections.abc import Iterable, Mapping

#: Key under which a test report carries the sentence; reports travel from xdist's workers to the
#: terminal.
PROPERTY = "not run here"


def sentence(what: str, why: str) -> str:
    """One line of the summary: what was not run, and what this machine lacks for it."""
    return f"{what}: {why}"


def sentences(stats: Mapping[str, Iterable[object]]) -> list[str]:
    """Every recorded line of a finished run, each once, in order of the alphabet."""
    found: set[str] = set()
    for reports in stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == PROPERTY:
                    found.add(str(value))
    return sorted(found)

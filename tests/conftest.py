"""What every test may use, and the closing lines of a run."""

from collections.abc import Callable

import pytest

from tests.support.unavailable import PROPERTY, sentence, sentences


@pytest.fixture
def unavailable(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``unavailable(what, why)`` puts a line under "not run here" in the summary; the test then returns."""

    def record(what: str, why: str) -> None:
        request.node.user_properties.append((PROPERTY, sentence(what, why)))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name plainly what this machine could not run."""
    lines = sentences(terminalreporter.stats)
    if not lines:
        return
    terminalreporter.section("not run here for want of rights or tools")
    for line in lines:
        terminalreporter.write_line(line)

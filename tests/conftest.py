"""What every test may use, and the closing lines of a run."""

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from proxy.objectstore import BACKENDS
from proxy.storage import ENGINES, EngineEntry
from tests.support.browser import Browser, NoBrowser
from tests.support.effort import EXPLORE, examples
from tests.support.functions import require
from tests.support.limits import Clock, time_of_limits
from tests.support.memory_objects import open_memory_objects
from tests.support.patience import PATIENCE, Watch
from tests.support.unavailable import Unavailable, sentences

# The references that engines and backends are compared with: nothing of them lasts, no setting names
# them.
ENGINES["memory"] = EngineEntry("tests.support.memory:MEMORY", "memory", "memory:")
BACKENDS["memory"] = open_memory_objects

#: Nothing says by itself whose data an instance keeps; what tests start keeps that of Sweden.
os.environ["DOMICILE__COUNTRY"] = "se"

# Programs and workers find what others have compiled, on machines that are told to keep nothing, too:
# compiling takes a third of the time of each start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The folders of tests are in memory where there is room: a process that is killed loses nothing that
# the kernel has, and waiting for a disk tests the disk.
if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 4 << 30:
    for name in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
        os.environ.setdefault(name, "/dev/shm")
    tempfile.tempdir = None  # looked up anew

# The same examples in every run, so that a change is judged by what it changed and not by the draw;
# ``make explore`` looks for new ones. No example is a fault because the machine was slow, neither to
# run it nor to draw it.
settings.register_profile(
    "shared machine", examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "every run alike",
    parent=settings.get_profile("shared machine"),
    derandomize=True,
    database=None,
)
settings.load_profile("shared machine" if EXPLORE else "every run alike")


#: Folders of tests that mostly wait for other processes.
WAITING = {"browser", "e2e"}
#: The part of a worker's tests in which files are that have tests marked as slow, and the other
#: files of those folders; the rest leaves room for files that are large, on both sides.
BETWEEN = {True: (0.05, 0.4), False: (0.1, 0.8)}


def pytest_collection() -> None:
    """Collect no garbage among what stays: tests, and the modules of the program."""
    gc.disable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker begin with other files, so that it finds most of them compiled by the others:
    to rewrite all assertions takes twice as long as all other collecting.
    """
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory):
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        begin = len(report.result) * number // count
        report.result = report.result[begin:] + report.result[:begin]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread the tests that mostly wait for other processes evenly among those that only calculate,
    file by file, so that no worker has all of either; the long ones come early and the last of each
    worker only calculate, so that none ends long after the others.
    """
    items.sort(key=lambda item: item.path)
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    files: dict[bool | None, list[list[pytest.Item]]] = {True: [], False: [], None: []}
    for path, group in groupby(items, lambda item: item.path):
        tests = list(group)
        slow = any(map(_slow, tests))
        files[slow if slow or path.parts[-2] in WAITING else None].append(tests)
    spread: list[tuple[float, list[pytest.Item]]] = []
    room = [len(items) / workers] * workers
    for kind, (first, last) in BETWEEN.items():
        # of slow files only those tests count
        lengths = [sum(map(_slow, one)) if kind else len(one) for one in files[kind]]
        for end, length, tests in zip(accumulate(lengths), lengths, files[kind], strict=True):
            worker, share = divmod((end - length / 2) * workers / sum(lengths), 1)
            spread.append((worker + first + share * (last - first), tests))
            room[int(worker)] -= len(tests)
    worker, filled = 0, 0
    for tests in files[None]:  # they fill up what is left of each
        if worker < workers - 1 and filled + len(tests) / 2 > room[worker]:
            worker, filled = worker + 1, 0
        spread.append((worker + filled / max(room[worker], 1), tests))
        filled += len(tests)
    items[:] = [item for _, group in sorted(spread, key=itemgetter(0)) for item in group]


def _slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def pytest_collection_finish() -> None:
    """What is there now is no garbage: it is not looked through again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def unavailable(request: pytest.FixtureRequest) -> Unavailable:
    """``unavailable(what, why)`` skips the test and puts a line under "not run here"."""
    return Unavailable(request.node)


@pytest.fixture
def nightly(unavailable: Unavailable) -> None:
    """Run the test only where much is tried: of its kind others run each time."""
    if not EXPLORE:
        unavailable("more benchmarks of that kind", "make explore takes all of them")


@pytest.fixture
def landlock(unavailable: Unavailable) -> None:
    """Run the test only where Landlock keeps functions from files."""
    require("landlock", unavailable)


@pytest.fixture
def seccomp(unavailable: Unavailable) -> None:
    """Run the test only where seccomp keeps functions from system calls."""
    require("seccomp", unavailable)


@pytest.fixture
async def browser(unavailable: Unavailable) -> AsyncIterator[Browser]:
    """A browser that knows nothing of other tests."""
    async with AsyncExitStack() as stack:
        try:
            found = await stack.enter_async_context(Browser.launch())
        except NoBrowser as fault:
            unavailable("pages in a real browser", str(fault))
        yield found


@pytest.fixture
def limits_clock() -> Iterator[Clock]:
    """Limits count by this clock, which stands still."""
    with time_of_limits() as clock:
        yield clock


class Failures:
    """Names each test that fails, with what it failed on, at once: a run that is cut off tells too."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._plugins.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"FAILED {report.nodeid} ({report.when})")
            reporter.write_line(report.longreprtext[-3000:])


def pytest_configure(config: pytest.Config) -> None:
    """Name failures in the process that prints, and end tests that hang in those that run them: the
    slowest takes a minute on a quiet machine, several times that beside other work, and with many
    more rounds as many times that.
    """
    config.pluginmanager.register(Watch(600 * max(1, EXPLORE), PATIENCE))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name plainly what this machine could not run."""
    counts = sentences(terminalreporter.stats)
    if counts:
        terminalreporter.section("not run here for want of rights or tools")
    for line, count in counts.items():
        terminalreporter.write_line(f"{count} {'test' if count == 1 else 'tests'}: {line}")

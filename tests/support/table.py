"""A table of cases as one test: all rows are tried, and each that fails is told by its name."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]


def table(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """In place of ``pytest.mark.parametrize`` where a row only compares: the test is set up once
    for all rows, which takes longer than a row does.

    No row may leave anything that another one sees. The test fails with a group of what each
    row failed with, its number and its values in a note.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(split, row if len(split) > 1 else (row,), strict=True)) for row in rows]
    assert cases, "the table is empty"

    def over(test: Test) -> Test:
        given = inspect.signature(test)
        asked = [one for one in given.parameters.values() if one.name not in split]

        @functools.wraps(test)
        def plain(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for number, case in enumerate(cases):
                with collected(failed, number, case):
                    test(**fixtures, **case)
            told(failed, len(cases))

        @functools.wraps(test)
        async def waiting(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for number, case in enumerate(cases):
                with collected(failed, number, case):
                    await test(**fixtures, **case)
            told(failed, len(cases))

        made: Any = waiting if inspect.iscoroutinefunction(test) else plain
        del made.__wrapped__  # pytest asks for the fixtures of what stands in the signature
        made.__signature__ = given.replace(parameters=asked)
        return made  # type: ignore[no-any-return]  # one of the two

    return over


@contextmanager
def collected(failed: list[BaseException], number: int, case: dict[str, Any]) -> Iterator[None]:
    """Keep what a row fails with, beside its number and values."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as fault:  # noqa: BLE001  # told after the last row
        values = ", ".join(f"{name}={value!r:.200}" for name, value in case.items())
        fault.add_note(f"row {number}: {values}")
        failed.append(fault)


def told(failed: list[BaseException], count: int) -> None:
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {count} rows failed", failed)

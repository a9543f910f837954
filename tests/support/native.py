"""The optional native code for tests: compiled once a process, used where a test asks for it."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proxy.redactor import select
from proxy.redactor.exchange import straight
from proxy.redactor.json import arrays, native
from proxy.redactor.json.native import FindLeaves
from tests.support.unavailable import Unavailable


@cache
def _compiled() -> FindLeaves | None:
    with TemporaryDirectory() as folder:
        try:
            native.compile_into(Path(folder), "-Wextra", "-Werror")
        except FileNotFoundError:
            return None
        loaded = native.load_from(Path(folder))
    assert loaded is not None
    return loaded


def compiled(unavailable: Unavailable) -> FindLeaves:
    """The function of the extension; the test is skipped where there is no compiler."""
    find = _compiled()
    if find is None:
        unavailable("native code", "no C compiler was found")
    return find


def use(find: FindLeaves | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find leaves by this function, or by Python alone, until the test ends."""
    for module in (arrays, select, straight):
        monkeypatch.setattr(module, "find_leaves", find)

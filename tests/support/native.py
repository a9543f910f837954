"""The optional native code for tests: compiled once a process, used where a test asks for it."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proxy.redactor import guard, select, value_scan
from proxy.redactor.exchange import fast_path_exchange, fast_path_plan
from proxy.redactor.json import arrays, native
from proxy.redactor.json.native import NativeCode
from proxy.tokenization.common import write32, write62
from tests.support.unavailable import Unavailable


@cache
def _compiled(*flags: str) -> NativeCode | None:
    with TemporaryDirectory() as folder:
        try:
            native.compile_into(Path(folder), "-Wextra", "-Werror", *flags)
        except FileNotFoundError:
            return None
        loaded = native.load_from(Path(folder))
    assert loaded is not None
    return loaded


def compiled(unavailable: Unavailable, *flags: str) -> NativeCode:
    """The functions of the extension, compiled with these flags; the test is skipped where there is
    no compiler.
    """
    code = _compiled(*flags)
    if code is None:
        unavailable("native code", "no C compiler was found")
    return code


def use(code: NativeCode | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use these functions, or those in Python, until the test ends."""
    for module in (arrays, select, fast_path_exchange):
        monkeypatch.setattr(module, "find_leaves", code and code.find)
    monkeypatch.setattr(fast_path_exchange, "_answer_fields", code and code.answer_fields)
    monkeypatch.setattr(fast_path_exchange, "_put_back", code and code.put_back)
    monkeypatch.setattr(value_scan, "_absent", code and code.absent)
    monkeypatch.setattr(guard, "_cut", code and code.cut)
    words = {} if code is None else {write62: code.write62, write32: code.write32}
    monkeypatch.setattr(fast_path_plan, "_native_words", words)
    monkeypatch.setattr(fast_path_plan, "_tokens", code and code.tokens)
    monkeypatch.setattr(fast_path_plan, "_unchanged", code and code.unchanged)

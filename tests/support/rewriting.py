"""Assertions of the tests rewritten once, before the workers of a run start: on a fresh copy each of
them would rewrite most files, at the same time.
"""

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite as of_pytest
from _pytest.assertion.rewrite import PYC_TAIL, assertstate_key, get_cache_dir


def rewrite(config: pytest.Config, files: Sequence[Path]) -> None:
    """Write the compiled form of those of the files that pytest rewrites and whose own is missing
    or older, on all cores.
    """
    left = [path for path in files if _is_rewritten(path) and not _is_fresh(path)]
    cores = min(os.cpu_count() or 1, len(left))
    fork = multiprocessing.get_context("fork")
    parts = [left[number::cores] for number in range(cores)]
    workers = [fork.Process(target=_rewrite_all, args=(config, part)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def compiled(path: Path) -> Path:
    """Where pytest looks for the compiled form of a file."""
    return get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"


def _is_rewritten(path: Path) -> bool:
    return path.name.startswith("test_") or path.name == "conftest.py"


def _is_fresh(path: Path) -> bool:
    there = compiled(path)
    return there.exists() and there.stat().st_mtime >= path.stat().st_mtime


def _rewrite_all(config: pytest.Config, files: Sequence[Path]) -> None:
    for path in files:
        compiled(path).parent.mkdir(parents=True, exist_ok=True)
        state, code = of_pytest._rewrite_test(path, config)
        of_pytest._write_pyc(config.stash[assertstate_key], code, state, compiled(path))

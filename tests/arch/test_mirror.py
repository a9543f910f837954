"""Each file of the program has its unit test, and each unit test its file."""

import pytest

from tests.support.tree import PACKAGE, ROOT, python_files, relative

#: Files that need no unit test of their own, each with its reason.
WITHOUT_TEST: dict[str, str] = {
    "proxy/storage/base.py": "the port: protocols and row types; tests/conformance holds every engine to it",
    "proxy/objectstore/base.py": "the port; tests/conformance holds every backend to it",
    "proxy/redactor/rules.py": "types of a compiled rule set; redactor/load builds and tests them",
    "proxy/tokenization/base.py": "the port of a shape; tests/conformance holds every shape to it",
}

#: Names that a package has by convention; what they hold is tested through the package.
CONVENTIONAL = {"__init__.py", "__main__.py"}


def mirrored(source: str) -> str:
    """``proxy/a/b.py`` → ``tests/unit/a/test_b.py``."""
    folder, _, name = source.removeprefix("proxy/").rpartition("/")
    return f"tests/unit/{folder + '/' if folder else ''}test_{name}"


def sources() -> list[str]:
    return [relative(path) for path in python_files("proxy") if path.name not in CONVENTIONAL]


def unit_tests() -> list[str]:
    return [relative(path) for path in python_files("tests/unit") if path.name.startswith("test_")]


@pytest.mark.parametrize("source", sources())
def test_every_source_file_has_its_unit_test(source):
    assert source in WITHOUT_TEST or (ROOT / mirrored(source)).exists(), f"write {mirrored(source)}"


@pytest.mark.parametrize("test", unit_tests())
def test_every_unit_test_has_its_source_file(test):
    assert test in {mirrored(source) for source in sources()}, f"{test} mirrors no file of proxy/"


@pytest.mark.parametrize("source", WITHOUT_TEST)
def test_no_exception_outlives_its_reason(source):
    assert (ROOT / source).exists(), f"{source} is gone: remove it from WITHOUT_TEST"
    assert not (ROOT / mirrored(source)).exists(), f"{source} has a test now: remove it from WITHOUT_TEST"


def test_every_folder_of_the_program_and_of_the_tests_is_a_package():
    folders = {path.parent for path in python_files("proxy", "tests")}
    assert PACKAGE in folders
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []

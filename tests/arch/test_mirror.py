"""Each file of the program has its tests, and each of these its file or its folder.

``tests/unit`` tries a file by itself, ``tests/integration`` a whole gateway for what a file does there.
"""

from tests.support.tree import PACKAGE, ROOT, python_files, relative

#: Files that need no unit test of their own, each with its reason.
WITHOUT_TEST: dict[str, str] = {
    "proxy/storage/base.py": "the port: protocols and row types; tests/conformance holds every engine to it",
    "proxy/storage/changes.py": "types of changes; tests/conformance holds every engine to what each does",
    "proxy/storage/rows.py": "types of rows and how cells are kept; tests/conformance reads back what every engine wrote",
    "proxy/storage/statements.py": "texts that both engines share; tests/conformance runs each on both",
    "proxy/model/query.py": "types of a question; tests/conformance asks them of every engine",
    "proxy/objectstore/base.py": "the port; tests/conformance holds every backend to it",
    "proxy/redactor/rules.py": "types of a compiled rule set; redactor/load builds and tests them",
    "proxy/redactor/request_rules.py": "types of a compiled search; redactor/load builds and tests them",
    "proxy/tokenization/base.py": "the port of a shape; tests/conformance holds every shape to it",
}

#: Folders of tests whose files stand as those of the program do.
ROOMS = ("tests/unit", "tests/integration")

#: Names that a package has by convention; what they hold is tested through the package.
CONVENTIONAL = {"__init__.py", "__main__.py"}


def mirrored(source: str) -> str:
    """``proxy/a/b.py`` → ``tests/unit/a/test_b.py``."""
    folder, _, name = source.removeprefix("proxy/").rpartition("/")
    return f"tests/unit/{folder + '/' if folder else ''}test_{name}"


def sources() -> list[str]:
    return [relative(path) for path in python_files("proxy") if path.name not in CONVENTIONAL]


def file_tests() -> list[str]:
    return [relative(path) for path in python_files(*ROOMS) if path.name.startswith("test_")]


def mirrors(test: str) -> str | None:
    """The file or folder that a test is about: ``a/test_b.py`` and ``a/test_b_c.py`` are about
    ``a/b.py`` or ``a/b/``.
    """
    folder, _, name = test.split("/", 2)[2].rpartition("/")
    words = name.removeprefix("test_").removesuffix(".py").split("_")
    for count in range(len(words), 0, -1):
        place = PACKAGE / folder / "_".join(words[:count])
        for source in (place.with_suffix(".py"), place.with_name(place.name + "_.py")):
            if source.exists():
                return relative(source)
        if place.is_dir():
            return relative(place)
    return None


TESTED = {mirrors(test) for test in file_tests()}


def test_every_source_file_has_its_tests():
    assert [
        mirrored(source)
        for source in sources()
        if source not in WITHOUT_TEST and not TESTED & {source, source.rpartition("/")[0]}
    ] == [], "write these"


def test_every_test_of_a_file_has_its_source_file():
    assert [test for test in file_tests() if mirrors(test) is None] == []


def test_no_exception_outlives_its_reason():
    assert [
        source
        for source in WITHOUT_TEST
        if not (ROOT / source).exists() or (ROOT / mirrored(source)).exists()
    ] == [], "gone, or tested now: remove them from WITHOUT_TEST"


def test_every_folder_of_the_program_and_of_the_tests_is_a_package():
    folders = {path.parent for path in python_files("proxy", "tests")}
    assert PACKAGE in folders
    assert [
        relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()
    ] == []

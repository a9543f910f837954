"""What `make dist` makes: the same bytes each time, all that is needed, and it works."""

import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from proxy import __version__
from tests.support.patience import PATIENCE
from tests.support.tree import ROOT, tracked


def build(source: Path, target: Path, *kinds: str) -> dict[str, Path]:
    """Build as `make dist` does; the files by their ending."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", target, *kinds],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return {path.name.rpartition(".")[2]: path for path in target.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_sources_give_the_same_bytes(built, tmp_path):
    again = build(ROOT, tmp_path)
    assert {name: digest(path) for name, path in again.items()} == {
        name: digest(path) for name, path in built.items()
    }


def test_make_builds_them_so():
    assert "@$(BIN)/python -m hatchling build\n" in (ROOT / "Makefile").read_text("utf-8")


def test_the_source_distribution_holds_files_of_the_project_alone(built):
    with tarfile.open(built["gz"]) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    there = {path.relative_to(ROOT).as_posix() for path in tracked()}
    assert names - there == {"PKG-INFO"} | ({".gitignore"} - there)
    assert {"proxy/__init__.py", "rules/contacts.yaml", "LICENSE", "docs/rules.md"} <= names
    assert not any(name.startswith((".ci", ".venv")) for name in names)


def test_the_wheel_out_of_the_source_distribution_is_the_same(built, tmp_path):
    with tarfile.open(built["gz"]) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = build(source, tmp_path / "dist", "-t", "wheel")
    with zipfile.ZipFile(again["whl"]) as one, zipfile.ZipFile(built["whl"]) as other:
        assert {n: one.read(n) for n in one.namelist()} == {
            n: other.read(n) for n in other.namelist()
        }


def test_the_demo_runs_from_the_wheel_in_any_folder(built, tmp_path):
    """In an environment of its own, with the libraries of this one: the index is not asked."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    install = (
        "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps",
    )  # fmt: skip
    subprocess.run([sys.executable, *install, str(built["whl"])], check=True, timeout=120)
    (packages,) = home.glob("lib/python*/site-packages")
    # behind its own packages, so that the program is that of the wheel
    (packages / "libraries.pth").write_text(sysconfig.get_path("platlib") + "\n")
    folder = tmp_path / "anywhere"
    folder.mkdir()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    whence = "import proxy; print(proxy.__file__, proxy.__version__)"
    shown = subprocess.run(
        [python, "-c", whence], capture_output=True, text=True, check=True, cwd=folder,
        env=environment, timeout=PATIENCE,
    )  # fmt: skip
    assert shown.stdout.split() == [str(packages / "proxy" / "__init__.py"), __version__]
    process = subprocess.Popen(
        [home / "bin" / "domicile", "demo", "--port", "0"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        text = ""
        for line in process.stdout:
            text += line
            if "Ctrl-C stops" in line:
                break
        assert "Domicile is running" in text, text
        assert str(folder / "demo-data" / "contacts.yaml") in text
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

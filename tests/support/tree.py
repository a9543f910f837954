"""The files of this project as the architecture tests see them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "proxy"


def python_files(*folders: str) -> list[Path]:
    """Every Python file below these folders of the project, in order; caches left out."""
    found = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    ]
    return sorted(found)


def relative(path: Path) -> str:
    """A path as the project names it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tracked() -> tuple[Path, ...]:
    """Every file under version control that is there; in an unpacked archive every file outside
    hidden folders.
    """
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [
            path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)
        ]
    return tuple(sorted(path for path in paths if path.is_file()))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of that tree, walked once: many rules look through all files."""
    return tuple(ast.walk(parsed(path)))

"""Rule files on disk: which ones count, what is in them, and a fingerprint that tells whether anything changed.

A folder is read flat. Names that begin with a dot are left out: a mounted config map keeps its real files in folders
such as ``..data`` and shows them by symbolic links.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proxy.redactor.load.faults import Faults
from proxy.redactor.load.references import files_named
from proxy.redactor.rules import Position

SUFFIXES = frozenset({".yaml", ".yml"})
#: Ten thousand operations take about 2 MB.
MOST_BYTES = 8 * 1024 * 1024


class Source(NamedTuple):
    """The content of one rule file; ``name`` is how faults call it, ``folder`` where its references start."""

    name: str
    folder: Path
    content: bytes


def read_sources(path: Path, faults: Faults) -> list[Source]:
    """Every rule file at the path, a file or a folder, by name. Faults: nothing there, not readable, too long."""
    try:
        paths = _rule_files(path)
    except OSError as error:
        faults.add(
            Position(str(path), 0, 0), f"cannot be read ({error.strerror}); name a rule file or a folder of them"
        )
        return []
    if not paths:
        faults.add(Position(str(path), 0, 0), "holds no rule file; write one that ends in .yaml, see docs/rules.md")
    return [source for file in paths if (source := _read(file, faults))]


def no_rules(path: Path) -> bool:
    """Whether there is nothing at the path, or a folder without a rule file."""
    try:
        return not _rule_files(path) if path.is_dir() else not path.exists()
    except OSError:
        return False  # whoever loads it says what is wrong


def decode(source: Source, faults: Faults) -> str | None:
    """The text of a file, which is UTF-8 with or without a byte order mark; ``None`` after noting a fault."""
    try:
        return source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source.content[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        faults.add(Position(source.name, line, column), "not UTF-8; save the file as UTF-8")
        return None


def version_of(sources: list[Source]) -> str:
    """Twelve hexadecimal digits that change with any name or content."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        for part in (Path(source.name).name.encode(), source.content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def fingerprint(path: Path) -> str:
    """A digest of everything that loading the path would read: names, link targets, contents, referenced files.

    Never raises: what cannot be read counts as such, and becoming readable is a change.
    """
    digest = hashlib.sha256()
    for part in _parts(path):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _parts(path: Path) -> Iterator[bytes]:
    try:
        paths = _rule_files(path)
    except OSError as error:
        yield f"unreadable {error.errno}".encode()
        return
    for file in paths:
        content = _content(file)
        yield str(file).encode("utf-8", "surrogateescape")
        yield str(file.resolve()).encode("utf-8", "surrogateescape")
        yield content
        for referenced in files_named(content.decode("utf-8", "replace"), file.parent):
            yield _content(referenced)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        return f"unreadable {error.errno}".encode()


def _rule_files(path: Path) -> list[Path]:
    if not path.is_dir():
        path.stat()
        return [path]
    entries = (entry for entry in path.iterdir() if not entry.name.startswith(".") and entry.suffix in SUFFIXES)
    return sorted(entry for entry in entries if not entry.is_dir())


def _read(file: Path, faults: Faults) -> Source | None:
    at = Position(str(file), 1, 1)
    try:
        if file.stat().st_size > MOST_BYTES:
            faults.add(at, f"longer than {MOST_BYTES} bytes; split it")
            return None
        return Source(str(file), file.parent, file.read_bytes())
    except OSError as error:
        faults.add(at, f"cannot be read ({error.strerror}); correct its mode or the link")
        return None

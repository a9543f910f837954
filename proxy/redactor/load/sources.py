"""Rule files on disk, and what references in them refer to.

A folder is read flat. Names that begin with a dot are left out: a mounted config map keeps its real
files in folders such as ``..data`` and shows them by symbolic links.

``${env:NAME}`` and ``${file:path}`` refer to secrets, which must not stand in a rule file. A fault
names the reference, never its content.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from proxy.redactor.load.yaml_tree import RuleFaults
from proxy.redactor.rules import Position

SUFFIXES = frozenset({".yaml", ".yml"})
#: Ten thousand operations take about 2 MB.
MOST_RULE_BYTES = 8 * 1024 * 1024

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
#: A referenced file holds a secret or an address; anything longer is the wrong file.
MOST_REFERENCE_BYTES = 64 * 1024
#: Stand-ins for an unread reference: a whole text, and a part of one.
_STAND_INS: Final = ("https://reference.invalid", "reference")


class RuleSource(NamedTuple):
    """The content of one rule file; ``name``: for faults, ``folder``: of its references."""

    name: str
    folder: Path
    content: bytes


def read_sources(path: Path, faults: RuleFaults) -> list[RuleSource]:
    """Every rule file at the path, a file or a folder, by name.

    Faults: nothing there, not readable, too long.
    """
    try:
        paths = _rule_files(path)
    except OSError as error:
        faults.add(
            Position(str(path), 0, 0),
            f"cannot be read ({error.strerror}); name a rule file or a folder of them",
        )
        return []
    if not paths:
        faults.add(
            Position(str(path), 0, 0),
            "holds no rule file; write one that ends in .yaml, see docs/rules.md",
        )
    return [source for file in paths if (source := _read(file, faults))]


def no_rules(path: Path) -> bool:
    """Whether there is nothing at the path, or a folder without a rule file."""
    try:
        return not _rule_files(path) if path.is_dir() else not path.exists()
    except OSError:
        return False  # the loader names its fault


def decode_rule_text(source: RuleSource, faults: RuleFaults) -> str | None:
    """The text of a UTF-8 file, byte order mark or not; ``None`` after noting a fault."""
    try:
        return source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = source.content[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        faults.add(Position(source.name, line, column), "not UTF-8; save the file as UTF-8")
        return None


def rules_version(sources: list[RuleSource]) -> str:
    """Twelve hexadecimal digits that change with any name or content."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        for part in (Path(source.name).name.encode(), source.content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def fingerprint(path: Path) -> str:
    """A digest of everything that loading the path would read: names, link targets, contents,
    referenced files.

    Never raises: an unreadable file counts as such, and becoming readable is a change.
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
    entries = (
        entry
        for entry in path.iterdir()
        if not entry.name.startswith(".") and entry.suffix in SUFFIXES
    )
    return sorted(entry for entry in entries if not entry.is_dir())


def _read(file: Path, faults: RuleFaults) -> RuleSource | None:
    at = Position(str(file), 1, 1)
    try:
        if file.stat().st_size > MOST_RULE_BYTES:
            faults.add(at, f"longer than {MOST_RULE_BYTES} bytes; split it")
            return None
        return RuleSource(str(file), file.parent, file.read_bytes())
    except OSError as error:
        faults.add(at, f"cannot be read ({error.strerror}); correct its mode or the link")
        return None


def resolve_references(text: str, folder: Path, environ: Mapping[str, str] | None) -> str:
    """The text with every reference replaced; relative files start at ``folder``.

    Without an environment nothing is read, and stand-ins are used. ``ValueError`` names the fault.
    """
    if environ is None:
        whole = _REFERENCE.fullmatch(text) is not None
        return _REFERENCE.sub(_STAND_INS[not whole], text)
    return _REFERENCE.sub(lambda match: _one(match.group(1), folder, environ), text)


def files_named(text: str, folder: Path) -> list[Path]:
    """The files that references in the text name, in order."""
    inner = (match.group(1) for match in _REFERENCE.finditer(text))
    return [
        folder / reference.removeprefix("file:")
        for reference in inner
        if reference.startswith("file:")
    ]


def _one(reference: str, folder: Path, environ: Mapping[str, str]) -> str:
    source, colon, name = reference.partition(":")
    if source == "env" and colon and name:
        if name not in environ:
            raise ValueError(
                f"the environment variable {name} is not set; set it before the program starts"
            )
        return environ[name]
    if source == "file" and colon and name:
        return _referenced(folder / name, name)
    raise ValueError(
        f"'${{{reference}}}' is not a reference; write ${{env:NAME}} or ${{file:path}}"
    )


def _referenced(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_REFERENCE_BYTES + 1)
        if len(content) > MOST_REFERENCE_BYTES:
            raise ValueError(
                f"the referenced file {name} is longer than {MOST_REFERENCE_BYTES} bytes; name "
                "the right file"
            )
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(
            f"the referenced file {name} cannot be read ({error.strerror}); create it or correct "
            "the name"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"the referenced file {name} is not UTF-8 text; name the right file"
        ) from None

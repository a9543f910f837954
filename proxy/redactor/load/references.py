"""References to what must not stand in a rule file: ``${env:NAME}`` and ``${file:path}``.

A fault names the reference, never what it refers to.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
#: A referenced file holds a secret or an address; anything longer is the wrong file.
MOST_BYTES = 64 * 1024


def resolve(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    """The text with every reference replaced; relative files start at ``folder``. ``ValueError`` says what is wrong."""
    return _REFERENCE.sub(lambda found: _one(found.group(1), folder, environ), text)


def files_named(text: str, folder: Path) -> list[Path]:
    """The files that references in the text name, in order."""
    inner = (found.group(1) for found in _REFERENCE.finditer(text))
    return [folder / reference.removeprefix("file:") for reference in inner if reference.startswith("file:")]


def _one(reference: str, folder: Path, environ: Mapping[str, str]) -> str:
    source, colon, name = reference.partition(":")
    if source == "env" and colon and name:
        if name not in environ:
            raise ValueError(f"the environment variable {name} is not set; set it before the program starts")
        return environ[name]
    if source == "file" and colon and name:
        return _content(folder / name, name)
    raise ValueError(f"'${{{reference}}}' is not a reference; write ${{env:NAME}} or ${{file:path}}")


def _content(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"the referenced file {name} is longer than {MOST_BYTES} bytes; name the right file")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(
            f"the referenced file {name} cannot be read ({error.strerror}); create it or correct the name"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"the referenced file {name} is not UTF-8 text; name the right file") from None

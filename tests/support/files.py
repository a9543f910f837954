"""Files as a program on the other side sees them."""

from pathlib import Path


def rewrite(path: Path, text: str) -> None:
    """Replace a file in one step, as editors do: who looks at it meanwhile never sees it half
    written.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)

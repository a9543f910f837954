"""Files as a program on the other side sees them."""

from collections.abc import Sequence
from pathlib import Path, PosixPath


def rewrite(path: Path, text: str) -> None:
    """Replace a file in one step, as editors do: who looks at it meanwhile never sees it half
    written.
    """
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)


class MountedFolder(PosixPath):
    """A config map: each version of its files is swapped under all of them at once, and the next
    one whenever somebody has read the first file, until ``swaps`` versions have come.
    """

    names: Sequence[str] = ()
    versions: Sequence[Sequence[str]] = ()
    swaps = 0
    swapped = 0

    def read_bytes(self) -> bytes:
        """The content of a file, which another version follows at once."""
        content = super().read_bytes()
        cls = type(self)
        if cls.swapped < cls.swaps and self.name == cls.names[0]:
            self.parent.swap()
        return content

    def swap(self) -> None:
        """Mount the next version."""
        cls = type(self)
        folder = self / f"..{cls.swapped}"
        folder.mkdir()
        for name, text in zip(cls.names, cls.versions[cls.swapped % 2], strict=True):
            (folder / name).write_text(text)
        (self / "..new").symlink_to(folder.name)
        (self / "..new").replace(self / "..data")
        cls.swapped += 1


def mounted(folder: Path, names: Sequence[str], versions: Sequence[Sequence[str]]) -> MountedFolder:
    """Mount the first of two versions of these files there."""
    kind = type("Mounted", (MountedFolder,), {"names": names, "versions": versions})
    made: MountedFolder = kind(folder)
    made.swap()
    for name in names:
        (folder / name).symlink_to(f"..data/{name}")
    return made

"""``domicile demo`` as a real process, in a folder of its own with a copy of the sample rules."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.lives import write_command
from tests.support.patience import PATIENCE
from tests.support.scraping import SCRAPED
from tests.support.tree import ROOT


@dataclass
class Demo:
    """A running demo: what it printed until now, and the addresses in it."""

    folder: Path
    process: asyncio.subprocess.Process
    text: str

    @property
    def page(self) -> str:
        return self._address(r"side by side +(\S+)")

    @property
    def proxy(self) -> str:
        return self._address(r"for people +(\S+)/contacts")

    @property
    def application(self) -> str:
        return self._address(r"by itself +(\S+)/contacts")

    @property
    def rules(self) -> Path:
        return self.folder / "rules" / "contacts.yaml"

    @property
    def commands(self) -> list[str]:
        """The lines that the text says to try."""
        return [
            line.strip() for line in self.text.splitlines() if line.lstrip().startswith("curl ")
        ]

    async def interrupted(self) -> tuple[int, str]:
        """Press Ctrl-C; the exit status, and what was printed since."""
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            rest = await self.process.stdout.read()
            return await self.process.wait(), rest.decode()

    def shown(self, name: str) -> str:
        """What stands beside a name."""
        return self._address(rf"{name} +(\S+)")

    def _address(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found, f"no address for {pattern}:\n{self.text}"
        return found[1]


def sample_rules(folder: Path) -> None:
    """Put a copy of the sample rules into that folder, where the demo looks for them."""
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "rules" / "contacts.yaml", folder / "rules")


@asynccontextmanager
async def demo(folder: Path, *arguments: str, clone: bool = True) -> AsyncIterator[Demo]:
    """Start it there and wait until it says that it runs; killed at the end where it has not ended
    by then.
    """
    if clone and not (folder / "rules").exists():
        sample_rules(folder)
    write_command(command := folder.with_name(f"{folder.name}-bin") / "domicile")
    process = await asyncio.create_subprocess_exec(
        command,
        "demo",
        *arguments,
        cwd=folder,
        env={**os.environ, **SCRAPED},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Demo(folder, process, await _said(process))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _said(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(PATIENCE):
        while "Ctrl-C stops" not in text:
            line = await process.stdout.readline()
            if not line:
                await process.wait()
                raise AssertionError(f"the demo ended instead of starting:\n{text}")
            text += line.decode()
    return text

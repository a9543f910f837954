"""The Django project, with what it keeps and what it was sent."""

import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.application import found_in
from tests.support.patience import PATIENCE
from tests.support.real import project
from tests.support.real.served import served
from tests.support.real.wire import Wire, tapped


@dataclass(frozen=True)
class Site:
    """A running site: its database stands in ``folder``, everything it was sent on ``wire``, what
    it said in ``log``.
    """

    folder: Path
    wire: Wire
    log: bytearray

    def fresh(self) -> None:
        """Forget everybody, and what was sent."""
        with closing(sqlite3.connect(self.folder / "db.sqlite3", timeout=PATIENCE)) as base:
            base.execute("PRAGMA secure_delete = on")
            for table in (
                "people_person",
                "papers_paper",
                "django_session",
                "django_admin_log",
                "sqlite_sequence",
            ):
                base.execute(f"DELETE FROM {table}")
            base.commit()
        self.wire.sent.clear()
        self.log.clear()

    def holds(self, marker: str) -> list[str]:
        """The forms in which the marker reached the application: on the wire, in its log, its
        database, its journal.
        """
        kept = [path.read_bytes() for path in self.folder.glob("db.sqlite3*")]
        return found_in(b"\n".join((self.wire.sent, self.log, *kept)), marker)


def prepared(python: Path, folder: Path) -> Path:
    """The project with an empty database and one account, to be copied for each test."""
    project.write(folder)
    subprocess.run([python, "prepare.py"], cwd=folder, check=True, timeout=300)
    return folder


@asynccontextmanager
async def serving(python: Path, template: Path, folder: Path) -> AsyncIterator[Site]:
    """A site of its own, made from the prepared one."""
    shutil.copytree(template, folder)
    async with served(python, folder) as server, tapped(server.port) as wire:
        yield Site(folder, wire, server.log)

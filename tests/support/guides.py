"""Pages of ``docs`` run as they stand: their commands in a shell, their files written, the proxy
before the application as the page says, and all that the application keeps searched afterwards.

A guide has two sections. ``The application`` holds shell blocks and files (a block that names its
file behind the language), in the order in which a reader goes through them, and its last command
serves on port 8000. ``Put Domicile in front`` copies a rule file and ends by serving. A test puts free
ports in their places, and has the packages installed from a lock beforehand: ``pip`` and ``npm`` do
nothing.
"""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.application import found_in
from tests.support.browser import Page
from tests.support.lives import write_command
from tests.support.log_lines import parsed
from tests.support.patience import PATIENCE
from tests.support.ports import closed_port
from tests.support.real.wire import Wire, tapped
from tests.support.tree import ROOT

#: Ports that are free, for what a page starts.
FREE = {f"DOMICILE__LISTEN__{name}": "127.0.0.1:0" for name in ("PROXY", "VAULT", "ADMIN")}

#: Two people whom the tests of guides type.
ANN = {
    "name": "Zorbina Quibblethwaite", "email": "Zorbina.Q@Wexlomere.example",
    "phone": "+46 70 918 27 36", "birth_date": "1931-02-27", "note": "Ate the last plöm.",
}  # fmt: skip
BO = {
    "name": "Bartholomew Snickelway", "email": "bart@wexlomere.example",
    "phone": "+46 70 555 11 22", "birth_date": "1944-10-05", "note": "Sings plöm songs.",
}  # fmt: skip
#: What of them must never reach an application, in any spelling.
MARKERS = (
    "Zorbina", "Quibblethwaite", "Wexlomere", "+46 70 918 27", "1931-02-27", "plöm", "Snickel",
    "Bartholomew", "1944-10-05", "555 11 22",
)  # fmt: skip

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def clone(folder: Path) -> Path:
    """A folder like a clone in which ``make install`` has run already: the command in ``.venv/bin``
    is this one.
    """
    shutil.copytree(ROOT / "rules", folder / "rules")
    (folder / "Makefile").write_text("install:\n")
    write_command(folder / ".venv" / "bin" / "domicile")
    return folder


@dataclass
class Guide:
    """A page of ``docs/guides``."""

    text: str

    @classmethod
    def named(cls, name: str) -> "Guide":
        return cls((ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8"))

    def blocks(self, heading: str) -> Iterator[tuple[str, str, str]]:
        """Language, file and content of each block below a heading; no file: an empty text."""
        section = self.text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
        yield from _BLOCK.findall(section)

    def files(self) -> dict[str, str]:
        """The files that the page holds, by their names."""
        return {name: text for _, name, text in _BLOCK.findall(self.text) if name}

    def script(self, heading: str) -> str:
        """All that a reader types and writes below a heading, in its order."""
        parts = ["pip() { :; }\nnpm() { :; }\n"]
        for language, name, text in self.blocks(heading):
            if name:
                parts.append(
                    f"mkdir -p $(dirname {name})\ncat > {name} <<'THE-FILE'\n{text}THE-FILE\n"
                )
            elif language == "sh":
                parts.append(text)
        return "".join(parts)


@dataclass
class Running:
    """A program that a script of a page started; ``log`` is what it has said so far."""

    process: asyncio.subprocess.Process
    log: bytearray = field(default_factory=bytearray)

    def told(self) -> str:
        return self.log.decode("utf-8", "replace")


@asynccontextmanager
async def script_running(folder: Path, script: str, path: Path) -> AsyncIterator[Running]:
    """A script that ends by serving, run by somebody who has that environment activated."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", script),
        cwd=folder,
        env={**os.environ, **FREE, "PATH": f"{path}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    running = Running(process)
    reading = asyncio.create_task(_read(running))
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)  # the shell and the programs in it
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        await reading


async def _read(running: Running) -> None:
    assert running.process.stdout is not None
    while chunk := await running.process.stdout.read(65536):
        running.log += chunk


class Started(NamedTuple):
    """An instance that a script started, and the client that it made before."""

    proxy: str
    vault: str
    client: tuple[str, str]  #: empty texts where it made none


@asynccontextmanager
async def proxy_started(folder: Path, script: str) -> AsyncIterator[Started]:
    """The instance that a script starts."""
    async with script_running(folder, script, folder / ".venv" / "bin") as running:
        async with asyncio.timeout(PATIENCE):
            while not {"proxy", "vault"} <= (found := _listeners(running.log)).keys():
                assert running.process.returncode is None, running.told()
                await asyncio.sleep(0.05)
        made = dict(_CLIENT.findall(running.told()))
        client = made.get("id", ""), made.get("secret", "")
        yield Started(f"http://{found['proxy']}", f"http://{found['vault']}", client)


#: The first client as ``domicile init`` prints it.
_CLIENT = re.compile(r"client_(id|secret) +(\S+)")


def _listeners(log: bytearray) -> dict[str, str]:
    """The addresses of the listeners that the log tells of, by name."""
    events = [parsed(line) for line in bytes(log).splitlines() if line.endswith(b"}")]
    return {one["listener"]: one["address"] for one in events if "listener" in one}


@dataclass(frozen=True)
class Followed:
    """A guide that somebody has followed: the proxy's address, and all that the application has."""

    proxy: str
    started: Started
    folder: Path
    application: Running
    wire: Wire
    own: frozenset[str]

    def leaked(self, *markers: str) -> dict[str, list[str]]:
        """What of these reached the application, and in which spelling: on the wire, in its log, in
        any file that it made.
        """
        kept = [
            path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file() and path.suffix != ".pyc" and self._name(path) not in self.own
        ]
        heap = b"\n".join((self.wire.sent, self.application.log, *kept))
        return {marker: found for marker in markers if (found := found_in(heap, marker))}

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


@asynccontextmanager
async def followed(
    name: str, folder: Path, python: Path, port: int = 8000, modules: Path | None = None
) -> AsyncIterator[Followed]:
    """Follow the guide of that name from its first line to its last, with the packages of that
    Python, and of that ``node_modules``.
    """
    guide, place = Guide.named(name), folder / "application"
    place.mkdir(parents=True)
    if modules is not None:
        (place / "node_modules").symlink_to(modules)
    with closed_port() as free:
        script, count = re.subn(rf"\b{port}\b", str(free), guide.script("The application"))
        assert count == 1, f"the page names port {port} {count} times"
        async with script_running(place, script, python.parent) as application:
            await _listening(free, application)
            async with tapped(free) as wire:
                home = clone(folder / "clone")
                for rules in home.glob("rules/**/*.yaml"):
                    text = rules.read_text("utf-8")
                    rules.write_text(
                        text.replace(f"http://127.0.0.1:{port}", wire.address), "utf-8"
                    )
                async with proxy_started(home, guide.script("Put Domicile in front")) as one:
                    own = frozenset(guide.files())
                    yield Followed(one.proxy, one, place, application, wire, own)


async def _listening(port: int, application: Running) -> None:
    async with asyncio.timeout(3 * PATIENCE):  # a page may have several programs run before that
        while True:
            assert application.process.returncode is None, application.told()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


async def submitted(page: Page, button: str) -> None:
    """Press a button that leads to another page, and wait for that."""
    await page.evaluate("window.before = true")
    await page.click(button)
    await page.until("window.before === undefined && document.readyState === 'complete'")


async def fetched(page: Page, path: str) -> tuple[int, str]:
    """Status and text of an answer, with the session of the page."""
    script = (
        f"fetch({json.dumps(path)}).then(async (answer) => [answer.status, await answer.text()])"
    )
    status, text = await page.evaluate(script)
    return status, text

"""A real Chromium for tests, driven over the Chrome DevTools Protocol; no driver program and no
further library.

``find_chromium`` looks for the program and, as root on a system with apt, installs it.
``Browser.launch`` gives a context of its own within it, ``Browser.page`` opens a page whose pointer,
keyboard and screen a test then uses.
"""

import asyncio
import atexit
import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.support.patience import PATIENCE

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--no-default-browser-check", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server", "--hide-scrollbars",
    "--lang=en-GB", "--remote-debugging-port=0",
)  # fmt: skip


class NoBrowser(Exception):
    """This machine has no Chromium and none could be installed; the text says why."""


def find_chromium() -> str:
    """Path of a Chromium, installed first where that is possible; raises ``NoBrowser``."""
    with (Path(tempfile.gettempdir()) / f"chromium-install-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes must not install at once
        return _known() or _installed()


def _known() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _installed() -> str:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoBrowser("no chromium found, and installing it takes root and apt-get")
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            done = subprocess.run(
                ["apt-get", *arguments],
                capture_output=True,
                env=environment,
                timeout=300,
                check=False,
            )
        except subprocess.TimeoutExpired as fault:
            raise NoBrowser(
                f"no chromium found, and apt-get {arguments[0]} took more than five minutes"
            ) from fault
        if done.returncode != 0:
            raise NoBrowser(f"no chromium found, and apt-get {arguments[0]} failed")
    path = _known()
    if path is None:
        raise NoBrowser("apt-get installed chromium, but the program is not on the path")
    return path


class Browser:
    """One running Chromium and its connection."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._context: dict[str, Any] = {}

    @classmethod
    @asynccontextmanager
    async def launch(cls) -> AsyncIterator[Self]:
        """A browser that knows nothing yet, and forgets all at the end: a context of its own within
        the Chromium of this process, whose start takes seconds. Raises ``NoBrowser``.
        """
        address = await asyncio.to_thread(_running)
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(address, max_msg_size=0) as connection,
        ):
            browser = cls(connection)
            reader = asyncio.create_task(browser._read())
            try:
                browser._context = await browser.send("Target.createBrowserContext")
                yield browser
            finally:
                await browser.send("Target.disposeBrowserContext", browser._context)
                await connection.close()
                await reader

    async def page(self, width: int = 1280, height: int = 800, dark: bool = False) -> "Page":
        """A new page of that size, in CSS pixels."""
        target = await self.send("Target.createTarget", {"url": "about:blank", **self._context})
        attached = await self.send(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await page.send(f"{domain}.enable")
        await page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await page.send("Emulation.setEmulatedMedia", {"features": [scheme]})
        return page

    async def send(
        self, method: str, parameters: dict[str, Any] | None = None, session: str = ""
    ) -> dict[str, Any]:
        """One command and its result; ``AssertionError`` with the browser's words when it refuses."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._connection.send_json({**message, "sessionId": session} if session else message)
        content = await asyncio.wait_for(answer, PATIENCE)
        assert "error" not in content, f"{method}: {content.get('error')}"
        result: dict[str, Any] = content.get("result", {})
        return result

    async def _read(self) -> None:
        async for message in self._connection:
            content = json.loads(message.data)
            if "id" in content:
                answer = self._waiting.pop(content["id"])
                if not answer.done():
                    answer.set_result(content)
            elif page := self._pages.get(content.get("sessionId", "")):
                page.happened(content["method"], content["params"])
        for answer in self._waiting.values():
            answer.set_result({})


class Page:
    """One page (tab) of the browser, or with ``frame`` one frame of it.

    Selectors are CSS selectors.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._contexts: dict[int, str] = {}  # execution context -> address of its frame's origin
        #: errors and warnings of the page's console, uncaught faults included
        self.problems: list[str] = []

    async def send(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """One command for this page."""
        return await self._browser.send(method, parameters, self._session)

    def happened(self, event: str, content: dict[str, Any]) -> None:
        """Take note of an event that the browser reports."""
        if event == "Runtime.consoleAPICalled" and content["type"] in {
            "error",
            "warning",
            "assert",
        }:
            self.problems.append(
                " ".join(
                    str(part.get("value", part.get("description"))) for part in content["args"]
                )
            )
        elif event == "Runtime.exceptionThrown":
            details = content["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and content["entry"]["level"] in {"error", "warning"}:
            self.problems.append(f"{content['entry']['text']} {content['entry'].get('url', '')}")
        elif event == "Runtime.executionContextCreated":
            self._contexts[content["context"]["id"]] = content["context"]["origin"]
        elif event == "Runtime.executionContextDestroyed":
            self._contexts.pop(content["executionContextId"], None)
        elif event == "Runtime.executionContextsCleared":
            self._contexts.clear()

    async def resize(self, width: int, height: int) -> None:
        """Another size of the page, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", metrics)

    async def goto(self, address: str) -> None:
        """Load an address and wait until it is there."""
        result = await self.send("Page.navigate", {"url": address})
        assert "errorText" not in result, f"{address}: {result.get('errorText')}"
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def evaluate(self, script: str, origin: str = "") -> Any:
        """The value of a JavaScript expression (awaited), in the page or in its frame of that
        origin.
        """
        where = {}
        if origin:
            found = [number for number, address in self._contexts.items() if address == origin]
            assert found, f"no frame of {origin}"
            where = {"contextId": found[-1]}
        command = {"expression": script, "returnByValue": True, "awaitPromise": True, **where}
        result = await self.send("Runtime.evaluate", command)
        assert "exceptionDetails" not in result, f"{script}: {result.get('exceptionDetails')}"
        return result.get("result", {}).get("value")

    async def until(self, script: str, origin: str = "") -> None:
        """Wait until the expression is true; ``AssertionError`` with the page's text when it does
        not become so.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self._holds(script, origin):  # noqa: ASYNC110  # the page is another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(
                f"never true: {script}\nThe page says:\n{text}\n{self.problems}"
            ) from None

    async def _holds(self, script: str, origin: str) -> bool:
        try:
            return bool(await self.evaluate(f"!!({script})", origin))
        except AssertionError:
            return False  # the page is between two documents

    async def click(self, selector: str, origin: str = "") -> None:
        """Press the middle of an element with the pointer; it must be visible and nothing may cover
        it.
        """
        spot = json.dumps(selector)
        await self.until(f"!!document.querySelector({spot})", origin)
        place = await self.evaluate(
            f"""(() => {{
                const element = document.querySelector({spot});
                element.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const top = document.elementFromPoint(x, y);
                return top && (element.contains(top) || top.contains(element)) ? [x, y] : null;
            }})()""",
            origin,
        )
        assert place, f"{selector} cannot be clicked: it is hidden or covered"
        if origin:
            frame = (
                "(() => { const box = document.querySelector('iframe').getBoundingClientRect(); "
                "return [box.x, box.y]; })()"
            )
            place = [
                one + other for one, other in zip(place, await self.evaluate(frame), strict=True)
            ]
        for kind in ("mousePressed", "mouseReleased"):
            button = {"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1}
            await self.send("Input.dispatchMouseEvent", button)

    async def fill(self, selector: str, text: str, origin: str = "") -> None:
        """Type a text into a field, in place of what is there."""
        spot = json.dumps(selector)
        await self.until(f"!!document.querySelector({spot})", origin)
        kind = await self.evaluate(
            f"(() => {{ const field = document.querySelector({spot}); field.focus(); "
            "field.select(); return field.type; })()",
            origin,
        )
        if kind != "date":
            await self.send("Input.insertText", {"text": text})
            return
        # The parts of a date field are typed in the order of the machine's locale; its value is
        # not.
        await self.evaluate(
            f"""(() => {{
                const field = document.querySelector({spot});
                field.value = {json.dumps(text)};
                field.dispatchEvent(new Event("input", {{bubbles: true}}));
            }})()""",
            origin,
        )

    async def press(self, key: str, code: int) -> None:
        """Press and release a key, such as ``Tab`` (9), ``Enter`` (13), ``Escape`` (27)."""
        text = {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", {"type": "keyDown", **common, **text})
        await self.send("Input.dispatchKeyEvent", {"type": "keyUp", **common})

    async def text(self, selector: str = "body", origin: str = "") -> str:
        """What a person can read in an element."""
        return str(
            await self.evaluate(
                f"document.querySelector({json.dumps(selector)})?.innerText ?? ''", origin
            )
        )

    async def too_wide(self) -> list[str]:
        """Elements that reach beyond the page's width, as they are written; empty when nothing
        makes it scroll sideways.
        """
        script = """[...document.querySelectorAll("body *")].filter((element) => {
            const box = element.getBoundingClientRect();
            return box.width > 0 && box.right > innerWidth + 0.5 && !element.closest("pre, .skip, .unseen");
        }).map((element) => element.outerHTML.slice(0, 80)).concat(
            document.documentElement.scrollWidth > innerWidth ? ["the document"] : [])"""
        return list(await self.evaluate(script))

    async def screenshot(self, path: Path, whole: bool = False) -> None:
        """Save what the page looks like as PNG; ``whole`` takes what one would have to scroll to as
        well.
        """
        shot = await self.send(
            "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole}
        )
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


_STARTED: list[tuple[subprocess.Popen[bytes], str]] = []  #: by this process, the last one last


def _running() -> str:
    """The address of the Chromium of this process of tests, which ends with it."""
    if not _STARTED or _STARTED[-1][0].poll() is not None:
        program = find_chromium()
        folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (folder.cleanup, process.wait, process.terminate):
            atexit.register(end)  # the last one first
        _STARTED.append((process, _address(process, Path(folder.name, "DevToolsActivePort"))))
    return _STARTED[-1][1]


def _address(process: subprocess.Popen[bytes], file: Path) -> str:
    for _ in range(1200):
        if process.poll() is not None:
            raise NoBrowser(f"chromium ended at once with status {process.returncode}")
        lines = file.read_text().split() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise NoBrowser("chromium did not start within 60 seconds")

"""Takes the picture of the README anew: ``python -m tests.browser.picture`` in the outermost folder
of the project.

The demo with its invented people, as a browser shows it when both sides are there. Not part of any
test run: the picture changes only when the pages do.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from proxy.demo.store import PEOPLE
from tests.support.browser import Browser
from tests.support.demo import demo
from tests.support.tree import ROOT

TARGET = ROOT / "docs" / "two-views.png"
WIDTH, HEIGHT = 1280, 900


async def take(target: Path) -> None:
    """Save the two-view page, connected and at rest, as PNG."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            demo(Path(folder, "clone")) as running,
            Browser.launch() as browser,
        ):
            page = await browser.page(WIDTH, HEIGHT)
            await page.goto(running.page)
            await page.until("document.querySelector('#live').innerText === 'live'")
            await page.until(
                f"document.querySelectorAll('#stored-list article').length === {len(PEOPLE)}"
            )
            await page.until(
                f"document.querySelectorAll('.card').length === {len(PEOPLE)}", running.proxy
            )
            await asyncio.sleep(2)  # colours fade in
            await page.screenshot(target)
            await running.interrupted()


if __name__ == "__main__":
    asyncio.run(take(TARGET))
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size} bytes\n")

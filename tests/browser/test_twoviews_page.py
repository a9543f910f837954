from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from proxy.demo.contacts import STORE
from proxy.demo.store import PEOPLE, plant
from proxy.demo.two_views import Links, twoviews_app
from tests.browser.conftest import NAME, TOKEN
from tests.support.browser import Browser
from tests.support.serving import serving

RIGHT = "document.querySelector('#stored-list')"


@pytest.fixture
async def twoviews(application: web.Application, direct: str, swapping: str) -> AsyncIterator[str]:
    """Address of the page, with the stand-in in place of the proxy."""
    links = Links(
        swapping, direct, "http://127.0.0.1:9", "http://127.0.0.1:9", "rules/contacts.yaml"
    )
    async with serving(twoviews_app(links, application[STORE])) as address:
        yield address


async def test_what_is_typed_on_the_left_is_a_token_on_the_right(
    browser: Browser, twoviews: str, swapping: str, tmp_path: Path
) -> None:
    page = await browser.page()
    await page.goto(twoviews)
    await page.until(f"{RIGHT}.innerText.includes('stores nobody yet')")
    await page.until("document.querySelector('#live').innerText === 'live'")
    await page.until("!!document.querySelector('#new')", swapping)

    await page.click("#new", swapping)
    for field, value in {"first_name": NAME, "last_name": "Berg", "email": "b@example.com"}.items():
        await page.fill(f"#{field}", value, swapping)
    await page.click("#new-dialog button[type=submit]", swapping)
    await page.until(f"{RIGHT}.querySelector('mark')?.innerText === '{TOKEN}'")
    await page.until("document.querySelectorAll('.card').length === 1", swapping)
    assert f"{NAME} Berg" in await page.text(".card", swapping)
    assert NAME not in await page.text("#stored-list")
    assert await page.evaluate(
        f"[...{RIGHT}.querySelectorAll('.plain')].map((e) => e.innerText)"
    ) == [
        "Berg",
        "b@example.com",
        "false",
    ]
    assert await page.text("#share") == "1 of 4 values are tokens"
    # pytest keeps the last runs' folders: something to look at
    await page.screenshot(tmp_path / "twoviews.png")
    assert (tmp_path / "twoviews.png").stat().st_size > 10_000
    assert NAME not in (tmp_path / "contacts.json").read_text("utf-8")

    await page.click(".card .delete", swapping)
    await page.click("#delete-form button[type=submit]", swapping)
    await page.until(f"{RIGHT}.innerText.includes('stores nobody yet')")
    assert page.problems == []


async def test_the_right_side_follows_whoever_makes_the_change(
    browser: Browser, twoviews: str, direct: str
) -> None:
    page = await browser.page()
    await page.goto(twoviews)
    await page.until("document.querySelector('#live').innerText === 'live'")
    await plant(direct)
    await page.until(f"{RIGHT}.children.length === {len(PEOPLE)}")
    await page.evaluate(f"{RIGHT}.children[1].id = 'untouched'")
    async with (
        aiohttp.ClientSession() as client,
        client.patch(f"{direct}/api/contacts/1", json={"first_name": TOKEN}),
    ):
        pass
    await page.until(f"{RIGHT}.querySelector('mark')?.innerText === '{TOKEN}'")
    # what did not change is not drawn again
    assert await page.evaluate(f"{RIGHT}.children[1].id") == "untouched"
    async with aiohttp.ClientSession() as client, client.delete(f"{direct}/api/contacts/3"):
        pass
    await page.until(f"{RIGHT}.children.length === {len(PEOPLE) - 1}")
    assert page.problems == []


async def test_a_silent_proxy_is_told_in_words(
    browser: Browser, application: web.Application, direct: str
) -> None:
    await plant(direct)
    links = Links(
        "http://127.0.0.1:1",
        direct,
        "http://127.0.0.1:9",
        "http://127.0.0.1:9",
        "rules/contacts.yaml",
    )
    async with serving(twoviews_app(links, application[STORE])) as address:
        page = await browser.page()
        await page.goto(address)
        await page.until("!document.querySelector('#warning').hidden")
        assert await page.text("#share") == ""
        assert await page.evaluate(f"{RIGHT}.children.length") == len(PEOPLE)


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("dark", [False, True])
async def test_it_fits_desks_and_telephones_in_light_and_dark(
    browser: Browser, twoviews: str, direct: str, size: tuple[int, int], dark: bool
) -> None:
    await plant(direct)
    long = {"first_name": "W" * 150, "last_name": TOKEN * 15, "tags": ["z" * 150]}
    async with aiohttp.ClientSession() as client, client.post(f"{direct}/api/contacts", json=long):
        pass
    page = await browser.page(*size, dark=dark)
    await page.goto(twoviews)
    await page.until(f"{RIGHT}.children.length === {len(PEOPLE) + 1}")
    assert await page.too_wide() == []
    page_colour, text_colour = await page.evaluate(
        "((style) => [style.backgroundColor, style.color].map((text) => "
        "text.match(/\\d+/g).reduce((a, b) => a + +b, 0)))"
        "(getComputedStyle(document.body))"
    )
    assert (page_colour < text_colour) is dark
    beside = await page.evaluate(
        "document.querySelector('.pane').getBoundingClientRect().right < "
        "document.querySelector('.stored').getBoundingClientRect().left"
    )
    assert beside is (size[0] > 900)
    assert page.problems == []
